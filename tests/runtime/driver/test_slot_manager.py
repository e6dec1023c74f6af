"""What the manager makes of the reports of its slots."""

from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.job_status import PartitionStatus, SlotReport, SlotStatus
from runtime.contract.records.ledger import PartitionKey
from runtime.driver.slots.manager import partitions_in_loss


def report(slot: int, *states: State) -> SlotReport:
    partitions = [
        PartitionStatus("f", "t", slot * 100 + number, state, since_ms=0)
        for number, state in enumerate(states)
    ]
    return SlotReport("driver", 1, SlotStatus(slot=slot, at_ms=0, assignment=1, partitions=partitions))


def test_only_what_is_lost_can_be_accepted():
    lost = [State.DIVERGED, State.RECREATED, State.FILE_TRUNCATED, State.FILE_VANISHED]
    others = [one for one in State if one not in (State.DATA_LOSS, *lost)]

    found = partitions_in_loss([report(0, State.DATA_LOSS, *others), report(1, *lost)])

    assert found == [PartitionKey("f", "t", number) for number in (0, 100, 101, 102, 103)]
