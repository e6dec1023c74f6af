"""A failback changes no setting at home but the limits that would refuse its records, and restores these."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from planner.diff import diff
from planner.diff.record import topic_entry
from planner.graph import expand
from planner.model.desired import DesiredTopic
from planner.model.observed import Observed, ObservedTopic, RegistryEntry
from planner.model.plan import Change
from planner.model.step import AlterConfigs, Own
from planner.model.topology import FlowState, Topology
from planner.plan import make_plan
from planner.plan.agreement import disagreements
from runtime.contract.spec.topic_settings import BOUNDS, FOREVER_MS
from tests.planner.graph.build import cluster, flow, live, observed, topic, topology, wanted

AFTER, BEFORE, LARGEST = (
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "max.message.bytes",
)
HOUR = "3600000"
OUT = flow("there=dc1>dc2", "orders", state=FlowState.FAILED_OVER)
BACK = flow("back=dc2>dc1", reverse_of="there")


def live_with(settings: Mapping[str, str]) -> ObservedTopic:
    return live("orders", 1, 1, **settings)


def shop(back: FlowState = FlowState.ACTIVE, **settings: str) -> Topology:
    declared = topic("dc1/orders", 1, None, **settings)
    out = replace(OUT, state=FlowState.ACTIVE) if back is FlowState.PROMOTED else OUT
    return topology(out, replace(BACK, state=back), declared)


def both(orders: ObservedTopic, *owned: RegistryEntry, mirror: ObservedTopic | None = None) -> Observed:
    defaults = {"message.timestamp.type": "CreateTime", BEFORE: FOREVER_MS, AFTER: HOUR, LARGEST: "1000000"}
    there = mirror or live_with({key.replace(".", "_"): value for key, value in BOUNDS.items()})
    return observed(
        cluster("dc1", orders, owned=owned, defaults=defaults), cluster("dc2", there, defaults=defaults)
    )


def entry(made: DesiredTopic) -> RegistryEntry:
    return topic_entry(made, "t", f"id-{made.name}", created=False)


def at_home(declared: Topology, over: Observed) -> DesiredTopic:
    return wanted(expand(declared, over))["dc1/orders"]


def change_at_home(declared: Topology, over: Observed) -> Change:
    found = diff(expand(declared, over), over, declared)
    (one,) = [one for one in found if str(one.address) == "topic.dc1.orders"]
    return one


def fields(one: Change) -> Mapping[str, tuple[object, object, str]]:
    return {each.key: (each.old, each.new, each.note) for each in one.fields}


def test_only_a_limit_that_would_refuse_a_record_is_lifted() -> None:
    made = at_home(shop(retention_ms="1"), both(live("orders", retention_ms="1")))

    assert made.config == {"retention.ms": "1", AFTER: FOREVER_MS}
    assert made.lifted is not None
    assert made.lifted.flow == "back"
    assert made.lifted.before == {AFTER: ""}


def test_the_settings_of_the_other_side_do_not_come_back() -> None:
    mirror = live("orders", retention_bytes="77", cleanup_policy="compact")

    made = at_home(shop(), both(live("orders"), mirror=mirror))

    assert made.config.keys() == {AFTER}


def test_a_larger_batch_finds_room() -> None:
    made = at_home(shop(), both(live("orders"), mirror=live("orders", max_message_bytes="2000000")))

    assert made.config == {AFTER: FOREVER_MS, LARGEST: "2000000"}


def test_the_plan_says_why() -> None:
    unmanaged = both(live("orders", message_timestamp_after_max_ms=HOUR))
    owned = entry(replace(at_home(shop(), unmanaged), config={}, lifted=None))

    found = change_at_home(shop(), both(live("orders", message_timestamp_after_max_ms=HOUR), owned))

    assert fields(found) == {AFTER: (HOUR, FOREVER_MS, "lifted while flow.back copies records back")}
    assert found.reason == "lifted while flow.back copies records back"


def test_a_declared_limit_stays() -> None:
    declared = shop(message_timestamp_after_max_ms="5000")

    made = at_home(declared, both(live("orders", message_timestamp_after_max_ms="5000")))

    assert made.config[AFTER] == "5000"
    assert made.lifted is None


def test_a_second_plan_during_the_failback_changes_nothing() -> None:
    before = both(live("orders", message_timestamp_after_max_ms=HOUR))
    made = at_home(shop(), before)
    lifted = live("orders", message_timestamp_after_max_ms=FOREVER_MS)

    again = at_home(shop(), both(lifted, entry(made)))

    assert again.lifted == made.lifted
    assert change_at_home(shop(), both(lifted, entry(made))).fields == ()


@pytest.mark.parametrize(("own", "restored"), [({"message_timestamp_after_max_ms": HOUR}, HOUR), ({}, None)])
def test_the_switch_restores_what_was_before(own: dict[str, str], restored: str | None) -> None:
    made = at_home(shop(), both(live_with(own)))
    lifted = both(live("orders", message_timestamp_after_max_ms=FOREVER_MS), entry(made))
    switched = shop(back=FlowState.PROMOTED)

    found = change_at_home(switched, lifted)

    assert fields(found) == {AFTER: (FOREVER_MS, restored, "restored after the failback")}
    assert found.reason == "restored after the failback"


def test_what_was_restored_is_not_owned_and_stays() -> None:
    made = at_home(shop(), both(live("orders", message_timestamp_after_max_ms=HOUR)))
    switched = shop(back=FlowState.PROMOTED)
    lifted = both(live("orders", message_timestamp_after_max_ms=FOREVER_MS), entry(made))
    after = entry(at_home(switched, lifted))

    assert after.before == {}
    assert AFTER not in after.config
    assert (
        change_at_home(switched, both(live("orders", message_timestamp_after_max_ms=HOUR), after)).fields
        == ()
    )


def test_a_setting_leaves_after_the_switch() -> None:
    """A promoted failback holds no setting of the topic that it filled."""
    owned = entry(at_home(shop(back=FlowState.PROMOTED, retention_bytes="9"), both(live("orders"))))

    found = change_at_home(shop(back=FlowState.PROMOTED), both(live("orders", retention_bytes="9"), owned))

    assert fields(found) == {"retention.bytes": ("9", None, "no longer declared")}


def test_a_topic_that_is_not_declared_gets_its_limit_back_too() -> None:
    undeclared = topology(OUT, BACK)
    made = at_home(undeclared, both(live("orders", message_timestamp_after_max_ms=HOUR)))
    assert made.config == {AFTER: FOREVER_MS}

    switched = topology(replace(OUT, state=FlowState.ACTIVE), replace(BACK, state=FlowState.PROMOTED))
    lifted = both(live("orders", message_timestamp_after_max_ms=FOREVER_MS), entry(made))

    assert fields(change_at_home(switched, lifted)) == {
        AFTER: (FOREVER_MS, HOUR, "restored after the failback")
    }


def test_a_topic_that_is_not_at_home_yet_is_made_like_its_source() -> None:
    over = observed(cluster("dc1"), cluster("dc2", live("orders", retention_bytes="77")))

    made = at_home(topology(OUT, BACK), over)

    assert made.config["retention.bytes"] == "77"
    assert made.lifted is None


def test_a_limit_is_restored_once_the_failback_has_ended() -> None:
    made = at_home(shop(), both(live("orders", message_timestamp_after_max_ms=HOUR)))
    lifted = both(live("orders", message_timestamp_after_max_ms=FOREVER_MS), entry(made))
    switched = shop(back=FlowState.PROMOTED)
    desired = expand(switched, lifted)

    plan = make_plan(desired, lifted, diff(desired, lifted, switched), switched)

    ids = [step.id for step in plan.steps]
    (restore,) = [step for step in plan.steps if isinstance(step, AlterConfigs) and step.cluster == "dc1"]
    assert restore.set == {AFTER: HOUR}
    assert "own:flow.back" in restore.needs
    assert ids.index("own:flow.back") < ids.index(restore.id)
    assert not any(restore.id in step.needs for step in plan.steps if not isinstance(step, Own))


@pytest.mark.parametrize("back", [FlowState.ACTIVE, FlowState.PROMOTED])
def test_the_steps_of_a_failback_and_of_a_switch_agree_with_what_is_shown(back: FlowState) -> None:
    owner = entry(at_home(shop(), both(live("orders", message_timestamp_after_max_ms=HOUR))))
    during = live("orders", message_timestamp_after_max_ms=FOREVER_MS)
    over = both(live("orders")) if back is FlowState.ACTIVE else both(during, owner)
    declared = shop(back=back, retention_ms="77")
    desired = expand(declared, over)

    plan = make_plan(desired, over, diff(desired, over, declared), declared)

    assert disagreements(plan) == ()
