"""This module applies read_committed to a fetch response: it selects the batches that a reader may see."""

from collections.abc import Iterable
from heapq import heapify, heappop
from struct import Struct
from typing import Final

from runtime.batch.layout import CONTROL, NO_PRODUCER, TRANSACTIONAL, Batch

_ABORT: Final = 0
_CONTROL_KEY: Final = Struct(">hh")  # version, type


class AbortedTransactions:
    """An AbortedTransactions holds the aborted transactions that a fetch response lists for one partition.

    Brokers list (producer id, first offset) of each that overlaps the response. From that offset on, the id's
    transactional batches are void until its abort marker. An instance serves one response.
    """

    __slots__ = ("_open", "_waiting")

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None:
        self._waiting = [(first, producer) for producer, first in aborted]
        heapify(self._waiting)
        self._open: set[int] = set()

    def keeps(self, batch: Batch) -> bool:
        """Returns whether a read_committed reader sees the batch's records.

        Call it for every batch, in order.
        """
        attributes = batch.attributes
        if batch.producer_id != NO_PRODUCER and (self._waiting or self._open):
            self._begin_up_to(batch.last_offset)
            if attributes & CONTROL:
                if marker_type(batch) == _ABORT:
                    self._open.discard(batch.producer_id)
            elif attributes & TRANSACTIONAL and batch.producer_id in self._open:
                return False
        return not attributes & CONTROL

    def _begin_up_to(self, offset: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            self._open.add(heappop(waiting)[1])


def marker_type(batch: Batch) -> int:
    """Returns the marker's type: 0 abort, 1 commit, or another; -1 if compaction removed its record."""
    if not batch.records or len(batch.body) < 9:
        return -1
    position = _skip(batch.body, 0)  # length
    position += 1  # attributes
    position = _skip(batch.body, position)  # timestamp delta
    position = _skip(batch.body, position)  # offset delta
    position = _skip(batch.body, position)  # key length
    if position + _CONTROL_KEY.size > len(batch.body):
        return -1
    kind: int = _CONTROL_KEY.unpack_from(batch.body, position)[1]
    return kind


def _skip(body: memoryview, position: int) -> int:
    size = len(body)
    while position < size and body[position] & 0x80:
        position += 1
    return position + 1
