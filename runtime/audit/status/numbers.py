"""Computes lag in seconds, rates and sums for the status. It is pure."""

from __future__ import annotations

from collections.abc import Iterable


def lag_ms(
    records: int | None,
    now_ms: int,
    *,
    first_missing_ms: int | None = None,
    caught_up_ms: int | None = None,
    newest_copied_ms: int | None = None,
) -> int | None:
    """Returns how long the oldest record that is not replicated has been waiting, in ms.

    It goes by the record's own timestamp, but is never longer than the time since the partition was last
    known to be caught up: a record that arrived since then can't wait longer, however old its timestamp is.
    Where the record was not read, the newest copied record is used instead: later records are rarely older.
    """
    if records is None:
        return None
    if records == 0:
        return 0
    begun = [one for one in (first_missing_ms, caught_up_ms) if one is not None and one > 0]
    if first_missing_ms is None and newest_copied_ms is not None and newest_copied_ms > 0:
        begun.append(newest_copied_ms)
    return max(now_ms - max(begun), 0) if begun else None


def rate(now: int, before: int | None, elapsed_ms: int) -> float | None:
    """Returns the rate per second; None where there is nothing to compare with."""
    if before is None or elapsed_ms <= 0:
        return None
    return max(now - before, 0) * 1000 / elapsed_ms


def sum_known(values: Iterable[int | None]) -> int | None:
    """Returns the sum of the known values, or None where none is known."""
    known = [one for one in values if one is not None]
    return sum(known) if known else None


def sum_rates(values: Iterable[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) if known else None


def longest(values: Iterable[int | None]) -> int | None:
    return max((one for one in values if one is not None), default=None)
