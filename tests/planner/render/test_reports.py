"""Reports of records, groups, clusters and drills: golden/report-*.txt hold what is shown, to the letter."""

from collections.abc import Callable, Iterable
from difflib import ndiff
from pathlib import Path
from typing import Any, TypeVar
from xml.etree import ElementTree

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from planner.model.drill import LIVE, DrillReport, Promise, RecoveryTime, Scenario, ScenarioStep, StoredDrill
from planner.model.managed_services import service_at
from planner.model.observed import (
    BrokerFeature,
    BrokerReport,
    ClusterReport,
    RightReport,
    TopicRightsReport,
)
from planner.render.reports import clients as clients_report
from planner.render.reports import doctor, drill, locate, records
from planner.render.reports import offsets as offsets_report
from planner.render.reports import salvage as salvage_report
from planner.render.reports import verify as verify_report
from planner.render.reports.cutovers import wave_lines
from planner.render.reports.loss import flow_lines, schema_lines, subscription_lines
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.provenance import HEADER, Origin, encode
from runtime.contract.results.failover import SchemaCheck
from runtime.contract.results.groups import (
    FlowLoss,
    GroupOffset,
    GroupOffsets,
    GroupTopics,
    LocatedRecord,
    LocateResult,
    PartitionUnheard,
)
from runtime.contract.results.records import (
    ClusterClients,
    ClusterContent,
    ConsumerGroup,
    ConsumerPosition,
    Difference,
    GroupMember,
    MirrorProgress,
    ProvenanceHop,
    ReplayedPartition,
    Salvage,
    SalvagedPartition,
    SalvagedRecord,
    TopicClients,
    TopicContent,
    TopicProducer,
    TopicRecords,
    TracedRecord,
    UncomparableRange,
    VerificationReport,
    VerifiedPartition,
)
from runtime.contract.results.waves import WaveProgress, WaveState
from tests.fakes.blank import blank
from tests.fakes.golden import agreed, fitted
from tests.fakes.replacing import replace as changed

GOLDEN = Path(__file__).parent / "golden"
NOW = 1_800_000_000_000
Shown = str | Iterable[Any]
T = TypeVar("T")


def lines_of(shown: Shown) -> list[str]:
    lines = [shown] if isinstance(shown, str) else [getattr(line, "plain", line) for line in shown]
    return [part.rstrip() for line in lines for part in line.split("\n")]


def against(page: Shown, shown: Shown) -> list[str]:
    """The lines by which a page is not another one, as a diff shows them."""
    return [line for line in ndiff(lines_of(page), lines_of(shown)) if line[0] in "+-"]


def document(scenes: dict[str, Shown]) -> str:
    """One section for each scene, without colours; a sentence is one line."""
    sections = []
    for name, shown in scenes.items():
        lines = lines_of(shown)
        sections.append(f"{name}: {lines[0]}" if len(lines) == 1 else "\n".join([f"== {name}", *lines]))
    return "\n".join(sections) + "\n"


def view(kind: type[T], *values: Any, **more: Any) -> T:
    """A view with these values for its fields, in their order."""
    fields: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined]
    return kind(**dict(zip(fields, values, strict=False)), **more)


# Differences between both sides of a flow.

ORDERS = {"topic": "orders", "partition": 1, "destination_topic": "dc1.orders"}
CLEAN = blank(VerifiedPartition, **ORDERS, end=1_310, equal_up_to=1_310, compared=1_204)
MISSING = Difference(kind="missing", source_offset=417, expected=402, destination_offset=None, key="'k'")
REPORT = view(VerificationReport, "one", "dc1", "dc2", 0, 4_100, 100.0, [CLEAN])
BEHIND = UncomparableRange(low=0, end=50, why="retention passed at dc1")
UNREAD = "orders at dc2 is not the topic that was copied: it was recreated"


def verified(**changes: Any) -> VerificationReport:
    return replace(REPORT, partitions=[replace(CLEAN, **changes)])


