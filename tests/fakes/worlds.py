"""Random topologies and random states of two clusters, for property tests (hypothesis)."""

from hypothesis import strategies as st
from hypothesis.vendor import pretty
from msgspec import structs

from planner.diff.record import acl_entry, announced, quota_entry
from planner.model.address import topic_address
from planner.model.desired import Declared, DesiredAcl, DesiredQuota, MirroredBy
from planner.model.observed import ConfigSource, ConfigValue, Observed, ObservedTopic, RegistryEntry
from planner.model.topology import (
    Acl,
    AclRule,
    OnRemove,
    Policies,
    Quota,
    QuotaEntity,
    Selection,
    Topic,
    Topology,
)
from planner.model.topology.quotas import quota_of
from runtime.contract.spec.flow import ConfigsSpec
from runtime.contract.spec.rename import Template
from tests.fakes.replacing import replace
from tests.fakes.states import SHOP, acl, cluster, flow, topology

NAMES = ("a", "b", "c", "d.x")
DEFAULTS = {"retention.ms": "604800000", "cleanup.policy": "delete", "min.insync.replicas": "1"}
VALUES = {
    "retention.ms": ("604800000", "86400000", "-1"),
    "cleanup.policy": ("delete", "compact", "compact,delete", "delete,compact"),
    "min.insync.replicas": ("1", "2"),
    "vendor.key": ("x", "1.0", "1"),
}
RULES = tuple(acl(operation, cluster=name) for name in ("dc1", "dc2") for operation in ("READ", "WRITE"))
# Live rules that are no topology's, by which foreign principals and the job may write.
WRITERS = tuple(
    acl("WRITE", cluster=name, principal=principal, resource=resource)
    for name in ("dc1", "dc2")
    for principal, resource in (("User:*", "*"), ("User:*", "a"), ("User:other", "*"), ("User:job", "*"))
)

limits = st.fixed_dictionaries(
    {},
    optional={
        "producer_byte_rate": st.sampled_from([1, 10_000_000]),
        "consumer_byte_rate": st.just(1_048_576),
        "request_percentage": st.sampled_from([50, 12.5]),
    },
)
some_limits = limits.filter(bool)
ENTITIES = (QuotaEntity("a"), QuotaEntity("<default>", "x"), QuotaEntity(client_id="a/b"))
entities = st.sampled_from(ENTITIES)
live_quotas = st.dictionaries(
    st.sampled_from([entity.name for entity in ENTITIES]),
    some_limits | st.just({"vendor_rate": 1}),
    max_size=2,
)
configs = st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in VALUES.items()})
names = st.sampled_from(NAMES)
topic_ids = st.sampled_from(["1", "2"])
SELECTED = (("a",), (".*",), ("a", "d\\.x"))
RENAMED = (Template("{topic}"), Template("{source}.{topic}"), Template("{topic}.replica"))


@st.composite
def live_topics(draw: st.DrawFn) -> ObservedTopic:
    name, partitions, replication = draw(names), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    inherited = {key: ConfigValue(value, ConfigSource.DEFAULT) for key, value in DEFAULTS.items()}
    config = inherited | {key: ConfigValue(value) for key, value in draw(configs).items()}
    replicas = ((*range(1, replication + 1),),) * partitions
    return ObservedTopic(name, draw(topic_ids), replicas, config)


@st.composite
def entries(draw: st.DrawFn, at: str) -> RegistryEntry:
    spec = {f"config.{key}": value for key, value in draw(configs).items()}
    spec |= draw(st.fixed_dictionaries({}, optional={"partitions": st.just("2"), "id": topic_ids}))
    origin = draw(st.sampled_from(["declared", "flow.there", "flow.gone"]))
    if origin != "declared":
        spec |= {"source.cluster": "dc1" if at == "dc2" else "dc2", "source.topic": draw(names)}
    return RegistryEntry(
        topic_address(at, draw(names)),
        draw(st.sampled_from([SHOP, SHOP, SHOP, "billing"])),
        spec,
        on_remove=draw(st.sampled_from(OnRemove)),
        origin=origin,
        created=draw(st.booleans()),
    )


