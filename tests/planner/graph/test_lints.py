"""Lints: what a topology says that can't be meant, with the clusters and without them."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from planner.graph.expansion import expand, lint_offline
from planner.graph.lints.flows import jobs
from planner.graph.lints.security import CLEAR_TEXT, NO_LOGIN, NOT_USED, REFUSED, UNCHECKED, logins, security
from planner.graph.routes import router_of
from planner.model.diagnostic import ExitCode, Severity, worst
from planner.model.observed import FEATURE_SHARE, BrokerFeature
from planner.model.topology import Cluster, FileEndpoint, Flow, Job, Selection, Topology
from runtime.contract.spec import naming
from runtime.contract.spec.flow import ConfigsSpec, FlowState, GroupsSpec, Latest
from runtime.contract.spec.rename import Match, Table, Template
from runtime.contract.spec.topic_settings import InternalSpec
from runtime.contract.spec.transform import FormatSpec, TransformSpec
from tests.fakes.tables import cases
from tests.planner.graph.build import (
    THREE,
    cluster,
    codes,
    expanded,
    flow,
    found,
    live,
    rule,
    said,
    seen,
    topic,
    topology,
    wanted,
)

ROOT = Path(__file__).parents[3]
PREFIX = Template("{source}.{topic}")
NO_SYNC = GroupsSpec(sync=False)


def parts(selection: Selection) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    return selection.include, selection.exclude, selection.default_exclude


ACTIVE, PAUSED, PROMOTED, FAILED = get_args(FlowState)
OFF, HEADERS = {"provenance": "off"}, {"provenance": "headers"}


def test_each_code_stands_in_the_docs_and_each_documented_one_is_found() -> None:
    sources = [path.read_text() for path in (ROOT / "planner" / "graph").rglob("*.py")]
    written = {code for text in sources for code in re.findall(r'"([a-z]+(?:-[a-z]+)+)"', text)}
    rows = re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs" / "lints.md").read_text(), re.MULTILINE)
    assert sorted(written) == sorted(rows)


def test_words_of_a_code_are_joined_by_hyphens() -> None:
    sources = [path.read_text() for path in (ROOT / "planner").rglob("*.py")]
    written = {code for text in sources for code in re.findall(r'\bcode="([^"]+)"', text)}
    assert len(written) > 50
    assert [code for code in sorted(written) if not re.fullmatch("[a-z]+(-[a-z]+)*", code)] == []


def offline(*parts: Any, **more: Any) -> list[str]:
    return codes(lint_offline(topology(*parts, **more)))


def quarantining(name: str, *include: str) -> Flow:
    return flow(name, include, transform=replace(FILTER, on_bad_record="quarantine"))


JSON = FormatSpec("json", "email STRING, card STRING")
MASK = TransformSpec(value=JSON, set={"value.email": "'x'"}, drop=("value.card",))
FILTER = TransformSpec(where="true")
SKIPS, DELETES = (replace(FILTER, on_filtered=one) for one in ("skip", "tombstone"))
COMPACTED: dict[str, Any] = {"cleanup_policy": "compact"}
LEAST: dict[str, Any] = {"min_insync_replicas": "2"}
OVER = {"replication-above-brokers"}
LOW = {"min-insync-above-replication"}


# What is said where the clusters were read.


@cases(
    "parts clusters lints",
    {
        # Names at the destination.
        "a topic that will be there": (
            [flow("dc1>dc2", "a"), flow("dc2>dc3", ("a", "dec.*")), topic("dc2/declared")],
            {"dc1": "a"},
            [],
        ),
        "regexes of other topics": ([flow("x=dc1>dc3"), flow("y=dc2>dc3")], {"dc1": "a", "dc2": "b"}, []),
        "regexes of one topic": (
            [flow("x=dc1>dc3"), flow("y=dc2>dc3")],
            {"dc1": "a", "dc2": "a"},
            ["flow-collision"],
        ),
        "a dot is a _": ([flow("dc1>dc2", "a.b")], {"dc1": "a.b", "dc2": "a_b"}, ["metric-collision"]),
        "of a declared topic": ([topic("dc2/a.b")], {"dc2": "a_b"}, ["metric-collision"]),
        "of two that come": (
            [flow("dc1>dc2", "a.b"), topic("dc2/a_b")],
            {"dc1": "a.b", "dc2": "c"},
            ["metric-collision"],
        ),
        "the same name": ([flow("dc1>dc2", "a.b")], {"dc1": "a.b", "dc2": "a.b"}, []),
        # Selection.
        "an ended flow needs no match": (
            [flow("f=dc1>dc2", "gone", state=PROMOTED), flow("b=dc2>dc1", "gone", reverse_of="f")],
            {},
            [],
        ),
        "an own topic": ([flow("dc1>dc2", ("__repl.heartbeats", "a"))], {"dc1": "a"}, ["reserved-topic"]),
        # Partitions and replicas.
        "fewer partitions": (
            [flow("dc1>dc2", "a"), topic("dc2/a", 2)],
            {"dc1": [live("a", 3)]},
            ["fewer-partitions"],
        ),
        "as many partitions": ([flow("dc1>dc2", "a"), topic("dc2/a", 3)], {"dc1": [live("a", 3)]}, []),
        "any partitions": ([flow("dc1>dc2", "a"), topic("dc2/a")], {"dc1": [live("a", 3)]}, []),
        "as many replicas as brokers": ([topic("dc1/a", 1, 3), topic("dc4/a", 1, 9)], {}, []),
        "more": ([topic("dc1/a", 1, 4)], {}, [*OVER]),
        "min.insync.replicas above": ([topic("dc2/a", 1, 2, min_insync_replicas="3")], {}, [*LOW]),
        "min.insync.replicas as many": ([topic("dc2/a", 1, 3, min_insync_replicas="3")], {}, []),
        "no number": ([topic("dc2/a", 1, 1, min_insync_replicas="all")], {}, []),
        "above the default": ([topic("dc2/a", 1, None, **LEAST)], {}, [*LOW]),
        "default": ([topic("dc2/a", 1, None, **LEAST)], {"dc2": cluster("dc2", default_replication=2)}, []),
        "an unknown default": (
            [topic("dc2/a", 1, None, **LEAST)],
            {"dc2": cluster("dc2", default_replication=None)},
            [],
        ),
        "the cluster's own": (
            [topic("dc2/a", 1)],
            {"dc2": cluster("dc2", defaults={"min.insync.replicas": "2"})},
            [*LOW],
        ),
        "a mirror": (
            [flow("dc1>dc2", "a")],
            {"dc1": "a", "dc2": cluster("dc2", defaults={"min.insync.replicas": "2"})},
            [*LOW],
        ),
        "too few before": ([topic("dc2/a", retention_ms="1")], {"dc2": [live("a", **LEAST)]}, []),
        "declared so": ([topic("dc2/a", 1, 1)], {"dc2": [live("a", **LEAST)]}, [*LOW]),
        # Mirrors that are declared otherwise.
        "declared as its source": (
            [flow("dc1>dc2"), topic("dc2/a", retention_ms="9", flush_ms="1")],
            {"dc1": [live("a", retention_ms="9")]},
            [],
        ),
        "compacted": ([flow("dc1>dc2"), topic("dc2/a", **COMPACTED)], {"dc1": "a"}, ["declared-differently"]),
        "its own timestamps": (
            [flow("dc1>dc2"), topic("dc2/a", message_timestamp_type="LogAppendTime")],
            {"dc1": "a"},
            ["mirror-timestamps"],
        ),
        # Filters.
        "which skips": ([flow("dc1>dc2", "a", transform=SKIPS)], {"dc1": [live("a", **COMPACTED)]}, []),
        "which deletes": ([flow("dc1>dc2", "a", transform=DELETES)], {"dc1": [live("a", **COMPACTED)]}, []),
    },
)
def test_with_the_clusters(parts, clusters, lints) -> None:
    assert codes(expanded(*parts, **clusters)) == lints


# What is said without them.

A, Z = flow("f=dc1>dc2", "a", groups=NO_SYNC), "dc1>dc2"
GONE = replace(A, state=PROMOTED)
HOME = flow("b=dc2>dc1", "a", reverse_of="f", groups=NO_SYNC)
AGAIN = flow("c=dc2>dc1", "a", reverse_of="f", state=PROMOTED, groups=NO_SYNC)
NOTHING = Selection(("a",), ("a",))


@cases(
    "parts lints",
    {
        "one topic from two clusters": ([flow("x=dc1>dc3", "a"), flow("y=dc2>dc3", "a")], ["flow-collision"]),
        "two regexes": ([flow("x=dc1>dc3"), flow("y=dc2>dc3")], []),
        "two prefixed flows": ([flow("x=dc1>dc3", rename=PREFIX), flow("y=dc2>dc3", rename=PREFIX)], []),
        "one that ended": ([flow("x=dc1>dc3", "a"), flow("y=dc2>dc3", "a", state=FAILED)], []),
        "one that promoted it": ([flow("x=dc1>dc3", "a"), flow("y=dc2>dc3", "a", promoted=("a",))], []),
        # One topic that all three hold, with dc3 between the others.
        "a hub": ([flow("dc1>dc3", groups=NO_SYNC), flow("dc3>dc1"), flow("dc2>dc3"), flow("dc3>dc2")], []),
        "an internal topic": ([flow(Z, ("__repl.heartbeats", "a"))], ["reserved-topic"]),
        "no loop of flows that do not run": ([flow(Z, state=PROMOTED, **OFF), flow("dc2>dc1", **OFF)], []),
        "a triangle is filtered": ([flow(Z), flow("dc1>dc3"), flow("dc2>dc3")], []),
        "unless it is off": ([flow(Z, **OFF), flow("dc1>dc3", **OFF), flow("dc2>dc3", **OFF)], ["two-ways"]),
        "groups of a flow that takes nothing": ([flow(Z, topics=NOTHING)], ["group-without-data"]),
        "which does not sync": ([flow(Z, topics=NOTHING, groups=NO_SYNC)], []),
        "fewer partitions": ([flow(Z, "a"), topic("dc2/a", 2), topic("dc1/a", 3)], ["fewer-partitions"]),
        "min.insync.replicas": ([topic("dc1/a", 1, 2, min_insync_replicas="3")], [*LOW]),
        "what is not declared": ([topic("dc1/a", 1, min_insync_replicas="3"), topic("dc2/a", 1, 9)], []),
        "two ways back": ([GONE, HOME, AGAIN], ["reverse-twice"]),
        "the way back of a way back": (
            [
                A,
                replace(HOME, state=PROMOTED),
                flow("c=dc1>dc2", "a", reverse_of="b", state=PROMOTED),
            ],
            ["reverse-of-reverse"],
        ),
        "a new start": ([replace(A, restart_from=Latest()), replace(HOME, state=FAILED)], []),
        # Transforms.
        "raw values cross": ([flow(Z, transform=MASK)], ["raw-values-cross"]),
        "not by the source's job": ([flow(Z, transform=MASK, job="at-dc1")], []),
        "no failback over a mask": (
            [
                flow("there=dc1>dc2", transform=MASK, job="j", state=PROMOTED),
                flow("home=dc2>dc1", reverse_of="there"),
            ],
            ["failback-lossy"],
        ),
        "but over a filter": (
            [
                flow("there=dc1>dc2", transform=SKIPS, job="j", state=PROMOTED),
                flow("home=dc2>dc1", reverse_of="there"),
            ],
            [],
        ),
        "a compacted topic": (
            [flow("f=dc1>dc2", transform=FILTER), topic("dc1/orders", **COMPACTED)],
            ["stale-keys"],
        ),
        "an unknown topic": ([flow("f=dc1>dc2", transform=FILTER), topic("dc1/orders")], []),
    },
)
def test_offline(parts, lints) -> None:
    assert [code for code in offline(*parts) if code != "identity-merge"] == lints


@cases(
    "modes lints",
    {
        "auto auto": ("auto auto", []),
        "off off": ("off off", ["loop-without-provenance"] * 2),
        "auto off": ("auto off", ["loop-without-provenance"]),
        "headers batch": ("headers batch", ["loop-with-mixed-provenance"]),
        "headers headers headers": ("headers headers headers", []),
        "auto batch auto": ("auto batch auto", ["loop-too-long-for-batch"]),
        "off headers headers": ("off headers headers", ["loop-without-provenance"]),
    },
)
def test_a_loop_under_one_name_needs_provenance(modes: str, lints: list[str]) -> None:
    kinds = modes.split()
    ring = ["dc1", "dc2", "dc3"][: len(kinds)]
    ends = zip(ring, [*ring[1:], ring[0]], kinds, strict=True)
    of = topology(*(flow(f"{a}>{b}", provenance=kind, groups=NO_SYNC) for a, b, kind in ends))
    for diagnostics in (lint_offline(of), expand(of, THREE).diagnostics):
        assert [one.code for one in diagnostics if one.code.startswith("loop")] == lints


@pytest.mark.parametrize("back", get_args(FlowState))
@pytest.mark.parametrize("original", get_args(FlowState))
def test_a_flow_and_its_way_back_do_not_run_at_once(original: FlowState, back: FlowState) -> None:
    errors = [
        one
        for one in lint_offline(topology(replace(A, state=original), replace(HOME, state=back)))
        if one.severity is Severity.ERROR
    ]
    running = {ACTIVE, PAUSED}
    refused = original in running and back in running
    assert codes(tuple(errors)) == ["reverse-running"] * refused
    assert worst(errors) is (ExitCode.REFUSED if refused else ExitCode.DONE)


# The words.

MATCHES = "include-matches-nothing"
FOUR = [flow(ends, "a") for ends in ("z=dc1>dc2", "y=dc1>dc3", "x=dc2>dc4", "w=dc3>dc4")]
PATTERNS = [flow(ends) for ends in ("dc1>dc2", "dc1>dc3", "dc2>dc4", "dc3>dc4")]
LOOP = [flow(Z, **OFF), flow("dc2>dc1")]
MANY = {
    "dc1": "a b c d e",
    "dc2": cluster("dc2", defaults={"retention.ms": "86400000", "cleanup.policy": "delete"}),
}
NOT_BACK = {"dc1": "a dc2.b", "dc2": "b dc1.a"}
BOTH_PREFIXED = [flow(Z, rename=PREFIX), flow("dc2>dc1", rename=PREFIX)]
DENIED = "a a.internal b-internal c.replica __consumer_offsets __repl.ledger"


@cases(
    "given clusters code says",
    {
        "a name": ([flow(Z, "orders")], {"dc1": "orders"}, "absent-topic", ""),
        "a name that is nearly there": (
            [flow(Z, "orders")],
            {"dc1": "order"},
            "absent-topic",
            "there is no topic orders at dc1 — did you mean order? it is found as soon as it",
        ),
        "a name that is not there": (
            [flow(Z, "orders")],
            {"dc1": "zzz"},
            "absent-topic",
            "there is no topic orders at dc1 — it is found as soon as it appears; until then",
        ),
        "no follow": ([flow(Z, "zzz", follow_every_ms=None)], {}, "absent-topic", "found by the next apply"),
        "a regex": ([flow(Z, "pay.*")], {"dc1": "pay1"}, MATCHES, ""),
        "a dot": ([flow(Z, "a.b")], {"dc1": "a-b"}, MATCHES, ""),
        "a regex that nearly matches": (
            [flow(Z, "pay.*")],
            {"dc1": "pax"},
            MATCHES,
            "'pay.*' matches no topic of dc1 — did you mean pax? a regex matches whole names; a",
        ),
        "a regex that matches nothing": (
            [flow(Z, "pay.*")],
            {"dc1": "zzz"},
            MATCHES,
            "'pay.*' matches no topic of dc1 — a regex matches whole names; a topic that fits is",
        ),
        "the default denials": (
            [flow(Z, topics=Selection((".*", "c.replica"), ("b-.*",)))],
            {"dc1": DENIED},
            "hidden-by-default",
            "include matches the topic a.internal of dc1, which the default denials exclude — to copy a",
        ),
        "what does not go back": (
            BOTH_PREFIXED,
            NOT_BACK,
            "comes-back",
            "topic dc2.b of dc1, mirrored from dc2|topic dc1.a of dc2, mirrored from dc1",
        ),
        "a loop": (
            LOOP,
            {"dc1": "a b"},
            "loop-without-provenance",
            "2 topics (a, b) can come back over flow.dc1-dc2, flow.dc2-dc1, and provenance is off",
        ),
        "a merge": (
            [flow(Z, "a"), flow("dc2>dc1", "a")],
            {"dc1": "a"},
            "identity-merge",
            "held, and perhaps written, at both dc1 and dc2 (an identity merge): the topic a — ",
        ),
        "two names mapped to one": (
            [flow(Z, rename=Match(r"a-(.*)", r"b-\1"))],
            {"dc1": "a-x b-x a-y b-y a-z"},
            "rename-collision",
            "the rename gives both a-x and b-x the name dc2/b-x (and 1 more such)",
        ),
        "one topic from two": (
            [flow("x=dc1>dc3", "a"), flow("y=dc2>dc3", "b", rename=Table({"b": "a"}))],
            {"dc1": "a", "dc2": "b"},
            "flow-collision",
            "flow.x and flow.y both write dc3/a, from dc1/a and dc2/b",
        ),
        "one topic twice": (
            [flow("x=dc1>dc3", "a"), flow("y=dc1>dc3", ("a", "b"))],
            {"dc1": "a b"},
            "flow-collision",
            "flow.x and flow.y both copy dc1/a to dc3/a: every record would be copied twice",
        ),
        "another value": (
            [flow(Z), topic("dc2/a", retention_ms="9")],
            {"dc1": [live("a", retention_ms="8")]},
            "declared-differently",
            "dc2/a is a mirror and is declared differently from its source: retention.ms=9 (source: 8)",
        ),
        "shorter retention of many": (
            [flow(Z)],
            MANY,
            "shorter-retention",
            "dc2 keeps less than dc1 of 5 topics (a, b, c and 2 more): retention.ms is 1d at dc2",
        ),
        "stale keys": (
            [flow("f=dc1>dc2", transform=FILTER)],
            {"dc1": [live("orders", **COMPACTED), live("log")]},
            "stale-keys",
            "flow.f filters the topic orders, compacted: ",
        ),
        "tombstones": (
            [flow(Z, transform=DELETES)],
            {"dc1": [live("orders", cleanup_policy="compact,delete"), live("log")]},
            "tombstones-not-compacted",
            "the topic log is not compacted",
        ),
        "tombstones in a declared topic": (
            [flow(Z, transform=DELETES), topic("dc2/orders", cleanup_policy="delete")],
            {"dc1": [live("orders", cleanup_policy="compact,delete"), live("log")]},
            "tombstones-not-compacted",
            "2 topics (log, orders) are not compacted",
        ),
    },
)
def test_what_is_said_with_the_clusters(given, clusters, code, says) -> None:
    desired = expanded(*given, **clusters)
    parts = says.split("|") if says else []
    assert len(said(desired, code)) == len(parts)
    assert all(part in text for part, text in zip(parts, said(desired, code), strict=True))


TWICE = "the same record would be copied twice"
QUARANTINE = "is the quarantine topic of dc2/orders, and flow.g copies"
LONG = "would get an illegal name at dc2: a topic's name has at most 249 characters, 'dc1.xxxxxxxxxxxxxx"


@cases(
    "parts code says",
    {
        "a loop": (LOOP, "loop-without-provenance", "a topic that all of them take can come back"),
        "two ways": (
            FOUR,
            "two-ways",
            f"records of the topic a reach dc4 over flow.w and over flow.x: {TWICE}",
        ),
        "two ways of a regex": (
            PATTERNS,
            "two-ways",
            f"a topic that both take reach dc4 over flow.dc2-dc4 and over flow.dc3-dc4: {TWICE}",
        ),
        "a long name": ([flow(Z, "x" * 246, rename=PREFIX)], "illegal-name", LONG),
        "a reserved name": (
            [flow(Z, "a", rename=Table({"a": "__repl.a"}))],
            "illegal-name",
            "it is reserved for internal topics",
        ),
        "two destinations": (
            [flow(Z, job="j"), flow("dc1>dc3", job="j")],
            "job-destinations",
            "job j would write to dc2 (flow.dc1-dc2) and to dc3 (flow.dc1-dc3): a job has one destination",
        ),
        "a quarantine that is copied": (
            [quarantining("f=dc1>dc2", "orders"), flow("g=dc3>dc2", "orders.quarantine")],
            "quarantine-name",
            QUARANTINE,
        ),
        "a quarantine with a long name": (
            [quarantining("f=dc1>dc2", "o" * 245)],
            "quarantine-name",
            "a topic's name has at most 249 characters",
        ),
        "a quarantine": (
            [quarantining("f=dc1>dc2", "orders"), flow("g=dc3>dc2", "other")],
            "quarantine-name",
            None,
        ),
    },
)
def test_what_is_said_offline(parts, code, says) -> None:
    summaries = [
        one.summary for one in lint_offline(topology(*parts)) if code in (one.code, "job-destinations")
    ]
    assert len(summaries) == (says is not None)
    assert all(says in summary for summary in summaries)


@pytest.mark.parametrize(("groups", "severity"), [(GroupsSpec(), Severity.WARNING), (NO_SYNC, Severity.NOTE)])
def test_an_identity_merge_has_no_exact_offsets(groups: GroupsSpec, severity: Severity) -> None:
    (found_one,) = expanded(
        flow(Z, "a", groups=groups), flow("dc2>dc1", "a", groups=groups), dc1="a"
    ).diagnostics
    assert (found_one.severity, found_one.address) == (severity, "flow.dc1-dc2")
    assert groups is NO_SYNC or "reads some records again and skips none" in found_one.hint


# Replicas of internal topics, and brokers that are away.


@pytest.mark.parametrize(("replication", "lints"), [(3, []), (4, [*OVER]), (None, [])])
def test_internal_topics_have_no_more_replicas_than_brokers(replication, lints) -> None:
    one_topic = flow(Z, "a", heartbeats_every_ms=None), topic("dc1/a", 1), rule("dc1 ALLOW User:app READ a")
    for part in one_topic:
        assert codes(expand(topology(part, internal=InternalSpec(replication=replication)), THREE)) == lints
    both = topology(flow(Z, "a"), internal=InternalSpec(replication=replication))
    assert codes(expand(both, THREE)) == lints * 2  # heartbeats are written at the source


MADE = {name: live(name, 1, 3) for name in (naming.REGISTRY, naming.LEDGER, naming.HEARTBEATS)}


@cases(
    "topics internal count",
    {
        "all is there": ([live("a", 1, 3)], MADE, 0),
        "too few replicas": ([live("a", 1, 2)], MADE, 1),
        "no topic": ([], MADE, 1),
        "no internal topics": ([live("a", 1, 3)], {}, 2),
    },
)
def test_a_broker_that_is_away_for_a_while(topics, internal, count) -> None:
    """Nothing of what is there already needs it."""
    dc1 = cluster("dc1", *topics, brokers=2, internal_topics=internal)
    dc2 = cluster("dc2", live("a", 1, 3), brokers=2, internal_topics=internal)
    desired = expanded(
        topic("dc1/a", 1, 3), flow(Z, "a"), shop={"internal": InternalSpec(replication=3)}, dc1=dc1, dc2=dc2
    )
    assert codes(desired).count("replication-above-brokers") == count


@cases(
    "source mirror says",
    {
        "alike": ({}, {}, None),
        "less time": ({}, {"retention_ms": "1000"}, "1s at dc2 and 7d at dc1"),
        "no limit": ({}, {"retention_ms": "-1"}, None),
        "no limit at the source": ({"retention_ms": "-1"}, {}, "7d at dc2 and no limit at dc1"),
        "fewer bytes": ({}, {"retention_bytes": "5"}, "5 bytes at dc2 and no limit at dc1"),
        "compacted": ({}, {"retention_ms": "1000", "cleanup_policy": "compact"}, None),
        "no number": ({}, {"retention_ms": "unreadable"}, None),
        "none at all": ({"retention_ms": "5001"}, {"retention_ms": "0"}, "0 at dc2 and 5001ms at dc1"),
    },
)
def test_a_destination_that_forgets_earlier(source, mirror, says) -> None:
    keeps_its_own = flow(Z, configs=ConfigsSpec("off"))
    desired = expanded(keeps_its_own, dc1=[live("a", **source)], dc2=[live("a", **mirror)])
    assert codes(desired) == (["shorter-retention"] if says else [])
    assert not says or says in said(desired, "shorter-retention")[0]


# Consumer groups.


@cases(
    "reads sync lints",
    {
        "another topic": ({"app": frozenset({"b"})}, True, ["group-without-data"]),
        "this topic too": ({"app": frozenset({"b", "a"})}, True, []),
        "nothing": ({"app": frozenset()}, True, []),
        "unknown": (None, True, []),
        "not synced": ({"app": frozenset({"b"})}, False, []),
    },
)
def test_a_named_group_that_reads_nothing_of_the_flow(reads, sync, lints) -> None:
    groups = GroupsSpec(("app", "x.*"), sync=sync)
    assert (
        codes(expanded(flow(Z, "a", groups=groups), dc1=cluster("dc1", "a", "b", group_topics=reads)))
        == lints
    )


@cases(
    "selection sync notes",
    {
        "all": (Selection((".*",)), True, ["connect-sink, console-consumer-7"]),
        "named": (Selection((".*", "connect-sink"), ("console-.*",)), True, []),
        "a regex": (Selection(("console-.*",)), True, ["console-consumer-7"]),
        "no denials": (Selection((".*",), default_exclude=False), True, []),
        "not synced": (Selection((".*",)), False, []),
    },
)
def test_groups_that_the_default_denials_keep_out(selection, sync, notes) -> None:
    reads = {"console-consumer-7": "a", "connect-sink": "a", "connect-else": "b", "app": "a"}
    dc1 = cluster("dc1", "a", "b", group_topics={group: frozenset({name}) for group, name in reads.items()})
    of = topology(flow(Z, "a", groups=GroupsSpec(*parts(selection), sync=sync)))
    summaries = found(of, "group-hidden-by-default", seen(dc1=dc1))
    assert codes(expand(of, seen(dc1=dc1))) == ["group-hidden-by-default"] * len(notes)
    assert all(note in summary for note, summary in zip(notes, summaries, strict=True))


@cases(
    "kinds lacks selection lints",
    {
        "of another topic": ({"share": {"ship": frozenset({"b"})}}, False, Selection((".*",)), []),
        "excluded": ({"share": {"ship": frozenset({"a"})}}, False, Selection((".*",), ("ship",)), []),
        "moves": ({"share": {"ship": frozenset({"a"})}}, False, Selection((".*",)), ["share-groups"]),
        "stays": ({"share": {"ship": frozenset({"a"})}}, True, Selection((".*",)), ["share-groups-stay"]),
        "streams": ({"streams": {"sums": frozenset({"a"})}}, True, Selection((".*",)), ["streams-groups"]),
    },
)
def test_what_becomes_of_share_groups_and_streams_groups(kinds, lacks, selection, lints) -> None:
    lacking = (BrokerFeature(FEATURE_SHARE, "4.2", broker="1 (b:1)", why="not offered"),) if lacks else ()
    dc1, dc2 = cluster("dc1", "a", "b", group_kinds=kinds), cluster("dc2", lacking=lacking)
    assert codes(expanded(flow(Z, "a", groups=GroupsSpec(*parts(selection))), dc1=dc1, dc2=dc2)) == lints


# Jobs, files and quarantines.

SPARK = "spark.authenticate"


@cases(
    "job lints",
    {
        "local": (Job("j"), []),
        "does not ask": (Job("j", conf={SPARK: "false"}), ["spark-unauthenticated"]),
        "not encrypted": (
            Job("j", launcher="yarn", conf={"spark.network.crypto.enabled": "False"}),
            ["spark-unauthenticated"],
        ),
        "standalone": (Job("j", launcher="standalone"), ["spark-secret"]),
        "standalone asks": (Job("j", launcher="standalone", conf={SPARK: "true"}), []),
        "standalone, not": (
            Job("j", launcher="standalone", conf={SPARK: "false"}),
            ["spark-unauthenticated"],
        ),
    },
)
def test_a_job_whose_spark_ports_ask_for_no_secret(job: Job, lints: list[str]) -> None:
    diagnostics = list(jobs(topology(jobs={"j": job})))
    assert codes(tuple(diagnostics)) == lints
    assert all(one.address == "job.j" and "docs/launch.md" in one.hint for one in diagnostics)


@pytest.mark.parametrize(("raw", "lints"), [([], []), ([flow("raw=dc1>dc2", job="j")], ["transform-slots"])])
def test_each_flow_with_a_transform_needs_a_slot(raw, lints) -> None:
    flows = [flow(f"{name}=dc1>dc2", transform=FILTER, job="j") for name in "ab"]
    found_codes = offline(*flows, *raw, jobs={"j": Job("j", master="local[2]")})
    assert [code for code in found_codes if code.startswith("transform")] == lints


LAKE = {"lake": FileEndpoint("lake", folder="/data/lake/", format="raw")}
INTO = flow("a=dc1>lake", job="j")


@cases(
    "flows into lints",
    {
        "no flow": ([], [], ["unused-endpoint None"]),
        "one flow": ([], [INTO], []),
        "a job with another flow": ([flow("b=dc1>dc2", job="j")], [INTO], ["job-of-files job.j"]),
        "a job of two sources": ([], [INTO, flow("b=dc2>lake", job="j")], ["job-of-files job.j"]),
        "two jobs": ([flow("b=dc1>dc2")], [INTO, flow("c=dc2>lake")], []),
        "one topic twice": ([], [INTO, flow("b=dc1>lake", job="other")], ["written-twice flow.b"]),
    },
)
def test_flows_into_files(flows, into, lints) -> None:
    of = topology(*flows, file_flows={one.name: one for one in into}, endpoints=LAKE)
    of_files = ("job-of-files", "unused-endpoint", "written-twice")
    assert [f"{one.code} {one.address}" for one in lint_offline(of) if one.code in of_files] == lints


@cases(
    "transform warned",
    {
        "a mask": (replace(MASK, on_bad_record="quarantine"), True),
        "a filter": (replace(FILTER, on_bad_record="quarantine"), True),
        "nothing is hidden": (TransformSpec(value=JSON, on_bad_record="quarantine"), False),
        "no quarantine": (MASK, False),
    },
)
def test_a_quarantine_takes_raw_values_across_the_border(transform, warned) -> None:
    """Only where the transform hides something: else the destination gets every record anyway."""
    assert ("raw-values-quarantined" in offline(flow(Z, transform=transform, job="at-dc1"))) is warned


def test_no_pattern_takes_a_quarantine_topic_unless_it_is_written_out() -> None:
    """At dc2, orders.quarantine holds bad records of the flow: it is no data of dc2."""
    named = flow("named=dc2>dc3", (".*", "orders.quarantine"), rename=Template("named.{topic}"))
    flows = [quarantining("f=dc1>dc2", "orders"), flow("on=dc2>dc3"), named, flow("other=dc3>dc1")]
    router = router_of(topology(*flows))
    taken = [
        one
        for one in ("on", "named", "other")
        if router.destination_topic(one, "orders.quarantine") is not None
    ]
    assert taken == ["named", "other"]


# Credentials in clear text, and certificates that are not checked.

FAR = "kafka.example.org:9092"
TLS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
CLEAR = {"security.protocol": "SASL_PLAINTEXT"}


@cases(
    "client bootstrap lints",
    {
        "TLS": ({"security.protocol": "SSL"}, FAR, []),
        "SASL over TLS": (TLS, FAR, []),
        "PLAIN": ({"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}, FAR, [CLEAR_TEXT]),
        "SCRAM": ({**CLEAR, "sasl.mechanisms": "SCRAM-SHA-512"}, FAR, [CLEAR_TEXT]),
        "any mechanism": (CLEAR, FAR, [CLEAR_TEXT]),
        "no verification": ({**TLS, "enable.ssl.certificate.verification": "False"}, FAR, [UNCHECKED]),
        "any name": ({**TLS, "ssl.endpoint.identification.algorithm": "none"}, FAR, [UNCHECKED]),
        "this name": ({**TLS, "ssl.endpoint.identification.algorithm": "https"}, FAR, []),
        "a name without TLS": ({"ssl.endpoint.identification.algorithm": "none"}, FAR, []),
        "this machine": (CLEAR, "127.0.0.1:9092,[::1]:9092,localhost:1", []),
        "not only this machine": (CLEAR, f"127.0.0.1:9092,{FAR}", [CLEAR_TEXT]),
    },
)
def test_what_others_on_the_way_can_read(client, bootstrap, lints) -> None:
    clusters = {"dc1": Cluster("dc1", bootstrap=bootstrap, client=client)}
    assert [one.code for one in security(Topology("shop", clusters))] == lints


@cases(
    "folder endpoint words",
    {
        "S3": ("s3a://bucket", "http://s3.example.org", "a session.token"),
        "Google": ("gs://bucket", "http://gcs.example.org", "a bearer token"),
        "Azure": (
            "abfs://box@account.dfs.core.windows.net",
            "http://a.example.org",
            "the sas.token, or a bearer",
        ),
        "TLS": ("gs://bucket", "https://gcs.example.org", ""),
        "this machine": ("gs://bucket", "http://127.0.0.1:4443", ""),
    },
)
def test_what_others_on_the_way_to_a_store_can_use(folder, endpoint, words) -> None:
    lake = FileEndpoint("lake", folder=folder, client={"endpoint": endpoint})
    warnings = list(security(Topology("shop", {}, endpoints={"lake": lake})))
    assert [(one.code, words in one.summary) for one in warnings] == ([(CLEAR_TEXT, True)] if words else [])


@cases(
    "mechanism words",
    {
        "PLAIN": ("PLAIN", "the password of sasl.mechanism PLAIN goes to cluster dc1 in clear text"),
        "a token": ("AWS_MSK_IAM", "the token of sasl.mechanism AWS_MSK_IAM goes"),
        "SCRAM": ("SCRAM-SHA-256", "can record it, and guess the password from it"),
        "Kerberos": ("GSSAPI", "what follows the login of sasl.mechanism GSSAPI goes"),
    },
)
def test_what_others_on_the_way_can_do_depends_on_the_login(mechanism, words) -> None:
    clusters = {"dc1": Cluster("dc1", bootstrap=FAR, client={**CLEAR, "sasl.mechanism": mechanism})}
    (found,) = security(Topology("shop", clusters))
    assert words in found.summary


LOGIN = {**TLS, "sasl.username": "u", "sasl.password": {"env": "P"}, "ssl.ca.location": "/ca.pem"}


@cases(
    "client named",
    {
        "a login": (LOGIN, []),
        "a token": ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, []),
        "no password, which validation tells": ({**TLS, "client.rack": "r1"}, []),
        "two that no job uses": (
            {"client.rack": "r1", "socket.max.fails": "5", "socket.timeout.ms": "5000"},
            [
                "client of cluster dc1: client.rack is not used by the data path",
                "socket.max.fails is not used",
            ],
        ),
    },
)
def test_settings_that_jobs_do_not_use_are_noted_once_for_a_cluster(client, named) -> None:
    of = topology(
        flow("f=dc1>dc2", "a"), clusters={"dc1": Cluster("dc1", bootstrap="127.0.0.1:1", client=client)}
    )
    notes = [one.summary for one in security(of) if one.code == NOT_USED]
    assert len(notes) == bool(named)
    assert all(part in note and "socket.timeout.ms" not in note for note in notes for part in named)


SASL, SECRET = {"security.protocol": "SASL_SSL"}, {"env": "PASSWORD"}
PLAIN = {**SASL, "sasl.mechanism": "PLAIN"}
REF = {"env": "CHOSEN"}


@cases(
    "client says",
    {
        "a user without a mechanism": (
            {**SASL, "sasl.username": "repl"},
            [(REFUSED, "sasl.mechanism: is missing; with sasl.username it is PLAIN")],
        ),
        "a user without a password": (
            {**PLAIN, "sasl.username": "repl"},
            [(REFUSED, "sasl.password: is missing; sasl.mechanism PLAIN needs it")],
        ),
        "a mechanism without a user": (
            {**PLAIN, "sasl.password": SECRET},
            [(REFUSED, "sasl.username: is missing; sasl.mechanism PLAIN needs it")],
        ),
        "no such mechanism": (
            {**SASL, "sasl.mechanism": "SCRAM"},
            [(REFUSED, "sasl.mechanism: SCRAM is not supported; PLAIN, SCRAM-SHA-256")],
        ),
        "a keytab without a principal": (
            {**SASL, "sasl.kerberos.keytab": "/etc/repl.keytab"},
            [(REFUSED, "sasl.kerberos.principal: is missing")],
        ),
        "a login without its protocol": (
            {"sasl.mechanism": "PLAIN", "sasl.username": "repl", "sasl.password": SECRET},
            [
                (
                    NO_LOGIN,
                    "nothing logs in by sasl.mechanism, sasl.password, sasl.username, because security",
                )
            ],
        ),
        "a login beside TLS alone": (
            {"security.protocol": "ssl", "sasl.username": "repl"},
            [(NO_LOGIN, "nothing logs in by sasl.username, because security.protocol is ssl")],
        ),
        "a password by reference": ({**PLAIN, "sasl.username": "repl", "sasl.password": SECRET}, []),
        "a user by reference": ({**PLAIN, "sasl.username": REF, "sasl.password": SECRET}, []),
        "a mechanism by reference": ({**SASL, "sasl.mechanisms": REF, "sasl.username": "repl"}, []),
        "a protocol by reference": ({"security.protocol": REF, "sasl.username": "repl"}, []),
        "numbers and flags by reference": (
            {
                "socket.timeout.ms": REF,
                "enable.ssl.certificate.verification": REF,
                "security.protocol": "SSL",
            },
            [],
        ),
        "tokens of a command that is set where jobs run": ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, []),
        "tokens of an endpoint, half by reference": (
            {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": REF},
            [],
        ),
        "Kerberos by default": (SASL, []),
        "IAM of AWS, the region by reference": (
            {**SASL, "sasl.mechanism": "AWS_MSK_IAM", "sasl.aws.region": REF},
            [],
        ),
        "mutual TLS": (
            {"security.protocol": "SSL", "ssl.keystore.location": "/k.p12", "ssl.keystore.password": SECRET},
            [],
        ),
    },
)
def test_half_a_login_is_named_also_without_a_flow(client, says) -> None:
    of = topology(clusters={"dc1": Cluster("dc1", bootstrap="dc1:9092", client=client)})
    found = [(diagnostic.code, diagnostic.summary) for diagnostic in logins(of)]
    assert [code for code, _ in found] == [code for code, _ in says]
    for (_, summary), (_, beginning) in zip(found, says, strict=True):
        assert summary.startswith(f"client of cluster dc1: {beginning}")


@pytest.mark.parametrize("client", [{"sasl.username": "repl", "client.rack": "r1"}])
def test_a_login_that_is_not_used_is_told_once(client) -> None:
    clusters = {"dc1": Cluster("dc1", bootstrap="127.0.0.1:1", client=client)}
    noted = [
        diagnostic.summary
        for diagnostic in lint_offline(topology(flow("f=dc1>dc2", "a"), clusters=clusters))
        if diagnostic.code in (NO_LOGIN, NOT_USED)
    ]
    assert sorted(noted) == [
        "client of cluster dc1: client.rack is not used by the data path, only by the control plane",
        (
            "client of cluster dc1: nothing logs in by sasl.username, because security.protocol is PLAINTEXT,"
            " as by default"
        ),
    ]


# What the versions of Kafka at both sides of a flow cannot do.

WRITING = BrokerFeature("copy to", "2.5", as_destination="no flow can write to it", required=True)
READING = BrokerFeature("copy from", "2.4", as_source="no flow can read from it", required=True)
GROUPS = BrokerFeature(
    "consumer groups", "2.4", as_source="unread", as_destination="unwritten", required=True, for_groups=True
)
IDS = BrokerFeature("topic ids", "2.8", as_source="told by its epoch", as_destination="told by its epoch")
AFTER = "message.timestamp.after.max.ms"
OLD = {"message.timestamp.difference.max.ms": "1"}


def lacking(name: str, *features: BrokerFeature, topics: str = "", **more: Any):
    lacks = tuple(replace(one, broker="1 (a:9092)", why="offered in versions 0 to 3") for one in features)
    return cluster(name, *topics.split(), lacking=lacks, **more)


@cases(
    "source destination sync lints",
    {
        "what the other side needs": ((WRITING,), (), True, []),
        "writing": ((), (WRITING,), True, ["version-required"]),
        "reading": ((READING,), (READING,), True, ["version-required"]),
        "ids": ((IDS,), (), True, ["version-lacks"]),
        "groups": ((GROUPS,), (GROUPS,), True, ["version-required"] * 2),
        "groups that are not synced": ((GROUPS,), (GROUPS,), False, []),
    },
)
def test_a_flow_says_what_the_versions_of_its_clusters_lack(source, destination, sync, lints) -> None:
    one = flow(Z, "a", heartbeats_every_ms=None, groups=GroupsSpec(sync=sync))
    desired = expanded(one, dc1=lacking("dc1", *source, topics="a"), dc2=lacking("dc2", *destination))
    assert codes(desired) == lints
    if destination == (WRITING,):
        (only,) = desired.diagnostics
        assert only.summary == (
            "broker 1 (a:9092) of dc2 lacks copy to (Kafka 2.5): no flow can write to it"
            " (offered in versions 0 to 3)"
        )
        assert only.hint == "upgrade dc2 to Kafka 2.5 or newer"


@cases(
    "defaults lints",
    {
        "unknown": ({}, []),
        "new": ({AFTER: "1", "message.timestamp.before.max.ms": "1"}, []),
        "old": (OLD, ["setting-unknown"]),
    },
)
def test_a_declared_setting_that_the_version_lacks_is_refused(defaults, lints) -> None:
    declared = topic("dc1/a", 1, None, message_timestamp_after_max_ms="5")
    assert codes(expanded(declared, dc1=cluster("dc1", defaults=defaults))) == lints


def test_a_mirror_goes_without_a_setting_that_its_version_lacks() -> None:
    dc2 = cluster("dc2", defaults={**cluster("dc2").defaults, **OLD})
    source = [live("a", compression_gzip_level="3", retention_ms="5")]
    desired = expanded(flow(Z, "a", heartbeats_every_ms=None), dc1=source, dc2=dc2)
    config = wanted(desired)["dc2/a"].config
    assert config["retention.ms"] == "5"
    assert config["message.timestamp.difference.max.ms"] == "9223372036854775807"
    assert not config.keys() & {"compression.gzip.level", "message.timestamp.before.max.ms"}
    assert "the setting compression.gzip.level of its topics at dc1" in said(desired, "setting-left-out")[0]
    assert codes(desired) == ["setting-left-out"]
