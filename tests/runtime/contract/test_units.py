"""Amounts in the units in which people write and read them."""

import pytest

from runtime.contract.spec.units import BINARY, DECIMAL, DURATIONS, duration, in_whole, rounded_size


@pytest.mark.parametrize(
    ("amount", "units", "shown"),
    [
        (604_800_000, DURATIONS, "7d"),
        (5_400_000, DURATIONS, "90m"),
        (1_500, DURATIONS, ""),
        (1 << 30, (*BINARY, *DECIMAL), "1GiB"),
        (64_000_000, (*DECIMAL, *BINARY), "64MB"),
        (64_000_000, BINARY, "62500KiB"),
        (0, DECIMAL, ""),
    ],
)
def test_whole_units(amount: int, units: tuple[str, ...], shown: str) -> None:
    assert in_whole(amount, *units) == shown


@pytest.mark.parametrize(("ms", "shown"), [(0, "0ms"), (1_500, "1500ms"), (5_000, "5s")])
def test_durations(ms: int, shown: str) -> None:
    assert duration(ms) == shown


@pytest.mark.parametrize(
    ("octets", "shown"),
    [
        (12, "12 B"),
        (999, "999 B"),
        (1_500, "1.5 KB"),
        (2_340_000_000, "2.3 GB"),
        (3.2e12, "3.2 TB"),
        (7 * 10**12, "7.0 TB"),
    ],
)
def test_rounded_sizes(octets: float, shown: str) -> None:
    assert rounded_size(octets) == shown
