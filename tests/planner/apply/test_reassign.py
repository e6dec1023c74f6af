"""A reassignment is waited for as long as it goes on, whether or not the cluster answers all the while."""

from dataclasses import dataclass, field

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import PartitionMetadata, TopicMetadata

from planner.apply.context import ApplyContext, RequestGuard
from planner.apply.handlers.topics import await_moved, moving
from planner.kafka import ClusterEndpoint
from planner.model.address import topic_address
from planner.model.step import DONE, Result, Step
from planner.plan.steps.topics import Reassign
from tests.planner.apply.test_steps import Notebook

TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))
STEP = Reassign("r", topic_address("dc1", "t"), "dc1", "t", ((1, 2), (2, 1)), ((1,), (2,)))

Shown = list[tuple[list[int], list[int]]]  # replicas and those in sync, of each partition
MOVED: Shown = [([1, 2], [2, 1]), ([2, 1], [1, 2])]
UNDER_WAY: Shown = [([1, 2], [1]), ([2, 1], [1, 2])]


def topic(shown: Shown) -> TopicMetadata:
    known = TopicMetadata()
    for number, (replicas, isrs) in enumerate(shown):
        known.partitions[number] = PartitionMetadata()
        known.partitions[number].replicas, known.partitions[number].isrs = replicas, isrs
    return known


@dataclass
class Cluster:
    """Answers from a script, the last line again and again."""

    script: list[Shown | KafkaException]

    def list_topics(self, _only: str | None, timeout: float) -> "Cluster":
        line = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(line, KafkaException):
            raise line
        self.topics = {"t": topic(line)}
        return self


@dataclass
class Listener:
    said: list[str] = field(default_factory=list)

    def hear(self, _step: Step, what: str) -> None:
        self.said.append(what)


def context(*script: Shown | KafkaException, stop_reason: str | None = None) -> tuple[ApplyContext, Listener]:
    listener = Listener()
    made = ApplyContext(
        ClusterEndpoint("dc1", "127.0.0.1:1"),
        Notebook(),
        RequestGuard(lambda: stop_reason),
        "",
        lambda: 0,
        on_wait=listener.hear,
    )
    made.client = Cluster(list(script))  # type: ignore[assignment]  # all that waiting asks of a client
    return made, listener


def test_an_answer_that_does_not_come_ends_nothing() -> None:
    made, listener = context(UNDER_WAY, TIMED_OUT, UNDER_WAY, MOVED)

    assert await_moved(made, [STEP]) == {"r": DONE}
    assert any("dc1 does not answer" in said and "TIMED_OUT" in said for said in listener.said)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (UNDER_WAY, "the replicas of 1 of 2 partitions are still moving (0), after 0 s"),
        (TIMED_OUT, "the replicas may still be moving, and dc1 does not answer"),
    ],
)
def test_at_the_deadline_it_says_what_is_left(line: Shown | KafkaException, why: str) -> None:
    made, _ = context(line)

    verdict = await_moved(made, [STEP], within_s=0.0)["r"]

    assert verdict.result is Result.FAILED
    assert why in verdict.why
    assert "the brokers continue" in verdict.why


def test_it_is_not_waited_for_without_the_lease() -> None:
    made, _ = context(TIMED_OUT, stop_reason="the lease is lost")

    assert await_moved(made, [STEP])["r"].why.endswith("the brokers continue: the lease is lost")


@pytest.mark.parametrize(
    ("shown", "left"),
    [(MOVED, []), (UNDER_WAY, [0]), ([([1, 2], [1, 2])], [1]), ([([1, 2, 3], [1, 2, 3]), MOVED[1]], [0])],
)
def test_a_partition_has_moved_when_the_wanted_replicas_are_in_sync(shown: Shown, left: list[int]) -> None:
    assert moving(STEP, topic(shown)) == left
