"""Gathers the topics, ACLs and clusters that other tools declare, as a topology."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from planner.config.importing.document import ConvertedTopology, Fields, in_order, unused
from planner.model.diagnostic import Diagnostic, Failure, error
from planner.model.topology import RESOURCES, Acl, Cluster, Flow, Topic, Topology, secret_variable
from planner.model.topology.resources import KAFKA_CLUSTER, OPERATION_NAMES
from runtime.contract.client.stores import Setting
from runtime.contract.spec.acls import AclRule

_KINDS = {kind.replace("_", ""): kind for kind in (*RESOURCES.values(), "CLUSTER")}
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ONE_OF_TWO = "leave one of the two out, or import what belongs to another cluster by itself"


def label(text: str) -> str:
    """Returns a text as the name of a cluster."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", text).strip("_-")[:90] or "kafka"


@dataclass(slots=True)
class DeclaredResources:
    """What the files of a tool declare. What comes twice counts once, and must be the same both times.

    Two clusters never become one because their names are alike: each has its identity, by which the tool
    tells them apart.
    """

    notes: list[Diagnostic] = field(default_factory=list)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    topics: dict[tuple[str, str], Topic] = field(default_factory=dict)
    acls: dict[AclRule, Acl] = field(default_factory=dict)
    flows: dict[str, Flow] = field(default_factory=dict)
    names: dict[tuple[str, ...], str] = field(default_factory=dict)  # of clusters, by identity

    def name(self, identity: tuple[str, ...], fields: Fields, *candidates: str) -> str:
        """Returns the name of the cluster with this identity: the first candidate that no other one has.

        Where all of them are taken, the last gets a number. Names that differ only in case or punctuation
        count as the same, because they share the variables of their passwords.
        """
        if identity not in self.names:
            labels = list(map(label, candidates))
            taken = {secret_variable(name, "") for name in self.names.values()}
            chosen = unused(labels, lambda name: secret_variable(name, "") in taken)
            self.names[identity] = chosen
            if chosen != labels[0]:
                self._renamed("cluster", labels[0], chosen, fields)
        return self.names[identity]

    def flow_name(self, name: str, fields: Fields) -> str:
        """Returns the name for a flow: with a number, and a note, where another flow has it."""
        chosen = unused([name], self.flows.__contains__)
        if chosen != name:
            self._renamed("flow", name, chosen, fields)
        return chosen

    def _renamed(self, what: str, name: str, chosen: str, fields: Fields) -> None:
        reason = f"another {what} has the name {name} already: this one is {chosen}"
        fields.note_at(fields.line, chosen, reason, loss=False)

    def cluster(
        self, name: str, fields: Fields, bootstrap: str = "", client: dict[str, Setting] | None = None
    ) -> str:
        """Adds the cluster of this name, which `name` returned, and returns the name.

        A cluster of which no file says where it is gets an address that no name server knows, and a note.
        Failure: it is there already with another address or login.
        """
        unknown = f"{name.lower().replace('_', '-')}.invalid:9092"
        cluster = Cluster(name, bootstrap=re.sub(r"\w+://", "", bootstrap) or unknown, client=client or {})
        before = self.clusters.get(name)
        if before is None or (bootstrap and before.bootstrap == unknown):
            self.clusters[name] = cluster
        elif bootstrap and before != cluster:
            raise fields.failure(f"cluster {name} is declared twice, and not the same", _ONE_OF_TWO)
        if before is None and not bootstrap:
            reason = f"the file does not say where the cluster is: write clusters.{name}.bootstrap"
            fields.note_at(fields.line, name, reason)
        return name

    def topic(
        self,
        fields: Fields,
        name: str | None,
        cluster: str,
        partitions: int | None,
        replication: int | None,
        config: dict[str, str],
    ) -> None:
        if name is None or not _TOPIC.fullmatch(name):
            fields.note("name", "it is no name of a topic: the topic is left out")
            return
        topic = Topic(name, cluster, partitions, replication, config)
        if self.topics.setdefault((cluster, name), topic) != topic:
            what = f"topic {name} of cluster {cluster} is declared twice, and not the same"
            raise fields.failure(what, _ONE_OF_TWO)

    def acl(
        self,
        fields: Fields,
        cluster: str,
        *,
        kind: str | None,
        name: str | None,
        pattern: str | None,
        principal: str | None,
        host: str | None,
        operations: Iterable[str],
        permission: str | None,
    ) -> None:
        """Adds a binding for each operation. What Kafka or the language lacks is left out with a note."""
        resource_kind = _KINDS.get(re.sub(r"[^A-Z]", "", (kind or "").upper()))
        how = (pattern or "LITERAL").upper()
        if resource_kind is None or not principal or how not in ("LITERAL", "PREFIXED"):
            fields.note(
                "acl", "its kind of resource, pattern or principal is none of Kafka's: it is left out"
            )
            return
        allowed: Literal["ALLOW", "DENY"] = "DENY" if (permission or "").upper() == "DENY" else "ALLOW"
        prefixed = how == "PREFIXED" and resource_kind != "CLUSTER"
        kept: Literal["LITERAL", "PREFIXED"] = "PREFIXED" if prefixed else "LITERAL"
        for operation in operations:
            verb = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper().replace("-", "_")
            if verb not in OPERATION_NAMES:
                fields.note("operation", f"the operation {verb[:40]!r} can't be declared: it is left out")
                continue
            resource = KAFKA_CLUSTER if resource_kind == "CLUSTER" else name or "*"
            rule = AclRule(cluster, resource_kind, resource, kept, principal, host or "*", verb, allowed)
            self.acls.setdefault(rule, Acl(rule))

    def nested_acl(
        self,
        acl: Fields,
        resource: Fields,
        cluster: str,
        *,
        name_key: str,
        principal: str | None,
        host: str | None,
        permission: str | None,
    ) -> None:
        """Adds an ACL whose resource is a map, with the resource's name below `name_key`."""
        self.acl(
            acl,
            cluster,
            kind=resource.text("type"),
            name=resource.text(name_key),
            pattern=resource.text("patternType"),
            principal=principal,
            host=host,
            operations=acl.texts("operations"),
            permission=permission,
        )
        resource.explain()
        acl.explain()

    def login(self, cluster: str, mechanism: str, *, tls: bool) -> dict[str, Setting]:
        """Returns settings to log in by; user and password are variables to set."""
        return {
            "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": {"env": secret_variable(cluster, "sasl.username")},
            "sasl.password": {"env": secret_variable(cluster, "sasl.password")},
        }

    def topology(self, name: str, tool: str) -> ConvertedTopology:
        """Returns the topology. Failure: there is nothing in the files."""
        if not (self.topics or self.acls or self.flows):
            raise Failure(
                error(f"there is no topic, ACL or flow of {tool} in it", "name another file or folder")
            )
        used = {key[0] for key in self.topics} | {rule.cluster for rule in self.acls}
        used |= {end for flow in self.flows.values() for end in flow.ends}
        clusters = {key: cluster for key, cluster in self.clusters.items() if key in used}
        topology = Topology(
            name, clusters, tuple(self.topics.values()), tuple(self.acls.values()), flows=self.flows
        )
        return ConvertedTopology(topology, in_order(self.notes))
