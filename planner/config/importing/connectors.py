"""Reads connector configurations as JSON, in each form that Kafka Connect takes or answers.

These are the REST body `{"name": …, "config": {…}}`, a bare config, a list of them, and the answer of `GET
/connectors?expand=info`. Each key keeps its line in the file.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from planner.config.importing.connect import ConversionNote, Property, PropertyKeys
from planner.config.importing.document import json_with_lines
from planner.model.diagnostic import Failure, SourceLocation, error

_REPLICATOR = "ReplicatorSourceConnector"
_HINT = "give the JSON that the connector was created with, or what Connect's GET /connectors/NAME answers"


@dataclass(frozen=True, slots=True)
class Connector:
    """One Replicator connector: its name, which is "" where the file has none, and its keys."""

    name: str
    keys: PropertyKeys
    line: int


def connectors_of(text: str, file: str) -> list[Connector]:
    """Returns the Replicator connectors of a file. Failure: no JSON, or a connector of another class."""
    connectors = [_connector(name, members, file) for name, members in _configurations(_parsed(text, file))]
    if not connectors:
        raise Failure(error(f"{file} holds no connector configuration", _HINT))
    return connectors


def _parsed(text: str, file: str) -> object:
    """Returns the JSON; an object of it is a tuple of properties, each with its line."""
    raw, lines = json_with_lines(text, file, _HINT)
    try:
        return _with_lines(raw, lines)
    except RecursionError:
        raise Failure(error(f"{file} is nested too deeply", _HINT)) from None


def _with_lines(raw: object, lines: Iterator[int]) -> object:
    match raw:
        case tuple():
            return tuple(
                Property(key=key, line=next(lines), value=_with_lines(value, lines)) for key, value in raw
            )
        case list():
            return [_with_lines(item, lines) for item in raw]
        case _:
            return raw


def _configurations(value: object) -> Iterator[tuple[str, tuple[Property, ...]]]:
    """Yields the name and the members of each configuration in the file."""
    match value:
        case list():
            for item in value:
                yield from _configurations(item)
        case tuple():
            members = {member.key: member.value for member in value}
            name = members.get("name")
            named = name if isinstance(name, str) else ""
            config = members.get("config")
            if isinstance(config, tuple):
                yield named, config
            elif value and all(isinstance(member.value, tuple) for member in value):
                for member in value:  # the answer of expand=info, and of expand=info&expand=status
                    inner = {part.key: part.value for part in member.value}
                    yield from _configurations(inner.get("info"))
            elif value:
                yield named, value
        case _:
            return


def _connector(name: str, members: tuple[Property, ...], file: str) -> Connector:
    properties: dict[str, Property] = {}
    nulls = []
    for member in members:
        if member.value is None:
            reason = "it is null: Replicator's default is taken, and so it is here"
            nulls.append(ConversionNote(member.key, member.line, reason, loss=False, file=file))
        else:
            properties[member.key] = Property(member.key, _text(member, file), member.line)
    keys = PropertyKeys(properties, file, nulls)
    line = members[0].line if members else 1
    kind = keys.text("connector.class")
    if (kind or "").rpartition(".")[2] not in (_REPLICATOR, "Replicator", "ReplicatorSource"):
        what = "names no connector.class" if kind is None else f"is a {kind.rpartition('.')[2]}"
        raise Failure(
            error(
                f"a configuration in {file} {what}, and no {_REPLICATOR}",
                "leave it out: only Confluent Replicator's configurations become flows",
                source=SourceLocation(file, line, 1),
            )
        )
    own_name = keys.text("name") or ""
    return Connector(name or own_name, keys, line)


def _text(member: Property, file: str) -> str:
    """Returns a JSON scalar as Connect takes it: everything is a text there."""
    value = member.value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    # Half of a surrogate pair could not be written.
    if isinstance(value, str) and not any("\ud800" <= sign <= "\udfff" for sign in member.key + value):
        return value
    raise Failure(
        error(
            "a connector's config has a value that is no text, number or boolean",
            "write it as a text",
            source=SourceLocation(file, member.line, 1),
        )
    )