def differs(of: VerificationReport = REPORT, **changes: Any) -> str:
    return verify_report.sentence(replace(MISSING, **changes), of)


ROWS, IN_FILES = replace(REPORT, unit="rows"), replace(REPORT, in_files=True)
BYTES = replace(verified(topic="a.log"), unit="bytes")


def verify() -> dict[str, Shown]:
    def page(of: VerificationReport, width: int | None = None) -> Shown:
        return lines_of(verify_report.screen(of, width))

    def tree(of: VerificationReport) -> str:
        return fitted(verify_report.document(of))

    def change(of: VerificationReport) -> Shown:
        return against(page(REPORT), page(of))

    lacking: dict[str, Any] = {"expected": None, "why": "w"}
    foreign: dict[str, Any] = {"kind": "foreign", "destination_offset": 9, "why": "not from the source"}
    changed: dict[str, Any] = {"kind": "changed", "why": "w"}
    return {
        "equal": page(REPORT),
        "a sample": change(replace(REPORT, sample=5.0)),
        "not comparable": change(verified(not_comparable=[BEHIND])),
        "nothing to compare": change(verified(compared=0)),
        "nothing comparable": change(verified(compared=0, not_comparable=[BEHIND])),
        "nothing comparable, for programs": against(
            tree(verified(compared=0)), tree(verified(compared=0, not_comparable=[BEHIND]))
        ),
        "not read": change(verified(unread=UNREAD)),
        "many differences": change(verified(differences=[MISSING] * 12, equal_up_to=417)),
        "counts of their own": change(
            verified(kept_back=3, given_up=2, others=1, compacted=4, replayed=17, more=True)
        ),
        "narrow": page(verified(kept_back=3), 40),
        "a file": change(BYTES),
        "missing": differs(),
        "missing, the place unknown": differs(**lacking),
        "missing, no key": differs(source_offset=50, key="", **lacking),
        "doubled": differs(kind="doubled", destination_offset=9),
        "swapped": differs(kind="swapped", destination_offset=9),
        "changed": differs(**changed, destination_offset=402, fields=["key", "value"]),
        "moved": differs(kind="moved", destination_offset=9, why="w"),
        "foreign": differs(**foreign),
        "doubled in a file": differs(kind="doubled", destination_offset=417, file="orders/a.jsonl"),
        "damaged": differs(kind="damaged", key="", file="orders/a.log", why="source offsets 417 to 419: w"),
        "a byte": differs(BYTES, **changed, key="null", destination_offset=9, fields=["value"], file="a.log"),
        "a row": differs(
            ROWS, kind="swapped", key="null", expected=None, destination_offset=5, why="not in order"
        ),
        "a foreign row": differs(ROWS, **foreign, key="null"),
        "a missing row": differs(ROWS, expected=None),
        "missing in files": differs(IN_FILES),
        "for programs": tree(verified(replayed=17)),
        "not read, for programs": against(tree(REPORT), tree(replace(verified(unread=UNREAD), unit="bytes"))),
    }


# Records that never arrived, and their replay.

CONTENT = ConsumerRecord("orders", 0, 1_311, 1_700_000_000_000, b"k", b"v")
RECORD = view(SalvagedRecord, "dc1", "id-1", CONTENT)


def holding(**changes: Any) -> SalvagedRecord:
    return replace(RECORD, record=replace(CONTENT, **changes))


def partition(*first: SalvagedRecord, **changes: Any) -> SalvagedPartition:
    offset = 1_311 if first else None
    facts: dict[str, Any] = {"topic": "orders", "destination_topic": "orders", "begun": True}
    facts |= {"stretches": [(1_311, 1_343, "not copied")], "records": len(first), "bytes": 2 * len(first)}
    facts |= {"first_offset": offset, "last_offset": offset, "first": list(first)}
    return blank(SalvagedPartition, **facts | changes)


def missing(*partitions: SalvagedPartition, state: str = "failed_over") -> Salvage:
    return view(Salvage, "one", state, "dc1", "id-1", "dc2", list(partitions))


