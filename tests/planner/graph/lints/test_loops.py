"""Records that come home, or come twice."""

import pytest

from planner.graph import expand, lint_offline
from planner.model.diagnostic import Severity
from planner.model.topology import (
    FlowState,
    Groups,
    Provenance,
)
from tests.planner.graph.build import THREE, codes, flow, found, topology

NO_SYNC = Groups(sync=False)


@pytest.mark.parametrize(
    ("modes", "lints"),
    [
        ("auto auto", []),
        ("batch batch", []),
        ("headers headers", []),
        ("off off", ["loop-without-provenance"] * 2),
        ("auto off", ["loop-without-provenance"]),
        ("headers batch", ["loop-with-mixed-provenance"]),
        ("auto auto auto", []),
        ("headers headers headers", []),
        ("auto batch auto", ["loop-too-long-for-batch"]),
        ("off headers headers", ["loop-without-provenance"]),
    ],
)
def test_a_loop_under_one_name_needs_provenance(modes: str, lints: list[str]) -> None:
    kinds = [Provenance(mode) for mode in modes.split()]
    ring = ["dc1", "dc2", "dc3"][: len(kinds)]
    of = topology(
        *(
            flow(f"{ring[at]}>{ring[(at + 1) % len(ring)]}", provenance=kind, groups=NO_SYNC)
            for at, kind in enumerate(kinds)
        )
    )
    for diagnostics in (lint_offline(of), expand(of, THREE).diagnostics):
        assert [one.code for one in diagnostics if one.code.startswith("loop")] == lints


def test_a_loop_names_its_topics_or_what_they_would_be() -> None:
    off = [flow("dc1>dc2", provenance=Provenance.OFF), flow("dc2>dc1")]
    assert found(topology(*off), "loop-without-provenance") == [
        (
            "flow.dc1-dc2: 2 topics (a, b) can come back over flow.dc1-dc2, flow.dc2-dc1, and provenance is"
            " off: records would be copied in an endless loop"
        )
    ]
    assert lint_offline(topology(*off))[0].summary.startswith("a topic that all of them take can come back")


def test_flows_that_do_not_run_close_no_loop() -> None:
    of = topology(
        flow("dc1>dc2", provenance=Provenance.OFF, state=FlowState.PROMOTED),
        flow("dc2>dc1", provenance=Provenance.OFF),
    )
    assert codes(lint_offline(of)) == []


def test_an_identity_merge_has_no_exact_offsets() -> None:
    both = [flow("dc1>dc2", "a"), flow("dc2>dc1", "a")]
    diagnostics = expand(topology(*both), THREE).diagnostics
    assert [(one.severity, one.summary) for one in diagnostics] == [
        (
            Severity.WARNING,
            "held, and perhaps written, at both dc1 and dc2 (an identity merge): the topic a",
        )
    ]
    assert "reads some records again and skips none" in diagnostics[0].way_out
    unsynced = [flow("dc1>dc2", "a", groups=NO_SYNC), flow("dc2>dc1", "a", groups=NO_SYNC)]
    assert [one.severity for one in expand(topology(*unsynced), THREE).diagnostics] == [Severity.NOTE]


def test_the_same_record_over_two_ways() -> None:
    diamond = [flow(ends, "a") for ends in ("z=dc1>dc2", "y=dc1>dc3", "x=dc2>dc4", "w=dc3>dc4")]
    of = topology(*diamond)
    assert [one.summary for one in lint_offline(of)] == [
        "records of the topic a reach dc4 over flow.w and over flow.x: the same record would be copied twice"
    ]


def test_two_ways_of_a_regex_are_found_before_any_topic_is_there() -> None:
    of = topology(*(flow(ends) for ends in ("dc1>dc2", "dc1>dc3", "dc2>dc4", "dc3>dc4")))
    assert [one.summary for one in lint_offline(of)] == [
        (
            "records of a topic that both take reach dc4 over flow.dc2-dc4 and over flow.dc3-dc4: the same"
            " record would be copied twice"
        )
    ]


@pytest.mark.parametrize(("mode", "lints"), [(Provenance.AUTO, []), (Provenance.OFF, ["two-ways"])])
def test_a_triangle_is_filtered_unless_that_is_off(mode: Provenance, lints: list[str]) -> None:
    of = topology(*(flow(ends, provenance=mode) for ends in ("dc1>dc2", "dc1>dc3", "dc2>dc3")))
    assert codes(lint_offline(of)) == lints
