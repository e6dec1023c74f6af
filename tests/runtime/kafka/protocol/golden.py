"""The bytes that Kafka's own Java classes make of known values.

`golden.txt` is what `java -cp "<jars of Kafka 4.4.0>/*" Golden.java` prints, here in this folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runtime.kafka.protocol.layout import Layout
from runtime.kafka.protocol.request import Api, Request, layouts

_LINES = [line.split(" ") for line in (Path(__file__).parent / "golden.txt").read_text().splitlines()]
GOLDEN = {(name, int(version)): bytes.fromhex(text) for name, version, text in _LINES}

ONE = bytes(range(1, 17))
TWO = bytes(range(17, 33))
BATCH = b"pretend this is a record batch"


def written(request: Request[Any], version: int) -> bytes:
    body = layouts(type(request))[0].encode(version, request.values(version))
    return b"".join(bytes(part) for part in body)


def response(kind: Any, *values: Any) -> bytes:
    """Returns the fields of a response of this type of a tuple, as a broker of a test writes them."""
    return b"".join(bytes(part) for part in Layout(kind, flexible=0).encode(20, values))


def read(request: Request[Any], name: str, version: int) -> Any:
    return answered(request, version, GOLDEN[name, version])


def answered(request: Request[Any], version: int, fields: bytes) -> Any:
    """Returns the result of a response with these fields."""
    tags = version >= request.FLEXIBLE and request.API is not Api.API_VERSIONS
    _, result = request.answer(version, memoryview(bytearray(bytes(4 + tags) + fields)))
    return result
