"""Which groups count as readers of a cluster, where flows write offsets of groups too."""

from runtime.audit.offsets.unread import moved_by_consumers
from runtime.contract.groups import GroupPartition
from runtime.contract.records.group_records import Checkpoint, CheckpointState

HERE = [GroupPartition("billing", "orders", number) for number in range(3)]


def written(offset: int) -> list[Checkpoint]:
    """Returns what the flow committed last."""
    return [
        Checkpoint(
            offset, offset, 1, CheckpointState.TRANSLATED, "orders", written=offset, written_source=offset
        )
    ]


def test_a_group_that_only_flows_moved_does_not_count() -> None:
    committed = dict.fromkeys(HERE, 10)
    assert moved_by_consumers(committed, lambda _: written(10)) == {}


def test_a_group_that_read_in_one_partition_counts_with_all() -> None:
    """In the others there was nothing to read until salvage replayed records."""
    other = GroupPartition("audit", "orders", 0)
    committed = {HERE[0]: 25, HERE[1]: 10, HERE[2]: 10, other: 10}
    assert moved_by_consumers(committed, lambda _: written(10)) == {HERE[0]: 25, HERE[1]: 10, HERE[2]: 10}


def test_where_no_flow_writes_every_group_counts() -> None:
    assert moved_by_consumers({HERE[0]: 0}, lambda _: []) == {HERE[0]: 0}
