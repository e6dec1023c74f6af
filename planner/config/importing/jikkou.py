"""Converts resource files of Jikkou: topics, ACLs of principals, and what both refer to.

Resources do not name their cluster: all are written at one.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from planner.config.importing.declared import DeclaredResources
from planner.config.importing.document import ConvertedTopology, Fields, NoCounterpart, trees
from planner.config.yaml_tree import ScalarNode
from planner.model.diagnostic import Failure, error

WHAT = "a folder with Jikkou's resource files"
_CLUSTER = "kafka"
_ROWS = (NoCounterpart("labels|annotations", "it is text for people"),)


def convert(files: Sequence[tuple[str, str]], name: str) -> ConvertedTopology:
    """Converts the files of a folder. Failure: a template, or no topic and no ACL."""
    declared = DeclaredResources()
    resources: list[Fields] = []
    for file, text in files:
        if "{{" in text or "{%" in text:
            hint = "import what it renders to: jikkou get, or jikkou diff, shows the resources"
            raise Failure(error(f"{file} is a template of Jinja", hint))
        for node in trees(text, file, WHAT):
            resources += _each(Fields.of(node, file, declared.notes))
    shared = {
        fields.below("metadata").text("name"): fields.settings("data")
        for fields in resources
        if fields.text("kind") == "ConfigMap"
    }
    roles: dict[str | None, Fields] = {
        fields.below("metadata").text("name"): fields
        for fields in resources
        if fields.text("kind") == "KafkaPrincipalRole"
    }
    for fields in resources:
        match fields.text("kind"):
            case "KafkaTopic":
                _topic(fields, shared, declared)
            case "KafkaPrincipalAuthorization":
                _authorization(fields, roles, declared)
            case "ConfigMap" | "KafkaPrincipalRole":
                continue
            case kind:
                name_ = fields.below("metadata").text("name") or ""
                fields.note(
                    "kind", f"{(kind or 'a resource without a kind')[:60]} {name_[:100]} has no counterpart"
                )
    return declared.topology(name, "Jikkou")


def _each(fields: Fields) -> Iterator[Fields]:
    """Yields a resource, or those of a list."""
    kind = fields.text("kind") or ""
    if kind.endswith("List"):
        for item in fields.each("items"):
            if "kind" not in item.values:
                node = fields.values["kind"]
                assert isinstance(node, ScalarNode), "it has a text"
                item.values = {**item.values, "kind": replace(node, text=kind.removesuffix("List"))}
            yield item
    elif fields:
        yield fields


def _topic(fields: Fields, shared: dict[str | None, dict[str, str]], declared: DeclaredResources) -> None:
    meta, spec = fields.below("metadata"), fields.below("spec")
    if meta.below("annotations").flag(False, "jikkou.io/delete"):
        meta.note("annotations", "the topic is to be deleted: it is left out")
        return
    config: dict[str, str] = {}
    for reference in spec.texts("configMapRefs"):
        if reference not in shared:
            spec.note("configMapRefs", f"there is no ConfigMap {reference[:100]}")
        config |= shared.get(reference, {})
    config |= spec.settings("configs")
    cluster = declared.cluster(_CLUSTER, fields)
    declared.topic(
        meta, meta.text("name"), cluster, spec.number("partitions"), spec.number("replicas"), config
    )
    for part in (meta, spec):
        part.explain(_ROWS)


def _authorization(fields: Fields, roles: dict[str | None, Fields], declared: DeclaredResources) -> None:
    meta, spec = fields.below("metadata"), fields.below("spec")
    cluster = declared.cluster(_CLUSTER, fields)
    acls = spec.each("acls")
    for role in spec.texts("roles"):
        if role in roles:
            acls += roles[role].below("spec").each("acls")
        else:
            spec.note("roles", f"there is no KafkaPrincipalRole {role[:100]}")
    for acl in acls:
        declared.nested_acl(
            acl,
            acl.below("resource"),
            cluster,
            name_key="pattern",
            principal=meta.text("name"),
            host=acl.text("host"),
            permission=acl.text("type"),
        )
    for part in (meta, spec):
        part.explain(_ROWS)
