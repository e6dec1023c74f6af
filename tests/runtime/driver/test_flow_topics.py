"""Which topics and partitions a flow copies: what it finds at both sides, and where they start."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from runtime.contract.records.job_status import FlowStats
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    LedgerKey,
    LedgerValue,
    PartitionKey,
    ProgressKey,
)
from runtime.contract.records.manifest import FilePosition, OffsetGap
from runtime.contract.spec import naming
from runtime.contract.spec.flow import Latest
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.rename import Table
from runtime.contract.spec.route import router_of
from runtime.contract.spec.selection import SelectionSpec
from runtime.contract.spec.topic_settings import MirrorRule, TopicSettings
from runtime.driver.flows.failback import read_opposite
from runtime.driver.flows.files_sink import counted, progress_of, spread
from runtime.driver.flows.files_source import shown_files
from runtime.driver.flows.rounds import Look, SourceRange
from runtime.driver.flows.start import group_by_start, initial_topics, selection
from runtime.driver.flows.topic_source import SourcePartition, TopicSource, plan_round
from runtime.driver.topics.mirrors import MirrorTopic, MirrorTopicManager, discover, selected_topics
from runtime.files.export import ExportPartition
from runtime.kafka.errors import BrokerError
from runtime.kafka.protocol.changes import BROKERS_DEFAULT, NewTopic
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.protocol.offsets import LATEST
from runtime.kafka.records import InternalRecord
from tests.fakes.internal_topics import InternalTopics, stored
from tests.fakes.progress import progress
from tests.runtime.slot.world import assigned, flow_spec

A = MirrorTopic("a", "a", 2, "create")


@pytest.mark.parametrize(
    ("destination", "copied", "create", "grow"),
    [
        ({}, (), {"a", "b"}, set()),
        ({"a": 2, "b": 2}, (), set(), set()),
        ({"a": 1, "b": 9}, ("a",), set(), {"a"}),
        # A mirror that was copied into and is gone is not silently created again (R4).
        ({"b": 2}, ("a", "b"), set(), set()),
    ],
)
def test_mirrors_are_created_and_grow(
    destination: dict[str, int], copied: tuple[str, ...], create: set[str], grow: set[str]
) -> None:
    mirrors, _ = discover({"a": "a", "b": "b"}, {"a": 2, "b": 2}, destination, copied)
    assert {one.topic for one in mirrors if one.change == "create"} == create
    assert {one.topic for one in mirrors if one.change == "grow"} == grow
    assert {one.topic for one in mirrors} == {"a", "b"}


def test_a_mirror_is_created_again_where_losses_are_accepted_and_names_are_not_mixed() -> None:
    assert discover({"a": "a"}, {"a": 2}, {}, {"a"}, replace_lost=True) == ([A], [])
    _, (note,) = discover({"a": "a"}, {"a": 2}, {}, {"a"})
    assert "not created again" in note
    mirrors, notes = discover({"a-x": "x", "b-x": "x"}, {"a-x": 1, "b-x": 1}, {}, ())
    assert mirrors == [MirrorTopic("a-x", "x", 1, "create")]
    assert notes == ["b-x is not copied: a-x has the name x at the destination"]


def test_what_no_cluster_of_kafka_takes_is_left_out() -> None:
    long = {"a": "a", "x" * 240: f"dc1.eu.west.{'x' * 240}"}
    mirrors, (note,) = discover(long, dict.fromkeys(long, 1), {}, ())
    assert mirrors == [MirrorTopic("a", "a", 1, "create")]
    assert note.startswith(f"{'x' * 240} is not copied: a topic's name has at most 249")

    many = {"a": 10_000, "b": 10_001, "c": 10_001}
    mirrors, notes = discover({name: name for name in many}, many, {"c": 3}, ())
    assert mirrors == [MirrorTopic("a", "a", 10_000, "create"), MirrorTopic("c", "c", 3)]
    assert notes[0].startswith("b is not copied: it has 10,001 partitions at the source")
    assert notes[1].startswith("c does not grow: ")


def test_a_topic_that_appears_later_takes_no_mirror_from_one_that_is_copied() -> None:
    """Whoever may create topics at the source could write into any mirror otherwise."""
    mirrors, notes = discover({"a-x": "x", "b-x": "x"}, {"a-x": 1, "b-x": 1}, {"x": 1}, {"b-x"})
    assert [one.topic for one in mirrors] == ["b-x"]
    assert notes == ["a-x is not copied: b-x has the name x at the destination"]


def job(flow: FlowSpec) -> JobSpec:
    return JobSpec(job="j", topology="t", destination="dc2", clusters={}, flows=[flow])


def test_promoted_topics_are_left_once_they_are_drained() -> None:
    flow = flow_spec("f", promoted=["pay.*"])
    router, topics = router_of(job(flow)), ["orders", "payments", "payroll"]
    assert selected_topics(flow, router, topics) == {"orders": "orders"}
    assert selected_topics(flow, router, topics, {"payroll"}) == {"orders": "orders", "payroll": "payroll"}


# Which topics a flow's `start` is meant for

FLOW = replace(flow_spec("main", start=Latest()), topics=SelectionSpec(include=("a.*",)))
NEVER = Generation(1, "job", "active", "driver", [], "c1", "c2", 0)
BEGUN = replace(NEVER, begun=selection(FLOW), awaited=["a2", "a3"])
WIDER = replace(FLOW, topics=SelectionSpec(include=("a.*", "b")))


@pytest.mark.parametrize(
    ("flow", "generation", "listed", "known", "initial"),
    [
        (FLOW, NEVER, {"a1", "a2"}, {"a1"}, {"a2"}),
        (FLOW, None, {"a1", "a2"}, set(), {"a1", "a2"}),
        (FLOW, BEGUN, {"a1", "a2", "a3", "a4"}, {"a1", "a3"}, {"a2"}),  # what is awaited still
        (WIDER, BEGUN, {"a1", "a4", "b"}, {"a1"}, {"a4", "b"}),  # another selection begins anew
    ],
)
def test_the_start_is_meant_for(
    flow: FlowSpec, generation: Generation | None, listed: set[str], known: set[str], initial: set[str]
) -> None:
    assert initial_topics(flow, generation, listed, known) == initial


def test_only_keys_that_decide_about_topics_make_another_selection() -> None:
    assert selection(replace(FLOW, state="paused", rpo_ms=9)) == selection(FLOW)
    assert selection(replace(FLOW, source="dc3")) != selection(FLOW)
    tables = [Table(names={"a": "x", "b": "y"}), Table(names={"b": "y", "a": "x"})]
    assert len({selection(replace(FLOW, rename=one)) for one in tables}) == 1


def test_a_partition_that_was_added_starts_at_0_though_its_topic_began_at_the_start() -> None:
    new = [assigned("main", "a1", 2)[1], *assigned("main", "a2"), *assigned("main", "a4")]
    found = group_by_start(FLOW, {"a1", "a2"}, new, [PartitionKey("main", "a1", 0)])
    assert [(start, [one.topic for one in some]) for start, some in found] == [
        (Latest(), []),
        (Latest(), ["a2"]),
        (None, ["a1", "a4"]),
    ]


def test_a_failback_decodes_each_partition_of_its_opposite_once() -> None:
    """Decoding all of them for each one took minutes for ten thousand partitions."""
    ended = Generation(3, "job", "promoted", "driver", [], "dc1", "dc2", 1)
    ledger: dict[LedgerKey, LedgerValue] = {GenerationKey("there"): ended}
    for number in range(2_000):
        ledger[ProgressKey(PartitionKey("there", "orders", number))] = progress(number, number)
    source: Any = InternalTopics({naming.LEDGER: stored(ledger)})
    back = flow_spec("back", source="dc2", destination="dc1", reverse_of="there")
    began = time.process_time()
    found = asyncio.run(read_opposite(back, "there", source))
    assert time.process_time() - began < 5
    assert found.generation is not None
    assert found.generation.ended
    assert {key.partition: one.position for key, one in found.progress.items()} == {
        number: number for number in range(2_000)
    }
    assert len(found.maps) == len(found.topics) == 2_000


def test_a_failback_waits_for_the_marker_of_the_orphans_that_were_just_marked() -> None:
    """That transaction may hold the first progress of a partition, which was never copied (R5)."""
    ended = Generation(3, "job", "promoted", "driver", [], "dc1", "dc2", 1)
    first = ProgressKey(PartitionKey("there", "orders", 0))
    records = stored({first: progress(0, 0), GenerationKey("there"): ended})
    source: Any = InternalTopics({naming.LEDGER: records}, committing=[naming.LEDGER])
    back = flow_spec("back", source="dc2", destination="dc1", reverse_of="there")
    found = asyncio.run(read_opposite(back, "there", source))
    assert list(found.maps) == [PartitionKey("back", "orders", 0)]


# What a round of a flow into files copies, and which partitions it stops (R4)

KEY = PartitionKey("f", "orders", 0)


def at(position: int, partition: int = 0, **counts: Any) -> FilePosition:
    return FilePosition(topic="orders", topic_id="aa", partition=partition, position=position, **counts)


def copied(low: int, end: int = 9, **more: Any) -> list[ExportPartition]:
    return [ExportPartition(at(low, records=7, **more), end)] if low < end else []


LOST = OffsetGap(low=5, end=8, why="data_loss", at_ms=0)


@pytest.mark.parametrize(
    ("position", "start", "end", "accepts", "copy", "state", "moved"),
    [
        (5, 0, 9, False, copied(5), (S.COPYING, ""), []),
        (9, 0, 9, False, [], (S.CAUGHT_UP, ""), []),
        (5, -1, -1, False, [], S.RETRYING, []),  # its leader does not answer
        (5, 8, 9, False, [], (S.DATA_LOSS, "the offsets 5 to 7 are gone and were not copied"), []),
        (5, 8, 9, True, copied(8, gaps=[LOST]), S.COPYING, [(8, 7, [(5, 8, "data_loss")])]),
        (9, 0, 6, False, [], (S.DIVERGED, "the source ends at 6, 9 was copied already"), []),
        (9, 0, 6, True, [], (S.CAUGHT_UP, ""), [(6, 7, [])]),
    ],
)
def test_a_round_of_files(
    position: int, start: int, end: int, accepts: bool, copy: list[ExportPartition], state: Any, moved: Any
) -> None:
    known = at(position, records=7)
    found = [SourcePartition(KEY, b"\xaa", start, end)]
    look = Look[FilePosition](at_ms=0)
    plan_round(look, found, {KEY: known}, lambda _: accepts)
    assert look.read == copy
    shown = look.shown[KEY]
    assert (shown.state, shown.why) == state if isinstance(state, tuple) else shown.state is state
    positions = list((look.moved or {}).values())
    gaps = [[(gap.low, gap.end, gap.why) for gap in one.gaps] for one in positions if one is not None]
    assert [(one.position, one.records) for one in positions if one is not None] == [one[:2] for one in moved]
    assert [some for one, some in zip(moved, gaps, strict=True) if one[2]] == [
        one[2] for one in moved if one[2]
    ]


def topic_source(
    source: InternalTopics, spec: FlowSpec, *, begun: bool, accepted: Collection[PartitionKey] = ()
) -> TopicSource:
    async def listing(_: str) -> dict[str, TopicMetadata]:
        return await source.all_topics()

    clusters = SimpleNamespace(invalidate=lambda _: None, listing=listing)
    flow = SimpleNamespace(name="f", spec=spec, shared=SimpleNamespace(clusters=clusters), accepted=accepted)
    flow.draining = SimpleNamespace(topics=())
    sink = SimpleNamespace(begun=begun)
    return TopicSource(cast(Any, flow), router_of(job(spec)), "{topic}", cast(Any, sink))


class NewLeader(InternalTopics):
    """The first end that a leader answers is one record too low, as it may be just after an election."""

    behind = 1

    def _offset(self, topic: str, time: int) -> int:
        offset = super()._offset(topic, time)
        if time == LATEST:
            offset, self.behind = offset - self.behind, 0
        return offset


async def test_a_new_leaders_first_answer_is_no_loss() -> None:
    """An accepted loss would move the position back, and copy the offsets twice (R2)."""
    source = NewLeader({"orders": [InternalRecord(b"", b"")] * 3})
    topic_id = source.topic("orders").id.hex()
    position = FilePosition(topic="orders", topic_id=topic_id, partition=0, position=3)
    reading = topic_source(source, flow_spec("f", on_data_loss="skip"), begun=True)
    look = await reading.look(cast(Any, source), {KEY: position})
    assert (look.moved, look.shown[KEY]) == (None, SourceRange(0, 3, S.CAUGHT_UP))


async def test_a_flow_into_files_goes_on_after_a_loss_that_the_operator_accepts_at_that_partition() -> None:
    source = InternalTopics({"orders": [InternalRecord(b"", b"")] * 3})
    topic_id = source.topic("orders").id.hex()
    position = FilePosition(topic="orders", topic_id=topic_id, partition=0, position=5)
    states = []
    for accepted in ({KEY._replace(partition=1)}, {KEY}):
        reading = topic_source(source, flow_spec("f"), begun=True, accepted=accepted)
        look = await reading.look(cast(Any, source), {KEY: position})
        states.append((look.shown[KEY].state, KEY in look.continued))
    assert states == [(S.DIVERGED, False), (S.CAUGHT_UP, True)]


async def test_a_flow_into_files_begins_once_all_leaders_have_answered() -> None:
    """A partition that answered later would begin at its first record, and not at the flow's start."""
    source = InternalTopics({"orders": [InternalRecord(b"", b"")] * 3, "pay": [InternalRecord(b"", b"")] * 2})
    reading = topic_source(source, flow_spec("f", start=Latest()), begun=False)
    source.unlisted.add("pay")
    with pytest.raises(BrokerError, match="where pay-0 begins"):
        await reading.look(cast(Any, source), {})
    source.unlisted.clear()
    look = await reading.look(cast(Any, source), {})
    assert {key.topic: first.position for key, first in (look.moved or {}).items() if first} == {
        "orders": 3,
        "pay": 2,
    }


