"""Reads which schema a record's key or value has, as Confluent's deserializers do.

A payload begins with a zero byte and the id of its schema in four bytes. A header may name the schema
instead: by the same five bytes, or by a one and a GUID. This module is pure.
"""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from runtime.contract.spec.schemas import PARTS, RecordPart

WIRE_PREFIX: Final = 5  # bytes before a payload: a zero, and the id of its schema
MAX_ID: Final = 0x7FFFFFFF  # no registry gives a larger one: such bytes are no id

_WIRE_ID, _WIRE_GUID = 0, 1
_GUID_PREFIX: Final = 17  # bytes of a header before what follows the GUID

SchemaName = int | UUID  # an id, which each registry gives, or a GUID, which all of them compute alike

NAMING_HEADERS: Final[dict[str, RecordPart]] = {f"__{part}_schema_id": part for part in PARTS}


def schema_id(content: bytes | None) -> int | None:
    """Returns the id with which a payload or a header begins."""
    if content is None or len(content) < WIRE_PREFIX or content[0] != _WIRE_ID:
        return None
    number = int.from_bytes(content[1:WIRE_PREFIX])
    return number if number <= MAX_ID else None


def schema_name(header: bytes) -> SchemaName | None:
    """Returns the id or the GUID with which a header begins."""
    if len(header) >= _GUID_PREFIX and header[0] == _WIRE_GUID:
        return UUID(bytes=header[1:_GUID_PREFIX])
    return schema_id(header)


def naming_headers(headers: Iterable[tuple[str, bytes | None]]) -> dict[RecordPart, tuple[int, bytes]]:
    """Returns the header that names the schema of each part, with its index. Then the payload names none.

    Only the last header of a name counts, and only if it is not null.
    """
    last = {
        NAMING_HEADERS[name]: (at, content)
        for at, (name, content) in enumerate(headers)
        if name in NAMING_HEADERS
    }
    return {part: (at, content) for part, (at, content) in last.items() if content is not None}
