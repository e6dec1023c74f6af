"""A forged time in an internal record, or the timestamp of a record, stops no command and no page."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from planner.model.step import ApplyRecord
from planner.render import readable
from planner.render.reports import history
from planner.render.reports.loss import flow_lines
from planner.state.history import finished, fold, started
from planner.ui.pages import clock, since
from runtime.contract.results.groups import FlowLoss, PartitionUnheard
from tests.fakes.replacing import replace as changed
from tests.planner.diff.test_jobs import ONE, applied, changes

FORGED = [10**15, -(10**15), (1 << 63) - 1, -(1 << 63), 10**30, 10**1000]
each = pytest.mark.parametrize("ms", FORGED, ids=["late", "early", "most", "least", "huge", "endless"])


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


@each
def test_the_history_is_shown_whatever_an_apply_is_said_to_have_taken(ms: int) -> None:
    (found,) = fold(applies(ms), lambda wrong: pytest.fail(str(wrong)))
    assert f"{ms} ms" in history.one_text(found)
    assert [line.plain for line in history.screen([found], None)]
    assert history.document([found], with_steps=True)["applies"][0]["started"] == f"{ms} ms"


@each
def test_a_page_shows_any_time(ms: int) -> None:
    assert f"{ms} ms" in clock(ms)
    assert f"{ms} ms" in since(ms, 90_000)
    assert readable.moment(ms) == readable.iso_time(ms) == f"{ms} ms"
