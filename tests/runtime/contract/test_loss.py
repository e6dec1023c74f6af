"""What a failover of dc1 costs, and whether it is safe, from what was read of both clusters."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from runtime.audit.status.join import join
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.results.failover import FailoverVerdict, Verdict, verdicts
from runtime.contract.results.groups import PartitionUnheard, loss_of, with_ends_of
from runtime.contract.results.status import FlowHealth, PartitionHealth, ReplicationStatus
from tests.fakes.blank import blank
from tests.fakes.health import flow_health, topic_health
from tests.planner.render import test_status as scenes
from tests.runtime.audit.given import asked, destination, job, ledger, look, progress, report, said, source

NOW = 100_000
AGO = 90_000


def partition(lag: int | None = None, **changes: Any) -> PartitionHealth:
    """`heard` is when the source's end was last seen, `newest` the time of the newest record."""
    names = {
        "heard": "source_end_seen_ms",
        "late": "lag_ms",
        "newest": "last_timestamp_ms",
        "end": "source_end",
    }
    given = {names.get(name, name): value for name, value in changes.items()}
    return blank(PartitionHealth, **{"topic": "a", "state": "down", "lag_records": lag} | given)


def flow(*partitions: PartitionHealth, **changes: Any) -> FlowHealth:
    return flow_health(topic_health(*partitions, topic="a"), source="dc1", destination="dc2", **changes)


@pytest.mark.parametrize(
    ("partitions", "records", "ms", "as_of", "unheard"),
    [
        ([partition(0, late=0)], 0, 0, NOW, 0),
        ([partition(7, late=900), partition(2, late=100)], 9, 900, NOW, 0),
        ([partition(7, heard=AGO, newest=88_000)], 7, 2_000, AGO, 0),
        ([partition(0, heard=AGO), partition(3, heard=80_000, newest=79_000)], 3, 1_000, AGO, 0),
        ([partition(3, heard=80_000)], 3, None, 80_000, 0),
        ([partition(), partition(0, heard=80_000)], 0, 0, 80_000, 1),
        ([partition()], None, None, None, 1),
        ([], None, None, None, 0),
    ],
)
def test_the_loss_is_at_least_what_is_known(
    partitions: list[PartitionHealth],
    records: int | None,
    ms: int | None,
    as_of: int | None,
    unheard: int,
) -> None:
    loss = loss_of(flow(*partitions), NOW)
    assert (loss.records, loss.ms, loss.as_of_ms, loss.unheard) == (records, ms, as_of, unheard)


def test_partitions_of_which_nothing_new_is_known_are_named() -> None:
    heard = partition(0, heard=AGO)
    stopped = partition(3, heard=20_000, partition=1, state="data_loss", why="5 offsets are gone")
    loss = loss_of(flow(heard, stopped), NOW)
    older = PartitionUnheard(topic="a", partition=1, why="data_loss: 5 offsets are gone", as_of_ms=20_000)
    assert (loss.as_of_ms, loss.unheard, loss.older_partitions) == (AGO, 0, [older])
    loss = loss_of(flow(heard, partition(partition=1, position=7), job="into-dc2"), NOW)
    unheard = [(one.partition, one.why) for one in loss.unheard_partitions]
    assert unheard == [(1, "job into-dc2 has not told where it ends at dc1")]


@pytest.mark.parametrize(
    ("before", "after", "at_ms", "expected"),
    [
        (partition(position=40, end=100, heard=AGO), partition(position=70), NOW, (30, None, AGO, 0)),
        (partition(position=40, end=100), partition(position=100), 99_000, (0, 0, 99_000, 0)),
        (
            partition(position=70, end=100, heard=AGO),
            partition(0, position=70, state="promoted", late=0),
            NOW,
            (0, 0, NOW, 0),
        ),
        *(
            (
                partition(position=100, end=100, heard=AGO, state=state, why="x is gone"),
                partition(position=100),
                NOW,
                (None, None, None, 1),
            )
            for state in ("recreated", "diverged")
        ),
    ],
    ids=[
        "what arrived in the end",
        "a source that answered before",
        "a topic that was promoted",
        "recreated",
        "diverged",
    ],
)
def test_positions_of_after_count_against_the_ends_of_before(
    before: PartitionHealth,
    after: PartitionHealth,
    at_ms: int,
    expected: tuple[int | None, int | None, int | None, int],
) -> None:
    loss = loss_of(with_ends_of(flow(after), flow(before), at_ms), NOW)
    assert (loss.records, loss.ms, loss.as_of_ms, loss.unheard) == expected
    assert [one.why for one in loss.unheard_partitions] == [f"{before.state}: x is gone"] * loss.unheard


