"""`repl resume FLOW --accept-loss`: what it says of what goes on, and of what it may not pass over."""

import pytest

from planner.apply.handlers.jobs import StoppedPartitions
from planner.cli.view import TerminalView
from planner.model.diagnostic import ExitCode, Failure
from planner.workflows.flows.states import report_loss
from planner.workflows.interaction import Interaction, LossAccepted, Noticed, ProgressEvent
from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.job_status import PartitionStatus
from tests.fakes.states import flow

THERE = flow("there")


def partition(number: int, state: State, why: str = "") -> PartitionStatus:
    return PartitionStatus("there", "orders", number, state, since_ms=0, why=why)


LOST = partition(0, State.DATA_LOSS)


def told(stopped: StoppedPartitions) -> list[ProgressEvent]:
    events: list[ProgressEvent] = []
    report_loss(stopped, THERE, Interaction(progress=events.append))
    return events


def test_what_continues_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for event in told(StoppedPartitions((LOST, partition(1, State.RECREATED)), ())):
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
        told(StoppedPartitions((), (partition(7, state, "so it is"), partition(8, state))))

    assert failure.value.exit_code == ExitCode.REFUSED
    (one,) = failure.value.diagnostics
    assert one.summary == f"orders-7, orders-8: {state} is no loss that can be accepted (orders-7: so it is)"
    assert says in one.way_out


def test_each_state_is_a_warning_beside_what_continues() -> None:
    others = (partition(1, State.RECORD_CORRUPT), partition(2, State.LEDGER_MISSING))

    accepted, *more = told(StoppedPartitions((LOST,), others))

    assert accepted == LossAccepted("there", (LOST,))
    warned = [str(one.diagnostic) for one in more if isinstance(one, Noticed)]
    assert ["orders-2: ledger_missing" in warned[0], "orders-1: record_corrupt" in warned[1]] == [True, True]


def test_where_nothing_stands_still_nothing_is_accepted() -> None:
    with pytest.raises(Failure, match="none of its partitions is stopped over lost records") as failure:
        told(StoppedPartitions((), ()))

    assert failure.value.exit_code == ExitCode.ERROR


def test_a_job_that_did_not_hear_is_named() -> None:
    with pytest.raises(Failure, match="it has not taken over what it was told"):
        told(StoppedPartitions((LOST,), (), "it has not taken over what it was told"))