def test_tasks_get_about_as_many_records_each() -> None:
    copy = [ExportPartition(at(0, number), size) for number, size in enumerate([100, 10, 60, 40, 1])]
    tickets = spread(copy, 2)
    assert [sorted(one.position.partition for one in ticket) for ticket in tickets] == [[0, 1], [2, 3, 4]]
    assert len(spread(copy, 9)) == 5


def test_a_commit_counts_what_its_positions_have_more() -> None:
    """Those of a topic that was made again begin at zero, and count nothing less."""
    before = {("orders", 0): at(5, records=3, dropped=1), ("orders", 1): at(9, 1, records=8)}
    again = FilePosition(topic="orders", topic_id="bb", partition=1, position=0)
    after = at(9, records=5, dropped=5, tombstones=2, bytes=70)
    stats = counted(FlowStats("f", records=1), before, [after, again])
    assert (stats.records, stats.bytes, stats.dropped, stats.tombstones) == (3, 70, 4, 2)
    assert stats.commits == 1
    progress = progress_of(after, 1)
    assert (progress.dropped, progress.tombstones) == (5, 2)


def by_name(**values: int) -> dict[PartitionKey, int]:
    return {PartitionKey("f", name, 0): value for name, value in values.items()}


@pytest.mark.parametrize(
    ("most", "shown", "notes"),
    [
        (7, "abcdxyz", []),
        (6, "abcdyz", ["1 more files are not shown"]),
        (3, "abd", ["4 more files are not shown, and 5 rows of 1 of them are not read yet"]),
        (1, "a", ["6 more files are not shown, and 25 rows of 2 of them are not read yet"]),
    ],
)
def test_of_many_files_stopped_ones_are_shown_first_then_those_with_the_most_to_read(
    most: int, shown: str, notes: list[str]
) -> None:
    stopped, waiting, read = by_name(a=0, b=0).keys(), by_name(c=5, d=20, a=0), by_name(x=1, y=2, z=3, d=9)
    expected = {PartitionKey("f", name, 0) for name in shown}
    assert shown_files(set(stopped), waiting, read, "rows", most) == (expected, notes)


