"""Checks the transform of a flow as far as its text goes; Spark checks the expressions later."""

import os
import re
from collections.abc import Iterable
from pathlib import PurePath
from urllib.parse import urlsplit

from planner.config.language.reader import ParsedRecord
from planner.model.diagnostic import Diagnostic, SourceLocation, error
from planner.model.topology import looks_secret
from runtime.contract.client.keys import token_endpoint_problem
from runtime.contract.spec.transform import VALUE, FormatSpec, overlapping

_CODE = "transform"
_FIELD = f"{VALUE}."
_DESCRIPTOR = "schema: {file: customer.desc, message: shop.Customer}"
_CREDENTIALS = frozenset({"sasl.username", "sasl.password"})
_GLUE = re.compile(r"glue(?:-fips)?\.[a-z0-9-]+\.(?:amazonaws\.com(?:\.cn)?|api\.aws)")
_REGISTRY_KEYS = (
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
)
_WITH_REGISTRY = ("avro", "protobuf")
_WITH_FIELDS = ("json", "avro", "protobuf")


def check_transform(transform: ParsedRecord) -> Iterable[Diagnostic]:
    """Yields an error for everything in a transform that no job can do."""
    forms = {name: _format(transform.get(name)) for name in ("value", "key")}
    for name, form in forms.items():
        yield from _format_problems(name, form, _place(transform, name, "schema"))
        yield from _message_problems(name, form, transform.get(name))
        yield from _registry_problems(name, form, transform.get(name))
    changed = transform.get("set") or {}
    dropped = transform.get("drop") or ()
    if transform.get("where") is None and not changed and not dropped:
        yield _error("a transform that changes nothing", "add where, set or drop", transform.source)
    if transform.get("where") is None and transform.get("on_filtered") is not None:
        yield _error(
            "on_filtered without where: no record is left out",
            "add where, or remove on_filtered",
            transform.place("on_filtered"),
        )
    for key, paths in (("set", changed), ("drop", dropped)):
        for path in paths:
            if problem := _path_problem(key, path, forms["value"].format):
                yield _error(*problem, transform.place(key))
    for outer, inner in overlapping([*changed, *dropped]):
        what = (
            f"{inner} is named twice"
            if outer == inner
            else f"{inner} lies inside {outer}, which is named too"
        )
        yield _error(f"set and drop: {what}", "name each field once", transform.place("drop"))


def _format(written: object) -> FormatSpec:
    if not isinstance(written, ParsedRecord):
        return FormatSpec()
    schema = written.get("schema")
    named = schema.get("file") if isinstance(schema, ParsedRecord) else schema
    return FormatSpec(written.get("format") or "binary", named)


def _format_problems(name: str, form: FormatSpec, place: SourceLocation) -> Iterable[Diagnostic]:
    if form.format in _WITH_FIELDS and not form.schema:
        ways = {
            "json": 'add the fields that expressions read: schema: "id BIGINT, email STRING"',
            "avro": "add the schema of the values: schema: {file: customer.avsc}",
            "protobuf": f"add the descriptors of the values: {_DESCRIPTOR}",
        }
        yield _error(f"{name}: format {form.format} needs a schema", ways[form.format], place)
    elif form.format not in _WITH_FIELDS and form.schema:
        yield _error(
            f"{name}: format {form.format} has no schema", "leave it out, or write format: json", place
        )


def _message_problems(name: str, form: FormatSpec, written: object) -> Iterable[Diagnostic]:
    """Yields an error where a format and the message of its schema do not fit."""
    schema = written.get("schema") if isinstance(written, ParsedRecord) else None
    if not isinstance(schema, ParsedRecord):
        return
    message = schema.get("message")
    if form.format == "protobuf" and message is None:
        yield _error(
            f"{name}: the schema of format protobuf names no message",
            f"add the full name of the message: {_DESCRIPTOR}",
            schema.source,
        )
    elif form.format != "protobuf" and message is not None:
        yield _error(
            f"{name}: format {form.format} has no message",
            "leave it out, or write format: protobuf",
            schema.place("message"),
        )


