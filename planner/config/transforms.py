"""Checks the transform of a flow as far as its text goes; Spark checks the expressions later."""

from collections.abc import Iterable

from planner.config.language.reader import ParsedRecord
from planner.model.diagnostic import Diagnostic, SourceLocation, error
from planner.model.topology.transforms import Format, RecordFormat
from runtime.contract.spec.transform import VALUE, overlapping

_CODE = "transform"
_FIELD = f"{VALUE}."
_WITH_FIELDS = (RecordFormat.JSON, RecordFormat.AVRO)


def check_transform(transform: ParsedRecord) -> Iterable[Diagnostic]:
    """Yields an error for everything in a transform that no job can do."""
    forms = {name: _format(transform.get(name)) for name in ("value", "key")}
    for name, form in forms.items():
        yield from _format_problems(name, form, _place(transform, name, "schema"))
    changed = transform.get("set") or {}
    dropped = transform.get("drop") or ()
    if transform.get("where") is None and not changed and not dropped:
        yield _error("a transform that changes nothing", "add where, set or drop", transform.source)
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


def _format(written: object) -> Format:
    if not isinstance(written, ParsedRecord):
        return Format()
    schema = written.get("schema")
    named = schema.get("file") if isinstance(schema, ParsedRecord) else schema
    return Format(written.get("format") or RecordFormat.BINARY, named)


def _format_problems(name: str, form: Format, place: SourceLocation) -> Iterable[Diagnostic]:
    if form.format is RecordFormat.PROTOBUF:
        yield _error(
            f"{name}: format protobuf is not supported yet",
            "json, avro, text and binary are; copy other formats without a transform",
            place,
        )
    elif form.format in _WITH_FIELDS and not form.schema:
        ways = {
            RecordFormat.JSON: 'add the fields that expressions read: schema: "id BIGINT, email STRING"',
            RecordFormat.AVRO: "add the schema of the values: schema: {file: customer.avsc}",
        }
        yield _error(f"{name}: format {form.format.value} needs a schema", ways[form.format], place)
    elif form.format not in _WITH_FIELDS and form.schema:
        yield _error(
            f"{name}: format {form.format.value} has no schema", "leave it out, or write format: json", place
        )


def _path_problem(key: str, path: str, form: RecordFormat) -> tuple[str, str] | None:
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
    way_out = (
        "write set: {value: …} for the whole value, or value: {format: json, schema: …} for fields of it"
    )
    return f"{key}: {path} can't be changed: a value of format {form.value} has no fields", way_out


def _place(transform: ParsedRecord, *keys: str) -> SourceLocation:
    """Returns the place of the innermost of these keys that is written."""
    found, at = transform, transform.source
    for key in keys:
        at = found.place(key)
        inner = found.get(key)
        if not isinstance(inner, ParsedRecord):
            break
        found = inner
    return at


def _error(what: str, way_out: str, source: SourceLocation) -> Diagnostic:
    return error(what, way_out, source=source, code=_CODE)