@pytest.mark.parametrize(("replication", "replicas"), [(2, 2), (None, BROKERS_DEFAULT)])
async def test_a_mirror_is_created_with_the_replication_of_its_flow(
    replication: int | None, replicas: int
) -> None:
    """Where the flow says none, the brokers choose."""
    asked: list[NewTopic] = []

    async def at_source(topics: Iterable[str], *_: float) -> dict[str, TopicSettings]:
        return {topic: TopicSettings() for topic in topics}

    async def at_destination(*_: object) -> dict[str, TopicSettings]:
        return {}

    async def create(topics: list[NewTopic]) -> dict[str, str]:
        asked.extend(topics)
        return {topic.name: "no rights" for topic in topics}

    async def admin(cluster: str) -> SimpleNamespace:
        read = at_source if cluster == "dc1" else at_destination
        return SimpleNamespace(settings=read, recent_settings=read, create=create)

    async def at_once(_: object = None) -> None: ...

    spec = flow_spec("f", replication=replication)
    clusters = SimpleNamespace(admin=admin, cluster=at_once, invalidate=lambda _: None)
    leadership = SimpleNamespace(ensure=at_once)
    shared = cast(Any, clusters), cast(Any, leadership)
    mirrors = MirrorTopicManager(spec, job(spec), router_of(job(spec)), *shared)
    await mirrors.update([MirrorTopic("orders", "orders", 3, "create")])
    assert [(topic.name, topic.partitions, topic.replication) for topic in asked] == [("orders", 3, replicas)]
    assert mirrors.failed == {"orders": "no rights"}


async def test_nothing_is_kept_of_a_mirror_whose_topic_left_the_flow() -> None:
    """Topics come and go as long as a job runs."""
    same = TopicSettings(MirrorRule("set", [], headers=False).wanted(TopicSettings()))

    async def settings(topics: Iterable[str], *_: float) -> dict[str, TopicSettings]:
        return dict.fromkeys(topics, same)

    async def admin(_: str) -> SimpleNamespace:
        return SimpleNamespace(settings=settings, recent_settings=settings)

    spec = flow_spec("f")
    shared = cast(Any, SimpleNamespace(admin=admin)), cast(Any, None)
    manager = MirrorTopicManager(spec, job(spec), router_of(job(spec)), *shared)
    stays, leaves = (MirrorTopic(name, f"copy-of-{name}", 1, "") for name in ("stays", "leaves"))

    await manager.update([stays, leaves])
    assert manager.is_ready("copy-of-leaves")
    await manager.update([stays])

    assert manager.is_ready("copy-of-stays")
    assert [name for name, value in vars(manager).items() if "leaves" in repr(value)] == []
