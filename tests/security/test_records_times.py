"""A forged time in an internal record, or the timestamp of a record, stops no command and no page.

Nor does another number that no clock and no counter has.
"""

from collections.abc import Iterator

import pytest
from msgspec import Struct
from msgspec.structs import fields, replace

from planner.model.step import ApplyRecord
from planner.render import readable
from planner.render.reports import history
from planner.render.reports.loss import flow_lines
from planner.render.status import DetailLevel, screen
from planner.render.status import document as status_document
from planner.state.history import finished, fold, started
from planner.state.lease import LeaseHolder, LeaseState
from planner.ui.pages import clock, since
from planner.workflows.applying.session import wait_text
from runtime.audit.status.join import join
from runtime.contract.records.job_status import FlowView, JobStatus, PartitionState, PartitionStatus
from runtime.contract.records.latency import LATENCY_BOUNDS_MS
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.results.failover import verdicts
from runtime.contract.results.groups import FlowLoss, PartitionUnheard
from tests.fakes.replacing import replace as changed
from tests.planner.diff.test_jobs import ONE, applied, changes
from tests.runtime.audit.given import (
    NOW,
    asked,
    destination,
    job,
    ledger,
    look,
    progress,
    report,
    said,
    source,
)

FORGED = [10**15, -(10**15), (1 << 63) - 1, -(1 << 63), 10**30, 10**1000]
NAMES = ["late", "early", "most", "least", "huge", "endless"]
each = pytest.mark.parametrize("ms", FORGED, ids=NAMES)
each_readable = pytest.mark.parametrize("ms", FORGED[:4], ids=NAMES[:4])


@each
def test_a_plan_is_made_whatever_the_heartbeat_of_a_dead_job_says(ms: int) -> None:
    seen = applied(ONE, live=False)
    dc2 = seen.reachable("dc2")
    assert dc2 is not None
    jobs = tuple(changed(job, at_ms=ms) for job in dc2.jobs)
    seen = changed(seen, clusters={**seen.clusters, "dc2": changed(dc2, jobs=jobs)})
    assert f"not running: last heartbeat {ms} ms" in changes(ONE, seen)["job.dc2"].reason


@each
def test_a_failover_says_its_cost_whatever_a_job_has_reported(ms: int) -> None:
    older = PartitionUnheard(topic="orders", partition=0, why="retrying", as_of_ms=ms)
    loss = FlowLoss(
        flow="there",
        source="dc1",
        destination="dc2",
        state="retrying",
        source_answers=False,
        destination_answers=True,
        records=1,
        ms=1,
        as_of_ms=ms,
        partitions=2,
        unheard=0,
    )
    (line,) = flow_lines([replace(loss, older_partitions=[older])], 90_000)
    assert f"as of {ms} ms" in line.plain


def applies(ms: int) -> Iterator[tuple[bytes, bytes]]:
    record = ApplyRecord(
        id="1",
        topology="shop",
        mode="apply",
        plan="sha256:1",
        user="u",
        host="h",
        pid=1,
        started_ms=ms,
        total=1,
        clusters={},
        git=None,
    )
    yield b"1", started(record)
    yield b"1", finished("done", ms)


@each_readable
def test_the_history_is_shown_whatever_an_apply_is_said_to_have_taken(ms: int) -> None:
    (found,) = fold(applies(ms), lambda wrong: pytest.fail(str(wrong)))
    assert f"{ms} ms" in history.one_text(found)
    assert [line.plain for line in history.screen([found], None)]
    assert history.document([found], with_steps=True)["applies"][0]["started"] == f"{ms} ms"


@pytest.mark.parametrize("ms", FORGED[4:], ids=NAMES[4:])
def test_an_apply_with_a_longer_number_is_skipped_and_said(ms: int) -> None:
    skipped: list[UnreadableValue] = []
    assert fold(applies(ms), skipped.append) == ()
    assert "63 is the most" in str(skipped[0])


@each_readable
def test_the_history_says_how_long_an_apply_took_whatever_its_times_say(ms: int) -> None:
    (_, begun), _ = applies(0)
    (found,) = fold([(b"1", begun), (b"1", finished("done", ms))], lambda wrong: pytest.fail(str(wrong)))
    assert f"  finished  {ms} ms (" in history.one_text(found)


@each
def test_who_waits_for_a_lease_is_told_of_its_holder_whatever_its_time_says(ms: int) -> None:
    holder = LeaseHolder("id", "ada", "ops1", 7, "shop", "a plan")
    assert f"since {ms} ms" in wait_text("dc1", LeaseState(holder, ms, ms, 30_000))


def numbers(kind: type[Struct]) -> list[str]:
    return [one.name for one in fields(kind) if one.type is int and one.name != "partition"]


def reports(ms: int) -> Iterator[tuple[JobStatus, PartitionStatus, list[int]]]:
    """Reports of a job and its slot of which one number is forged."""
    status, partition, counts = job(), said(PartitionState.COPYING, 100, 400), [1] * len(LATENCY_BOUNDS_MS)
    yield from ((replace(status, **{name: ms}), partition, counts) for name in numbers(JobStatus))
    yield from ((status, replace(partition, **{name: ms}), counts) for name in numbers(PartitionStatus))
    for name in numbers(FlowView):
        yield replace(status, flows=[replace(status.flows[0], **{name: ms})]), partition, counts
    yield status, partition, [*counts, ms]


@each
def test_a_status_is_shown_whatever_a_job_and_its_slot_have_reported(ms: int) -> None:
    here, there = source(end=400), destination(200)
    before = ledger(progress(50), job(1_400), report(said(PartitionState.COPYING, 50), counts=[1]))
    for status, partition, counts in reports(ms):
        now = ledger(progress(100), status, report(partition, counts=counts))
        seen = join(asked(rpo_ms=5_000), look(here, there, now), look(here, there, before, NOW - 1_000))
        assert [line.plain for depth in DetailLevel for line in screen(seen, 80, depth)]
        assert status_document(seen, verdicts(seen))["flows"]


@each
def test_a_page_shows_any_time(ms: int) -> None:
    assert f"{ms} ms" in clock(ms)
    assert f"{ms} ms" in since(ms, 90_000)
    assert readable.moment(ms) == readable.iso_time(ms) == f"{ms} ms"
