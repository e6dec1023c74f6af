"""Only what is as declared, at the clusters that were named, and only its registry entry."""

from planner.model.address import topic_address
from planner.model.observed import RegistryEntry
from planner.model.plan import Action, Change, Mode, Plan
from planner.model.step import AlterConfigs, Own
from planner.plan.make import adoption

ALIKE, OTHER, FAR = topic_address("dc1", "a"), topic_address("dc1", "b"), topic_address("dc2", "a")


def own(address, needs=()):
    return Own(f"own:{address}", address, address.cluster, RegistryEntry(address, "shop", {}), needs)


PLAN = Plan(
    topology="shop",
    mode=Mode.APPLY,
    topology_digest="d",
    created_at="2026-01-01T00:00:00Z",
    clusters={"dc1": "1", "dc2": "2"},
    changes=(
        Change(ALIKE, Action.NO_OP, "exists", adopted=True),
        Change(OTHER, Action.UPDATE, "exists", adopted=True),
        Change(FAR, Action.NO_OP, "exists", adopted=True),
    ),
    steps=(own(ALIKE), AlterConfigs("c", OTHER, "dc1", "b", set={"k": "v"}), own(OTHER, ("c",)), own(FAR)),
)


def test_what_is_as_declared_is_registered_and_what_differs_is_counted():
    kept = adoption(PLAN, ["dc1"])
    assert [step.id for step in kept.steps] == [f"own:{ALIKE}"]
    assert [change.address for change in kept.changes] == [ALIKE]
    assert kept.diagnostics[0].summary == (
        "1 objects at dc1 are missing or differ from the topology: they are not registered"
    )


def test_where_all_is_alike_nothing_is_said():
    assert adoption(PLAN, ["dc2"]).diagnostics == ()
