"""When a job that was launched or told really copies, and what is missing until then."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from planner.apply.copying import JobStart
from planner.apply.denials import lasting
from planner.apply.job_watch import JobWatch
from planner.kafka import run
from runtime.contract.records import job_status
from runtime.contract.records.job_status import (
    FlowView,
    JobState,
    JobStatus,
    JobStatusTable,
    PartitionState,
    PartitionStatus,
    SlotReport,
    SlotState,
    SlotView,
    StatusKey,
)
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.selection import SelectionSpec
from tests.fakes.tables import cases

FLOW = FlowSpec(name="x", source="dc1", destination="dc2", topics=SelectionSpec(include=("a",)))
SPEC = JobSpec(
    job="dc2",
    topology="shop",
    destination="dc2",
    clusters={"dc1": ClusterSpec(bootstrap="a:1"), "dc2": ClusterSpec(bootstrap="b:1")},
    flows=[FLOW],
)
VIEW = FlowView(flow="x", state="active", generation=1, topics=1, partitions=2)
STATUS = JobStatus(
    job="dc2", topology="shop", driver="new", state="running", at_ms=1, started_ms=1, flows=[VIEW]
)


def partition(number: int, state: PartitionState = PartitionState.COPYING, lag: int = 0) -> PartitionStatus:
    return PartitionStatus(
        flow="x", topic="a", partition=number, state=state, since_ms=0, position=5, source_end=5 + lag
    )


def report(*partitions: PartitionStatus, driver: str = "new") -> SlotReport:
    return SlotReport(0, 1, 1, driver, 1, partitions=list(partitions))


def table(
    status: JobStatus | None = STATUS, spec: JobSpec | None = SPEC, slot: SlotReport | None = None
) -> JobStatusTable:
    slot = slot if slot is not None else report(partition(0), partition(1))
    said: dict[StatusKey, JobStatus | JobSpec | SlotReport | None] = {
        StatusKey("job", "dc2"): status,
        StatusKey("spec", "dc2"): spec,
        StatusKey("slot", "dc2", 0): slot,
    }
    made = JobStatusTable()
    made.update(
        (job_status.encode_key(key), job_status.encode(value))
        for key, value in said.items()
        if value is not None
    )
    return made


def of_flow(**changes: object) -> JobStatusTable:
    """What is seen of the job where its flow reports this."""
    return table(replace(STATUS, flows=[replace(VIEW, **changes)]))


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        (table(status=None), "it has not reported anything yet"),
        (table(replace(STATUS, driver="old")), "it has not reported anything yet"),
        (
            table(replace(STATUS, state="starting", trouble="no coordinator")),
            "it is starting: no coordinator",
        ),
        (
            table(replace(STATUS, state="starting", shipped=340_000_000)),
            "it is starting: Spark has copied 340 MB of files to its cluster",
        ),
        (table(spec=None), "it does not run by its new spec yet"),
        (table(spec=replace(SPEC, slots=5)), "it does not run by its new spec yet"),
        (table(replace(STATUS, flows=[])), "flow.x does not copy yet: it is being taken over"),
        (of_flow(generation=0, why="dc1 does not answer"), "flow.x does not copy yet: dc1 does not answer"),
        (of_flow(topics=0), "flow.x copies 0 of 1 topics yet: it is looking for its topics"),
        (of_flow(attempts=1), "flow.x does not copy yet: it is starting"),
        (of_flow(attempts=2, why="no folder"), "flow.x does not copy yet: no folder"),
        (
            table(slot=report(partition(0), partition(1, PartitionState.STARTING))),
            "flow.x: 1 of 2 partitions copy yet",
        ),
        (
            table(
                replace(STATUS, slots=[SlotView(slot=0, state="waiting", since_ms=0, why="no memory")]),
                slot=report(partition(0), partition(1), driver="old"),
            ),
            "flow.x: 0 of 2 partitions copy yet: slot 0: no memory",
        ),
    ],
)
def test_it_does_not_copy_yet(seen: JobStatusTable, missing: str) -> None:
    assert JobStart(SPEC, seen, "old").not_copying({"x": 1}) == missing


@pytest.mark.parametrize(
    ("seen", "progress"),
    [
        (table(None), 0),
        (table(replace(STATUS, driver="old")), 0),
        (table(replace(STATUS, flows=[FlowView(flow="x", state="active")]), slot=report()), 0),
        (table(slot=report(partition(0), partition(1, PartitionState.STARTING))), 1 + 2 + 1),
        (table(slot=report(partition(0, lag=7), partition(1))), 1 + 2 + 2),
    ],
)
def test_progress_is_flows_taken_over_and_partitions_found_and_copied(
    seen: JobStatusTable, progress: int
) -> None:
    assert JobStart(SPEC, seen, "old").progress()[:2] == (progress, 0)


def test_an_archive_that_is_copied_to_the_cluster_is_progress() -> None:
    ships = [table(replace(STATUS, state="starting", shipped=size)) for size in (0, 10, 20)]
    assert [JobStart(SPEC, seen, "old").progress()[-1] for seen in ships] == [0, 10, 20]


def test_progress_of_an_end_is_that_fewer_records_are_left() -> None:
    ending = replace(SPEC, flows=[replace(FLOW, state="promoted")])
    seen = table(slot=report(partition(0, lag=7), partition(1, lag=2)))
    assert JobStart(ending, seen, "old").progress() == (1 + 2 + 2, 0, -9, 0)
    ended = table(replace(STATUS, flows=[replace(VIEW, state="promoted", partitions=0, ended=True)]))
    assert JobStart(ending, ended, "old").progress()[1] == 1


@pytest.mark.parametrize(
    ("view", "driver_before", "why"),
    [
        (replace(VIEW, attempts=2, why="no folder"), "old", "flow.x can't start: no folder"),
        (replace(VIEW, attempts=2, notes=["a: refused"]), "old", "flow.x can't start: a: refused"),
        (replace(VIEW, attempts=2, why="no folder"), "new", ""),  # the driver before, which ends
        (replace(VIEW, attempts=1, why="the job before has a transaction open"), "old", ""),
        (replace(VIEW, why="dc1 does not answer"), "old", ""),  # it has started
        (replace(VIEW, attempts=2), "old", ""),
        (replace(VIEW, flow="y", attempts=2, why="no folder"), "old", ""),
    ],
)
def test_a_flow_cannot_start_where_its_attempts_fail(view: FlowView, driver_before: str, why: str) -> None:
    assert JobStart(SPEC, table(replace(STATUS, flows=[view])), driver_before).failing_flow() == why


@pytest.mark.parametrize(
    ("state", "slots", "lacks", "why"),
    [
        ("starting", [], "", "the queue is full"),
        ("running", [], "", ""),
        (
            "running",
            ["unscheduled", "unscheduled"],
            "no free core",
            "slots 0, 1: no free core",
        ),
        ("running", ["unscheduled", "unscheduled"], "", ""),  # their executors start
        ("running", ["running", "unscheduled"], "no free core", ""),  # slot 0 copies what slot 1 would
    ],
)
def test_a_job_is_without_resources_where_its_cluster_gives_it_none(
    state: JobState, slots: list[SlotState], lacks: str, why: str
) -> None:
    views = [SlotView(number, slot, 0, why=lacks) for number, slot in enumerate(slots)]
    status = replace(STATUS, state=state, slots=views, trouble="the queue is full")
    assert JobStart(SPEC, table(status), "old").lacking_resources() == why
    before = JobStart(SPEC, table(status), STATUS.driver)  # the driver before, which ends
    assert before.lacking_resources() == ""


def test_a_reason_ends_the_wait_when_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [(1.0, "a"), (8.0, "b"), (8.5, ""), (9.0, "a"), (16.0, "a"), (17.0, "c")]
    monkeypatch.setattr("planner.apply.denials.time.monotonic", lambda: moments[0][0])

    async def reason() -> str:
        return moments[0][1]

    give_up = lasting(8, reason)
    said: list[str | None] = []

    async def check() -> str | None:
        return await give_up()

    while moments:
        said.append(run(check()))
        moments.pop(0)
    assert said == [None, None, None, None, None, "c"]


class Watch(JobWatch):
    """Reads nothing: each look for news takes a second of its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("planner.apply.job_watch.time.monotonic", lambda: self.now)

    async def read_news(self) -> None:
        self.now += 1


