"""Short words for the values that tests of the pure core are full of."""

from collections.abc import Mapping, Sequence

from msgspec import structs

from planner.diff.record import topic_spec
from planner.model.address import topic_address
from planner.model.change import Change
from planner.model.desired import Declared, Desired, DesiredFlow, DesiredTopic, MirroredBy
from planner.model.observed import (
    ConfigSource,
    ConfigValue,
    Observed,
    ObservedBroker,
    ObservedCluster,
    ObservedTopic,
    RegistryEntry,
    Unreachable,
)
from planner.model.plan import Mode, Plan, PlanInputs, release
from planner.model.topology import AclRule, Cluster, Flow, Policies, Selection, Topology
from planner.plan.make import make_plan
from tests.fakes.replacing import replace

SHOP = "shop"
NO_POLICIES = Policies()


def live(
    name: str,
    partitions: int = 6,
    replication: int = 3,
    *,
    topic_id: str = "",
    inherited: Mapping[str, str] | None = None,
    **config: str,
) -> ObservedTopic:
    """A topic at a cluster; config keys are written with underscores."""
    values = {key.replace("_", "."): ConfigValue(value) for key, value in config.items()}
    values |= {key: ConfigValue(value, ConfigSource.DEFAULT) for key, value in (inherited or {}).items()}
    return ObservedTopic(
        name, topic_id or f"id:{name}", ((*range(1, replication + 1),),) * partitions, values
    )


def uneven(name: str, *factors: int, **config: str) -> ObservedTopic:
    """A topic whose partitions have these numbers of replicas, in their order."""
    return replace(live(name, **config), replicas=tuple((*range(1, factor + 1),) for factor in factors))  # type: ignore[arg-type]


def cluster(
    *topics: ObservedTopic,
    name: str = "dc1",
    brokers: int = 3,
    owned: Sequence[RegistryEntry] = (),
    acls: Sequence[AclRule] | None = None,
    **more: object,
) -> ObservedCluster:
    return ObservedCluster(
        name=name,
        id=f"cluster-{name}",
        brokers=tuple(
            ObservedBroker(number, "host", 9092, f"rack{number % 3}") for number in range(1, brokers + 1)
        ),
        topics={one.name: one for one in topics},
        default_partitions=1,
        default_replication=min(3, brokers),
        acls=None if acls is None else tuple(acls),
        owned=tuple(owned),
        **more,  # type: ignore[arg-type]
    )


def observed(*clusters: ObservedCluster | Unreachable) -> Observed:
    return Observed({one.name: one for one in clusters})


def wanted(
    name: str, partitions: int | None = None, replication: int | None = None, **config: str
) -> DesiredTopic:
    """A declared topic of dc1."""
    values = {key.replace("_", "."): value for key, value in config.items()}
    return DesiredTopic("dc1", name, Declared(), partitions, replication, values)


def mirror(
    name: str, partitions: int | None = None, *, flow: str = "dc1-to-dc2", **config: str
) -> DesiredTopic:
    """A topic of dc2 that a flow fills from the topic of the same name at dc1."""
    values = {key.replace("_", "."): value for key, value in config.items()}
    return DesiredTopic("dc2", name, MirroredBy(flow, "dc1", name), partitions, None, values)


def flow(name: str = "dc1-to-dc2", **more: object) -> Flow:
    return structs.replace(Flow(name, "dc1", "dc2", Selection((".*",)), job="dc2"), **more)


def selecting(one: Flow, *topics: str, known: bool = True) -> DesiredFlow:
    return DesiredFlow(one, tuple((name, name) for name in topics), selection_known=known)


def desired(*topics: DesiredTopic, **more: object) -> Desired:
    return Desired(SHOP, topics, **more)  # type: ignore[arg-type]


def topology(*flows: Flow, policies: Policies = NO_POLICIES, clusters: Sequence[Cluster] = ()) -> Topology:
    named = clusters or (Cluster("dc1", bootstrap="dc1:9092"), Cluster("dc2", bootstrap="dc2:9092"))
    return Topology(
        SHOP,
        {one.name: one for one in named},
        flows={one.name: one for one in flows},
        policies=policies,
        digest="sha256:yaml",
    )


def owned(topic: DesiredTopic, *, topic_id: str = "", topology: str = SHOP, **more: object) -> RegistryEntry:
    """The registry entry of a topic that was applied as wanted here."""
    origin = f"flow.{topic.origin.flow}" if isinstance(topic.origin, MirroredBy) else "declared"
    entry = RegistryEntry(
        topic_address(topic.cluster, topic.name),
        topology,
        topic_spec(topic, topic_id or f"id:{topic.name}"),
        topic.protect,
        topic.on_remove,
        origin,
        created=True,
    )
    return replace(entry, **more)


def acl(
    operation: str = "READ", *, principal: str = "User:app", permission: str = "ALLOW", **more: str
) -> AclRule:
    rule = AclRule("dc1", "TOPIC", "orders", "LITERAL", principal, "*", operation, "ALLOW")
    return replace(rule, permission=permission, **more)


def inputs(shop: Topology, seen: Observed, **more: object) -> PlanInputs:
    now = PlanInputs(release=release(), mode=Mode.APPLY, topology=shop, observed=seen)
    return replace(now, **more)


def with_inputs(plan: Plan, **more: object) -> Plan:
    """The same changes and steps, of other inputs."""
    return replace(plan, inputs=replace(plan.inputs, **more))


def made_plan(
    want: Desired,
    seen: Observed,
    changes: Sequence[Change],
    shop: Topology,
    mode: Mode = Mode.APPLY,
    created_at: str = "",
    targets: Sequence[str] = (),
) -> Plan:
    """The plan of a desired state that no topology need stand for. Read from a file it would be another."""
    some = inputs(shop, seen, mode=mode, created_at=created_at, targets=tuple(targets))
    return make_plan(some, want, changes)
