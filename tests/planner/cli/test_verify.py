"""The options of verify, read as a person writes them."""

import click
import pytest

from planner.cli.verify import Bounds, Pattern, Percent, Range, Rate


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("10:20", Bounds(10, 20)),
        ("10:", Bounds(10)),
        (":20", Bounds(None, 20)),
        ("last:500", Bounds(None, None, 500)),
    ],
)
def test_ranges(text: str, bounds: Bounds) -> None:
    assert Range().convert(text, None, None) == bounds


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (Range(), "20:10", "is none of FROM:TO"),
        (Range(), "last:", "is none of FROM:TO"),
        (Percent(), "0%", "is no share"),
        (Percent(), "many", "is no share"),
        (Percent(), "101", "is no share"),
        (Rate(), "20", "is no rate"),
        (Pattern(), "a(", "is no regular expression"),
    ],
)
def test_what_makes_no_sense_is_refused(kind: click.ParamType[object], text: str, why: str) -> None:
    with pytest.raises(click.BadParameter, match=why):
        kind.convert(text, None, None)


def test_shares_and_rates() -> None:
    assert Percent().convert("2.5%", None, None) == 2.5
    assert Rate().convert("20MB/s", None, None) == 20_000_000
