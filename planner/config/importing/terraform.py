"""Converts a state or a plan of Terraform: topics and ACLs of the providers Mongey/kafka and confluent.

It reads `terraform.tfstate`, and what `terraform show -json` prints of a state or a plan. A state holds
passwords in clear text: only the attributes that are named here are read, and no value is shown in a note.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from planner.config.importing.declared import DeclaredResources
from planner.config.importing.document import ConvertedTopology, Fields, trees
from planner.model.diagnostic import Failure, error

WHAT = "terraform.tfstate, or what terraform show -json prints"
# As a state writes it (provider["…/kafka"].east), and as a plan does (module.shop:kafka.east).
_ALIAS = re.compile(r"(?:provider\[[^\]]*\]|(?:^|:)(?!module\.)[A-Za-z0-9_-]+)\.(?P<alias>[A-Za-z0-9_-]+)")
_MODULE = re.compile(r"module\.(?P<name>[A-Za-z0-9_-]+)")
_INDEX = re.compile(r"\[(?:\d+|\"(?:[^\"\\]|\\.)*\")\]")
_LONGEST = 1_000  # characters of an address that are read: a regex may take time by the square of them
# Kinds of resources of both providers, with the names of their attributes: name, partitions, replication.
_TOPICS = {
    "kafka_topic": ("name", "partitions", "replication_factor"),
    "confluent_kafka_topic": ("topic_name", "partitions_count", ""),
}
# The parts of an ACL, and its operations.
_ACLS: Mapping[str, tuple[Mapping[str, tuple[str, ...]], str]] = {
    "kafka_acl": (
        {
            "kind": ("resource_type",),
            "name": ("resource_name", "acl_resource_name"),
            "pattern": ("resource_pattern_type_filter",),
            "principal": ("acl_principal",),
            "host": ("acl_host",),
            "permission": ("acl_permission_type",),
        },
        "acl_operation",
    ),
    "confluent_kafka_acl": (
        {
            "kind": ("resource_type",),
            "name": ("resource_name",),
            "pattern": ("pattern_type",),
            "principal": ("principal",),
            "host": ("host",),
            "permission": ("permission",),
        },
        "operation",
    ),
}
_OF_CLUSTERS = ("confluent_kafka_cluster", "confluent_environment")
# Kinds that are no topic and no ACL, by what to do about them.
_OTHERS = (
    ("kafka_quota|confluent_kafka_client_quota", "declare it below quotas:"),
    ("kafka_user_scram_credential", "each user needs a new secret at another cluster"),
    ("confluent_api_key|confluent_service_account|confluent_role_binding", "it is no object of Kafka"),
    ("confluent_schema.*|confluent_subject.*", "schemas: of a flow brings schemas"),
    ("confluent_cluster_link|confluent_kafka_mirror_topic", "declare a flow for what the link mirrors"),
    ("confluent_connector", "it is run by Connect"),
)


class _Resource(NamedTuple):
    """A resource. `provider` is its configuration: alias and module, as the file writes them."""

    kind: str
    address: str
    provider: str
    values: Fields

    def convert(self, addresses: dict[tuple[str, ...], str], declared: DeclaredResources) -> None:
        """Adds a topic or an ACL; another kind has a note."""
        kind, values = self.kind, self.values
        cluster_of = self._confluent if kind.startswith("confluent_") else self._kafka
        if kind in _TOPICS:
            name, partitions, replication = _TOPICS[kind]
            cluster = cluster_of(addresses, declared)
            numbers = values.number(partitions), values.number(replication) if replication else None
            declared.topic(values, values.text(name), cluster, *numbers, values.settings("config"))
        elif kind in _ACLS:
            names, operations = _ACLS[kind]
            cluster = cluster_of(addresses, declared)
            parts = {part: values.text(*keys) for part, keys in names.items()}
            declared.acl(values, cluster, operations=values.texts(operations), **parts)
        elif kind.startswith(("kafka_", "confluent_")) and kind not in _OF_CLUSTERS:
            hint = next(
                (hint for kinds, hint in _OTHERS if re.fullmatch(kinds, kind)), "it has no counterpart"
            )
            values.note_at(values.line, self.address[:200], hint)

    def _kafka(self, addresses: Mapping[tuple[str, ...], str], declared: DeclaredResources) -> str:
        """Returns the cluster of a resource of Mongey/kafka: one for each configuration of the provider."""
        values, provider = self.values, self.provider
        alias = _ALIAS.search(provider[:_LONGEST])
        short = alias["alias"] if alias else "kafka"
        modules = "-".join(_MODULE.findall(provider[:_LONGEST]))
        candidates = (short, f"{short}-{modules}" if modules else short, f"{short}-{Path(values.file).stem}")
        identity = (values.file, provider)
        name = declared.name(identity, values, *candidates)
        return declared.cluster(name, values, addresses.get(identity, ""))

    def _confluent(self, addresses: dict[tuple[str, ...], str], declared: DeclaredResources) -> str:
        """Returns the cluster of a resource of Confluent Cloud, at the host of its REST endpoint."""
        values = self.values
        endpoint = values.text("rest_endpoint") or ""
        host = re.match(r"(?:https?://)?([A-Za-z0-9.-]+)", endpoint)
        cluster_id = values.below("kafka_cluster").text("id")
        identity = (cluster_id,) if cluster_id else (values.file, self.provider, endpoint)
        name = declared.name(identity, values, cluster_id or "confluent")
        if host and not addresses.get(identity):
            addresses[identity] = f"{host[1]}:9092"
        return declared.cluster(
            name, values, addresses.get(identity, ""), declared.login(name, "PLAIN", tls=True)
        )


def convert(files: Sequence[tuple[str, str]], name: str) -> ConvertedTopology:
    """Converts states and plans. Failure: no JSON of Terraform, or no topic and no ACL in it."""
    declared = DeclaredResources()
    resources: list[_Resource] = []
    addresses: dict[tuple[str, ...], str] = {}
    for file, text in files:
        for node in trees(text, file, WHAT):
            root = Fields.of(node, file, declared.notes)
            if not {"resources", "values", "planned_values"} & root.values.keys():
                raise Failure(error(f"{file} is no state and no plan of Terraform", f"name {WHAT}"))
            resources += _of_state(root)
            configuration = root.below("configuration")
            providers = dict(_providers(configuration.below("root_module"), ""))
            printed = list(_of_module(root.below("values").below("root_module"), "", {}))
            resources += printed
            resources += _of_module(root.below("planned_values").below("root_module"), "", providers)
            if any(resource.kind.startswith("kafka_") for resource in printed):
                reason = "it names no provider: the resources of a module are taken for those of one cluster"
                root.note("values", f"{reason}; terraform.tfstate names the provider", loss=False)
            addresses |= _addresses(configuration)
    for resource in resources:
        if resource.kind == "confluent_kafka_cluster":
            values = resource.values
            bootstrap = re.sub(r"^\w+://", "", values.text("bootstrap_endpoint") or "")
            if identity := values.text("id"):
                addresses[(identity,)] = bootstrap
    for resource in resources:
        resource.convert(addresses, declared)
    return declared.topology(name, "the providers Mongey/kafka and confluent")


def _of_state(root: Fields) -> Iterator[_Resource]:
    """Yields the resources of a terraform.tfstate."""
    for resource in root.each("resources"):
        if resource.text("mode") == "data":
            continue
        kind, named = resource.text("type") or "", resource.text("name") or ""
        module, provider = resource.text("module"), resource.text("provider") or ""
        for instance in resource.each("instances"):
            key = instance.text("index_key")
            address = ".".join(filter(None, (module, kind, named))) + (f"[{key}]" if key is not None else "")
            yield _Resource(kind, address, provider, instance.below("attributes"))


def _of_module(module: Fields, path: str, providers: Mapping[str, str]) -> Iterator[_Resource]:
    """Yields the resources of a module and of those below it.

    `providers` are their providers by address. Where the file has none, a module stands for its provider.
    """
    for resource in module.each("resources"):
        if resource.text("mode") != "data":
            kind = resource.text("type") or ""
            address = resource.text("address") or kind
            provider = providers.get(_INDEX.sub("", address[:_LONGEST]), path)
            yield _Resource(kind, address, provider, resource.below("values"))
    for child in module.each("child_modules"):
        yield from _of_module(child, child.text("address") or path, providers)


def _providers(module: Fields, path: str) -> Iterator[tuple[str, str]]:
    """Yields the address of each resource in a plan's configuration, and the key of its provider."""
    for resource in module.each("resources"):
        key = resource.text("provider_config_key")
        if key is not None:
            yield f"{path}{resource.text('address')}", key
    calls = module.below("module_calls")
    for name in calls.values:
        yield from _providers(calls.below(name).below("module"), f"{path}module.{name}.")


def _addresses(configuration: Fields) -> dict[tuple[str, ...], str]:
    """Returns the addresses that a plan has for the provider Mongey/kafka, by file and key."""
    providers = configuration.below("provider_config")
    addresses: dict[tuple[str, ...], str] = {}
    for name in providers.values:
        provider = providers.below(name)
        servers = provider.below("expressions").below("bootstrap_servers").texts("constant_value")
        if servers and (provider.text("name") or name) == "kafka":
            addresses[(configuration.file, name)] = ",".join(servers)
    return addresses
