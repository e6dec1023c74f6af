"""The options of verify, read as a person writes them."""

import click
import pytest

from planner.cli.options import PatternParam, RateParam
from planner.cli.verify import OffsetBounds, PercentParam, RangeParam


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("10:20", OffsetBounds(10, 20)),
        ("10:", OffsetBounds(10)),
        (":20", OffsetBounds(None, 20)),
        ("last:500", OffsetBounds(None, None, 500)),
    ],
)
def test_ranges(text: str, bounds: OffsetBounds) -> None:
    assert RangeParam().convert(text, None, None) == bounds


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (RangeParam(), "20:10", "is none of FROM:TO"),
        (RangeParam(), "last:", "is none of FROM:TO"),
        (PercentParam(), "0%", "is no share"),
        (PercentParam(), "many", "is no share"),
        (PercentParam(), "101", "is no share"),
        (RateParam(), "20", "is no rate"),
        (PatternParam(), "a(", "is no regular expression"),
    ],
)
def test_what_makes_no_sense_is_refused(kind: click.ParamType[object], text: str, why: str) -> None:
    with pytest.raises(click.BadParameter, match=why):
        kind.convert(text, None, None)


def test_shares_and_rates() -> None:
    assert PercentParam().convert("2.5%", None, None) == 2.5
    assert RateParam().convert("20MB/s", None, None) == 20_000_000
