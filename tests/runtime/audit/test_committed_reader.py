"""How long one side of a verification is waited for."""

from __future__ import annotations

import asyncio

import pytest

from runtime.audit.partition_logs import CommittedRecordReader, OpenTransactionTimeout
from runtime.kafka.errors import Disconnected
from runtime.kafka.protocol.fetch import FetchResponse
from runtime.slot.budget import TokenBucket
from tests.runtime.kafka.fetch.test_once import AT, END, GONE, ID, LONG_S, PATIENCE_S, OneBroker, answered

OPEN = answered(stable=3)


def read(broker: OneBroker) -> None:
    async def side() -> None:
        bucket = TokenBucket(None, asyncio.get_running_loop().time)
        one = CommittedRecordReader(broker, AT, ID, 3, END, bucket, PATIENCE_S)  # type: ignore[arg-type]
        assert await one.next() == []
        assert one.ended

    asyncio.run(side())


@pytest.mark.parametrize("first", [GONE, OPEN], ids=["a failure", "an open transaction"])
def test_the_time_that_a_quota_took_leaves_its_patience(first: FetchResponse | Exception) -> None:
    read(OneBroker([first, answered()], takes_s=LONG_S))


@pytest.mark.parametrize(("what", "raised"), [(GONE, Disconnected), (OPEN, OpenTransactionTimeout)])
def test_patience_ends(what: FetchResponse | Exception, raised: type[Exception]) -> None:
    with pytest.raises(raised):
        read(OneBroker([what] * 3))
