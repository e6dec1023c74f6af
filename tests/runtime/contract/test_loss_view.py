"""What a failover costs: from the source's ends where it answers, else from what was last heard of them."""

import pytest
from msgspec.structs import replace

from runtime.contract.views.groups_view import PartitionUnheard, loss_of, with_ends_of
from runtime.contract.views.status_view import FlowStatusView, PartitionStatusView, TopicStatusView

NOW = 100_000


def partition(
    lag: int | None = 0, *, heard: int | None = None, late: int | None = None, newest: int | None = None
) -> PartitionStatusView:
    values: dict[str, object] = dict.fromkeys(PartitionStatusView.__struct_fields__)
    values |= {
        "topic": "a",
        "partition": 0,
        "state": "down",
        "why": "",
        "records": 0,
        "bytes": 0,
        "dropped": 0,
    }
    values |= {"needs_someone": False, "foreign_writes": False, "given_up": 0}
    values |= {"lag_records": lag, "source_end_seen_ms": heard, "lag_ms": late, "last_timestamp_ms": newest}
    return PartitionStatusView(**values)  # type: ignore[arg-type]


def flow(*partitions: PartitionStatusView) -> FlowStatusView:
    values: dict[str, object] = dict.fromkeys(FlowStatusView.__struct_fields__)
    topic = TopicStatusView(
        topic="a",
        destination_topic="a",
        state="down",
        lag_records=None,
        lag_ms=None,
        records_per_s=None,
        bytes_per_s=None,
        partitions=list(partitions),
    )
    values |= {"name": "x", "source": "dc1", "destination": "dc2", "state": "down", "topics": [topic]}
    values |= {"destination_answers": True}
    return FlowStatusView(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("partitions", "records", "ms", "as_of", "unheard"),
    [
        ([partition(0, late=0)], 0, 0, NOW, 0),
        ([partition(7, late=900), partition(2, late=100)], 9, 900, NOW, 0),
        ([partition(7, heard=90_000, newest=88_000)], 7, 2_000, 90_000, 0),
        ([partition(0, heard=90_000), partition(3, heard=80_000, newest=79_000)], 3, 1_000, 90_000, 0),
        ([partition(3, heard=80_000)], 3, None, 80_000, 0),
        ([partition(None), partition(0, heard=80_000)], 0, 0, 80_000, 1),
        ([partition(None)], None, None, None, 1),
        ([], None, None, None, 0),
    ],
)
def test_at_least_so_much(
    partitions: list[PartitionStatusView],
    records: int | None,
    ms: int | None,
    as_of: int | None,
    unheard: int,
) -> None:
    loss = loss_of(flow(*partitions), NOW)

    assert (loss.records, loss.ms, loss.as_of_ms, loss.unheard) == (records, ms, as_of, unheard)


def test_a_partition_that_was_heard_of_long_before_is_named() -> None:
    stopped = replace(partition(3, heard=20_000), partition=1, state="data_loss", why="5 offsets are gone")
    loss = loss_of(flow(partition(0, heard=90_000), stopped), NOW)

    assert (loss.as_of_ms, loss.unheard) == (90_000, 0)
    assert loss.older_partitions == [
        PartitionUnheard(topic="a", partition=1, why="data_loss: 5 offsets are gone", as_of_ms=20_000)
    ]


def test_a_partition_of_which_nothing_is_known_is_named_with_the_reason() -> None:
    never_told = replace(partition(None), partition=1, position=7)
    loss = loss_of(replace(flow(partition(0, heard=90_000), never_told), job="into-dc2"), NOW)

    assert [(one.partition, one.why) for one in loss.unheard_partitions] == [
        (1, "job into-dc2 has not told where it ends at dc1")
    ]


@pytest.mark.parametrize("state", ["recreated", "diverged"])
def test_the_ledgers_position_is_no_loss_of_zero_where_the_mirror_is_another(state: str) -> None:
    before = flow(replace(placed(100, end=100, heard=90_000), state=state, why="x is gone from dc2"))

    loss = loss_of(with_ends_of(flow(placed(100, end=None)), before, NOW), NOW)

    assert (loss.records, loss.unheard) == (None, 1)
    assert loss.unheard_partitions[0].why == f"{state}: x is gone from dc2"


def test_what_arrived_in_the_end_counts_against_the_ends_of_before() -> None:
    before, after = flow(placed(40, end=100, heard=90_000)), flow(placed(70, end=None))

    loss = loss_of(with_ends_of(after, before, NOW), NOW)

    assert (loss.records, loss.as_of_ms, loss.unheard) == (30, 90_000, 0)


def test_of_a_source_that_answered_before_the_moment_counts() -> None:
    before, after = flow(placed(40, end=100)), flow(placed(100, end=None))

    loss = loss_of(with_ends_of(after, before, 99_000), NOW)

    assert (loss.records, loss.ms, loss.as_of_ms) == (0, 0, 99_000)


def test_a_topic_that_was_promoted_on_its_own_loses_nothing() -> None:
    promoted = replace(placed(70, end=None), state="promoted", lag_records=0, lag_ms=0)

    loss = loss_of(with_ends_of(flow(promoted), flow(placed(70, end=100, heard=90_000)), NOW), NOW)

    assert (loss.records, loss.ms, loss.unheard) == (0, 0, 0)


def placed(position: int, *, end: int | None, heard: int | None = None) -> PartitionStatusView:
    return replace(partition(None, heard=heard), position=position, source_end=end)