async def never() -> None:
    """Does not end the wait."""


@pytest.mark.parametrize(
    ("progress", "ends_at", "why"),
    [
        (lambda now: 0, 121, "2 of 3, after 120 s"),
        (lambda now: 7, 121, "2 of 3, after 120 s without progress"),
        (lambda now: min(now, 500), 621, "2 of 3, after 120 s without progress"),
        (lambda now: now % 100, 99 + 121, "2 of 3, after 120 s without progress"),  # it comes and goes
        (lambda now: now, 1000, ""),
    ],
)
def test_a_job_that_makes_progress_is_waited_for(
    progress: Callable[[int], int], ends_at: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(monkeypatch)

    waited = run(
        watch.wait_until(
            lambda: "2 of 3" if watch.now < 1000 else "", 120, never, lambda: (progress(int(watch.now)), 0)
        )
    )

    assert (waited, watch.now) == (why, ends_at)


PROMOTED_TOPICS = {"promoted": ("b", "pay")}
ENDED = {"state": "promoted", "generation": 4, "topics": 0, "partitions": 0, "ended": True}


@cases(
    "flow view missing",
    {
        "a paused flow needs its generation alone": (
            {"state": "paused"},
            {"state": "paused", "generation": 3, "topics": 0, "partitions": 0},
            "",
        ),
        "its topics are promoted": (PROMOTED_TOPICS, {"promoted": ("pay", "b")}, ""),
        "they are not yet": (
            PROMOTED_TOPICS,
            {},
            "its topics are not promoted yet: the job is working on it",
        ),
        "and say why": (
            PROMOTED_TOPICS,
            {"promoted": ("b",), "why": "3 records are left"},
            "its topics are not promoted yet: 3 records are left",
        ),
        "it has ended": ({"state": "promoted"}, ENDED, ""),
        "it has not, and says why": (
            {"state": "promoted"},
            {**ENDED, "ended": False, "why": "7 records are left to copy"},
            "is not promoted yet: 7 records are left to copy",
        ),
        "it has not heard of it": (
            {"state": "promoted"},
            {**ENDED, "state": "active"},
            "is not promoted yet: the job is working on it",
        ),
    },
)
def test_a_flow_that_is_to_pause_or_to_end_is_waited_for(flow, view, missing) -> None:
    spec = replace(SPEC, flows=[replace(FLOW, **flow)])
    slot = report() if "state" in flow else None
    seen = table(replace(STATUS, flows=[replace(VIEW, **view)]), spec, slot)
    found = JobStart(spec, seen, "old").not_copying({})
    assert found.removeprefix("flow.x").lstrip(": ") == missing
    assert found.startswith("flow.x") is bool(missing)


def test_what_is_not_copied_yet_is_counted_by_flow() -> None:
    seen = table(slot=report(partition(0, lag=7), partition(1, lag=5)))

    assert seen.lag("dc2") == {"x": 12}


def test_what_a_newer_release_says_is_not_guessed_at() -> None:
    made = JobStatusTable()
    key = job_status.encode_key(StatusKey("spec", "dc2"))

    made.update(
        [
            (key, b"\x63{}"),
            (b'["job","dc2"]', b"\x63"),
            (b"?", b""),
        ]
    )

    assert (made.jobs, set(made.unreadable), made.specs) == ({}, {"dc2"}, {"dc2": None})


def test_what_a_job_waits_for_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, told = Watch(monkeypatch), []

    def awaited() -> str:
        return "" if watch.now > 30 else f"{int(watch.now) // 10} of 3 copy"

    waiting = watch.wait_until(awaited, 60, never, waits=lambda what: told.append((watch.now, what)))
    assert run(waiting) == ""
    assert told == [(3, "0 of 3 copy"), (10, "1 of 3 copy"), (20, "2 of 3 copy"), (30, "3 of 3 copy")]
