"""Move replicas to the brokers that the plan chose, and wait until they are in sync there."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from planner.apply.hands import Hands
from planner.kafka import RawFailure, raw_admin
from planner.model.outcome import DONE, Result, Verdict, failed
from planner.model.step import Reassign


class _Partition(NamedTuple):
    topic: str
    partition: int


MOVE_SECONDS = 3_600.0
_PAUSE = 0.5


def perform(hands: Hands, steps: Sequence[Reassign]) -> dict[str, Verdict]:
    """Asking twice for the same replicas is no error, so a lost answer needs no judgement."""
    if (barred := hands.guard.before_request()) is not None:
        return {step.id: Verdict(Result.NOT_STARTED, barred) for step in steps}
    wanted = {
        _Partition(step.topic, partition): list(replicas)
        for step in steps
        for partition, replicas in enumerate(step.replicas)
    }
    try:
        with raw_admin(hands.endpoint) as client:
            client.alter_partition_reassignments(wanted)
    except RawFailure as failure:
        return {step.id: failed(str(failure)) for step in steps}
    return {step.id: _await_moved(hands, step) for step in steps}


def _await_moved(hands: Hands, step: Reassign) -> Verdict:
    deadline = time.monotonic() + MOVE_SECONDS
    while time.monotonic() < deadline:
        known = hands.client.list_topics(step.topic, timeout=30).topics[step.topic].partitions
        moved = [
            set(known[index].replicas) == set(wanted) and set(known[index].isrs) >= set(wanted)
            for index, wanted in enumerate(step.replicas)
            if index in known
        ]
        if len(moved) == len(step.replicas) and all(moved):
            return DONE
        if (barred := hands.guard.barred()) is not None:
            return failed(f"the replicas are still moving, the brokers go on with it: {barred}")
        time.sleep(_PAUSE)
    return failed(f"the replicas are still moving after {MOVE_SECONDS:.0f} s; the brokers go on with it")
