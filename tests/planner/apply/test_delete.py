"""A delete is sent again until its answer arrives, and never deletes another topic of the same name."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from planner.apply.context import ApplyContext, RequestGuard, has_leaders, is_gone, wait_until_visible
from planner.apply.handlers.topics import delete
from planner.kafka import ClusterEndpoint, run
from planner.kafka.client import BrokerConnections
from planner.kafka.failures import Closed
from planner.kafka.topics import topic_id_of, topic_id_text
from planner.model.address import topic_address
from planner.model.step import DONE, Result, StepResult
from planner.plan.steps.topics import DeleteTopic
from runtime.contract.spec.naming import NO_TOPIC_ID
from runtime.kafka.errors import ErrorCode, Refusal
from runtime.kafka.protocol.changes import DeleteTopicsRequest, RefusedTopics
from runtime.kafka.protocol.metadata import (
    AnyMetadataRequest,
    Broker,
    MetadataResponse,
    Partition,
    TopicMetadata,
)
from tests.planner.apply.handling import context, no_registry

PLANNED, ANOTHER = b"p" * 16, b"a" * 16
DELETED = "orders"


@dataclass
class BrokerOf:
    """A connection to the one broker of a cluster."""

    cluster: "Cluster"
    closed: bool = False

    def set_timeout(self, _seconds: float) -> None: ...

    def close(self) -> None: ...

    async def call(self, request: AnyMetadataRequest) -> MetadataResponse:
        return await self.cluster.ask(request)


@dataclass
class Cluster:
    """Deletes topics by id, or by name in versions before 6. A broken answer comes after the delete.

    A producer creates a topic again as soon as it is deleted, where `creates_again` says so.
    """

    topics: dict[str, bytes]
    version: int = 6
    breaks: int = 0
    creates_again: bool = False
    reachable: bool = True
    sent: list[Sequence[str]] = field(default_factory=list)
    reads: int = 0

    async def ask(self, request: AnyMetadataRequest) -> MetadataResponse:
        self.reads += 1
        shown = (
            TopicMetadata(name, self.topics[name], ErrorCode.NONE, False, {0: Partition(0, 1, 0, (1,), (1,))})
            for name in request.names or ()
            if name in self.topics
        )
        return MetadataResponse((Broker(1, "dc1", 1),), "id", 1, tuple(shown))

    async def ask_controller(self, request: DeleteTopicsRequest) -> RefusedTopics:
        self.sent.append(list(request.topics))
        refusals = {name: self._delete(name, topic_id) for name, topic_id in request.topics.items()}
        if self.breaks:
            self.breaks -= 1
            raise Closed("dc1:1 closed it")
        return {name: refusal for name, refusal in refusals.items() if refusal is not None}

    def _delete(self, name: str, topic_id: bytes) -> Refusal | None:
        if self.version >= 6 and topic_id not in (NO_TOPIC_ID, self.topics.get(name)):
            return Refusal(ErrorCode.UNKNOWN_TOPIC_ID, None)
        if self.topics.pop(name, None) is None:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        if self.creates_again:
            self.topics[name] = ANOTHER
        return None

    def forget_controller(self) -> None: ...

    async def dial_each(self, *_: object) -> Any:
        return BrokerConnections({1: BrokerOf(self)} if self.reachable else {})  # type: ignore[dict-item]  # all that is asked of it


def deleted(
    cluster: Cluster,
    planned: bytes = PLANNED,
    stop_reason: Callable[[], Awaitable[str | None]] | None = None,
) -> StepResult:
    made: ApplyContext = context(ClusterEndpoint("dc1", "127.0.0.1:1"), no_registry)
    if stop_reason is not None:
        made.guard = RequestGuard(stop_reason)
    made.client = cluster  # type: ignore[assignment]  # all that a delete asks of a client
    step = DeleteTopic("delete", topic_address("dc1", DELETED), "dc1", DELETED, topic_id_text(planned))
    return run(delete(made, [step]))["delete"]


def test_a_delete_whose_answer_was_lost_is_done_once_the_topic_is_gone() -> None:
    cluster = Cluster({DELETED: PLANNED}, breaks=1)
    assert deleted(cluster) == DONE
    assert cluster.sent == [[DELETED]]


@pytest.mark.parametrize("version", [5, 6])
def test_a_topic_that_was_created_meanwhile_is_not_deleted(version: int) -> None:
    cluster = Cluster({DELETED: PLANNED}, version, breaks=1, creates_again=True)
    ended = deleted(cluster)
    assert (ended.result, cluster.topics) == (Result.FAILED, {DELETED: ANOTHER})
    assert ended.why == (
        f"another topic has this name now: id {topic_id_text(ANOTHER)}, planned {topic_id_text(PLANNED)}; "
        "plan again"
    )


def test_a_topic_that_was_created_after_the_answer_is_not_waited_for() -> None:
    assert deleted(Cluster({DELETED: PLANNED}, creates_again=True)) == DONE


def test_a_topic_without_an_id_is_deleted_by_its_name() -> None:
    cluster = Cluster({DELETED: NO_TOPIC_ID}, version=5)
    assert deleted(cluster, NO_TOPIC_ID) == DONE
    assert cluster.topics == {}


def test_nothing_is_deleted_where_the_lease_ended_while_the_ids_were_read() -> None:
    cluster = Cluster({DELETED: PLANNED})

    async def lost_once_read() -> str | None:
        return "the lease is lost" if cluster.reads else None

    ended = deleted(cluster, stop_reason=lost_once_read)
    assert (ended, cluster.sent) == (StepResult(Result.NOT_STARTED, "the lease is lost"), [])


def test_nothing_is_visible_where_no_broker_can_be_reached() -> None:
    applying = context(ClusterEndpoint("dc1", "127.0.0.1:1"), no_registry, "interrupted")
    applying.client = Cluster({}, reachable=False)  # type: ignore[assignment]  # all that it uses
    visible = run(wait_until_visible(applying, [DELETED], has_leaders({DELETED: 1})))
    assert visible == {DELETED: "no broker answers"}


@pytest.mark.parametrize(("shown", "gone"), [(None, True), (ANOTHER, True), (PLANNED, False)])
def test_a_topic_is_gone_when_no_broker_shows_its_id(shown: bytes | None, gone: bool) -> None:
    topic = None if shown is None else TopicMetadata(DELETED, shown, ErrorCode.NONE, False, {})
    assert is_gone({DELETED: topic_id_text(PLANNED)})(DELETED, topic) is gone


@pytest.mark.parametrize("topic_id", [NO_TOPIC_ID, PLANNED, bytes(range(240, 256))])
def test_an_id_is_read_as_it_is_shown(topic_id: bytes) -> None:
    assert topic_id_of(topic_id_text(topic_id)) == topic_id
