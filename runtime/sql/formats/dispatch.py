"""Finds what reads and changes the values of a format, by its name.

A library is loaded only where its format is used.
"""

from __future__ import annotations

from runtime.contract.spec.transform import FormatSpec
from runtime.sql.formats.encoded import BadSchema, BinaryValues, Changes, RecordValues, TextValues


def values_of(form: FormatSpec) -> type[RecordValues]:
    """Returns the class of a format's values."""
    match form.format:
        case "avro":
            from runtime.sql.formats.avro import AvroValues

            return AvroValues
        case "protobuf":
            from runtime.sql.formats.protobuf import ProtobufValues

            return ProtobufValues
        case "json":
            from runtime.sql.formats.json import JsonValues

            return JsonValues
        case "text":
            return TextValues
        case _:
            return BinaryValues


def change_problem(form: FormatSpec, path: str, *, drop: bool) -> str | None:
    """Returns why a field of the schema can't be set or dropped; None where it can."""
    try:
        values_of(form).check(form.schema or "", Changes.of(() if drop else (path,), (path,) if drop else ()))
    except BadSchema as error:
        return str(error)
    return None
