"""The drawing: layers from source to destination, nothing outside of it, nothing upon another."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.render.drawing import ACROSS_THE_SCREEN, DOWN_THE_SCREEN, layers_of
from tests.planner.graph.build import flow


@pytest.mark.parametrize(
    ("ends", "layers"),
    [
        ([], {"a": 0, "b": 0, "c": 0}),
        (["ab"], {"a": 0, "b": 1, "c": 0}),
        (["ab", "ba"], {"a": 0, "b": 1, "c": 0}),
        (["ab", "bc", "ac"], {"a": 0, "b": 1, "c": 2}),
        (["ac", "bc"], {"a": 0, "b": 0, "c": 1}),
        (["ab", "ac"], {"a": 0, "b": 1, "c": 1}),
        (["ab", "bc", "ca"], {"a": 0, "b": 1, "c": 2}),
        (["ba", "ac"], {"a": 1, "b": 0, "c": 2}),
    ],
)
def test_layers(ends, layers) -> None:
    assert layers_of("abc", [(source, destination) for source, destination in ends]) == layers


CLUSTERS = ("a", "b", "c", "d", "e")
PAIRS = list(itertools.permutations(CLUSTERS, 2))


@given(st.lists(st.sampled_from(PAIRS), max_size=8), st.sampled_from([ACROSS_THE_SCREEN, DOWN_THE_SCREEN]))
def test_everything_is_inside_and_apart(ends, layout) -> None:
    drawing = layout.draw(
        CLUSTERS,
        [flow(f"{number}={source}>{destination}") for number, (source, destination) in enumerate(ends)],
    )

    assert len(drawing.boxes) == len(CLUSTERS)
    assert len(drawing.arrows) == len(ends)
    for box in drawing.boxes:
        assert box.x >= 0 <= box.y
        assert box.x + box.width <= drawing.width
        assert box.y + box.height <= drawing.height
    for one, other in itertools.combinations(drawing.boxes, 2):
        assert abs(one.x - other.x) >= one.width or abs(one.y - other.y) >= one.height
    for arrow in drawing.arrows:
        assert 0 < arrow.label_x < drawing.width
        assert 0 < arrow.label_y < drawing.height


def test_the_two_ways_of_a_pair_do_not_lie_on_each_other() -> None:
    one, back = ACROSS_THE_SCREEN.draw("ab", [flow("a>b"), flow("b>a")]).arrows

    assert abs(one.label_y - back.label_y) >= 40
