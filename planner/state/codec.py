"""Pure: the records of the registry, the lease and the history as versioned, readable JSON.

A record is validated when it is read: every principal with WRITE on these topics can write any bytes.
"""

from typing import Any, TypeVar

import msgspec

from planner.model.address import Address
from planner.model.diagnostic import Failure, error
from planner.model.observed import RegistryEntry
from planner.model.topology import OnRemove
from runtime.contract.records import record_values
from runtime.contract.records.record_values import UnreadableValue

VERSION = 1
_T = TypeVar("_T")


class UnknownVersion(Failure):
    """A record was written by a newer release. It is never interpreted."""

    def __init__(self, what: str, version: object) -> None:
        super().__init__(
            error(
                f"{what} was written by a newer repl (format {version}, this one knows {VERSION})",
                "upgrade repl",
            )
        )


def encode(body: dict[str, Any]) -> bytes:
    """Returns the record's bytes with its format version."""
    return msgspec.json.encode({"v": VERSION, **body})


class _OwnedBody(msgspec.Struct, frozen=True):
    topology: str
    spec: dict[str, str]
    protect: bool
    on_remove: OnRemove
    origin: str
    created: bool
    plan: str
    at: int


_body = msgspec.json.Decoder(dict[str, Any])


def decode(what: str, data: bytes) -> dict[str, Any]:
    """Returns the body. Raises UnknownVersion for a newer format, UnreadableValue for a damaged record."""
    body = record_values.decode(_body, data)
    version = body.get("v")
    if isinstance(version, int) and version > VERSION:
        raise UnknownVersion(what, version)
    if version != VERSION:
        raise UnreadableValue(f"{what} has the format {version!r}, which no release of repl writes")
    return body


def shaped(body: object, shape: type[_T]) -> _T:
    """Returns the body as `shape`. Raises UnreadableValue for a missing field or a wrong type."""
    try:
        return msgspec.convert(body, shape)
    except (msgspec.ValidationError, RecursionError) as wrong:
        raise UnreadableValue(str(wrong)) from None


def registry_key(address: Address) -> bytes:
    """Returns the key: the address alone, since an object has one owner at most."""
    return str(address).encode()


def encode_owned(entry: RegistryEntry) -> bytes:
    """Returns a registry entry's bytes."""
    return encode(
        {
            "topology": entry.topology,
            "spec": dict(entry.spec),
            "protect": entry.protect,
            "on_remove": entry.on_remove.value,
            "origin": entry.origin,
            "created": entry.created,
            "plan": entry.plan,
            "at": entry.at_ms,
        }
    )


def decode_owned(key: bytes, data: bytes) -> RegistryEntry:
    """Returns a registry entry. Raises UnknownVersion or UnreadableValue."""
    try:
        address = Address.parse(key.decode())
    except ValueError as wrong:
        raise UnreadableValue(str(wrong)) from None
    body = shaped(decode(f"the registry entry of {address}", data), _OwnedBody)
    return RegistryEntry(
        address=address,
        topology=body.topology,
        spec=body.spec,
        protect=body.protect,
        on_remove=body.on_remove,
        origin=body.origin,
        created=body.created,
        plan=body.plan,
        at_ms=body.at,
    )
