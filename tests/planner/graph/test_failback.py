"""A failback: which flows come back, what others bring back, and the limits that it lifts and restores."""

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from planner.diff.differ import diff
from planner.diff.record import topic_entry
from planner.graph.expansion import expand
from planner.graph.routes import Failback, pending_failbacks, resumed_failbacks, without_covered
from planner.model.desired import DesiredTopic
from planner.model.observed import Observed, ObservedTopic, RegistryEntry
from planner.model.topology import Selection, Topology
from planner.plan.steps.registry import Own
from planner.plan.steps.topics import AlterConfigs
from runtime.contract.spec.flow import FlowState
from runtime.contract.spec.rename import Template
from runtime.contract.spec.topic_settings import BOUNDS, FOREVER_MS
from tests.fakes.states import made_plan
from tests.fakes.tables import cases
from tests.planner.graph.build import cluster, flow, live, observed, topic, topology, wanted

AFTER, BEFORE, LARGEST = (
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "max.message.bytes",
)
HOUR = "3600000"
OUT = flow("there=dc1>dc2", "orders", state="failed_over")
BACK = flow("back=dc2>dc1", reverse_of="there")


BEFORE_KEY: dict[str, Any] = {"message_timestamp_after_max_ms": HOUR}
NARROW: dict[str, Any] = {"message.timestamp.type": "LogAppendTime", BEFORE: "5", AFTER: "7", LARGEST: "500"}
LIFTED = live("orders", message_timestamp_after_max_ms=FOREVER_MS)
LIFTS, RESTORES = "lifted while flow.back copies records back", "restored after the failback"


def shop(back: FlowState = "active", *, declared: bool = True, **settings: str) -> Topology:
    out = replace(OUT, state="active") if back == "promoted" else OUT
    topics = [topic("dc1/orders", 1, None, **settings)] if declared else []
    return topology(out, replace(BACK, state=back), *topics)


SWITCHED = shop("promoted")


def both(orders: ObservedTopic, *owned: RegistryEntry, mirror: ObservedTopic | None = None) -> Observed:
    defaults = {"message.timestamp.type": "CreateTime", BEFORE: FOREVER_MS, AFTER: HOUR, LARGEST: "1000000"}
    bounds: dict[str, Any] = {key.replace(".", "_"): value for key, value in BOUNDS.items()}
    there = mirror or live("orders", **bounds)
    return observed(
        cluster("dc1", orders, owned=owned, defaults=defaults), cluster("dc2", there, defaults=defaults)
    )


def entry(made: DesiredTopic) -> RegistryEntry:
    return topic_entry(made, "t", f"id-{made.name}", created=False)


def at_source(declared: Topology, over: Observed) -> DesiredTopic:
    return wanted(expand(declared, over))["dc1/orders"]


def fields(declared: Topology, over: Observed) -> Mapping[str, tuple[object, object, str]]:
    """What changes of the topic at the cluster that records come back to."""
    found = diff(expand(declared, over), over)
    (change,) = [one for one in found if str(one.address) == "topic.dc1.orders"]
    return {one.key: (one.old, one.new, one.note) for one in change.fields}


OTHER_SIDE = live("orders", retention_bytes="77", cleanup_policy="compact")
LARGE = live("orders", max_message_bytes="2000000")


@cases(
    "declared orders mirror config lifted",
    {
        "only what would refuse a record": (
            {"retention_ms": "1"},
            live("orders", retention_ms="1"),
            None,
            {"retention.ms": "1", AFTER: FOREVER_MS},
            {AFTER: ""},
        ),
        "not the settings of the other side": (
            {},
            live("orders"),
            OTHER_SIDE,
            {AFTER: FOREVER_MS},
            {AFTER: ""},
        ),
        "room for a larger batch": (
            {},
            live("orders"),
            LARGE,
            {AFTER: FOREVER_MS, LARGEST: "2000000"},
            {AFTER: "", LARGEST: ""},
        ),
        "all four limits": (
            {},
            live("orders", **{key.replace(".", "_"): value for key, value in NARROW.items()}),
            None,
            {**BOUNDS, LARGEST: "1048588"},
            NARROW,
        ),
        "no declared limit": (
            {"message_timestamp_after_max_ms": "5000"},
            live("orders", message_timestamp_after_max_ms="5000"),
            None,
            {AFTER: "5000"},
            None,
        ),
        "an undeclared topic": (None, live("orders", **BEFORE_KEY), None, {AFTER: FOREVER_MS}, {AFTER: HOUR}),
    },
)
def test_what_is_lifted(declared, orders, mirror, config, lifted) -> None:
    of = shop(declared=False) if declared is None else shop(**declared)
    made = at_source(of, both(orders, mirror=mirror))
    assert made.config == config
    assert (made.lifted_by, made.before) == (("back", lifted) if lifted else ("", {}))


