"""Which other flows matter to a translation: those that write the very topic at both sides."""

import pytest

from runtime.contract.groups import SourceTopicWriter, origins_of
from runtime.contract.spec.rename import SAME_NAME, Template
from runtime.contract.spec.route import Route, Router
from runtime.contract.spec.selection import SelectionRules


def way(name: str, rename: Template = SAME_NAME, *, include: str = ".*") -> Route:
    source, destination = name.split(">")
    return Route(name, source, destination, SelectionRules((include,)), rename)


PREFIX = Template("{source}.{topic}")


@pytest.mark.parametrize(
    ("routes", "origins"),
    [
        pytest.param([way("a>b")], (), id="one way"),
        pytest.param(
            [way("a>b"), way("b>a")], (SourceTopicWriter("b>a", "t", None),), id="one topic at both"
        ),
        pytest.param([way("a>b", PREFIX), way("b>a", PREFIX)], (), id="names that tell"),
        pytest.param([way("a>b"), way("b>a", include="other")], (), id="another topic comes back"),
        pytest.param([way("a>b"), way("c>a")], (), id="passed on: it is in our own map"),
        pytest.param(
            [way("a>b"), way("b>a"), way("c>a"), way("c>b")],
            (SourceTopicWriter("b>a", "t", None), SourceTopicWriter("c>a", "t", "c>b")),
            id="a mesh",
        ),
    ],
)
def test_origins(routes: list[Route], origins: tuple[SourceTopicWriter, ...]) -> None:
    assert origins_of(Router(routes), "a>b", "t") == origins
