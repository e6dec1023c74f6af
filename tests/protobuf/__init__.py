"""Messages of Protobuf for tests: their files, as `protoc` has written them, and an encoder by hand.

`customer.desc` and `order.desc` are of `protoc --include_imports --descriptor_set_out`. `alone.desc` is of
customer.proto without its imports.
"""

import base64
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LEVELS = {"UNKNOWN": 0, "LOW": 1, "HIGH": -2}
INT64, MESSAGE = 3, 11  # kinds of fields in a descriptor


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


def declared(at: int, name: str, kind: int, of: str = "", label: int = 1) -> bytes:
    """A field of a message in a descriptor."""
    text = sized(1, name) + number(3, at) + number(4, label) + number(5, kind)
    return sized(2, text + (sized(6, of) if of else b""))


def customer(value: Mapping[str, Any]) -> bytes:
    """Returns a shop.Customer as encoders write it: by number, without defaults where there is no presence.

    `at` is a time in microseconds. A field that is not given is absent.
    """

    def whole(field: int, name: str) -> bytes:
        return number(field, value[name]) if value.get(name) else b""

    def text(field: int, name: str, of: Mapping[str, Any] = value) -> bytes:
        return sized(field, of[name]) if of.get(name) else b""

    parts = [whole(1, "id"), text(2, "email")]
    parts.append(sized(3, value["phone"]) if value.get("phone") is not None else b"")
    level = LEVELS[value.get("level", "UNKNOWN")]
    parts.append(number(4, level) if level else b"")
    if (home := value.get("home")) is not None:
        parts.append(sized(5, text(1, "street", home) + text(2, "city", home)))
    parts += [sized(6, tag) for tag in value.get("tags", ())]
    zigzag = b"".join(varint(2 * one if one >= 0 else -2 * one - 1) for one in value.get("scores", ()))
    parts.append(sized(7, zigzag) if zigzag else b"")
    parts += [sized(8, sized(1, key) + double(2, amount)) for key, amount in value.get("amounts", {}).items()]
    parts.append(number(11, value["pager"]) if value.get("pager") is not None else b"")
    if (at := value.get("at")) is not None:
        seconds, micros = divmod(at, 1_000_000)
        parts.append(sized(13, number(1, seconds) + (number(2, micros * 1_000 + 999) if micros else b"")))
    parts += [text(14, "photo"), whole(15, "spent"), number(17, 1) if value.get("flag") else b""]
    return b"".join(parts)
