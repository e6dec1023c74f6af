"""The bytes that Kafka's own Java classes make of known values.

`golden.txt` is what `java -cp "<jars of Kafka 4.4.0>/*" Golden.java` prints, here in this folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runtime.kafka.protocol.request import Reader, Request

_LINES = [line.split(" ") for line in (Path(__file__).parent / "golden.txt").read_text().splitlines()]
GOLDEN = {(name, int(version)): bytes.fromhex(text) for name, version, text in _LINES}

ONE = bytes(range(1, 17))
TWO = bytes(range(17, 33))
BATCH = b"pretend this is a record batch"


def written(request: Request[Any], version: int) -> bytes:
    return b"".join(bytes(part) for part in request.body(version))


def read(request: Request[Any], name: str, version: int) -> Any:
    return request.answer(version, Reader(memoryview(bytearray(GOLDEN[name, version]))))