def salvage() -> dict[str, Shown]:
    def screen(*partitions: SalvagedPartition, **more: Any) -> list[str]:
        return lines_of(salvage_report.screen(missing(*partitions, **more), None))

    def replayed(*parts: ReplayedPartition) -> list[str]:
        return lines_of(salvage_report.replay_screen(parts, None))

    def planned(*partitions: SalvagedPartition, to: str | None = None) -> list[str]:
        return lines_of(salvage_report.replay_plan(missing(*partitions), to, None))

    page = screen(partition(RECORD))

    def of(**changes: Any) -> Shown:
        return against(page, screen(partition(RECORD, **changes)))

    def by(flow: str | None, *came_from: Origin) -> Shown:
        hops = tuple((HEADER, encode(origin)) for origin in came_from)
        return against(page, screen(partition(replace(holding(headers=hops), flow=flow))))

    kept = Origin("id-0", "far", 0, 7, 0)
    many = [
        partition(*[RECORD] * min(held, 2), partition=at, records=held) for at, held in enumerate((3, 2, 1))
    ]
    odd = holding(key=b"\xff\x00", value=None), holding(key=b"", value=b"x" * 500)
    headers: Any = (("h", "ď".encode()), ("n", None))
    done = [ReplayedPartition("orders", 0, "orders", 31), ReplayedPartition("orders", 1, "orders", 1)]
    half, aside = ReplayedPartition("orders", 0, "orders", 31, "no leader"), missing(partition(RECORD))
    noted = [ReplayedPartition("orders", number, "orders", 31, note="it is unchecked") for number in (0, 1)]
    return {
        "one": page,
        "nothing": screen(partition()),
        "nothing that could be read": against(
            screen(partition()), screen(partition(unread="it is gone"), partition(open_from=1_343))
        ),
        "behind an open transaction": of(open_from=1_343),
        "an active flow": against(screen(partition()), screen(partition(), state="active")),
        "some of many": of(records=31),
        "of several partitions": against(page, screen(*many)),
        "by a flow": by("near"),
        "by a flow from another": by("near", kept),
        "never begun": of(begun=False),
        "lost": of(lost=4),
        "filtered": of(kept_back=3),
        "not read": of(unread="it is gone"),
        "given up": of(stretches=[(5, 9, "orphaned")]),
        "bytes that are no text": against(page, screen(partition(*odd))),
        "a line of a file": salvage_report.line(holding(key=b"\xff", value=None, headers=headers)),
        "for programs": fitted(salvage_report.document(missing(partition(RECORD)))),
        "before a replay": planned(partition(RECORD, records=31, lost=4), partition(partition=1)),
        "into another topic": against(planned(partition(RECORD)), planned(partition(RECORD), to="aside")),
        "nothing can be read": planned(partition(RECORD, unread="it was recreated")),
        "nothing is left": planned(partition(lost=4)),
        "nothing can be replayed before a transaction ends": planned(partition(open_from=1_343)),
        "after a replay": replayed(*done),
        "after half a replay": against(replayed(*done), replayed(half)),
        "after a replay with a note": against(replayed(*done), replayed(*noted)),
        "a replay, for programs": fitted(
            salvage_report.replay_document(aside, "aside", [ReplayedPartition("orders", 0, "aside", 1)])
        ),
    }


# Records and clusters as they are read.


def hop(cluster: str | None, topic: str, offset: int | None) -> ProvenanceHop:
    return blank(ProvenanceHop, cluster_id="id-9", cluster=cluster, topic=topic, partition=0, offset=offset)


