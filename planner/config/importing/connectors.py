"""Reads connector configurations as JSON, in each form that Kafka Connect takes or answers.

These are the REST body `{"name": …, "config": {…}}`, a bare config, a list of them, and the answer of `GET
/connectors?expand=info`. Each key keeps its line in the file.
"""

from collections.abc import Iterator

from planner.config.importing.connect import Properties
from planner.config.importing.document import Fields, json_tree
from planner.config.yaml_tree import ListNode, MapNode, Node, ScalarNode
from planner.model.diagnostic import Failure, error

_REPLICATOR = "ReplicatorSourceConnector"
_HINT = "give the JSON that the connector was created with, or what Connect's GET /connectors/NAME answers"


def connectors_of(text: str, file: str) -> list[tuple[str, Properties]]:
    """Returns the Replicator connectors of a file, each with its name, which is "" where the file has none.

    Failure: no JSON, or a connector of another class.
    """
    connectors = list(_configurations(json_tree(text, file, _HINT), file))
    if not connectors:
        raise Failure(error(f"{file} holds no connector configuration", _HINT))
    return connectors


def _configurations(node: Node, file: str) -> Iterator[tuple[str, Properties]]:
    """Yields the name and the keys of each configuration in the file."""
    match node:
        case ListNode():
            for item in node.items:
                yield from _configurations(item, file)
        case MapNode(pairs=pairs) if pairs:
            fields = Fields.of(node, file, [])
            name = fields.text("name") or ""
            config = fields.node("config")
            members = fields.values.values()
            if isinstance(config, MapNode):
                yield _connector(name, config, file)
            elif all(isinstance(member, MapNode) for member in members):
                # The answer of expand=info, and of expand=info&expand=status.
                for member in members:
                    if (info := Fields.of(member, file, []).node("info")) is not None:
                        yield from _configurations(info, file)
            else:
                yield _connector(name, node, file)


def _connector(name: str, config: MapNode, file: str) -> tuple[str, Properties]:
    """Returns the name and the keys of a configuration. Connect takes everything as a text."""
    keys = Properties({}, file, config.pairs[0][0].line if config.pairs else 1, [])
    for key, value in config.pairs:
        if not isinstance(value, ScalarNode):
            what = "a connector's config has a value that is no text, number or boolean"
            raise Failure(error(what, "write it as a text", source=key.source))
        if value.is_null:
            reason = "it is null: Replicator's default is taken, and so it is here"
            keys.note_at(key.line, key.text, reason, loss=False)
        else:
            keys.add(key.text, value.text, key.line)
    kind, own_name = keys.text("connector.class"), keys.text("name")
    if (kind or "").rpartition(".")[2] not in (_REPLICATOR, "Replicator", "ReplicatorSource"):
        what = "names no connector.class" if kind is None else f"is a {kind.rpartition('.')[2]}"
        raise keys.failure(
            f"a configuration in {file} {what}, and no {_REPLICATOR}",
            "leave it out: only Confluent Replicator's configurations become flows",
        )
    return name or own_name or "", keys
