"""Pure: the records of the registry, the lease and the history as bytes: versioned, readable JSON."""

from typing import Any

import msgspec

from planner.model.address import Address
from planner.model.diagnostic import Failure, error
from planner.model.owned import Owned
from planner.model.topology import OnRemove
from planner.store.lease_log import Entry, Holder, Verb

VERSION = 1


class UnknownVersion(Failure):
    """A record of a newer repl: never guessed at."""

    def __init__(self, what: str, version: object) -> None:
        super().__init__(
            error(
                f"{what} was written by a newer repl (format {version}, this one knows {VERSION})",
                "upgrade repl",
            )
        )


def encode(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"v": VERSION, **body})


def decode(what: str, data: bytes) -> dict[str, Any]:
    body = msgspec.json.decode(data)
    if not isinstance(body, dict) or body.get("v") != VERSION:
        raise UnknownVersion(what, body.get("v") if isinstance(body, dict) else body)
    return body


def registry_key(address: Address) -> bytes:
    """An object has one owner at most, so the key is its address alone."""
    return str(address).encode()


def encode_owned(entry: Owned) -> bytes:
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


def decode_owned(key: bytes, data: bytes) -> Owned:
    body = decode(f"the registry entry of {key.decode()}", data)
    return Owned(
        address=Address.parse(key.decode()),
        topology=body["topology"],
        spec=body["spec"],
        protect=body["protect"],
        on_remove=OnRemove(body["on_remove"]),
        origin=body["origin"],
        created=body["created"],
        plan=body["plan"],
        at_ms=body["at"],
    )


def encode_lease(verb: Verb, holder: Holder, ttl_ms: int) -> bytes:
    return encode({"verb": verb.value, "ttl": ttl_ms, "holder": msgspec.to_builtins(holder)})


def decode_lease(data: bytes, at_ms: int) -> Entry:
    body = decode("the lease", data)
    return Entry(Verb(body["verb"]), msgspec.convert(body["holder"], Holder), at_ms, body["ttl"])