def read() -> dict[str, Shown]:
    headers = (("trace", b"t"), ("__repl", b"\x01"))
    content = ConsumerRecord("orders", 0, 42, NOW + 123, key=b"k", headers=headers)
    record = blank(TracedRecord, record=content, provenance="native")

    def seen(**changes: Any) -> TopicRecords:
        notes = ["the ledger can't be read"]
        return view(TopicRecords, "dc2", "id-2", "orders", 1, [replace(record, **changes)], notes)

    def screen(**changes: Any) -> list[str]:
        return lines_of(records.screen(seen(**changes)))

    def origin(**changes: Any) -> str:
        """The line that says where the record comes from: all other lines are as they are for one of here."""
        line, *others = screen(**changes)
        assert others == screen()[1:]
        return line

    own = blank(TopicContent, topic="own", partitions=1)
    orders = TopicContent(topic="orders", partitions=12, offsets=12_345, flows=["one"])
    copied = view(MirrorProgress, "one", "dc1", "orders", 0, "orders", 7, 7, NOW + 123, None)
    two_hops = [hop(None, "a", 1), hop("dc1", "b", 2)]
    content_of_dc2 = view(ClusterContent, "dc2", "id-2", 3, [own, orders], 9, [copied], [])
    return {
        "written here": screen(),
        "with a header of others": origin(claimed=[hop("dc1", "orders", 4)]),
        "by batch": origin(provenance="batch", flow="one", hops=[hop("dc1", "orders", 40)]),
        "offset unknown": origin(provenance="batch", flow="one", hops=[hop("dc1", "orders", None)]),
        "two hops": origin(provenance="headers", flow="two", hops=two_hops),
        "for programs": fitted(records.document(seen(record=replace(content, key=b"\xff", value=b"text")))),
        "a cluster": records.cluster_screen(content_of_dc2, 120),
    }


SHOWN = [
    (None, "null"),
    (b"", '""'),
    (b"plain", "plain"),
    ("grüße".encode(), "grüße"),
    (b"two\nlines\t", "two\\nlines\\t"),
    (b"back\\slash", "back\\\\slash"),
    (b"\x1b[31mred", "0x1b5b33316d726564"),
    (b"\x00\x01", "0x0001"),
    (b"\xff\xfe", "0xfffe"),
    (b"\xff" * 100, "0x" + "ff" * 64 + "… (100 bytes)"),
    (b"x" * 600, "x" * 500 + "… (600 bytes)"),
]


@pytest.mark.parametrize(("value", "text"), SHOWN)
def test_bytes_are_shown_safely(value: bytes | None, text: str) -> None:
    assert records.shown(value) == text
    assert "…" not in records.shown(value, None)


# Producers and consumer groups.


def clients() -> dict[str, Shown]:
    def producer(
        number: int, flow: str | None = None, name: str | None = None, ago_ms: int = 0
    ) -> TopicProducer:
        at: dict[str, Any] = {"last_timestamp_ms": NOW - ago_ms, "partitions": [0, 1, 2]}
        at["open_since"] = {1: 40} if name == "till" else {}
        return blank(TopicProducer, producer_id=number, transactional_id=name, flow=flow, **at)

    member = GroupMember(client_id="app-1", host="10.0.0.3", member_id="m", partitions=[0, 2])
    committed = blank(ConsumerPosition, offset=60, end=100, lag=40)
    billing = view(ConsumerGroup, "billing", "Stable", [member], 40, 2.5, [committed])
    consumers = [billing, blank(ConsumerGroup, group="old", state="Empty")]

    def orders(*producers: TopicProducer) -> ClusterClients:
        topic = TopicClients(topic="orders", partitions=3, producers=list(producers), consumers=consumers)
        return view(ClusterClients, "dc1", "id-1", NOW, 0, [topic], ["a note"])

    def screen(seen: ClusterClients, width: int = 120) -> list[str]:
        return lines_of(clients_report.screen(seen, width))

    flow = [producer(number, flow="back", name=f"repl.{number}", ago_ms=5_000) for number in (7, 8)]
    quiet = blank(TopicClients, topic="quiet", partitions=1)
    many = screen(orders(*map(producer, range(14))))
    both = screen(orders(producer(9, name="till"), producer(10, ago_ms=130_000), *flow))
    return {
        "both": both,
        "none": against(both, screen(view(ClusterClients, "dc1", "id-1", NOW, 0, [quiet], []))),
        "many": [line for line in many if "id 9" in line or "more" in line],
        "narrow": against(both, screen(orders(producer(9)), 40)),
        "for programs": fitted(clients_report.document(orders(producer(9, name="till")))),
    }


