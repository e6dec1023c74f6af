"""Messages of Protobuf for tests: their files, as `protoc` has written them, and an encoder by hand.

`customer.desc` and `order.desc` are of `protoc --include_imports --descriptor_set_out`. `alone.desc` is of
customer.proto without its imports.
"""

import base64
import struct
from pathlib import Path

HERE = Path(__file__).parent


def schema(message: str, file: str = "customer.desc") -> str:
    """Returns the schema of a message as a job has it."""
    return f"{message} {base64.b64encode((HERE / file).read_bytes()).decode()}"


def varint(value: int) -> bytes:
    value %= 1 << 64
    found = []
    while value >= 128:
        found.append(value % 128 + 128)
        value //= 128
    return bytes([*found, value])


def number(field: int, value: int) -> bytes:
    return varint(field * 8) + varint(value)


def sized(field: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return varint(field * 8 + 2) + varint(len(data)) + data


def double(field: int, value: float) -> bytes:
    return varint(field * 8 + 1) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    return varint(field * 8 + 5) + struct.pack("<f", value)
