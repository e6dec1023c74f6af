"""Jobs, states, and all lints together."""

import pytest

from planner.graph import expand, lint_offline
from planner.model.diagnostic import Diagnostic, ExitCode, Severity, SourceLocation, worst
from planner.model.topology import (
    Flow,
    FlowState,
    Groups,
    Provenance,
    StartAt,
)
from tests.planner.graph.build import THREE, codes, flow, rule, topology

NO_SYNC = Groups(sync=False)


def test_a_job_has_one_destination() -> None:
    of = topology(flow("dc1>dc2", job="j"), flow("dc1>dc3", job="j"))
    assert [f"{one.address}: {one.summary}" for one in lint_offline(of)] == [
        "job.j: job j would write to dc2 (flow.dc1-dc2) and to dc3 (flow.dc1-dc3): a job has one destination"
    ]


ACTIVE, PAUSED, PROMOTED, FAILED_OVER = FlowState


@pytest.mark.parametrize(
    ("original", "back", "lints"),
    [
        (PROMOTED, ACTIVE, []),
        (FAILED_OVER, ACTIVE, []),
        (FAILED_OVER, PAUSED, []),
        (FAILED_OVER, FAILED_OVER, []),
        (ACTIVE, PROMOTED, []),
        (PAUSED, PROMOTED, []),
        (ACTIVE, ACTIVE, ["reverse-running"]),
        (PAUSED, ACTIVE, ["reverse-running"]),
        (ACTIVE, FAILED_OVER, []),
    ],
)
def test_a_flow_and_its_way_back(original: FlowState, back: FlowState, lints: list[str]) -> None:
    diagnostics = lint_offline(
        topology(
            flow("f=dc1>dc2", "a", state=original, groups=NO_SYNC),
            flow("b=dc2>dc1", "a", state=back, reverse_of="f", groups=NO_SYNC),
        )
    )
    errors = [one for one in diagnostics if one.severity is Severity.ERROR]
    assert codes(tuple(errors)) == lints
    assert worst(errors) is (ExitCode.REFUSED if lints else ExitCode.DONE)


@pytest.mark.parametrize(
    ("flows", "lints"),
    [
        ((flow("b=dc2>dc1", "a", reverse_of="f"),), ["reverse-unknown"]),
        (
            (flow("f=dc1>dc2", "a", state=PROMOTED), flow("b=dc3>dc1", "a", reverse_of="f")),
            ["reverse-ends"],
        ),
        (
            (
                flow("f=dc1>dc2", "a", state=PROMOTED),
                flow("b=dc2>dc1", "a", reverse_of="f"),
                flow("c=dc2>dc1", "a", reverse_of="f", state=PROMOTED),
            ),
            ["reverse-twice"],
        ),
        (
            (
                flow("f=dc1>dc2", "a"),
                flow("b=dc2>dc1", "a", reverse_of="f", state=PROMOTED),
                flow("c=dc1>dc2", "a", reverse_of="b", state=PROMOTED),
            ),
            ["reverse-of-reverse"],
        ),
        (
            (
                flow("f=dc1>dc2", "a", restart_from=StartAt("latest")),
                flow("b=dc2>dc1", "a", reverse_of="f", state=FAILED_OVER),
            ),
            [],
        ),
    ],
)
def test_ways_back_that_are_none(flows: tuple[Flow, ...], lints: list[str]) -> None:
    errors = [one for one in lint_offline(topology(*flows)) if one.exit is ExitCode.REFUSED]
    assert codes(tuple(errors)) == lints


def test_each_says_where_and_what_to_do() -> None:
    place = SourceLocation("topology.yaml", 3, 5)
    of = topology(
        flow("dc1>dc2", ("a", "zzz", "__repl.x"), provenance=Provenance.OFF, source=place),
        flow("dc2>dc1", "a", source=place),
        rule("dc1 ALLOW User:a READ a"),
    )
    diagnostics = expand(of, THREE).diagnostics
    assert [one.code for one in diagnostics] == [
        "loop-without-provenance",
        "reserved-topic",
        "absent-topic",
        "identity-merge",
    ]
    assert all(isinstance(one, Diagnostic) and one.way_out and one.source == place for one in diagnostics)
