"""Finds what decodes, shows and changes the values of a format, by its name.

A library is loaded only where its format is used.
"""

from __future__ import annotations

from runtime.contract.spec.transform import FormatSpec
from runtime.sql.formats.encoded import BadSchema, BinaryValues, Changes, RecordValues, TextValues


def values_of(form: FormatSpec, changes: Changes) -> RecordValues:
    """Returns the values of a format, of which these fields change. Raises BadSchema."""
    match form.format:
        case "avro":
            from runtime.sql.formats.avro import AvroValues

            return AvroValues(form, changes)
        case "protobuf":
            from runtime.sql.formats.protobuf import ProtobufValues

            return ProtobufValues(form, changes)
        case "json":
            from runtime.sql.formats.json import JsonValues

            return JsonValues(changes)
        case "text":
            return TextValues()
        case _:
            return BinaryValues()


def ddl_of(form: FormatSpec) -> str:
    """Returns the fields of a schema in Spark's DDL. Raises BadSchema for what expressions can't read."""
    text = form.schema or ""
    match form.format:
        case "avro":
            from runtime.sql.formats import avro_schema

            return avro_schema.ddl_of(text)
        case "protobuf":
            from runtime.sql.formats import protobuf_schema

            return protobuf_schema.ddl_of(text)
        case _:
            return text


def change_problem(form: FormatSpec, path: str, *, drop: bool) -> str | None:
    """Returns why a field of the schema can't be set or dropped; None where it can."""
    changes = Changes.of((), (path,)) if drop else Changes.of((path,), ())
    try:
        match form.format:
            case "avro":
                from runtime.sql.formats.avro import check_changes

                check_changes(form.schema or "", changes)
            case "protobuf":
                from runtime.sql.formats.protobuf import check_changes as check_message

                check_message(form.schema or "", changes)
    except BadSchema as error:
        return str(error)
    return None
