"""The bytes that Kafka's own Java classes make of known values.

`golden.txt` is what `java -cp "<jars of Kafka 4.4.0>/*" Golden.java` prints, here in this folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runtime.kafka.protocol.request import Api, Message, Request

_LINES = [line.split(" ") for line in (Path(__file__).parent / "golden.txt").read_text().splitlines()]
GOLDEN = {(name, int(version)): bytes.fromhex(text) for name, version, text in _LINES}

ONE = bytes(range(1, 17))
TWO = bytes(range(17, 33))
BATCH = b"pretend this is a record batch"


def written(request: Request[Any], version: int) -> bytes:
    body = request.MESSAGE.request.encode(version, request.values(version))
    return b"".join(bytes(part) for part in body)


def response(message: Message, version: int, *values: Any) -> bytes:
    """Returns the fields of a response, as a broker of a test writes them."""
    return b"".join(message.response.encode(version, values))


def read(request: Request[Any], name: str, version: int) -> Any:
    return answered(request, version, GOLDEN[name, version])


def answered(request: Request[Any], version: int, fields: bytes) -> Any:
    """Returns the result of a response with these fields."""
    tags = version >= request.MESSAGE.flexible and request.api is not Api.API_VERSIONS
    _, result = request.answer(version, memoryview(bytearray(bytes(4 + tags) + fields)))
    return result
