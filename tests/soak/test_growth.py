"""What counts as growth, and that the picture shows every series."""

from xml.etree import ElementTree

import pytest

from tests.soak.growth import Sample, levels, picture


def series(values: list[float], what: str = "memory MB") -> list[Sample]:
    return [Sample(at * 10.0, "driver", what, value) for at, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "grows"),
    [
        ([100.0] * 30, False),
        ([100.0] * 10 + [900.0] * 10 + [110.0] * 10, False),  # it was much, and went back
        ([10.0] * 10 + [40.0] * 20, False),  # too little to count
        ([100.0] * 20 + [140.0] * 10, False),
        ([100.0] * 10 + [200.0] * 10 + [300.0] * 10, True),
    ],
)
def test_the_last_third_is_compared_with_the_first(values: list[float], grows: bool) -> None:
    (level,) = levels(series(values))
    assert level.grows is grows


def test_the_picture_has_a_line_for_each_role_and_a_chart_for_each_kind() -> None:
    samples = [*series([1, 2, 3]), *series([4, 5, 6], "handles"), Sample(5.0, "slots", "handles", 2.0)]
    drawn = ElementTree.fromstring(picture(samples))
    lines = [one.get("points") for one in drawn.iter("{http://www.w3.org/2000/svg}polyline")]
    assert len(lines) == 3
    assert "60.0,0.0" not in (lines[0] or "")  # the first figure is not the greatest
    assert (lines[0] or "").split()[-1] == "780.0,0.0"


def test_a_level_stretch_has_its_ends_alone() -> None:
    drawn = ElementTree.fromstring(picture(series([5, 5, 5, 5, 10, 10, 10])))
    (line,) = drawn.iter("{http://www.w3.org/2000/svg}polyline")
    assert (line.get("points") or "").split() == ["60.0,75.0", "420.0,75.0", "540.0,0.0", "780.0,0.0"]


def test_without_samples_there_is_an_empty_picture() -> None:
    assert "polyline" not in picture([])
    assert levels([]) == []
