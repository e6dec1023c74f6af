"""Twice the topics take twice the steps, not four times: counted, for a clock would lie on a busy machine."""

import cProfile
import pstats

import pytest

from planner.graph.expansion import expand, lint_offline, read_requests
from planner.model.topology import Flow, Topology
from runtime.contract.spec.rename import Template
from tests.planner.graph.build import cluster, flow, observed, topic, topology

pytestmark = pytest.mark.slow

PREFIX = Template("{source}.{topic}")
MESH = tuple(
    flow(f"{one}>{other}") for one in ("dc1", "dc2", "dc3") for other in ("dc1", "dc2", "dc3") if one != other
)


def calls(flows: tuple[Flow, ...], count: int) -> int:
    names = [f"t-{at}" for at in range(count)]
    over = observed(cluster("dc1", *names), cluster("dc2", *names), cluster("dc3"))
    of: Topology = topology(
        *flows, *(topic(f"dc{1 + at % 2}/d-{at}", 2, retention_ms="5") for at in range(count))
    )
    with cProfile.Profile() as profile:
        expand(of, over)
        lint_offline(of)
        read_requests(of, over)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "flows",
    [
        (flow("dc1>dc2", rename=PREFIX), flow("dc2>dc3", rename=PREFIX), flow("dc3>dc1", rename=PREFIX)),
        (flow("dc1>dc2", tuple(f"[t]-{at}.*" for at in range(10))),),
        (flow("dc1>dc2", acls_sync=True), flow("dc2>dc3", "d.*")),
        MESH,
    ],
    ids=["prefixed ring", "ten regexes", "chain", "mesh"],
)
def test_growth_is_linear(flows: tuple[Flow, ...]) -> None:
    assert calls(flows, 80) < 2.3 * calls(flows, 40)


def test_names_that_are_written_out_cost_nothing() -> None:
    few, many = ((flow("dc1>dc2", tuple(f"t-{at}" for at in range(count))),) for count in (10, 200))
    assert calls(many, 200) < 5 * calls(few, 200)
