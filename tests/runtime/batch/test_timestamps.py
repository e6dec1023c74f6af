"""A client may write any base timestamp and any delta: they are added in 64 bits, as the brokers add them."""

from typing import Any

import pytest
from msgspec.structs import replace

from runtime.batch import Codec, Merge, Record, RewriteReason, RewriteSpec, prepare, records
from runtime.contract.records.provenance import ClusterPartition
from tests.runtime.batch.forge import HERE, START, arrived, batch_bytes, batches, overflowing, record, summed

LEAST, MOST = -(1 << 63), (1 << 63) - 1
SPEC = RewriteSpec(HERE, max_batch=1_000_000)
WAYS: dict[RewriteReason, dict[str, Any]] = {
    RewriteReason.MERGE: {"merge": Merge()},
    RewriteReason.START: {"start": 10},
    RewriteReason.RECORDS: {"provenance": ClusterPartition("c1", *HERE)},
}


@pytest.mark.parametrize("base", [LEAST, LEAST + 3, -START, 0, START, MOST - 3, MOST])
@pytest.mark.parametrize("reason", WAYS, ids=str)
def test_a_timestamp_that_overflows_is_that_of_other_readers(base: int, reason: RewriteReason) -> None:
    times = [START, START + 1, LEAST, MOST, -1, 0]
    sets = batches(overflowing(10 - (reason is RewriteReason.START), base, *times), batch_bytes([record(20)]))
    prepared = prepare(sets, replace(SPEC, **WAYS[reason]), START)
    assert prepared.failure is None
    assert reason in prepared.outgoing[0].reason
    found = [one.timestamp for one in arrived(prepared)]
    assert found == [*times[reason is RewriteReason.START :], START + 20]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_records_are_read_with_their_timestamps(codec: Codec) -> None:
    (batch,) = batches(overflowing(0, LEAST, START, MOST))
    assert [one.timestamp for one in records(batch, HERE)] == [START, MOST]
    far = [Record(0, LEAST, None, b"v", ()), Record(1, LEAST, None, b"v", ())]
    (batch,) = batches(batch_bytes(far, codec))
    assert records(batch, HERE) == far


def test_a_delta_of_more_than_64_bits_is_cut_as_other_readers_cut_it() -> None:
    """The last of ten bytes has room for more."""
    data = bytearray(overflowing(0, 0, LEAST))
    long, longer = b"\xff" * 9 + b"\x01", b"\xff" * 9 + b"\x7f"
    assert data.count(long) == 1
    (batch,) = batches(summed(data.replace(long, longer)))
    assert [one.timestamp for one in records(batch, HERE)] == [LEAST]