# Offsets of groups, and a record at the other side.


def offsets() -> dict[str, Shown]:
    far = "the flow has not come that far"
    rows = [
        view(GroupOffset, "orders", 0, "dc1.orders", 250, 204, 204, "translated", exact=False, by="time"),
        view(GroupOffset, "orders", 1, "dc1.orders", 251, None, 180, "pending", why=far, as_of_ms=0),
    ]
    ends = {"flow": "dc1-to-dc2", "group": "billing", "source_cluster": "dc1", "destination_cluster": "dc2"}
    empty = blank(GroupOffsets, **ends, state_here="Empty")
    seen = replace(empty, source_answers=True, synced=True, state_there="Stable", partitions=rows)
    silent = replace(empty, source_why="no bootstrap broker answers", unsynced="groups.sync is off")

    def located(found: LocateResult, **changes: Any) -> str:
        here = {"flow": "f", "cluster": "dc1", "topic": "orders", "partition": 3, "offset": 42}
        there = {"other_cluster": "dc2", "other_topic": "dc1.orders", "other_offset": 40}
        record = blank(LocatedRecord, **here, **there, found=found, replicated_through=41, low=50)
        return locate.sentence(replace(record, **changes))

    file = {"file": "orders/to-lake-1.json", "record": 1042}
    return {
        "a group": offsets_report.screen(seen, None),
        "a source that is down": offsets_report.screen(silent, 80),
        "for programs": fitted(to_builtins(seen)),
        **{f"{one} there": located(one) for one in LocateResult},
        **{f"{one} back": located(one, reverse=True) for one in LocateResult},
        "in a file": located(LocateResult.EXACT, **file),
        "the next in a file": located(LocateResult.NEXT, **file),
        "before the start of a flow into files": located(LocateResult.UNMAPPED, in_files=True),
        "no later record": located(LocateResult.END, other_offset=None),
    }


# What a failover costs.


def loss() -> dict[str, Shown]:
    def schemas(**seen: Any) -> Shown:
        return schema_lines([SchemaCheck(flow="go", source="dc1", destination="dc2", **seen)])

    facts: dict[str, Any] = {"flow": "there", "source": "dc1", "destination": "dc2", "state": "retrying"}
    facts |= {"destination_answers": True, "records": 40, "ms": 2_000, "as_of_ms": 90_000, "partitions": 12}
    cost = blank(FlowLoss, **facts)
    gone = PartitionUnheard(topic="orders", partition=3, why="recreated: orders is gone from dc2")
    stopped = PartitionUnheard(topic="orders", partition=4, why="data_loss: 5 are gone", as_of_ms=10_000)
    subscribed = [
        GroupTopics(flow="there", group="billing", cluster="dc2", topics=["dc1.refunds", "dc1.orders"]),
        GroupTopics(flow="more", group="billing", cluster="dc2", topics=["dc1.payments"]),
        GroupTopics(
            flow="there", group="audit", cluster="dc2", topics=["dc1.orders"], kept=2, why="a reader"
        ),
    ]
    return {
        "known": flow_lines([cost], 97_000),
        "of one partition nothing is known": flow_lines(
            [replace(cost, unheard=1, unheard_partitions=[gone])], 97_000
        ),
        "one partition is older": flow_lines([replace(cost, older_partitions=[stopped])], 97_000),
        "subscriptions": subscription_lines(subscribed),
        "all schemas are there": schemas(records=236, schemas=4, versions=17),
        "the source is away": schemas(records=2, schemas=1, source_unread="no answer"),
        "a schema is missing": schemas(
            records=2, versions=1, missing=["schema id 7 in the value of t-0:1"], unread="u: gone"
        ),
    }


# Waves of cutovers.


