"""What stands still over lost records, and what stands still over something else."""

import pytest
from msgspec.structs import replace

from planner.apply.losses import lost_of, stopped_partitions
from runtime.contract.records.job_status import PartitionState as State
from tests.planner.apply.test_job_control import partition, report, table

LOST = {
    State.DATA_LOSS,
    State.RECREATED,
    State.DIVERGED,
    State.FILE_TRUNCATED,
    State.FILE_VANISHED,
}


@pytest.mark.parametrize("state", State)
def test_only_what_is_lost_can_be_accepted(state: State) -> None:
    found = stopped_partitions(table(slot=report(partition(0), partition(1, state))), "dc2", "x")

    assert [one.state for one in lost_of(found)] == ([state] if state in LOST else [])
    assert [one.state for one in found] == ([state] if state.needs_decision else [])


def test_partitions_stand_in_order_and_another_flows_do_not_count() -> None:
    lost = [partition(number, State.DATA_LOSS) for number in (10, 2)]
    others = replace(partition(3, State.DIVERGED), flow="y")

    found = stopped_partitions(table(slot=report(*lost, others)), "dc2", "x")

    assert [one.partition for one in found] == [2, 10]
