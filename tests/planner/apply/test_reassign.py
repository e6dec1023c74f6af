"""A reassignment is waited for as long as it goes on, whether or not the cluster answers all the while."""

from dataclasses import dataclass, field

import pytest

from planner.apply.context import ApplyContext
from planner.apply.handlers.topics import await_moved, moving
from planner.kafka import ClusterEndpoint, ClusterFailure, run
from planner.kafka.failures import NoAnswer
from planner.model.address import topic_address
from planner.model.step import DONE, Result, Step
from planner.plan.steps.topics import Reassign
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.metadata import AnyMetadataRequest, MetadataResponse, Partition, TopicMetadata
from tests.planner.apply.handling import context, no_registry

SILENT = NoAnswer("dc1:1 has not answered for 5 s")
STEP = Reassign("r", topic_address("dc1", "t"), "dc1", "t", ((1, 2), (2, 1)), ((1,), (2,)))

Shown = list[tuple[list[int], list[int]]]  # replicas and those in sync, of each partition
MOVED: Shown = [([1, 2], [2, 1]), ([2, 1], [1, 2])]
UNDER_WAY: Shown = [([1, 2], [1]), ([2, 1], [1, 2])]


def topic(shown: Shown) -> TopicMetadata:
    partitions = {
        number: Partition(number, 1, 0, tuple(replicas), tuple(in_sync))
        for number, (replicas, in_sync) in enumerate(shown)
    }
    return TopicMetadata("t", b"", ErrorCode.NONE, False, partitions)


@dataclass
class Cluster:
    """Answers from a script, the last line again and again."""

    script: list[Shown | ClusterFailure]

    async def ask(self, _request: AnyMetadataRequest) -> MetadataResponse:
        line = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(line, ClusterFailure):
            raise line
        return MetadataResponse((), "id", 1, (topic(line),))


@dataclass
class Listener:
    said: list[str] = field(default_factory=list)

    def hear(self, _step: Step, what: str) -> None:
        self.said.append(what)


def waiting(*script: Shown | ClusterFailure, stop_reason: str | None = None) -> tuple[ApplyContext, Listener]:
    listener = Listener()
    made = context(ClusterEndpoint("dc1", "127.0.0.1:1"), no_registry, stop_reason, on_wait=listener.hear)
    made.client = Cluster(list(script))  # type: ignore[assignment]  # all that waiting asks of a client
    return made, listener


def test_an_answer_that_does_not_come_ends_nothing() -> None:
    made, listener = waiting(UNDER_WAY, SILENT, UNDER_WAY, MOVED)

    assert run(await_moved(made, [STEP])) == {"r": DONE}
    assert any("dc1 does not answer" in said and "has not answered" in said for said in listener.said)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (UNDER_WAY, "the replicas of 1 of 2 partitions are still moving (0), after 0 s"),
        (SILENT, "the replicas may still be moving, and dc1 does not answer"),
    ],
)
def test_at_the_deadline_it_says_what_is_left(line: Shown | ClusterFailure, why: str) -> None:
    made, _ = waiting(line)

    verdict = run(await_moved(made, [STEP], within_s=0.0))["r"]

    assert verdict.result is Result.FAILED
    assert why in verdict.why
    assert "the brokers continue" in verdict.why


def test_it_is_not_waited_for_without_the_lease() -> None:
    made, _ = waiting(SILENT, stop_reason="the lease is lost")

    assert run(await_moved(made, [STEP]))["r"].why.endswith("the brokers continue: the lease is lost")


@pytest.mark.parametrize(
    ("shown", "left"),
    [(MOVED, []), (UNDER_WAY, [0]), ([([1, 2], [1, 2])], [1]), ([([1, 2, 3], [1, 2, 3]), MOVED[1]], [0])],
)
def test_a_partition_has_moved_when_the_wanted_replicas_are_in_sync(shown: Shown, left: list[int]) -> None:
    assert moving(STEP, topic(shown)) == left
