"""Converts edits into the differences that are shown to a user. It is pure."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.audit.verify.compare import RecordContent, RecordDifference
from runtime.contract.views.verify_view import Difference

_KEY_CHARACTERS = 40
_CONTENT_BYTES = 32


def differences_of(edits: Sequence[RecordDifference]) -> list[Difference]:
    """Returns the differences by kind.

    A missing record that is found elsewhere was swapped; an extra record that has a twin was doubled.
    """
    elsewhere: dict[RecordContent, list[RecordDifference]] = {}
    for edit in edits:
        if edit.what == "extra" and edit.destination is not None:
            elsewhere.setdefault(edit.destination, []).append(edit)
    swapped: dict[int, RecordDifference] = {}
    taken: set[int] = set()
    for at, edit in enumerate(edits):
        if edit.what == "missing" and edit.source is not None and elsewhere.get(edit.source):
            swapped[at] = elsewhere[edit.source].pop(0)
            taken.add(id(swapped[at]))
    return [_named(edit, swapped.get(at)) for at, edit in enumerate(edits) if id(edit) not in taken]


def _named(edit: RecordDifference, elsewhere: RecordDifference | None) -> Difference:
    match edit.what:
        case "missing" if elsewhere is not None:
            return _difference(
                "swapped",
                edit,
                destination_offset=elsewhere.destination_offset,
                why="not in the source's order",
            )
        case "missing":
            never = edit.expected is None
            return _difference("missing", edit, why="the offset map leaves it out" if never else "")
        case "extra" if edit.twin is not None:
            return _difference("doubled", edit, source_offset=edit.twin)
        case "extra":
            return _difference("foreign", edit, why="not from the source")
        case "moved":
            where = "has no place for it" if edit.expected is None else "has another place for it"
            return _difference("moved", edit, why=f"the offset map {where}")
        case "changed":
            assert edit.source is not None
            assert edit.destination is not None
            fields, why = _changes(edit.source, edit.destination)
            return _difference("changed", edit, fields=fields, why=why)


def _difference(kind: str, edit: RecordDifference, **changes: object) -> Difference:
    shown = edit.source or edit.destination
    facts: dict[str, object] = {
        "kind": kind,
        "source_offset": edit.source_offset,
        "expected": edit.expected,
        "destination_offset": edit.destination_offset,
        "key": _key(shown.key if shown is not None else None),
    }
    return Difference(**{**facts, **changes})  # type: ignore[arg-type]


def _changes(source: RecordContent, destination: RecordContent) -> tuple[list[str], str]:
    fields, why = [], []
    if source.key != destination.key:
        fields.append("key")
        why.append(f"key {_kind(source.key)} → {_kind(destination.key)}")
    if source.value != destination.value:
        fields.append("value")
        why.append(f"value {_kind(source.value)} → {_kind(destination.value)}")
    if source.headers != destination.headers:
        fields.append("headers")
        names = ", ".join(name for name, _ in destination.headers) or "none"
        why.append(f"headers {', '.join(name for name, _ in source.headers) or 'none'} → {names}")
    if source.timestamp != destination.timestamp:
        fields.append("timestamp")
        why.append(f"timestamp {source.timestamp} → {destination.timestamp}")
    return fields, "; ".join(why)


def _kind(content: bytes | None) -> str:
    match content:
        case None:
            return "null"
        case b"":
            return "empty"
        case _ if len(content) > _CONTENT_BYTES:
            return f"({content[:4].hex()}…, a digest)"
        case _:
            return repr(content)[1:]


def _key(key: bytes | None) -> str:
    return "null" if key is None else _kind(key)[:_KEY_CHARACTERS]
