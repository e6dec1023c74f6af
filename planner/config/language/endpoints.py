"""Checks the file endpoints of a topology, and the flows that write files or read them."""

from collections.abc import Iterable
from pathlib import PurePath
from typing import get_args

from planner.config.hints import prose
from planner.config.language.build import is_endpoint
from planner.config.language.reader import INVALID, ParsedRecord
from planner.config.language.scalars import spark_bytes
from planner.model.diagnostic import Diagnostic, SourceLocation, error
from planner.model.topology import (
    FILE_FLOW_KEYS,
    LINES_FLOW_KEYS,
)
from runtime.contract.client.stores import (
    LOCATIONS,
    MOST_BYTES,
    SECRETS,
    client_problem,
    is_store,
    reading_problem,
)
from runtime.contract.spec.files import SourceFormat, folder_problem, layout_problem, plain_folder
from runtime.contract.spec.flow import RUNNING

ENDPOINT_CODE = "endpoint"
_SIZES = range(1 << 16, (1 << 40) + 1)
_INTERVALS_MS = range(1_000, 86_400_001)  # of a flow with files


def check_endpoints(topology: ParsedRecord) -> Iterable[Diagnostic]:
    """Yields an error for each endpoint that no job could write to."""
    first: dict[str, str] = {}
    for name, endpoint in topology["endpoints"].items():
        if name in topology["clusters"]:
            what = f'"{name}" is a cluster and an endpoint'
            yield error(what, "give one of them another name", source=place_of(endpoint), code=ENDPOINT_CODE)
        if not isinstance(endpoint, ParsedRecord):
            continue
        folder, form, layout = endpoint.get("file"), endpoint.or_default("format"), endpoint.get("layout")
        if folder is not None:
            if problem := folder_problem(folder):
                yield endpoint.error("file", f"endpoint {name}: {problem[0]}", problem[1], code=ENDPOINT_CODE)
            yield from _client(name, endpoint, folder)
            other = first.setdefault(plain_folder(folder), name)
            if other != name:
                what = f"the endpoints {other} and {name} are one folder"
                yield endpoint.error("file", what, "keep one of them", code=ENDPOINT_CODE)
        size = endpoint.or_default("size")
        yield from _size(name, endpoint, folder)
        snapshots = endpoint.get("snapshots")
        if snapshots is not None and form != "raw":
            what = f"endpoint {name}: only the format raw has snapshots"
            yield endpoint.error(
                "snapshots", what, "write format: raw, or remove snapshots", code=ENDPOINT_CODE
            )
        if isinstance(compact := endpoint.get("compact"), ParsedRecord):
            yield from _compaction(name, compact, size)
        if form is not None and layout is not None and (problem := layout_problem(layout, form)):
            place = endpoint.place("layout")
            yield error(f"endpoint {name}: {problem[0]}", problem[1], source=place, code=ENDPOINT_CODE)


def _client(name: str, endpoint: ParsedRecord, folder: str) -> Iterable[Diagnostic]:
    """Yields the mistakes in the settings of an object store's client."""
    place = endpoint.place("client")
    client = endpoint.get("client")
    if not isinstance(client, dict):
        return
    if not is_store(folder):
        what = f"endpoint {name}: {folder} is a folder, and client is for an object store"
        hint = "remove client, or write file: s3a://bucket/prefix"
        yield error(what, hint, source=place, code=ENDPOINT_CODE)
        return
    if (problem := client_problem(folder, client)) is not None:
        what = f"endpoint {name}: client.{problem[0]} {problem[1]}"
        yield error(what, problem[2], source=place, code=ENDPOINT_CODE)
    for key, value in client.items():
        if key in SECRETS and isinstance(value, str):
            what = f"endpoint {name}: client.{key} stands in the topology as plain text"
            hint = f"refer to it: {key}: {{env: VARIABLE}} or {{file: path}}"
            yield error(what, hint, source=place, code=ENDPOINT_CODE)
        elif key in LOCATIONS and not PurePath(str(value)).is_absolute():
            what = f"endpoint {name}: client.{key} is a relative path"
            yield error(what, "write it from the root on: /etc/…", source=place, code=ENDPOINT_CODE)


