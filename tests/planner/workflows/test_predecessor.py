"""Where flows begin that replace another tool, by its positions and by what its mirrors hold."""

import pytest
from msgspec import structs

from planner.config.importing.mm2 import convert
from planner.kafka import run
from planner.model.diagnostic import ExitCode, Failure
from planner.model.topology import Flow, Selection
from planner.workflows.predecessor import Predecessor, commits_of
from runtime.audit.predecessor.alignment import CopiedPartition
from runtime.audit.predecessor.progress import PredecessorProgress
from runtime.contract.predecessor import ConnectOffsets, GroupCommits
from runtime.contract.spec.flow import AtOffsets, Earliest, Latest
from tests.planner.config.importing.test_replicator import BASE as CONNECTOR
from tests.planner.config.importing.test_replicator import of as replicators

FLOW = Flow("a-to-b", "A", "B", Selection((".*",)))
TOOL = Predecessor("MirrorMaker 2", {"a-to-b": ConnectOffsets("mm2-offsets.A.internal", "A", "A-mm2")})
FORCED = structs.replace(TOOL, force=True)
BASE = "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"


def orders(stored: int | None, start: int = 0, end: int = 100, **more: object) -> CopiedPartition:
    return CopiedPartition("orders", 0, stored, start, end, **more)  # type: ignore[arg-type]


def began(*partitions: CopiedPartition, flow: Flow = FLOW) -> tuple[object, list[str]]:
    start, diagnostics = TOOL.start_of(flow, PredecessorProgress(partitions))
    return start, [f"{one.severity}: {one.summary}" for one in diagnostics]


@pytest.mark.parametrize(
    ("partition", "offset", "said"),
    [
        (orders(42), 42, ""),
        (orders(100), 100, ""),
        (orders(42, compared=True, by_records=42), 42, ""),
        (orders(42, compared=True, by_records=60), 60, "orders-0 (42 stored, 60 copied)"),
        (orders(42, compared=True, by_records=40), 40, "orders-0 (42 stored, 40 copied)"),
        (orders(None, compared=True, by_records=60), 60, "orders-0 (none stored, 60 copied)"),
        (orders(42, compared=True), 42, "warning: flow a-to-b: the last records in the mirrors of 1"),
        (orders(42, start=50), 50, "deleted at A before MirrorMaker 2 had copied them: orders-0 (42 to 49)"),
    ],
)
def test_a_partition_begins_at_the_first_record_that_was_not_copied(partition, offset, said) -> None:
    start, told = began(partition)
    assert start == AtOffsets({"orders": {0: offset}})
    assert len(told) == bool(said)
    assert said in "".join(told)


def test_a_partition_without_a_position_begins_at_earliest_or_where_the_tool_would() -> None:
    new = CopiedPartition("new", 3, None, 5, 9)
    start, told = began(orders(42), new)
    assert start == AtOffsets({"orders": {0: 42}})
    assert told == [
        "note: flow a-to-b: MirrorMaker 2 has no position in 1 partition (new-3): they begin at earliest"
    ]
    start, told = began(orders(42), new, flow=structs.replace(FLOW, start=Latest()))
    assert start == AtOffsets({"orders": {0: 42}, "new": {3: 9}})
    assert "they begin at the end that they have now" in told[0]


def test_a_tool_that_runs_is_refused_and_with_force_warned_of() -> None:
    running = PredecessorProgress((orders(42),), "group A-mm2 at B has members (its state is Stable)")
    _, (refused,) = TOOL.start_of(FLOW, running)
    assert refused.exit is ExitCode.REFUSED
    assert "MirrorMaker 2 still runs: group A-mm2 at B has members" in refused.summary
    assert "--force" in refused.hint
    start, (warned,) = FORCED.start_of(FLOW, running)
    assert start == AtOffsets({"orders": {0: 42}})
    assert "arrives twice" in str(warned)


def test_a_position_beyond_the_end_is_refused_and_with_force_begins_at_earliest() -> None:
    recreated = PredecessorProgress((orders(500, end=20), CopiedPartition("other", 1, 7, 0, 9)))
    _, (refused,) = TOOL.start_of(FLOW, recreated)
    assert refused.exit is ExitCode.REFUSED
    assert "orders-0 (500, the log ends at 20)" in refused.summary
    start, (warned,) = FORCED.start_of(FLOW, recreated)
    assert start == AtOffsets({"other": {1: 7}})
    assert "begin at earliest" in warned.hint
    alone, _ = FORCED.start_of(FLOW, PredecessorProgress((orders(500, end=20),)))
    assert alone == Earliest()


def test_a_flow_without_any_position_is_an_error_that_names_where_it_was_looked_for() -> None:
    _, (wrong,) = FORCED.start_of(FLOW, PredecessorProgress((orders(None),)))
    assert wrong.exit is ExitCode.ERROR
    assert "mm2-offsets.A.internal at B has none of the source cluster A" in wrong.summary
    by_group = Predecessor("Replicator", {"a-to-b": GroupCommits("g")})
    _, (wrong,) = by_group.start_of(FLOW, PredecessorProgress((orders(None),)))
    assert "group g has committed none at A" in wrong.summary


@pytest.mark.parametrize(
    ("more", "topic", "group"),
    [
        ("", "mm2-offsets.A.internal", "A-mm2"),
        ("B.group.id = workers\n", "mm2-offsets.A.internal", "workers"),
        ("group.id = ignored\n", "mm2-offsets.A.internal", "A-mm2"),
        ("B.offset.storage.topic = at-b\n", "at-b", "A-mm2"),
        ("B.offset.storage.topic = at-b\noffset.storage.topic = of-all\n", "of-all", "A-mm2"),
        ("A->B.offsets.storage.topic = own\noffset.storage.topic = of-all\n", "own", "A-mm2"),
    ],
)
def test_the_workers_of_a_flow_as_mirror_maker_names_them(more: str, topic: str, group: str) -> None:
    stored = convert([("mm2.properties", BASE + more)], "mm2").positions["A-to-B"]
    assert (stored.topic, stored.alias, stored.group) == (topic, "A", group)


@pytest.mark.parametrize(
    ("connectors", "groups", "why"),
    [
        (("one", "two"), ("one",), "flow two has no group to begin from"),
        (("one", "two"), ("one", "two", "three"), "no connector of the files commits by group three"),
        (("one",), ("one", "two"), "no connector of the files commits by group two"),
    ],
)
def test_groups_that_do_not_fit_the_connectors(connectors, groups, why) -> None:
    found = replicators(*({"name": name, "config": CONNECTOR} for name in connectors))
    with pytest.raises(Failure, match=why):
        commits_of(found.topology, groups)


def test_a_missing_secret_of_the_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A_SASL_PASSWORD", raising=False)
    login = (
        "A.security.protocol = SASL_SSL\nA.sasl.mechanism = PLAIN\nA.sasl.jaas.config = "
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";\n'
    )
    found = convert([("mm2.properties", BASE + login)], "mm2")
    with pytest.raises(Failure, match="A_SASL_PASSWORD"):
        run(Predecessor("MirrorMaker 2", found.positions).continued(found.topology, 1.0))