def waves() -> dict[str, Shown]:
    named = {"cutover": "c", "wave": "w", "topics": ("orders",), "gate": "g", "fence": "f"}
    wave = blank(WaveProgress, **named, state=WaveState.MOVED, left=7, pause_ms=2_000)
    return {str(state): wave_lines([replace(wave, state=state)]) for state in WaveState}


# What a cluster can do.


def cluster() -> dict[str, Shown]:
    reading = BrokerFeature("copy from", "2.4", as_source="no flow can read from it", required=True)
    writing = BrokerFeature(
        "copy to",
        "2.5",
        as_destination="no flow can write to it",
        required=True,
        broker="1 (a:9092)",
        why="InitProducerId is offered in versions 0 to 2",
    )
    ids = BrokerFeature(
        "topic ids",
        "2.8",
        as_source="told by its epoch",
        broker="1 (a:9092)",
        why="Metadata is offered in versions 0 to 9",
    )
    old = ClusterReport(
        "dc1",
        "an-id",
        (
            BrokerReport(1, "a:9092", "2.4", 0.42, {1: (0, 11)}),
            BrokerReport(2, "b:9092", why="connection refused"),
        ),
        (reading, writing, ids),
        (RightReport("CREATE", False, "create topics"), RightReport("ALTER", None, "change ACLs")),
        None,
        "this version tells no time",
    )
    use = ("mirror of a flow",)
    whole = TopicRightsReport("payments", use, {})
    lacking = TopicRightsReport("orders", use, {"WRITE": "copy records to it"})
    untold = TopicRightsReport("returns", ("source of a flow",), None, "the broker does not tell")
    rights = changed(old, topic_rights=(lacking, untold, whole))

    def screen(seen: ClusterReport) -> list[str]:
        return lines_of(doctor.screen(seen, None))

    many = screen(changed(old, topic_rights=(lacking,) * 30))
    listed = [line for line in many if "mirror of a flow" in line]
    managed = changed(old, service=service_at(["x.confluent.cloud:9092"]))
    return {
        "an old one": screen(old),
        "missing rights": against(screen(old), screen(rights)),
        "many missing rights": [
            f"{len(listed)} topics are listed",
            *(line for line in many if "more" in line),
        ],
        "at a managed service": against(screen(old), screen(managed)),
        "for programs": fitted(doctor.as_json(rights)),
    }


# Drills.

KEPT = Promise("both sides hold the same records, each once", "0 different", "0 different", True)
BROKEN = Promise("RTO", "at most 5 s", "7.0 s", False, "the failover takes too long for this limit")
STEPS = [
    ScenarioStep(0.0, 4.0, "the topology is applied", "repl apply --auto-approve", "Applied.\n"),
    ScenarioStep(4.0, 6.5, "dc1 <b> is killed"),
]
FOUND = Scenario("dc1 is lost", "dc1", STEPS, [KEPT, BROKEN], RecoveryTime(6.0, 0.5, 0.5), 12, None, 0, 0)
PASSED = Scenario("dc1 is lost", "dc1", STEPS, [KEPT], RecoveryTime(2.5, 0.1, 0.4), 0, 2_034, 0, 0)
BETTER = changed(FOUND, promises=[KEPT, changed(BROKEN, kept=True)], rto=RecoveryTime(5.0, 0.2, 0.3))
BETTER.rpo_records = 2
CUT = Scenario("dc3 is lost", "dc3", STEPS, problem="repl failover failed\x00 with exit code 1")


def report(*scenarios: Scenario, against: str | None = None) -> DrillReport:
    found = DrillReport(
        "shop", "sha256:0a1b", "2026-11-22T10:00:00Z", "0.1", ("replication is 1",), scenarios
    )
    return changed(found, against=against) if against else found


BILLING = Scenario("billing: paris is lost", "", STEPS, [KEPT], RecoveryTime(2.0, 0.0, 0.0), 0)
RISK = report(
    Scenario("dc1 would be lost now", "dc1", [], [KEPT], RecoveryTime(1.0, 0.0, 0.0), 5), against=LIVE
)