def _size(name: str, endpoint: ParsedRecord, folder: str | None) -> Iterable[Diagnostic]:
    """Yields an error for a size that files can't have."""
    size = endpoint.get("size")
    in_store = folder is not None and is_store(folder)
    if size is None or _SIZES[0] <= spark_bytes(size) <= (MOST_BYTES if in_store else _SIZES[-1]):
        return
    most = "4g in an object store, which copies a file at once" if in_store else "1t"
    what = f"endpoint {name}: size is from 64k to {most}"
    yield endpoint.error("size", what, "write size: 128m", code=ENDPOINT_CODE)


def _compaction(name: str, compact: ParsedRecord, size: str | None) -> Iterable[Diagnostic]:
    """Yields an error for each value with which no file would be merged, or all of them all the time."""
    below, most = compact.or_default("below"), spark_bytes(size) if size is not None else None
    if below is not None and spark_bytes(below) not in _SIZES:
        what = f"endpoint {name}: compact.below is from 64k to 1t"
        yield compact.error("below", what, "write below: 16m", code=ENDPOINT_CODE)
    elif below is not None and most is not None and spark_bytes(below) > most:
        what = f"endpoint {name}: compact.below is {below}, and files are closed at {size}"
        hint = "write a smaller below, or a larger size"
        yield compact.error("below", what, hint, code=ENDPOINT_CODE)


def check_flow_ends(flow: ParsedRecord, topology: ParsedRecord) -> Iterable[Diagnostic]:
    """Yields the keys of a flow that do not fit to its ends: clusters, or files at one of them."""
    if is_endpoint("from", flow, topology):
        yield from _lines_flow(flow, topology)
        return
    yield from _file_flow(flow, topology) if is_endpoint("to", flow, topology) else _no_interval(flow)
    topics = flow.get("topics")
    if isinstance(topics, ParsedRecord) and "to" in topics.places:
        what = f"flow {flow.get('name') or '?'} comes from a cluster and has no topics.to"
        hint = "write include for the topics; rename gives them other names"
        yield topics.error("to", what, hint, code=ENDPOINT_CODE)


def _file_flow(flow: ParsedRecord, topology: ParsedRecord) -> Iterable[Diagnostic]:
    """Yields the mistakes in a flow into files."""
    yield from _keys_of_file_flow(flow, "goes into files", FILE_FLOW_KEYS)
    if (endpoint := topology["endpoints"][flow["to"].text]) is INVALID:
        return
    if "recursive" in endpoint.places:
        what = f"endpoint {flow['to'].text} is written, and recursive is about files that are read"
        yield endpoint.error("recursive", what, "remove recursive", code=ENDPOINT_CODE)
    form = endpoint.get("format")
    if form == "text":
        what = f"flows read the format text, and flow {flow.get('name') or '?'} writes"
        yield endpoint.error("format", what, "write json, parquet or raw", code=ENDPOINT_CODE)
    if isinstance(transform := flow.get("transform"), ParsedRecord):
        yield from _file_transform(flow.get("name") or "?", transform, form)


def _file_transform(name: str, transform: ParsedRecord, form: str | None) -> Iterable[Diagnostic]:
    """Yields what the transform of a flow into files may not be."""
    if form == "raw":
        yield error(
            f"flow {name} writes raw files, which hold record batches byte for byte, and has a transform",
            "write format: json or format: parquet, or remove transform",
            source=transform.source,
            code=ENDPOINT_CODE,
        )
    if transform.get("on_bad_record") == "quarantine":
        yield transform.error(
            "on_bad_record",
            f"flow {name} goes into files, where no topic takes the bad records of on_bad_record: quarantine",
            "write on_bad_record: stop, or quarantine in a flow to a cluster, and write its topics to files",
            code=ENDPOINT_CODE,
        )


