"""Reads one cluster: its identity, the names of its topics, then the details that a plan needs."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar

from planner.kafka import ClusterEndpoint
from planner.kafka.admin_requests import read_quotas, read_scram_users
from planner.kafka.connection_errors import Refused, Unreadable, WireFailure, meaning
from planner.kafka.connections import BlockingConnection, Session
from planner.model.address import Kind
from planner.model.diagnostic import Diagnostic, Failure, warning
from planner.model.observed import (
    ClusterDetailsRequest,
    ConfigValue,
    LiveJob,
    ObservedCluster,
    ObservedTopic,
    RegistryEntry,
    TopicConfigsRequest,
)
from planner.model.topology import AclRule
from planner.observe.brokers import (
    BrokerConnections,
    BrokerVersions,
    common_features,
    reach_each,
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
from runtime.contract.client.settings import ClientSettingsError, wire_settings
from runtime.contract.records.ledger import Generation
from runtime.contract.spec.naming import LEDGER, REGISTRY, STATUS
from runtime.contract.spec.selection import GROUP_DENIALS, NamePatterns
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.administration import DescribeAclsRequest

_TYPES = {
    2: "TOPIC",
    3: "GROUP",
    4: "CLUSTER",
    5: "TRANSACTIONAL_ID",
    6: "DELEGATION_TOKEN",
    7: "USER",
}
_OPERATIONS = {
    2: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
_PREFIXED, _DENY = 4, 2


def read_acls(connection: BlockingConnection, cluster: str) -> tuple[AclRule, ...] | None:
    """Returns the rules, sorted; None if the cluster has no authorizer. Rules of unknown kinds
    are left out.
    """
    answer = connection.call(DescribeAclsRequest())
    if answer.error is ErrorCode.SECURITY_DISABLED:
        return None
    if answer.error:
        raise Unreadable(
            f"not authorized to describe the ACLs of {cluster} ({meaning(answer.error)})",
            "it needs DESCRIBE on the cluster",
        )
    return tuple(
        sorted(
            AclRule(
                cluster,
                _TYPES[one.resource_type],
                one.resource,
                "PREFIXED" if one.pattern == _PREFIXED else "LITERAL",
                one.principal,
                one.host,
                _OPERATIONS[one.operation],
                "DENY" if one.permission == _DENY else "ALLOW",
            )
            for one in answer.bindings
            if one.resource_type in _TYPES and one.operation in _OPERATIONS
        )
    )


class ProgressCallback(Protocol):
    """Is called while a cluster is read."""

    def __call__(self, cluster: str, what: str, done: int, total: int) -> None:
        """Receives that `done` of `total` parts are read. It is called from several threads."""


def no_progress(cluster: str, what: str, done: int, total: int) -> None:
    """Shows nothing."""


Found = TypeVar("Found")
ReadRegistry = Callable[[ClusterEndpoint], tuple[RegistryEntry, ...]]

# A listed broker that does not answer must not delay the plan.
_BROKER_TIMEOUT_S = 5.0
_NO_DEFAULTS = BrokerDefaults({}, None, None)


class ClusterReader:
    """Reads one cluster, for one thread at a time. Every failure is a WireFailure or a Failure."""

    def __init__(
        self,
        endpoint: ClusterEndpoint,
        timeout_s: float,
        progress: ProgressCallback,
        read_registry: ReadRegistry | None,
        jobs_of: str | None = None,
        flows: Collection[str] = (),
        failing_back: Collection[str] = (),
    ) -> None:
        self.name = endpoint.cluster
        self.diagnostics: list[Diagnostic] = []
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._progress = progress
        self._read_registry = read_registry
        self._jobs_of = jobs_of
        self._flows = flows
        self._turning = failing_back
        self._identity = ClusterIdentity("", ())
        self._brokers = BrokerConnections()
        self._session: Session | None = None

    def identify(self) -> ClusterIdentity:
        """Returns the cluster's id and brokers. Nothing else is asked: it may be the wrong cluster."""
        self._progress(self.name, "connecting", 0, 1)
        self._identity = self._open_session().ask(identify)
        self._progress(self.name, "connecting", 1, 1)
        return self._identity

    def names(self, named: Collection[str]) -> ObservedCluster:
        """Returns every listed topic, and which of `named` are hidden; brokers, defaults and ownership."""
        session = self._open_session()
        session.add_brokers((broker.host, broker.port) for broker in self._identity.brokers)
        self._progress(self.name, "listing topics", 0, 1)
        listing = session.ask(list_topics)
        self._look_up_missing(listing, {*named, REGISTRY})
        self._progress(self.name, "listing topics", 1, 1)
        self._brokers = reach_each(session, self._identity.brokers, _BROKER_TIMEOUT_S, hurry=True)
        unreadable: dict[str, str] = {}
        defaults = self._defaults(unreadable)
        owned = self._owned(listing, unreadable)
        return ObservedCluster(
            name=self.name,
            id=self._identity.id,
            brokers=self._identity.brokers,
            topics=listing.topics,
            internal_topics=listing.internal,
            defaults=defaults.config,
            default_partitions=defaults.partitions,
            default_replication=defaults.replication,
            hidden=frozenset(listing.hidden - {REGISTRY}),
            features=self._features(),
            lacking=lacking(self._versions()),
            owned=owned,
            jobs=self._jobs(listing, unreadable),
            generations=self._generations(listing, owned, unreadable),
            unreadable=unreadable,
        )

    def details(self, cluster: ObservedCluster, wanted: ClusterDetailsRequest) -> ObservedCluster:
        """Returns the same cluster with the details that are wanted."""
        session = self._open_session()
        listing = TopicListing(dict(cluster.topics), dict(cluster.internal_topics), set(cluster.hidden))
        unreadable = dict(cluster.unreadable)
        self._look_up_missing(listing, wanted.configs)
        self._configs(listing, wanted.configs, unreadable)
        acls = cluster.acls
        if wanted.acls:
            try:
                acls = session.ask(lambda connection: read_acls(connection, self.name))
            except Unreadable as refused:
                unreadable["acls"] = _told(refused)
        sizes, groups = cluster.sizes, cluster.group_topics
        if wanted.sizes:
            asked = {name: listing.topics[name] for name in wanted.sizes if name in listing.topics}
            sizes = self._ask_all_brokers(unreadable, "sizes", lambda brokers: read_sizes(brokers, asked))
        if wanted.groups or wanted.every_group or wanted.denied_groups:
            denied = NamePatterns(GROUP_DENIALS if wanted.denied_groups else ())

            def chosen(group: str) -> bool:
                return wanted.every_group or group in wanted.groups or denied.match(group)

            groups = self._ask_all_brokers(unreadable, "groups", lambda brokers: read_groups(brokers, chosen))
        kinds = cluster.group_kinds
        if wanted.group_kinds:
            kinds = self._ask_all_brokers(unreadable, "groups", read_group_kinds) or {}
        quotas, users = cluster.quotas, cluster.scram_users
        if wanted.quotas:
            quotas = self._ask_readable(unreadable, "quotas", lambda one: read_quotas(one, self.name)) or {}
        if wanted.scram_users:
            users = (
                self._ask_readable(unreadable, "scram", lambda one: read_scram_users(one, self.name)) or ()
            )
        return replace(
            cluster,
            topics=listing.topics,
            internal_topics=listing.internal,
            hidden=frozenset(listing.hidden),
            acls=acls,
            sizes=sizes,
            group_topics=groups,
            group_kinds=kinds,
            quotas=quotas,
            scram_users=users,
            unreadable=unreadable,
        )

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._brokers.close()

    def _open_session(self) -> Session:
        if self._session is None:
            try:
                settings = wire_settings(
                    self._endpoint.bootstrap, self._endpoint.settings, self._endpoint.token_command
                )
            except ClientSettingsError as wrong:
                raise Refused(str(wrong), f"look at client: of cluster {self.name}") from None
            self._session = Session(settings, self._timeout_s)
        return self._session

    def _look_up_missing(self, listing: TopicListing, names: Collection[str]) -> None:
        """Asks for topics by name: a listing leaves out topics without the right to describe them."""
        missing = [name for name in names if not listing.knows(name) and name not in listing.hidden]
        if missing:
            self._open_session().ask(lambda connection: look_up(connection, missing, listing))

    def _configs(
        self, listing: TopicListing, wanted: Mapping[str, TopicConfigsRequest], unreadable: dict[str, str]
    ) -> None:
        known = {name: want for name, want in wanted.items() if listing.knows(name)}
        if not known:
            return
        self._progress(self.name, "reading configs", 0, len(known))
        configs = read_configs(
            self._open_session(),
            known,
            lambda done: self._progress(self.name, "reading configs", done, len(known)),
        )
        for name in configs.gone:
            listing.topics.pop(name, None)
            listing.internal.pop(name, None)
        for name, found in configs.found.items():
            _set_config(listing.topics if name in listing.topics else listing.internal, name, found)
        for name, why in configs.refused.items():
            unreadable[f"topic.{name}"] = why
            listing.hidden.add(name)

    def _defaults(self, unreadable: dict[str, str]) -> BrokerDefaults:
        """Returns the settings of the answering broker with the lowest id, with the cluster's dynamic
        defaults.
        """
        if not self._brokers.connections:
            unreadable["defaults"] = "no broker answers at the address that it gives"
            return _NO_DEFAULTS
        broker = min(self._brokers.connections)
        try:
            described = describe_broker(self._brokers.connections[broker], broker)
        except WireFailure as failure:
            unreadable["defaults"] = failure.why
            return _NO_DEFAULTS
        if described.error:
            why = meaning(described.error, described.message)
            unreadable["defaults"] = f"the brokers' settings can't be read ({why})"
            return _NO_DEFAULTS
        return defaults_of(described.config)

    def _addresses(self) -> dict[int, str]:
        return {one.id: f"{one.id} ({one.host}:{one.port})" for one in self._identity.brokers}

    def _versions(self) -> list[BrokerVersions]:
        """What each broker that answers offers; where none does, the one at the bootstrap address."""
        addresses = self._addresses()
        answering = [
            BrokerVersions(addresses[broker], connection.versions)
            for broker, connection in sorted(self._brokers.connections.items())
        ]
        if answering:
            return answering
        connection = self._open_session().connection()
        return [BrokerVersions(connection.where, connection.versions)]

    def _features(self) -> frozenset[str]:
        addresses = self._addresses()
        versions = self._versions()
        if self._brokers.connections:
            self.diagnostics += too_old(self.name, versions)
        self.diagnostics += (
            warning(
                f"broker {addresses[broker]} of {self.name} does not answer: {failure.why}",
                failure.way_out or "look at its advertised.listeners, and at the network between",
                code="broker-silent",
            )
            for broker, failure in sorted(self._brokers.unreachable.items())
        )
        return common_features(versions)

    def _owned(self, listing: TopicListing, unreadable: dict[str, str]) -> tuple[RegistryEntry, ...]:
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
        if self._read_registry is None or REGISTRY not in listing.internal:
            return ()
        return self._read_registry(self._endpoint)

    def _jobs(self, listing: TopicListing, unreadable: dict[str, str]) -> tuple[LiveJob, ...]:
        if self._jobs_of is None or STATUS not in listing.internal:
            return ()
        try:
            return read_jobs(self._endpoint, self._jobs_of)
        except Failure as failure:
            unreadable["jobs"] = failure.diagnostics[0].summary
            return ()

    def _generations(
        self, listing: TopicListing, owned: Iterable[RegistryEntry], unreadable: dict[str, str]
    ) -> dict[str, Generation]:
        known = {entry.address.name for entry in owned if entry.address.kind is Kind.FLOW}
        asked = set(self._flows) - (known - set(self._turning))
        if not asked or LEDGER not in listing.internal:
            return {}
        try:
            return read_generations(self._endpoint, asked, listing.internal[LEDGER].partitions)
        except Failure as failure:
            unreadable["ledger"] = failure.diagnostics[0].summary
            return {}

    def _ask_readable(
        self, unreadable: dict[str, str], what: str, read: Callable[[BlockingConnection], Found]
    ) -> Found | None:
        """Returns the answer of a broker; None where the principal may not read it."""
        try:
            return self._open_session().ask(read)
        except Unreadable as refused:
            unreadable[what] = _told(refused)
            return None

    def _ask_all_brokers(
        self, unreadable: dict[str, str], what: str, read: Callable[[Iterable[BlockingConnection]], Found]
    ) -> Found | None:
        """Returns what only all brokers together can tell; None if one of them does not answer."""
        for broker, failure in self._brokers.unreachable.items():
            unreadable[what] = f"broker {broker} does not answer: {failure.why}"
            return None
        try:
            return read(self._brokers.connections.values())
        except WireFailure as failure:
            unreadable[what] = failure.why
            return None


def _set_config(topics: dict[str, ObservedTopic], name: str, config: Mapping[str, ConfigValue]) -> None:
    topics[name] = replace(topics[name], config=config)


def _told(refused: Unreadable) -> str:
    """Returns why something could not be read, with the right that it needs."""
    return f"{refused.why}; {refused.way_out}" if refused.way_out else refused.why