@pytest.mark.parametrize(("own", "restored"), [(BEFORE_KEY, HOUR), ({}, None)])
@pytest.mark.parametrize("declared", [True, False])
def test_a_limit_is_lifted_once_restored_once_and_then_left_alone(own, restored, declared) -> None:
    during, after = shop(declared=declared), shop("promoted", declared=declared)
    before = both(live("orders", **own))
    made = at_source(during, before)
    if declared:
        owned = entry(dataclasses.replace(made, config={}, lifted_by="", before={}))
        assert fields(during, both(live("orders", **own), owned)) == {AFTER: (restored, FOREVER_MS, LIFTS)}
    lifted = both(LIFTED, entry(made))
    assert at_source(during, lifted).before == made.before
    assert fields(during, lifted) == {}
    assert fields(after, lifted) == {AFTER: (FOREVER_MS, restored, RESTORES)}
    if declared:
        kept = entry(at_source(after, lifted))
        assert (kept.before, kept.config) == ({}, {})
        assert fields(after, both(live("orders", **own), kept)) == {}


def test_a_limit_is_restored_once_the_failback_has_ended() -> None:
    lifted = both(LIFTED, entry(at_source(shop(), both(live("orders", **BEFORE_KEY)))))
    desired = expand(SWITCHED, lifted)
    plan = made_plan(desired, lifted, diff(desired, lifted), SWITCHED)
    (restore,) = [step for step in plan.steps if isinstance(step, AlterConfigs) and step.cluster == "dc1"]
    assert restore.set == {AFTER: HOUR}
    assert "own:flow.back" in restore.needs
    assert not any(restore.id in step.needs for step in plan.steps if not isinstance(step, Own))


# Which flows come back to a cluster, and what other flows bring back already.

_, _, PROMOTED, FAILED_OVER = get_args(FlowState)
THERE = flow("f=dc1>dc2", "a")
HOME = flow("f-back=dc2>dc1", reverse_of="f")


def names(found: list[Failback]) -> list[tuple[str, str, bool]]:
    return [(one.flow.name, one.name, one.back is not None) for one in found]


def test_a_promoted_way_home_is_at_home_already() -> None:
    shop = topology(THERE, replace(HOME, state=PROMOTED))

    assert pending_failbacks(shop, "dc2") == []
    assert names(resumed_failbacks(shop, "dc1")) == [("f", "f-back", True)]


def test_the_other_side_was_lost_meanwhile_so_the_flow_is_the_way_home_of_its_way_home() -> None:
    shop = topology(replace(THERE, state=FAILED_OVER), replace(HOME, state=FAILED_OVER))

    assert names(pending_failbacks(shop, "dc2")) == [("f-back", "f", True)]


PREFIXED = Template("{source}.{topic}")


@cases(
    "there other left",
    {
        "what the other brings": (
            flow("f=dc1>dc2", ("a.x", "b")),
            flow("g=dc2>dc1", ("a.x", "q")),
            (("a.x", "q"), False),
        ),
        "all of it": (flow("f=dc1>dc2"), flow("g=dc2>dc1"), ((".*",), True)),
        "by name where the rules of the other would leave out more": (
            flow("f=dc1>dc2", ("a.x", "b")),
            flow("g=dc2>dc1", topics=Selection((".*",), ("b",))),
            ((r"a\.x",), False),
        ),
        "under another name it is not at home": (
            flow("f=dc1>dc2", "b", rename=PREFIXED),
            flow("g=dc2>dc1", rename=PREFIXED),
            ((), False),
        ),
    },
)
def test_what_another_flow_brings_home_already(there, other, left) -> None:
    shop = topology(replace(there, state=FAILED_OVER), other)
    (back,) = pending_failbacks(shop, "dc1")
    found = without_covered(back, shop, ["a.x", "b"], ["a.x", "b", "z"])
    assert (found.exclude, found.covered) == left