@st.composite
def quota_entries(draw: st.DrawFn, at: str) -> RegistryEntry:
    origins: list[Declared | MirroredBy] = [
        Declared(),
        MirroredBy("there", "dc1"),
        MirroredBy("gone", "dc1"),
    ]
    origin = draw(st.sampled_from(origins))
    quota = DesiredQuota(at, draw(entities), draw(some_limits), origin)
    entry = quota_entry(quota, draw(st.sampled_from([SHOP, SHOP, "billing"])), created=draw(st.booleans()))
    return draw(st.sampled_from([entry, announced(entry)])) if entry.created else entry


@st.composite
def states(draw: st.DrawFn) -> Observed:
    clusters = []
    for name in ("dc1", "dc2"):
        owned = draw(st.lists(entries(name), max_size=4, unique_by=lambda one: one.address))
        owned += draw(st.lists(quota_entries(name), max_size=2, unique_by=lambda one: one.address))
        rules = [rule for rule in RULES if rule.cluster == name]
        writers = [rule for rule in WRITERS if rule.cluster == name]
        created = draw(st.booleans())
        of_rules = [acl_entry(DesiredAcl(rule, Declared()), SHOP, created=created) for rule in rules]
        clusters.append(
            cluster(
                *draw(st.lists(live_topics(), max_size=4, unique_by=lambda one: one.name)),
                name=name,
                owned=[*owned, *draw(st.lists(st.sampled_from(of_rules), unique_by=lambda one: one.address))],
                acls=draw(st.none() | st.lists(st.sampled_from([*rules, *writers]), unique=True)),
                defaults=DEFAULTS,
                quotas=draw(live_quotas),
            )
        )
    return Observed({one.name: one for one in clusters})


@st.composite
def topics(draw: st.DrawFn) -> Topic:
    return Topic(
        draw(names),
        draw(st.sampled_from(["dc1", "dc2"])),
        draw(st.none() | st.integers(1, 4)),
        draw(st.none() | st.integers(1, 3)),
        draw(configs),
        on_remove=draw(st.sampled_from(OnRemove)),
    )


@st.composite
def declared_quotas(draw: st.DrawFn) -> Quota:
    return quota_of(draw(st.sampled_from(["dc1", "dc2"])), draw(entities), draw(some_limits))


# Its class variables look like fields to hypothesis, which would fail to print an example that breaks a test.
pretty.for_type_by_name(Topology.__module__, "Topology", lambda one, printer, _cycle: printer.text(repr(one)))


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    declared = draw(st.lists(topics(), max_size=5, unique_by=lambda one: (one.cluster, one.name)))
    there = flow(
        "there",
        topics=Selection(draw(st.sampled_from(SELECTED)), default_exclude=draw(st.booleans())),
        rename=draw(st.sampled_from(RENAMED)),
        configs=ConfigsSpec(draw(st.sampled_from(["off", "set", "all"]))),
        state=draw(st.sampled_from(["active", "paused", "failed_over"])),
        on_source_delete=draw(st.sampled_from(["keep", "delete"])),
        acls_sync=draw(st.booleans()),
        quotas_sync=draw(st.booleans()),
        replication=draw(st.none() | st.integers(1, 3)),
        protect=draw(st.sampled_from(["off", "acl"])),
    )
    other_way = structs.replace(there, source_cluster="dc2", destination_cluster="dc1")
    # Under its old name, in a job of its old name or not.
    turned = structs.replace(other_way, job=draw(st.sampled_from(["dc1", "dc2"])))
    back = structs.replace(other_way, name="back", job="dc1", state="active")
    # A mirror that goes with its source is itself a source of the way back, which then takes a second plan.
    keeping = tuple(structs.replace(one, on_source_delete="keep") for one in (there, back))
    flows = draw(st.sampled_from([(), (there,), keeping, (turned,)]))
    rules: list[AclRule] = draw(st.lists(st.sampled_from(RULES), unique=True))
    whole = topology(*flows, policies=Policies(max_deletes=100))
    opened = draw(st.booleans())
    clusters = {
        name: structs.replace(one, principal="User:job", allow_everyone_if_no_acl_found=opened)
        for name, one in whole.clusters.items()
    }
    acls = tuple(Acl(rule) for rule in rules)
    quotas = draw(st.lists(declared_quotas(), max_size=2, unique_by=lambda one: (one.cluster, one.entity)))
    return replace(whole, topics=tuple(declared), acls=acls, quotas=tuple(quotas), clusters=clusters)