# Verdicts


def only(status: ReplicationStatus) -> FailoverVerdict:
    (found,) = verdicts(status)
    assert found.cluster == "dc1"
    return found


def behind(lag_ms: int | None, rpo_ms: int | None) -> ReplicationStatus:
    """10 records are missing at the destination, the oldest of them for `lag_ms`."""
    told = ledger(progress(), job(), report(said(S.COPYING, 100, 110)))
    seen = join(asked(rpo_ms=rpo_ms), look(source(end=110), destination(), told))
    (flow,) = seen.flows
    topics = [
        replace(topic, partitions=[replace(one, lag_ms=lag_ms) for one in topic.partitions])
        for topic in flow.topics
    ]
    met = None if lag_ms is None or rpo_ms is None else lag_ms <= rpo_ms
    return replace(seen, flows=[replace(flow, topics=topics, lag_ms=lag_ms, rpo_met=met)])


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
def test_what_is_behind_is_measured_by_the_rpo(
    lag_ms: int | None, rpo_ms: int | None, verdict: Verdict
) -> None:
    found = only(behind(lag_ms, rpo_ms))
    assert (found.verdict, found.records, found.ms) == (verdict, 10, lag_ms)


ENDS_OF_BEFORE = "dc1 does not answer: its ends are those that the jobs saw last, there may be more"


@pytest.mark.parametrize(
    ("read", "verdict", "records", "reason"),
    [
        (scenes.caught_up, Verdict.SAFE, 0, None),
        (scenes.source_down, Verdict.LOSES, 5, ENDS_OF_BEFORE),
        (scenes.source_down, Verdict.LOSES, 5, "no RPO is declared for one"),
        (scenes.destination_down, Verdict.UNKNOWN, ..., "dc2 does not answer"),
        (scenes.job_down, Verdict.LOSES, ..., "job dc2 is down: its heartbeat stopped"),
        (scenes.needs_someone, Verdict.BEYOND_RPO, ..., "1 partition is record_too_large, orders-0"),
        (
            scenes.mirror_made_again,
            Verdict.UNKNOWN,
            ...,
            "of 1 of 1 partitions nothing is known (orders-0: recreated",
        ),
        (
            partial(join, asked(), look(source(), destination(), ledger(progress(), job(60_000)))),
            Verdict.NOT_COPYING,
            0,
            "job dc2 is down",
        ),
        (
            partial(
                join, asked(state="failed_over"), look(source(), destination(), ledger(progress(), job()))
            ),
            Verdict.ENDED,
            ...,
            None,
        ),
    ],
)
def test_a_cluster_is_safe_to_lose_only_when_all_of_it_is_well_and_else_says_why(
    read: Callable[[], ReplicationStatus], verdict: Verdict, records: Any, reason: str | None
) -> None:
    status = read()
    found = only(status)
    assert found.verdict is verdict
    assert records is ... or found.records == records
    assert reason is None or any(reason in line for line in found.because), found.because
    assert verdict is not Verdict.SAFE or found.because == []
    assert found.answers is (status.flows[0].source_answers is not False)


def test_a_cluster_that_does_not_answer_may_lose_more_than_is_known() -> None:
    status = scenes.caught_up()
    found = only(replace(status, flows=[replace(status.flows[0], source_answers=False)]))
    assert (found.verdict, found.records) == (Verdict.LOSES, 0)


def test_the_worst_cluster_comes_first_and_nothing_fails_over_to_or_from_files() -> None:
    safe, unknown = scenes.caught_up(), scenes.destination_down()
    other = replace(unknown.flows[0], source="dc9", name="nine")
    clusters = [*safe.clusters, replace(safe.clusters[0], name="dc9")]
    both = replace(safe, clusters=clusters, flows=[*safe.flows, other])
    assert [verdict.cluster for verdict in verdicts(both)] == ["dc9", "dc1"]
    assert verdicts(replace(safe, flows=[replace(safe.flows[0], destination="lake")])) == []
    assert verdicts(replace(safe, flows=[replace(safe.flows[0], source="lake")])) == []
