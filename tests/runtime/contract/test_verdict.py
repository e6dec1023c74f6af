"""Whether a failover of dc1 is safe, from what was read of both clusters."""

import pytest
from msgspec.structs import replace

from runtime.audit.status.join import join
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.views.status_view import StatusView
from runtime.contract.views.verdict_view import FailoverVerdict, Verdict, verdicts
from tests.planner.render import test_status as scenes
from tests.runtime.audit.given import asked, destination, job, ledger, look, progress, report, said, source


def only(status: StatusView) -> FailoverVerdict:
    (found,) = verdicts(status)
    assert found.cluster == "dc1"
    return found


def behind(lag_ms: int | None, rpo_ms: int | None) -> StatusView:
    """10 records are missing at the destination, the oldest of them for `lag_ms`."""
    seen = join(
        asked(rpo_ms=rpo_ms),
        look(source(end=110), destination(), ledger(progress(), job(), report(said(S.COPYING, 100, 110)))),
    )
    flow = seen.flows[0]
    topics = [
        replace(one, partitions=[replace(each, lag_ms=lag_ms) for each in one.partitions])
        for one in flow.topics
    ]
    met = None if lag_ms is None or rpo_ms is None else lag_ms <= rpo_ms
    return replace(seen, flows=[replace(flow, topics=topics, lag_ms=lag_ms, rpo_met=met)])


def test_safe_where_everything_has_arrived_and_is_being_copied() -> None:
    found = only(scenes.caught_up())

    assert (found.verdict, found.records, found.because) == (Verdict.SAFE, 0, [])


@pytest.mark.parametrize(
    ("lag_ms", "rpo_ms", "verdict"),
    [
        (3_000, 5_000, Verdict.WITHIN_RPO),
        (5_000, 5_000, Verdict.WITHIN_RPO),
        (5_001, 5_000, Verdict.BEYOND_RPO),
        (1, None, Verdict.LOSES),
        (None, 5_000, Verdict.LOSES),
    ],
)
def test_what_is_behind_is_measured_by_the_rpo(lag_ms, rpo_ms, verdict) -> None:
    found = only(behind(lag_ms, rpo_ms))

    assert (found.verdict, found.records, found.ms) == (verdict, 10, lag_ms)


@pytest.mark.parametrize(
    ("status", "verdict", "reason"),
    [
        (scenes.source_down(), Verdict.LOSES, "dc1 does not answer"),
        (scenes.destination_down(), Verdict.UNKNOWN, "dc2 does not answer"),
        (scenes.job_down(), Verdict.LOSES, "job dc2 is down: its heartbeat stopped"),
        (scenes.needs_someone(), Verdict.BEYOND_RPO, "1 partition is record_too_large, orders-0"),
        (
            scenes.mirror_made_again(),
            Verdict.UNKNOWN,
            "of 1 of 1 partitions nothing is known (orders-0: recreated",
        ),
    ],
)
def test_what_is_not_well_is_never_safe_and_says_why(status, verdict, reason) -> None:
    found = only(status)

    assert found.verdict is verdict
    assert any(reason in one for one in found.because), found.because


def test_a_silent_cluster_tells_how_old_its_ends_are() -> None:
    found = only(scenes.source_down())

    assert not found.answers
    assert found.as_of_ms is not None
    assert found.records == 5
    assert found.because == [
        "dc1 does not answer: its ends are those that the jobs saw last, there may be more",
        "no RPO is declared for one",
    ]


def test_nothing_is_lost_while_a_job_is_down_and_it_is_not_safe_either() -> None:
    seen = join(asked(), look(source(), destination(), ledger(progress(), job(60_000))))

    found = only(seen)
    assert (found.verdict, found.records) == (Verdict.NOT_COPYING, 0)


def test_flows_that_ended_need_no_failover() -> None:
    seen = join(asked(state="failed_over"), look(source(), destination(), ledger(progress(), job())))

    assert only(seen).verdict is Verdict.ENDED


def test_the_worst_cluster_comes_first() -> None:
    safe, unknown = scenes.caught_up(), scenes.destination_down()
    other = replace(unknown.flows[0], source="dc9", name="nine")

    found = verdicts(replace(safe, flows=[*safe.flows, other]))
    assert [one.cluster for one in found] == ["dc9", "dc1"]


def test_nothing_fails_over_to_files() -> None:
    seen = scenes.caught_up()

    assert verdicts(replace(seen, flows=[replace(seen.flows[0], destination="lake")])) == []
