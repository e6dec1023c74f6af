"""Reads one cluster: its identity, the names of its topics, then the details that a plan needs."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from planner.kafka.client import (
    TIMEOUT_S,
    BrokerConnection,
    BrokerConnections,
    ClusterClient,
)
from planner.kafka.failures import ClusterFailure, Unreadable, meaning
from planner.kafka.log import ValueReader
from planner.kafka.principals import read_acls, read_quotas, read_scram_users
from planner.kafka.topics import config_values
from planner.model.address import Kind
from planner.model.diagnostic import Diagnostic, Failure, WorkProgress, warning
from planner.model.observed import (
    SCHEMAS,
    ClusterDetailsRequest,
    LiveJob,
    ObservedCluster,
    RegistryEntry,
)
from planner.observe.brokers import (
    BrokerVersions,
    read_group_kinds,
    read_groups,
    read_sizes,
    too_old,
)
from planner.observe.doctor import lacking
from planner.observe.jobs import read_generations, read_jobs
from planner.observe.metadata import (
    BrokerDefaults,
    ClusterIdentity,
    TopicListing,
    defaults_of,
    describe_broker,
    identify,
    list_topics,
    look_up,
    read_configs,
)
from planner.observe.schemas import imports_schemas, read_subjects
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.ledger import Generation
from runtime.contract.spec.naming import LEDGER, REGISTRY, STATUS
from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.selection import GROUP_DENIALS, NamePatterns
from runtime.schemas.client import NotInRegistry, RegistryRefused, RegistryUnavailable

Found = TypeVar("Found")
ReadRegistry = Callable[[ClusterClient], Awaitable[tuple[RegistryEntry, ...]]]

# A listed broker that does not answer must not delay the plan.
_BROKER_TIMEOUT_S = 5.0
_NO_DEFAULTS: BrokerDefaults = {}, None, None


class ReadOptions(Struct, frozen=True):
    """How clusters are read, and what is read beside their topics.

    A cluster that sends nothing for `timeout_s` counts as unreachable. `jobs_of` is the topology whose jobs
    are read, `flows` are those of each destination. For flows in `failing_back` the ledger is read, whichever
    job owns them. `registries` are the schema registries of clusters.
    """

    timeout_s: float = TIMEOUT_S
    progress: Callable[[WorkProgress], None] = lambda _: None
    read_registry: ReadRegistry | None = None
    jobs_of: str | None = None
    flows: Mapping[str, Collection[str]] = field(default_factory=dict)
    failing_back: Collection[str] = ()
    registries: Mapping[str, RegistrySpec] = field(default_factory=dict)


class ClusterReader:
    """Reads one cluster. Every failure is a ClusterFailure or a Failure."""

    def __init__(self, endpoint: ClusterEndpoint, options: ReadOptions) -> None:
        self.name = endpoint.cluster
        self.diagnostics: list[Diagnostic] = []
        self._client = ClusterClient(endpoint, endpoint.within(options.timeout_s))
        self._options = options
        self._identity = ClusterIdentity("", ())
        self._brokers = BrokerConnections()

    async def identify(self) -> ClusterIdentity:
        """Returns the cluster's id and brokers. Nothing else is asked: it may be the wrong cluster."""
        self._options.progress(WorkProgress(self.name, "connecting", 0, 1))
        self._identity = await identify(self._client)
        self._options.progress(WorkProgress(self.name, "connecting", 1, 1))
        return self._identity

    async def overview(self, named: Collection[str]) -> ObservedCluster:
        """Returns every listed topic, and which of `named` are hidden; brokers, defaults and ownership."""
        self._client.add_brokers(self._identity.addresses.values())
        self._options.progress(WorkProgress(self.name, "listing topics", 0, 1))
        listing = await list_topics(self._client)
        await self._look_up_missing(listing, {*named, REGISTRY})
        self._options.progress(WorkProgress(self.name, "listing topics", 1, 1))
        self._brokers = await self._client.dial_each(self._identity.addresses, _BROKER_TIMEOUT_S, hurry=True)
        unreadable: dict[str, str] = {}
        defaults, partitions, replication = await self._defaults(unreadable)
        owned = await self._owned(listing, unreadable)
        versions = await self._versions()
        self._note_features(versions)
        return ObservedCluster(
            name=self.name,
            id=self._identity.id,
            brokers=self._identity.brokers,
            topics=listing.topics,
            internal_topics=listing.internal,
            defaults=defaults,
            default_partitions=partitions,
            default_replication=replication,
            hidden=frozenset(listing.hidden - {REGISTRY}),
            lacking=lacking(versions),
            owned=owned,
            jobs=await self._jobs(listing, unreadable),
            generations=await self._generations(listing, owned, unreadable),
            unreadable=unreadable,
        )

    async def details(self, cluster: ObservedCluster, wanted: ClusterDetailsRequest) -> ObservedCluster:
        """Returns the same cluster with the details that are wanted."""
        listing = TopicListing(dict(cluster.topics), dict(cluster.internal_topics), set(cluster.hidden))
        unreadable = dict(cluster.unreadable)
        await self._look_up_missing(listing, wanted.configs)
        await self._configs(listing, wanted, unreadable)
        details: dict[str, object] = {}
        if wanted.acls:
            details["acls"] = await _readable(unreadable, "acls", read_acls(self._client))
        if wanted.sizes:
            topics = {name: listing.topics[name] for name in wanted.sizes if name in listing.topics}
            details["sizes"] = await self._ask_all_brokers(
                unreadable, "sizes", lambda brokers: read_sizes(brokers, topics)
            )
        if wanted.groups or wanted.every_group or wanted.denied_groups:
            denied = NamePatterns(GROUP_DENIALS if wanted.denied_groups else ())

            def chosen(group: str) -> bool:
                return wanted.every_group or group in wanted.groups or denied.match(group)

            details["group_topics"] = await self._ask_all_brokers(
                unreadable, "groups", lambda brokers: read_groups(brokers, chosen)
            )
        if wanted.group_kinds:
            kinds = await self._ask_all_brokers(unreadable, "groups", read_group_kinds)
            details["group_kinds"] = kinds or {}
        if wanted.quotas:
            limits = await _readable(unreadable, "quotas", read_quotas(self._client)) or {}
            details["quotas"] = {entity.name: values for entity, values in limits.items()}
        if wanted.scram_users:
            details["scram_users"] = (
                await _readable(unreadable, "scram", read_scram_users(self._client)) or {}
            )
        registry = self._options.registries.get(self.name)
        if registry is not None and (wanted.schemas or wanted.subjects):
            self._options.progress(WorkProgress(self.name, "reading schemas", 0, 1))
            try:
                details["subjects"] = await read_subjects(registry, wanted)
                details["imports_schemas"] = not wanted.subject_modes or await imports_schemas(registry)
            except (RegistryUnavailable, RegistryRefused, NotInRegistry) as failure:
                unreadable[SCHEMAS] = str(failure)
            self._options.progress(WorkProgress(self.name, "reading schemas", 1, 1))
        return replace(
            cluster,
            topics=listing.topics,
            internal_topics=listing.internal,
            hidden=frozenset(listing.hidden),
            unreadable=unreadable,
            **details,
        )

    def close(self) -> None:
        self._client.close()
        self._brokers.close()

    async def _look_up_missing(self, listing: TopicListing, names: Collection[str]) -> None:
        """Asks for topics by name: a listing leaves out topics without the right to describe them."""
        missing = [name for name in names if not listing.knows(name) and name not in listing.hidden]
        if missing:
            await look_up(self._client, missing, listing)

    async def _configs(
        self, listing: TopicListing, wanted: ClusterDetailsRequest, unreadable: dict[str, str]
    ) -> None:
        total = sum(map(listing.knows, wanted.configs))
        if not total:
            return

        def progress(done: int) -> None:
            self._options.progress(WorkProgress(self.name, "reading configs", done, total))

        progress(0)
        refused = await read_configs(self._client, listing, wanted, progress)
        unreadable |= {f"topic.{name}": why for name, why in refused.items()}

    async def _defaults(self, unreadable: dict[str, str]) -> BrokerDefaults:
        """Returns the settings of the answering broker with the lowest id, with the cluster's dynamic
        defaults.
        """
        if not self._brokers.connections:
            unreadable["defaults"] = "no broker answers at the address that it gives"
            return _NO_DEFAULTS
        broker = min(self._brokers.connections)
        try:
            described = await describe_broker(self._brokers.connections[broker], broker)
        except ClusterFailure as failure:
            unreadable["defaults"] = failure.why
            return _NO_DEFAULTS
        if described.error:
            why = meaning(described.error, described.message)
            unreadable["defaults"] = f"the brokers' settings can't be read ({why})"
            return _NO_DEFAULTS
        return defaults_of(config_values(described.entries))

    def _addresses(self) -> dict[int, str]:
        return {broker.id: f"{broker.id} ({broker.host}:{broker.port})" for broker in self._identity.brokers}

    async def _versions(self) -> BrokerVersions:
        """What each broker that answers offers; where none does, the one at the bootstrap address."""
        addresses = self._addresses()
        answering = {
            addresses[broker]: connection.versions
            for broker, connection in sorted(self._brokers.connections.items())
        }
        if answering:
            return answering
        connection = await self._client.connection()
        return {connection.where: connection.versions}

    def _note_features(self, versions: BrokerVersions) -> None:
        """Reports brokers that are too old, and those that do not answer."""
        addresses = self._addresses()
        if self._brokers.connections:
            self.diagnostics += too_old(self.name, versions)
        self.diagnostics += (
            warning(
                f"broker {addresses[broker]} of {self.name} does not answer: {failure.why}",
                failure.hint or "look at its advertised.listeners, and at the network between",
                code="broker-silent",
            )
            for broker, failure in sorted(self._brokers.unreachable.items())
        )

    async def _owned(self, listing: TopicListing, unreadable: dict[str, str]) -> tuple[RegistryEntry, ...]:
        if REGISTRY in listing.hidden:
            unreadable["registry"] = f"not authorized to describe {REGISTRY}"
            # No error: a principal that only reads a source needs no right to internal topics there.
            self.diagnostics.append(
                warning(
                    f"not authorized to describe {REGISTRY} at {self.name}:"
                    " the owners of objects there are unknown",
                    "to change anything at this cluster, the principal needs DESCRIBE and READ on the prefix"
                    " __repl.",
                    code="registry-hidden",
                )
            )
            return ()
        if self._options.read_registry is None or REGISTRY not in listing.internal:
            return ()
        return await self._options.read_registry(self._client)

    async def _jobs(self, listing: TopicListing, unreadable: dict[str, str]) -> tuple[LiveJob, ...]:
        if self._options.jobs_of is None or STATUS not in listing.internal:
            return ()
        try:
            async with ValueReader(self._client, STATUS) as reader:
                return await read_jobs(reader, self.name, self._options.jobs_of)
        except Failure as failure:
            unreadable["jobs"] = failure.diagnostics[0].summary
            return ()

    async def _generations(
        self, listing: TopicListing, owned: Iterable[RegistryEntry], unreadable: dict[str, str]
    ) -> dict[str, Generation]:
        recorded = {entry.address.name for entry in owned if entry.address.kind is Kind.FLOW}
        flows = set(self._options.flows.get(self.name, ())) - (recorded - set(self._options.failing_back))
        if not flows or LEDGER not in listing.internal:
            return {}
        try:
            return await read_generations(self._client, flows, listing.internal[LEDGER].partitions)
        except Failure as failure:
            unreadable["ledger"] = failure.diagnostics[0].summary
            return {}

    async def _ask_all_brokers(
        self,
        unreadable: dict[str, str],
        what: str,
        read: Callable[[Iterable[BrokerConnection]], Awaitable[Found]],
    ) -> Found | None:
        """Returns what only all brokers together can tell; None if one of them does not answer."""
        for broker, failure in self._brokers.unreachable.items():
            unreadable[what] = f"broker {broker} does not answer: {failure.why}"
            return None
        try:
            return await read(self._brokers.connections.values())
        except ClusterFailure as failure:
            unreadable[what] = failure.why
            return None


async def _readable(unreadable: dict[str, str], what: str, reading: Awaitable[Found]) -> Found | None:
    """Returns what was read; None where the principal may not read it, with the right that it needs."""
    try:
        return await reading
    except Unreadable as failure:
        unreadable[what] = failure.explained
        return None
