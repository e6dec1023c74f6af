"""Converts a state or a plan of Terraform: topics and ACLs of the providers Mongey/kafka and confluent.

It reads `terraform.tfstate`, and what `terraform show -json` prints of a state or a plan. A state holds
passwords in clear text: only the attributes that are named here are read, and no value is shown in a note.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from planner.config.importing.connect import ConversionNote, ConvertedTopology
from planner.config.importing.declared import DeclaredResources, label
from planner.config.importing.document import Fields, trees
from planner.model.diagnostic import Failure, error

WHAT = "terraform.tfstate, or what terraform show -json prints"
_ALIAS = re.compile(r"provider\[[^\]]*\]\.(?P<alias>[A-Za-z0-9_-]+)")
# Kinds of resources of both providers that are no topic and no ACL, by what to do about them.
_OTHERS = (
    ("kafka_quota|confluent_kafka_client_quota", "declare it below quotas:"),
    ("kafka_user_scram_credential", "each user needs a new secret at another cluster"),
    ("confluent_api_key|confluent_service_account|confluent_role_binding", "it is no object of Kafka"),
    ("confluent_schema.*|confluent_subject.*", "schemas: of a flow brings schemas"),
    ("confluent_cluster_link|confluent_kafka_mirror_topic", "declare a flow for what the link mirrors"),
    ("confluent_connector", "it is run by Connect"),
)


class _Resource(NamedTuple):
    kind: str
    address: str
    alias: str  # of the provider
    values: Fields


def convert(files: Sequence[tuple[str, str]], name: str) -> ConvertedTopology:
    """Converts states and plans. Failure: no JSON of Terraform, or no topic and no ACL in it."""
    declared = DeclaredResources()
    resources: list[_Resource] = []
    addresses: dict[str, str] = {}
    for file, text in files:
        for node in trees(text, file, WHAT):
            root = Fields.of(node, file, declared.notes)
            if not {"resources", "values", "planned_values"} & root.values.keys():
                raise Failure(error(f"{file} is no state and no plan of Terraform", f"name {WHAT}"))
            resources += _of_state(root)
            for part in ("planned_values", "values"):
                resources += _of_module(root.below(part).below("root_module"))
            addresses |= _addresses(root)
    for resource in resources:
        if resource.kind == "confluent_kafka_cluster":
            values = resource.values
            bootstrap = re.sub(r"^\w+://", "", values.text("bootstrap_endpoint") or "")
            if identity := values.text("id"):
                addresses[identity] = bootstrap
    for resource in resources:
        _convert(resource, addresses, declared)
    return declared.topology(name, "the providers Mongey/kafka and confluent")


def _of_state(root: Fields) -> Iterator[_Resource]:
    """Yields the resources of a terraform.tfstate."""
    for resource in root.each("resources"):
        if resource.text("mode") == "data":
            continue
        kind, named = resource.text("type") or "", resource.text("name") or ""
        alias = _ALIAS.search(resource.text("provider") or "")
        for instance in resource.each("instances"):
            key = instance.text("index_key")
            address = f"{kind}.{named}" + (f"[{key}]" if key is not None else "")
            yield _Resource(kind, address, alias["alias"] if alias else "", instance.below("attributes"))


def _of_module(module: Fields) -> Iterator[_Resource]:
    """Yields the resources of a module and of those below it."""
    for resource in module.each("resources"):
        if resource.text("mode") != "data":
            kind = resource.text("type") or ""
            yield _Resource(kind, resource.text("address") or kind, "", resource.below("values"))
    for child in module.each("child_modules"):
        yield from _of_module(child)


def _addresses(root: Fields) -> dict[str, str]:
    """Returns the addresses that a plan has for the provider Mongey/kafka, by its alias."""
    providers = root.below("configuration").below("provider_config")
    addresses = {}
    for name in providers.values:
        provider = providers.below(name)
        servers = provider.below("expressions").below("bootstrap_servers").texts("constant_value")
        if servers and (provider.text("name") or name) == "kafka":
            addresses[provider.text("alias") or ""] = ",".join(servers)
    return addresses


def _convert(resource: _Resource, addresses: dict[str, str], declared: DeclaredResources) -> None:
    values = resource.values
    match resource.kind:
        case "kafka_topic":
            cluster = _kafka(resource, addresses, declared)
            numbers = values.number("partitions"), values.number("replication_factor")
            declared.topic(values, values.text("name"), cluster, *numbers, values.settings("config"))
        case "kafka_acl":
            declared.acl(
                values,
                _kafka(resource, addresses, declared),
                kind=values.text("resource_type"),
                name=values.text("resource_name", "acl_resource_name"),
                pattern=values.text("resource_pattern_type_filter"),
                principal=values.text("acl_principal"),
                host=values.text("acl_host"),
                operations=values.texts("acl_operation"),
                permission=values.text("acl_permission_type"),
            )
        case "confluent_kafka_topic":
            cluster = _confluent(resource, addresses, declared)
            partitions = values.number("partitions_count")
            declared.topic(
                values, values.text("topic_name"), cluster, partitions, None, values.settings("config")
            )
        case "confluent_kafka_acl":
            declared.acl(
                values,
                _confluent(resource, addresses, declared),
                kind=values.text("resource_type"),
                name=values.text("resource_name"),
                pattern=values.text("pattern_type"),
                principal=values.text("principal"),
                host=values.text("host"),
                operations=values.texts("operation"),
                permission=values.text("permission"),
            )
        case "confluent_kafka_cluster" | "confluent_environment":
            return
        case kind if kind.startswith(("kafka_", "confluent_")):
            hint = next(
                (hint for kinds, hint in _OTHERS if re.fullmatch(kinds, kind)), "it has no counterpart"
            )
            declared.notes.append(
                ConversionNote(resource.address[:200], values.line, hint, True, values.file)
            )


def _kafka(resource: _Resource, addresses: dict[str, str], declared: DeclaredResources) -> str:
    """Returns the cluster of a resource of Mongey/kafka: one for each alias of the provider."""
    return declared.cluster(resource.alias or "kafka", resource.values, addresses.get(resource.alias, ""))


def _confluent(resource: _Resource, addresses: dict[str, str], declared: DeclaredResources) -> str:
    """Returns the cluster of a resource of Confluent Cloud. Its broker has the host of its REST endpoint."""
    values = resource.values
    identity = values.below("kafka_cluster").text("id") or "confluent"
    bootstrap = addresses.get(identity, "")
    if not bootstrap:
        host = re.match(r"(?:https?://)?([A-Za-z0-9.-]+)", values.text("rest_endpoint") or "")
        bootstrap = f"{host[1]}:9092" if host else ""
    return declared.cluster(identity, values, bootstrap, declared.login(label(identity), "PLAIN", tls=True))
