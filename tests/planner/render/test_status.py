"""What `repl status` prints, to the letter. REPL_GOLDEN=write writes the files anew: look at the diff."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from planner.render.readable import count, latency, octets, per_second, span
from planner.render.status import DetailLevel, FlowHistory, document, screen
from runtime.audit.status.facts import ClusterFacts, LedgerFacts, StatusRequest, TopicFacts
from runtime.audit.status.jobs import doubtful
from runtime.audit.status.join import join
from runtime.contract.records.job_status import OpenTransaction, SlotView, StandbyStatus
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.results.failover import verdicts
from runtime.contract.results.status import ReplicationStatus
from runtime.slot.health.watch import explain
from tests.fakes.golden import agreed, fitted
from tests.runtime.audit.given import (
    JOB,
    KEY,
    NOW,
    SILENT,
    TOPIC,
    asked,
    destination,
    generation,
    job,
    ledger,
    look,
    progress,
    report,
    said,
    source,
    with_reported,
)

GOLDEN = Path(__file__).parent / "golden"
COUNTS = [0, 10, 60, 25, 5, *([0] * 13)]


def copying() -> ReplicationStatus:
    word = report(said(S.COPYING, 12_000, 12_400), counts=COUNTS)
    first = ledger(progress(10_000), job(1_400), word)
    here = source(end=12_400, first_missing={KEY: NOW - 320})
    before = look(here, destination(20_000), first, NOW - 1_000)
    return join(
        asked(rpo_ms=5_000), look(here, destination(20_000), ledger(progress(12_000), job(), word)), before
    )


def joined(
    written: LedgerFacts | None,
    here: ClusterFacts | None = None,
    there: ClusterFacts | None = None,
    **flow: Any,
) -> ReplicationStatus:
    return join(asked(**flow), look(here or source(), there or destination(), written))


def caught_up() -> ReplicationStatus:
    return joined(ledger(progress(), job(), report(said(S.CAUGHT_UP))))


def needs_someone() -> ReplicationStatus:
    word = report(
        said(S.RECORD_TOO_LARGE, 90, why="the record at offset 90 has 2,000,000 bytes, dc2 takes 1,048,588")
    )
    here = source(first_missing={KEY: NOW - 20 * 60_000})
    return joined(ledger(progress(90), job(), word), here, rpo_ms=5_000)


def mirror_made_again() -> ReplicationStatus:
    written = ledger(progress(100), job(), report(said(S.CAUGHT_UP)))
    there = destination(0, topics={TOPIC: TopicFacts(b"o" * 16, 1)})
    return joined(written, there=there)


def job_down() -> ReplicationStatus:
    written = ledger(progress(90), job(60_000), report(said(S.COPYING, 90)))
    return joined(written, source(first_missing={KEY: NOW - 58_000}))


def source_down() -> ReplicationStatus:
    written = ledger(progress(90), job(), report(said(S.RETRYING, 90, 95, why="dc1: disconnected")))
    return joined(written, SILENT)


def destination_down() -> ReplicationStatus:
    return joined(None, there=ClusterFacts("dc2", answers=False, why="no broker answers"))


def foreign_writes() -> ReplicationStatus:
    word = report(said(S.CAUGHT_UP, foreign_writes=True))
    return joined(ledger(progress(), job(), word), there=destination(140))


def blocked() -> ReplicationStatus:
    by = OpenTransaction(
        producer_id=4003,
        start_offset=90,
        transactional_id="billing-7",
        coordinator_state="Ongoing",
        started_ms=NOW - 95_000,
        timeout_ms=900_000,
        abort_command="kafka-transactions.sh --bootstrap-server dc1:9092 abort --topic orders --partition 0"
        " --start-offset 90",
    )
    word = report(said(S.BLOCKED_AT_SOURCE, 90, 90, why=explain(by, NOW), blocked_by=by))
    return joined(ledger(progress(90), job(), word), source(end=90))


def stopped() -> ReplicationStatus:
    written = ledger(progress(90), job(60_000, state="stopped"), who=generation("stopped"))
    return joined(written, source(first_missing={KEY: NOW - 3_000}))


def never_ran() -> ReplicationStatus:
    return joined(LedgerFacts(), there=destination(topics={}))


def waits_for_a_core() -> ReplicationStatus:
    slots = [SlotView(0, "running", NOW, 1, 1), SlotView(1, "unscheduled", NOW, 1, 1, "no free core")]
    made = replace(job(), slots=slots, trouble="dc2: a heartbeat took 3 s")
    return joined(ledger(progress(), made, report(said(S.CAUGHT_UP))))


SCENES: dict[str, Callable[[], ReplicationStatus]] = {
    one.__name__: one
    for one in (
        copying,
        caught_up,
        needs_someone,
        mirror_made_again,
        job_down,
        source_down,
        destination_down,
        foreign_writes,
        blocked,
        stopped,
        never_ran,
        waits_for_a_core,
    )
}
TRAILS = {"one": FlowHistory((None, 0.0, 500.0, 2_000.0), (0, 100, 400, 400))}


def printed(
    status: ReplicationStatus,
    width: int | None,
    depth: DetailLevel = DetailLevel.TOPICS,
    *,
    trails: bool = False,
) -> str:
    console = Console(width=width or 1_000, color_system=None, highlight=False)
    with console.capture() as captured:
        for line in screen(status, width, depth, TRAILS if trails else None):
            console.print(line)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


@pytest.mark.parametrize("scene", SCENES)
def test_each_state_with_all_its_details(scene: str):
    status = SCENES[scene]()
    agreed(GOLDEN / f"status-{scene}.all.txt", printed(status, 160, DetailLevel.PARTITIONS, trails=True))


@pytest.mark.parametrize(("shape", "width"), [("txt", None), ("80.txt", 80), ("40.txt", 40)])
def test_topics_on_a_pipe_and_on_narrower_terminals(shape: str, width: int | None):
    agreed(GOLDEN / f"status-needs_someone.{shape}", printed(needs_someone(), width))


@pytest.mark.parametrize("scene", SCENES)
def test_nothing_is_wider_than_the_terminal(scene: str):
    for width in (40, 80, 120):
        assert max(len(line) for line in printed(SCENES[scene](), width).splitlines()) <= width


def test_a_job_says_where_its_metrics_are_if_the_usual_port_was_taken():
    status = copying()
    where = replace(status.jobs[0], metrics="127.0.0.1:9405", metrics_taken=9404)
    told = replace(status, jobs=[where])
    usual = replace(status, jobs=[replace(where, metrics="127.0.0.1:9404", metrics_taken=0)])
    line = f"job {where.name}: metrics at 127.0.0.1:9405: 9404 was taken"
    assert line in [one.plain.strip() for one in screen(told)]
    assert "metrics" not in "".join(one.plain for one in screen(usual))
    assert '"metrics": "127.0.0.1:9405"' in json.dumps(document(told, verdicts(told)))


def standbys(*seen: StandbyStatus) -> LedgerFacts:
    """What the ledger says of a job with these standbys."""
    written = ledger(progress(), job(host="host-a", process=12), report(said(S.CAUGHT_UP)))
    return with_reported(written, standbys={(JOB, each.standby): each for each in seen})


def standby(name: str, ago_ms: int = 900, **more: Any) -> StandbyStatus:
    facts = {"state": "watching", "host": f"host-{name}", "process": 7, **more}
    return StandbyStatus(standby=name, at_ms=NOW - ago_ms, **facts)


def wanting(count: int) -> StatusRequest:
    return dataclasses.replace(asked(), standbys={JOB: count})


GONE = standby("d", 60_000)


def test_a_job_with_standbys_says_where_it_runs_and_who_is_ready():
    unable = standby("c", state="failed", why="Java is missing")
    status = join(wanting(2), look(source(), destination(), standbys(standby("b"), unable, GONE)))
    lines = [line.plain.strip() for line in screen(status)]
    assert [line for line in lines if line.startswith("job dc2: ")] == [
        "job dc2: it runs as pid 12 on host-a",
        "job dc2: standby on host-b (pid 7): watches",
        "job dc2: standby on host-c (pid 7): cannot take the job over: Java is missing",
        "job dc2: 1 of 2 standbys ready: run repl standby dc2 on another machine",
    ]


@pytest.mark.parametrize("ago_ms", [-600_000, 600_000])
def test_a_standby_whose_clock_is_wrong_is_ready(ago_ms: int):
    """A second look shows it: its record has moved. One that is gone stays out."""
    before, now = (standbys(standby("b", at), standby("c", ago_ms)) for at in (ago_ms, ago_ms - 2_000))
    assert doubtful(before, NOW, {JOB: 1})
    looks = (look(source(), destination(), facts) for facts in (now, before))
    (view,) = join(wanting(1), *looks).jobs
    assert [each.host for each in view.standbys] == ["host-b"]


def test_no_second_look_is_taken_while_enough_standbys_are_heard():
    written = standbys(standby("b"), GONE)
    assert not doubtful(written, NOW, {JOB: 1})
    assert doubtful(written, NOW, {JOB: 2})


def test_the_document_is_stable():
    """Keys may be added here; one that is renamed, or changes its meaning, is a new format_version."""
    status = copying()
    agreed(GOLDEN / "status-copying.json", fitted(document(status, verdicts(status))) + "\n")


# Numbers and tables.

WORDS: list[tuple[Any, Any, str]] = [
    (count, None, "–"),
    (count, 12_345, "12,345"),
    (count, 9_999_999, "9,999,999"),
    (count, 10_000_000, "10.0 M"),
    (octets, 1_250_000, "1.2 MB"),
    (per_second, 0.0, "0/s"),
    (per_second, 0.25, "0.2/s"),
    (per_second, 1_204.4, "1,204/s"),
    (span, 0, "0 s"),
    (span, 12, "12 ms"),
    (span, 320, "0.3 s"),
    (span, 10_000, "10 s"),
    (span, 41_000, "41 s"),
    (span, 119_000, "119 s"),
    (span, 240_000, "4 min"),
    (span, 3 * 3_600_000, "3 h"),
    (span, 50 * 3_600_000, "2 d"),
    (latency, 0.2, "1 ms"),
    (latency, 120_000.0, ">2 min"),
]


@pytest.mark.parametrize(("say", "value", "words"), WORDS)
def test_as_people_read_it(say: Any, value: Any, words: str):
    assert say(value) == words


@pytest.mark.parametrize("left", [600_000, 99_000])
def test_the_first_copy_shows_its_share_while_much_is_left(left: int) -> None:
    status = copying()
    (flow,) = status.flows
    (topic,) = flow.topics
    (partition,) = topic.partitions
    far = replace(partition, source_start=0, source_end=1_000_000, lag_records=left)
    topics = [replace(topic, partitions=[far])]
    seen = replace(status, flows=[replace(flow, lag_records=left, topics=topics)])
    first = next(iter(screen(seen))).plain
    assert f"{left:,} records" in first
    assert ("(40% copied)" in first) is (left == 600_000)