def _registry_problems(name: str, form: FormatSpec, written: object) -> Iterable[Diagnostic]:
    registry = written.get("registry") if isinstance(written, ParsedRecord) else None
    if not isinstance(registry, ParsedRecord):
        return
    if form.format not in _WITH_REGISTRY:
        yield _error(
            f"{name}: format {form.format} has no registry",
            "leave it out, or write format: avro or protobuf",
            registry.source,
        )
    yield from registry_problems(name, registry)


def registry_problems(name: str, registry: ParsedRecord) -> Iterable[Diagnostic]:
    """Yields an error for each client setting of a schema registry that no job could use, or should not."""
    client = registry.get("client") or {}
    for key, value in client.items():
        if key not in _REGISTRY_KEYS:
            what, hint = (
                f"{name}: {key} is no setting of a registry",
                f"it takes {', '.join(_REGISTRY_KEYS)}",
            )
        elif isinstance(value, dict) and "file" in value:
            what, hint = (
                f"{name}: {key} of the registry is a file",
                f"refer to a variable: {key}: {{env: VARIABLE}}",
            )
        elif looks_secret(key) and isinstance(value, str):
            what = f"{name}: {key} of the registry stands in the topology as plain text"
            hint = f"refer to it: {key}: {{env: VARIABLE}}"
        elif key.endswith(".location") and not PurePath(str(value)).is_absolute():
            what, hint = (
                f"{name}: {key} of the registry is a relative path",
                "write it from the root on: /etc/…",
            )
        else:
            continue
        yield _error(what, hint, registry.place("client"))
    url = registry.get("url")
    if isinstance(url, str) and (wrong := _address_problem(url)):
        yield _error(f"{name}: the url of the registry {wrong[0]}", wrong[1], registry.place("url"))
    elif client.keys() & _CREDENTIALS and (problem := token_endpoint_problem(url, os.environ)):
        yield _error(f"{name}: the url of the registry {problem[0]}", problem[1], registry.place("url"))


def _address_problem(url: str) -> tuple[str, str] | None:
    """Returns why no registry with Confluent's API can be at this address, and the way out."""
    try:
        address = urlsplit(url)
        host, _ = address.hostname or "", address.port
    except ValueError:
        return "has a port that can't exist", "ports go from 1 to 65535"
    if _GLUE.fullmatch(host):
        return (
            "is AWS Glue's, which has an API of its own",
            "use a registry with Confluent's API; without one, leave schemas out",
        )
    return None


def _path_problem(key: str, path: str, form: str) -> tuple[str, str] | None:
    """Returns what is wrong with a path of `set` or `drop`, and the way out."""
    if path == "key" or path.startswith("key."):
        return (
            f"{key}: {path} would change the key, and with it the partition that the record belongs to",
            "change fields of the value; keys travel as they are",
        )
    if form in _WITH_FIELDS:
        if path.startswith(_FIELD) and all(path.split(".")):
            return None
        return f"{key}: {path} is no field of the value", "write value. and the name of a field: value.email"
    if key == "set" and path == VALUE:
        return None
    hint = "write set: {value: …} for the whole value, or value: {format: json, schema: …} for fields of it"
    return f"{key}: {path} can't be changed: a value of format {form} has no fields", hint


def _place(transform: ParsedRecord, *keys: str) -> SourceLocation:
    """Returns the place of the innermost of these keys that is written."""
    innermost, at = transform, transform.source
    for key in keys:
        at = innermost.place(key)
        inner = innermost.get(key)
        if not isinstance(inner, ParsedRecord):
            break
        innermost = inner
    return at


def _error(what: str, hint: str, source: SourceLocation) -> Diagnostic:
    return error(what, hint, source=source, code=_CODE)
