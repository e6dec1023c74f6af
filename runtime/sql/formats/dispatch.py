"""Finds what decodes, shows and changes the values of a format, by its name.

A library is loaded only where its format is used.
"""

from __future__ import annotations

from runtime.contract.spec.transform import FormatSpec
from runtime.sql.formats.encoded import Changes, EncodedValues


def encoded_values(form: FormatSpec, changes: Changes) -> EncodedValues | None:
    """Returns the values of a format that the slot decodes; None for any other format."""
    if form.format == "avro":
        from runtime.sql.formats.avro import AvroValues

        return AvroValues(form, changes)
    if form.format == "protobuf":
        from runtime.sql.formats.protobuf import ProtobufValues

        return ProtobufValues(form, changes)
    return None


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
    text = form.schema or ""
    match form.format:
        case "avro":
            from runtime.sql.formats import avro

            return avro.change_problem(text, path, drop=drop)
        case "protobuf":
            from runtime.sql.formats import protobuf

            return protobuf.change_problem(text, path, drop=drop)
        case _:
            return None
