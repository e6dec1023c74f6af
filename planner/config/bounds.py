"""Bounds what one topology may produce from its variables and expressions.

A file of a few hundred bytes can describe gigabytes. Each bound is checked before the value is made.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from planner.config.yaml_tree import ListNode, MapNode
from planner.model.diagnostic import Diagnostic, Failure, error
from planner.model.topology import Topology
from runtime.contract.spec.selection import written_out

LONGEST_RESULT = 100_000  # characters and values of one result, and of a variable inside an expression
MOST_RENDERED = 10_000_000  # characters that all rendered values come to
MOST_NODES = 250_000  # values in all rendered lists and maps
MOST_WORK = 5_000_000  # characters and values that all expressions read and make on their way
MOST_SOURCE = 40_000  # characters of all different expressions; each counts as SOURCE_OF_ONE more
SOURCE_OF_ONE = 30
MOST_FLOWS = 1_000
MOST_PAIRS = 5_000_000  # of a topic's name and a flow or regex
MOST_MISTAKES = 1_000  # errors that are reported at once


class BoundExceeded(ValueError):
    """A value would pass a bound; the text says which one, for an error."""


class TopologyBoundExceeded(BoundExceeded):
    """A bound of the whole topology was passed: nothing more is computed."""


class RemainingBound:
    """Counts down a bound of the whole topology."""

    def __init__(self, most: int, what: str) -> None:
        self._left = most
        self._what = f"{what} more than {most:,}"

    def take(self, amount: int) -> None:
        """Takes an amount. Raises TopologyBoundExceeded if less is left."""
        self._left -= amount
        if self._left < 0:
            raise TopologyBoundExceeded(self._what)


def size(value: Any, most: int = LONGEST_RESULT) -> int:
    """Returns how many characters and values are inside a value; counting stops soon after `most`."""
    if isinstance(value, str):
        return len(value)
    inside: Any = ()
    if isinstance(value, Mapping):
        inside = (part for pair in value.items() for part in pair)
    elif isinstance(value, list | tuple):
        inside = value
    total = 1
    for part in inside:
        total += size(part, most - total) + 1
        if total > most:
            break
    return total


def nodes(value: Any) -> int:
    """Returns how many nodes of the tree a value becomes, itself included."""
    if isinstance(value, Mapping):
        return 1 + sum(1 + nodes(item) for item in value.values())
    if isinstance(value, list | tuple):
        return 1 + sum(map(nodes, value))
    return 1


def refuse_longer(amount: int) -> None:
    """Raises BoundExceeded if one result would be longer than LONGEST_RESULT."""
    if amount > LONGEST_RESULT:
        raise BoundExceeded(f"it comes to more than {LONGEST_RESULT:,} characters")


def refuse_more_mistakes(mistakes: Sequence[Diagnostic]) -> None:
    """Raises a Failure with the first mistakes once there are MOST_MISTAKES."""
    if len(mistakes) >= MOST_MISTAKES:
        more = error(f"there are more than {MOST_MISTAKES - 1:,} mistakes", "correct these first")
        raise Failure([*mistakes[:MOST_MISTAKES], more])


def refuse_more_flows(root: MapNode) -> None:
    """Raises a Failure if more flows are declared than can be compared with each other."""
    flows = root.get("flows")
    if isinstance(flows, ListNode) and len(flows.items) > MOST_FLOWS:
        what = f"there are more than {MOST_FLOWS:,} flows"
        hint = "let a flow take more topics, or split the topology"
        raise Failure(error(what, hint, source=flows.items[MOST_FLOWS].source))


def refuse_more_pairs(topology: Topology) -> None:
    """Raises a Failure if comparing each name with each flow and its regexes would take too long."""
    names = len(topology.topics) + sum(len(flow.topics.include) for flow in topology.flows.values())
    rules = 0
    for flow in topology.flows.values():
        entries = *flow.topics.include, *flow.topics.exclude, *flow.promoted
        rules += 1 + sum(written_out(pattern) is None for pattern in entries)
        if names * rules > MOST_PAIRS:
            what = (
                f"{names:,} names of topics and their regexes are more than {MOST_PAIRS:,} pairs to compare"
            )
            raise Failure(error(what, "write fewer regexes, or split the topology", source=flow.source))