def _lines_flow(flow: ParsedRecord, topology: ParsedRecord) -> Iterable[Diagnostic]:
    """Yields the mistakes in a flow from files."""
    name = flow.get("name") or "?"
    yield from _keys_of_file_flow(flow, "comes from files", LINES_FLOW_KEYS)
    source, topics = flow["from"], flow.get("topics")
    if (endpoint := topology["endpoints"][source.text]) is not INVALID:
        form = endpoint.get("format")
        if form is not None and form not in get_args(SourceFormat):
            place = endpoint.place("format") if "format" in endpoint.places else endpoint.place("file")
            what = f"flow {name} reads lines or rows, and the files of {source.text} are {form}"
            yield error(what, "write format: text, json or parquet", source=place, code=ENDPOINT_CODE)
        for key in ("layout", "size", "snapshots", "compact"):
            if key in endpoint.places:
                what = f"endpoint {source.text} is read, and {key} is about files that are written"
                yield endpoint.error(key, what, f"remove {key}", code=ENDPOINT_CODE)
        yield from _store_that_is_read(name, endpoint)
        yield from _folders_below(source.text, endpoint, topology)
    for other in topology["flows"]:
        ends = {end.text for key in ("from", "to") if (end := other.get(key))}
        if other is not flow and source.text in ends:
            what = f"flow {other.get('name') or '?'} has the endpoint {source.text} too"
            hint = "an endpoint that is read belongs to one flow: give each its own folder"
            yield error(what, hint, source=source.source, code=ENDPOINT_CODE)
    if not isinstance(topics, ParsedRecord):
        return
    for key in ("include", "exclude", "default_exclude"):
        if key in topics.places:
            what = f"flow {name} comes from files and selects no topics"
            yield topics.error(key, what, f"remove {key}", code=ENDPOINT_CODE)
    if "to" not in topics.places:
        what = f"flow {name} comes from files, and topics does not say which topic takes them"
        yield flow.error("topics", what, "write topics: {to: TOPIC}", code=ENDPOINT_CODE)


def _store_that_is_read(name: str, endpoint: ParsedRecord) -> Iterable[Diagnostic]:
    """Yields an error for an object store whose files can be written, and not listed safely."""
    folder = endpoint.get("file")
    if folder is not None and is_store(folder) and (problem := reading_problem(folder)) is not None:
        what = f"flow {name}: {problem[0]}"
        yield endpoint.error("file", what, problem[1], code=ENDPOINT_CODE)


def _folders_below(name: str, endpoint: ParsedRecord, topology: ParsedRecord) -> Iterable[Diagnostic]:
    """Yields an error for each endpoint below a folder that is read with its sub-folders."""
    folder = endpoint.get("file")
    if folder is None or not endpoint.get("recursive"):
        return
    for other, declared in topology["endpoints"].items():
        below = declared.get("file") if isinstance(declared, ParsedRecord) else None
        if below is not None and plain_folder(below).startswith(f"{plain_folder(folder)}/"):
            what = f"endpoint {name} is read with its sub-folders, and the endpoint {other} is one of them"
            hint = "remove recursive, or name folders that are not in each other"
            yield endpoint.error("recursive", what, hint, code=ENDPOINT_CODE)


def _keys_of_file_flow(flow: ParsedRecord, goes: str, keys: frozenset[str]) -> Iterable[Diagnostic]:
    """Yields an error for each key that has no meaning for a flow with files."""
    name = flow.get("name") or "?"
    for key in flow.places:
        if key not in keys and key in flow.record.by_name:
            yield flow.error(
                key,
                f"flow {name} {goes} and has no {key}",
                f"remove {key}; such a flow has {prose(sorted(keys), 'and')}",
                code=ENDPOINT_CODE,
            )
    state = flow.get("state")
    if state is not None and state not in RUNNING:
        what = f"flow {name} {goes} and can't be {state}"
        yield flow.error("state", what, "write active or paused", code=ENDPOINT_CODE)
    every = flow.get("every")
    if every is not None and every not in _INTERVALS_MS:
        yield flow.error("every", "every is from 1s to 1d", "write every: 60s", code=ENDPOINT_CODE)


def _no_interval(flow: ParsedRecord) -> Iterable[Diagnostic]:
    """Yields an error where a flow between clusters has an interval: it copies all the time."""
    if flow.get("every") is not None:
        what = f"flow {flow.get('name') or '?'} goes to a cluster and has no every"
        yield flow.error("every", what, "remove every: such a flow copies all the time", code=ENDPOINT_CODE)


def place_of(record: object) -> SourceLocation | None:
    return record.source if isinstance(record, ParsedRecord) else None
