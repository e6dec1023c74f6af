"""Files of records: samples for `repl try` and for drills.

`repl read --export` writes one record a line: its topic, partition, offset, time, key, value and headers.
Bytes are `{"text": …}`, or `{"base64": …}` where they are not UTF-8.
"""

import json
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planner.model.diagnostic import Diagnostic, Failure, SourceLocation, error
from runtime.contract.records.consumer_record import ConsumerRecord

MOST_BYTES = 64 * 2**20
_MOST_PROBLEMS = 5
_HINT = "record it again with repl read CLUSTER TOPIC --export FILE"
# The fields of a line that `repl read --export` writes, and of one that `repl salvage --export` writes.
_READ = frozenset({"cluster", "topic", "partition", "offset", "timestamp_ms", "key", "value", "headers"})
_SALVAGED = _READ | {"cluster_id", "came_from", "flow"}


def recorded(file: Path) -> list[ConsumerRecord]:
    """Returns the records of an export, one a line; fields beside key, value and headers may be missing.

    Failure names the file, the line and the way out, for the first lines that are no records.
    """
    records: list[ConsumerRecord] = []
    problems: list[Diagnostic] = []
    try:
        with file.open("rb") as lines:
            if file.stat().st_size > MOST_BYTES:
                what = f"{file}: larger than {MOST_BYTES // 2**20} MiB"
                raise Failure(error(what, "record fewer records: repl read … --limit N --export FILE"))
            for number, line in enumerate(lines, 1):
                try:
                    records += _recorded(line, file.name)
                except ValueError as wrong:
                    problems.append(error(str(wrong), _HINT, source=SourceLocation(str(file), number, 1)))
                if len(problems) == _MOST_PROBLEMS:
                    break
    except OSError as problem:
        raise Failure(error(f"{file}: {problem.strerror or problem}", _HINT)) from None
    if not problems and not records:
        problems.append(error(f"{file}: no record is in it", _HINT))
    if problems:
        raise Failure(problems)
    return records


def _recorded(line: bytes, topic: str) -> list[ConsumerRecord]:
    """Returns the record of a line, or nothing for an empty one. Raises ValueError."""
    if not line.strip():
        return []
    try:
        record = json.loads(line)
    except ValueError:
        raise ValueError("this line is no JSON") from None
    if not isinstance(record, dict) or "value" not in record:
        raise ValueError('this line is no record: it needs {"key": …, "value": …, "headers": […]}')
    try:
        return [_sample(record, topic)]
    except NotBase64:
        raise ValueError("this record has base64 that can't be read") from None
    except KeyError as missing:
        raise ValueError(f"this record has a header without {missing}") from None
    except (AttributeError, TypeError, ValueError):
        raise ValueError("key, value and headers hold null, text, {text: …} or {base64: …}") from None


def sample_of(file: Path) -> Iterator[ConsumerRecord]:
    """Yields the records of a file.

    It has one value a line, or what `repl read --json` and `repl try --json` print, or what `repl read
    --export` and `repl salvage --export` write. Raises Failure.
    """
    try:
        content = file.read_bytes()
    except OSError as problem:
        raise Failure(
            error(f"{file}: {problem.strerror or problem}", "name a file that can be read")
        ) from None
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("records"), list):
        document = _exported(content)
    if document is None:
        for number, line in enumerate(content.splitlines()):
            if line.strip():
                yield ConsumerRecord(topic=file.name, offset=number, value=line)
        return
    for number, record in enumerate(document["records"]):
        try:
            yield _sample(record, str(document.get("topic", file.name)))
        except (AttributeError, KeyError, TypeError, NotBase64) as problem:
            raise Failure(
                error(
                    f"{file}: record {number} can't be read: {type(problem).__name__}: {problem}",
                    "give one value a line, the output of repl read --json, or an export of repl salvage",
                )
            ) from None


def _exported(content: bytes) -> dict[str, Any] | None:
    """Returns the records of an export, one a line; None where a line has another field or lacks one."""
    records = []
    for line in content.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            return None
        if not isinstance(record, dict) or record.keys() not in (_READ, _SALVAGED):
            return None
        records.append(record)
    return {"records": records}


def _sample(record: Any, topic: str) -> ConsumerRecord:
    timestamp_ms = record.get("timestamp_ms")
    return ConsumerRecord(
        topic=str(record.get("topic", topic)),
        partition=int(record.get("partition", 0)),
        offset=int(record.get("offset", 0)),
        timestamp=-1 if timestamp_ms is None else int(timestamp_ms),
        appended=bool(record.get("appended", False)),
        key=_bytes(record.get("key")),
        value=_bytes(record["value"]),
        headers=tuple((str(header["name"]), _bytes(header["value"])) for header in record.get("headers", [])),
    )


def _bytes(written: Any) -> bytes | None:
    """Returns bytes as `repl read --json` writes them: `{"text": …}` or `{"base64": …}`; text alone too."""
    match written:
        case None:
            return None
        case str(text) | {"text": str(text)}:
            return text.encode()
        case {"base64": str(text)}:
            return b64decode(text, validate=True)
        case _:
            raise TypeError(f"{written!r} is no text and no base64")
