"""What a reader sees in the folder of a file endpoint, in the terms of the checker."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from runtime.audit.verify.pieces import VerifyRequest
from runtime.audit.verify.verification import Verification, compare_pieces
from runtime.batch import Batch, records, walk
from runtime.contract.results.records import VerificationReport
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.naming import TopicPartition
from tests.checker.reader import Log
from tests.checker.shapes import digest

Line = tuple[int, int, int, bytes]  # partition, offset, timestamp, digest of all of the record


def files_of(folder: Path) -> list[Path]:
    """The files that a reader sees: readers pass over names that begin with a dot or an underscore."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return [
        path
        for path in found
        if not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)
    ]


def lines_of(folder: Path) -> list[Line]:
    """Every record in the visible files, or in one, by partition and offset: a double stays one."""
    paths = files_of(folder) if folder.is_dir() else [folder]
    return sorted(line for path in paths for line in _READERS[path.suffix](path))


def expected(log: Log) -> list[Line]:
    """The records of a topic as a read_committed consumer saw them."""
    return sorted((at, one.offset, one.timestamp, one.digest) for at, seen in log.items() for one in seen)


def _json(path: Path) -> Iterator[Line]:
    for text in path.read_text().splitlines():
        line = json.loads(text)
        headers = [(one["key"], _bytes(one, "value")) for one in line["headers"]]
        yield _line(line, _bytes(line, "key"), _bytes(line, "value"), headers, line["timestamp"])


def _parquet(path: Path) -> Iterator[Line]:
    for line in pq.ParquetFile(path).read().to_pylist():
        headers = [(one["key"], one["value"]) for one in line["headers"]]
        timestamp = round(line["timestamp"].timestamp() * 1000)
        yield _line(line, line["key"], line["value"], headers, timestamp)


def _raw(path: Path) -> Iterator[Line]:
    partition = int(path.name.split("-")[-3])
    where = TopicPartition("raw", partition)
    walked = walk(path.read_bytes(), where)
    assert walked.failure is None
    for member in walked.sets:
        assert isinstance(member, Batch)
        for one in records(member, where):
            yield (
                partition,
                one.offset,
                one.timestamp,
                digest(one.timestamp, one.key, one.value, list(one.headers)),
            )


def verified(spec: JobSpec, flow: str, **asked: Any) -> VerificationReport:
    """What `repl verify` says of a flow whose job has this spec."""
    found = spec.flow(flow)
    request = VerifyRequest(
        flow=found,
        source=spec.clusters[found.source],
        destination=spec.clusters[found.destination],
        **asked,
    )
    verification = asyncio.run(Verification.begin(request, None))
    for group in verification.left:
        verification.add(asyncio.run(compare_pieces(request, 1, group)))
    return verification.report()


def assert_equal(spec: JobSpec, flow: str, records: int) -> None:
    """`repl verify` finds all these records equal at both sides."""
    seen = verified(spec, flow)
    assert not seen.different, seen
    assert not seen.unread, seen
    assert sum(one.compared for one in seen.partitions) == records, seen


_READERS = {".jsonl": _json, ".parquet": _parquet, ".log": _raw}


def _line(line: Any, key: bytes | None, value: bytes | None, headers: Any, timestamp: int) -> Line:
    return line["partition"], line["offset"], timestamp, digest(timestamp, key, value, headers)


def _bytes(line: Any, name: str) -> bytes | None:
    if name in line:
        text: str | None = line[name]
        return text.encode() if text is not None else None
    return base64.b64decode(line[f"{name}_base64"])