def drills() -> dict[str, Shown]:
    def history(*reports: DrillReport) -> Shown:
        stored = [StoredDrill("", one, {}, "not signed") for one in reports]
        return drill.history_screen(stored, None)

    def screen(*scenarios: Scenario) -> list[str]:
        return lines_of(drill.screen(report(*scenarios)))

    def samples(text: str) -> list[str]:
        return [line for line in lines_of(text) if not line.startswith("#")]

    metrics = drill.metrics(changed(report(FOUND), every_ms=604_800_000), 1.795e9, None)
    lines = ["repl apply failed:", *(f"step {number}" for number in range(30)), "error: no right\x1b[2J"]
    other = report(Scenario("b", "b", STEPS, [KEPT]))
    return {
        "broken": screen(FOUND),
        "passed": screen(PASSED),
        "nothing to rehearse": screen(),
        "not finished": screen(CUT),
        "a long problem": against(screen(CUT), screen(changed(CUT, problem="\n".join(lines)))),
        "for programs": fitted(drill.document(report(FOUND))),
        "broken, as metrics": metrics,
        "passed, as metrics": samples(drill.metrics(report(PASSED), 1_795_000_000.0, None)),
        "broken after a success": samples(drill.metrics(report(FOUND), 1_795_000_500.0, 1_795_000_000.0)),
        "live, as metrics": samples(drill.metrics(changed(RISK, every_ms=5_000), 100.0, 7.0)),
        "each against the one before": history(report(FOUND, Scenario("b", "b")), report(BETTER)),
        "what was not tried is not kept again": history(report(FOUND), other),
        "each against the one of its kind": history(report(FOUND), RISK, report(BETTER)),
        "features against the features before": history(
            report(FOUND),
            changed(report(BILLING), features="features"),
            report(BETTER),
            changed(report(changed(BILLING, rto=RecoveryTime(4.0, 0.0, 0.0))), features="features"),
        ),
    }


def test_a_drill_knows_its_worst_figures_and_its_faults() -> None:
    kept = changed(PASSED, name="dc2 is lost", rpo_records=40)
    found = report(FOUND, kept, changed(CUT, problem="repl failover failed"))
    assert (found.rto_s, found.rpo_records) == (7.0, 40)
    assert found.faults == (
        "dc1 is lost: RTO: 7.0 s (wanted: at most 5 s)",
        "dc3 is lost: repl failover failed",
    )
    assert (report(CUT).rto_s, report(CUT).rpo_records) == (None, None)
    assert [one.passed for one in (report(PASSED), found, report())] == [True, False, False]


def test_every_promise_of_a_drill_is_a_test_of_a_suite() -> None:
    (suite,) = ElementTree.fromstring(drill.junit(report(FOUND)))
    assert [suite.get(name) for name in ("tests", "failures", "errors", "time")] == ["3", "1", "0", "10.5"]
    (failure,) = suite.iter("failure")
    assert "wanted at most 5 s, measured 7.0 s" in str(failure.get("message"))
    (suite,) = ElementTree.fromstring(drill.junit(report(CUT)))
    assert [suite.get(name) for name in ("tests", "failures", "errors")] == ["1", "0", "1"]


def test_the_page_of_a_drill_shows_outputs_and_problems_as_text() -> None:
    page = drill.page(report(changed(FOUND, problem="repl failover failed\nerror: dc2 <b> does not answer")))
    for part in (
        "rehearsed on lab clusters",
        "dc1 &lt;b&gt; is killed",
        "repl failover failed<br>error: dc2 &lt;b&gt; does not answer",
        '<tr class="output"><td colspan="3"><details>',
    ):
        assert part in page
    assert "<b>" not in page
    assert "script" not in page
    assert "read from the live clusters" in drill.page(RISK)


REPORTS: dict[str, Callable[[], dict[str, Shown]]] = {
    one.__name__: one for one in (verify, salvage, read, clients, offsets, loss, waves, cluster, drills)
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_as_it_was_agreed(name: str) -> None:
    agreed(GOLDEN / f"report-{name}.txt", document(REPORTS[name]()))
