"""While a flow ends: what is left to copy, how long a source may be silent, and which loss is accepted."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from planner.cli.view import TerminalView
from planner.kafka import run
from planner.model.diagnostic import Diagnostic, ExitCode, Failure
from planner.model.topology import Cluster
from planner.workflows.flows.ending import (
    SILENT_MS,
    CopyGoal,
    SourceSilence,
    left_to_copy,
    read_subscriptions,
)
from planner.workflows.flows.states import not_copying, report_loss
from planner.workflows.interaction import Interaction, ProgressEvent
from runtime.audit.status.facts import TopicFacts
from runtime.audit.status.join import join
from runtime.contract.client.stores import Setting
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.job_status import PartitionStatus
from runtime.contract.results.status import PartitionHealth, ReplicationStatus
from tests.fakes.clock import jumping
from tests.fakes.health import flow_health, partition_health, status_of, topic_health
from tests.fakes.states import flow, topology
from tests.runtime.audit.given import (
    TOPIC,
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

LONG_S = SILENT_MS / 1000 + 1


def test_a_source_that_never_answered_is_silent_at_once() -> None:
    assert SourceSilence().lasts(answers=False, now_s=100)


def test_one_that_did_answer_has_a_moment_to_come_back() -> None:
    silence = SourceSilence()

    assert not silence.lasts(answers=True, now_s=100)
    assert not silence.lasts(answers=False, now_s=101)
    assert not silence.lasts(answers=True, now_s=102)
    assert not silence.lasts(answers=False, now_s=102 + LONG_S - 2)
    assert silence.lasts(answers=False, now_s=102 + LONG_S)


def test_a_partition_that_was_recreated_is_not_copied_and_its_next_step_is_told() -> None:
    written = ledger(progress(), job(), report(said(S.CAUGHT_UP)))
    made_again = destination(topics={TOPIC: TopicFacts(b"o" * 16, 1)})
    (flow,) = join(asked(), look(source(), made_again, written)).flows

    assert left_to_copy(flow.topics) == (
        "orders-0: recreated, orders at dc2 was deleted and made again. Next: repl resume one --accept-loss"
    )
    (flow,) = join(asked(), look(source(), destination(), written)).flows
    assert left_to_copy(flow.topics) == ""


@pytest.mark.parametrize(("end", "stopped"), [(9, True), (5, False)])
def test_a_partition_that_waits_for_a_decision_is_named_while_records_are_left(
    end: int, stopped: bool
) -> None:
    written = ledger(progress(5), job(), report(said(S.RECORD_TOO_LARGE, why="2 MB")))
    (flow,) = join(asked(), look(source(end=end), destination(end=5), written)).flows
    left = left_to_copy(flow.topics)
    assert left.startswith("orders-0: record_too_large, 2 MB. Next: raise max.message.bytes") is stopped, left


def test_what_producers_add_while_a_failback_waits_is_not_waited_for() -> None:
    def left(goal: CopyGoal, position: int, end: int) -> str:
        written = ledger(progress(position), job(), report(said(S.COPYING)))
        (flow,) = join(asked(), look(source(end=end), destination(end=position), written)).flows
        assert (
            left_to_copy(flow.topics)
            == f"{end - position:,} records are left to copy (orders {end - position:,})"
        )
        return goal.left(flow.topics)

    goal = CopyGoal()
    assert left(goal, 40, 100) == "60 records are left to copy (orders 60)"
    assert left(goal, 90, 170) == "10 records are left to copy (orders 10)"
    assert left(goal, 100, 180) == ""
    assert left(CopyGoal(), 100, 180) == "80 records are left to copy (orders 80)"


def test_a_failback_waits_while_a_lag_is_not_known() -> None:
    topics = [replace(topic_health(topic=name), lag_records=None) for name in ("d", "a", "c", "b")]
    assert CopyGoal().left(topics) == left_to_copy(topics) == "the lag of a, b, c is not known yet"


def test_a_partition_without_a_leader_is_not_taken_for_copied() -> None:
    """The other partitions of its topic have no lag: promote and the gate of a wave must not pass."""
    partitions = partition_health(lag_records=0), partition_health(partition=1, lag_records=None)
    topics = [replace(topic_health(*partitions, topic="orders"), lag_records=0)]
    assert CopyGoal().left(topics) == left_to_copy(topics) == "the lag of orders is not known yet"


def test_of_many_topics_those_with_the_largest_lags_are_named() -> None:
    lags = {"a": 1, "b": 0, "c": 3_000, "d": 20, "e": 7, "f": 2}
    topics = [topic_health(partition_health(lag_records=lag), topic=topic) for topic, lag in lags.items()]
    assert left_to_copy(topics) == ("3,030 records are left to copy (c 3,000, d 20, e 7, and 2 more topics)")


THERE = flow("there")


def partition(number: int, state: State, why: str = "") -> PartitionStatus:
    return PartitionStatus("there", "orders", number, state, since_ms=0, why=why)


LOST = partition(0, State.DATA_LOSS)


def told(stopped: Sequence[PartitionStatus], *left: PartitionHealth) -> list[ProgressEvent]:
    events: list[ProgressEvent] = []
    report_loss(stopped, THERE, Interaction(progress=events.append), left)
    return events


def test_what_does_not_copy_yet_does_not_count_as_continued() -> None:
    idle = partition_health(1, state="retrying", why="orders-1 has no leader", next="")
    lost = partition(1, State.DIVERGED)
    continued, noticed = told([LOST, lost], idle)
    assert continued == "flow.there: continues behind the lost records: orders-0 (data_loss)"
    assert isinstance(noticed, Diagnostic)
    assert "orders-1: its loss is accepted, and it is retrying: orders-1 has no leader" in str(noticed)
    assert all(isinstance(event, Diagnostic) for event in told([lost], idle))


class Readings:
    """Stands for a StatusReader: each reading shows the next states of the partitions, the last for ever."""

    def __init__(self, *states: tuple[str, ...]) -> None:
        self._states = list(states)

    async def status(self) -> ReplicationStatus:
        states = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        health = [partition_health(number, state=state) for number, state in enumerate(states)]
        return status_of(flow_health(topic_health(*health), name="there"))


@pytest.mark.parametrize(
    ("states", "left"),
    [
        ((("data_loss", "data_loss"), ("starting", "retrying"), ("copying", "retrying")), []),
        ((("data_loss", "data_loss"), ("retrying", "caught_up")), ["retrying"]),
    ],
)
def test_a_partition_whose_loss_is_accepted_is_waited_for(
    states: tuple[tuple[str, str], ...], left: list[str]
) -> None:
    """Other partitions of the flow are not."""

    @jumping
    async def wait() -> None:
        reader: Any = Readings(*states)
        assert [part.state for part in await not_copying(reader, "there", [LOST])] == left

    wait()


def test_partitions_that_no_status_shows_are_not_said_to_copy() -> None:
    @jumping
    async def wait() -> None:
        reader: Any = Readings(())
        with pytest.raises(Failure, match="whether it copies again is not known"):
            await not_copying(reader, "there", [LOST])

    wait()


def test_what_continues_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for event in told([LOST, partition(1, State.RECREATED)]):
        TerminalView(as_json=False)(event)

    assert capsys.readouterr().err == (
        "flow.there: continues behind the lost records: orders-0 (data_loss), orders-1 (recreated)\n"
    )


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (State.RECORD_TOO_LARGE, "raise max.message.bytes"),
        (State.RECORD_REFUSED, "go past the record with restart_from: {offsets: {orders: {7: OFFSET}}}"),
        (State.RECORD_CORRUPT, "go past the record with restart_from: {offsets: {orders: {7: OFFSET}}}"),
        (State.LEDGER_MISSING, "restore __repl.ledger, or say where to begin"),
        (State.SOURCE_DELETED, "take the topic out of the flow"),
    ],
)
def test_what_is_no_loss_is_refused_with_its_way_out(state: State, says: str) -> None:
    with pytest.raises(Failure) as failure:
        told([partition(7, state, "so it is"), partition(8, state)])

    assert failure.value.exit_code == ExitCode.REFUSED
    (one,) = failure.value.diagnostics
    assert one.summary == f"orders-7, orders-8: {state} is no loss that can be accepted (orders-7: so it is)"
    assert says in one.hint


def test_each_state_is_a_warning_beside_what_continues() -> None:
    others = (partition(1, State.RECORD_CORRUPT), partition(2, State.LEDGER_MISSING))

    accepted, *more = told([LOST, *others])

    assert accepted == "flow.there: continues behind the lost records: orders-0 (data_loss)"
    warned = [str(one) for one in more if isinstance(one, Diagnostic)]
    assert ["orders-2: ledger_missing" in warned[0], "orders-1: record_corrupt" in warned[1]] == [True, True]


def test_where_nothing_stands_still_nothing_is_accepted() -> None:
    with pytest.raises(Failure, match="none of its partitions is stopped over lost records") as failure:
        told([])

    assert failure.value.exit_code == ExitCode.ERROR


def test_a_secret_that_is_gone_after_the_end_is_a_warning(tmp_path: Path) -> None:
    """The apply is done by then: a failover that was carried out must not end as a failed one."""
    secret: dict[str, Setting] = {"sasl.password": {"file": str(tmp_path / "gone")}}
    here = "127.0.0.1:1"
    clusters = [Cluster("dc1", bootstrap=here), Cluster("dc2", bootstrap=here, client=secret)]
    ended = flow()
    events: list[ProgressEvent] = []
    shop = topology(ended, clusters=clusters)
    assert run(read_subscriptions(shop, [ended], 1.0, events.append)) == ()
    (noticed,) = events
    assert isinstance(noticed, Diagnostic)
    assert "sasl.password" in str(noticed)
