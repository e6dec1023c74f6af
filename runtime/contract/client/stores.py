"""Defines how an object store is reached: its address, and the settings of its client.

An address is `s3a://BUCKET/PREFIX` or `s3://BUCKET/PREFIX`, with or without a prefix. The settings are the
whole allow-list: one that is not listed is refused. Without `access.key`, the credentials are those that the
machine has: its environment, its profile, or its role.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

REGION: Final = "region"
ENDPOINT: Final = "endpoint"
ACCESS_KEY: Final = "access.key"
SECRET_KEY: Final = "secret.key"  # noqa: S105 - the name of a key
SESSION_TOKEN: Final = "session.token"  # noqa: S105 - the name of a key
CA_LOCATION: Final = "ssl.ca.location"
# Only these may be references; the last two must be.
CREDENTIALS: Final = frozenset({ACCESS_KEY, SECRET_KEY, SESSION_TOKEN})
SECRETS: Final = frozenset({SECRET_KEY, SESSION_TOKEN})
LOCATIONS: Final = frozenset({CA_LOCATION})
KEYS: Final = (REGION, ENDPOINT, ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, CA_LOCATION)

# A setting of a client is text, or a reference: {"env": VARIABLE} or {"file": path}.
Reference = dict[Literal["env", "file"], str]
Setting = str | Annotated[Reference, Meta(min_length=1, max_length=1)]

MOST_BYTES: Final = 4 << 30  # of an object: a store copies at most 5 GB at once
_SCHEMES: Final = ("s3a://", "s3://")
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._=+@-]+")
_REGION: Final = re.compile(r"[a-z0-9-]{1,64}")
# Strict, so that every client finds the same host in it: no user, no path, no spaces.
_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::(?P<port>\d{1,5}))?/?",
    re.IGNORECASE | re.ASCII,
)
_DEFAULT_REGION: Final = "us-east-1"
_PORTS: Final = {"https": 443, "http": 80}
_LOOPBACK: Final = ("localhost", "::1")


class StoreAddress(Struct, frozen=True):
    """Names a bucket, and the prefix of all names in it: "" for the whole bucket."""

    bucket: str
    prefix: str = ""

    def __str__(self) -> str:
        return f"s3a://{self.bucket}/{self.prefix}".rstrip("/")


class StoreHost(Struct, frozen=True):
    """The address that requests go to. Without `tls`, records and session tokens travel in clear text."""

    host: str
    port: int
    tls: bool

    @property
    def on_this_machine(self) -> bool:
        return self.host.lower() in _LOOPBACK or self.host.startswith("127.")


def is_store(address: str) -> bool:
    """Returns whether this is the address of an object store, and not the path of a folder."""
    return address.startswith(_SCHEMES)


def store_address(address: str) -> StoreAddress:
    """Returns the bucket and the prefix of an address without a problem."""
    bucket, _, prefix = address.partition("://")[2].partition("/")
    return StoreAddress(bucket, prefix.strip("/"))


def address_problem(address: str) -> tuple[str, str] | None:
    """Returns what is wrong with the address of a store, and the way out."""
    found = store_address(address)
    if not _BUCKET.fullmatch(found.bucket):
        return f"{address} names no bucket", "write s3a://bucket/prefix"
    if len(found.prefix) > 512:
        return f"the prefix of {address} is longer than 512 characters", "write a shorter one"
    for part in found.prefix.split("/") if found.prefix else ():
        if part in (".", "..") or not _PREFIX.fullmatch(part):
            return f'{address} has a part "{part}" that is not allowed', "write s3a://bucket/prefix"
    return None


def client_problem(client: Mapping[str, object]) -> tuple[str, str, str] | None:
    """Returns the key with a problem, what is wrong with it, and the way out."""
    for key, value in client.items():
        if key not in KEYS:
            return key, "is no setting of an object store", f"it takes {', '.join(KEYS)}"
        if isinstance(value, str):
            if key == REGION and not _REGION.fullmatch(value):
                return key, "is no region", "write it as eu-central-1"
            if key == ENDPOINT and _URL.fullmatch(value) is None:
                return key, "is no web address", "write it as https://host:9000"
        elif key not in CREDENTIALS:
            return key, "takes no reference: it carries no credential", "write its value out"
    if (ACCESS_KEY in client) != (SECRET_KEY in client):
        return (
            ACCESS_KEY if ACCESS_KEY in client else SECRET_KEY,
            "needs the other one of access.key and secret.key",
            "write both, or neither: then the machine's own credentials are used",
        )
    if SESSION_TOKEN in client and ACCESS_KEY not in client:
        return SESSION_TOKEN, "belongs to access.key and secret.key", "write these too, or remove it"
    return None


def host_of(client: Mapping[str, object]) -> StoreHost:
    """Returns where requests go, of settings without a problem."""
    endpoint = client.get(ENDPOINT)
    url = _URL.fullmatch(endpoint) if isinstance(endpoint, str) else None
    if url is None:
        return StoreHost(f"s3.{client.get(REGION) or _DEFAULT_REGION}.amazonaws.com", 443, True)
    scheme = url["scheme"].lower()
    port = int(url["port"]) if url["port"] else _PORTS[scheme]
    return StoreHost(url["host"].strip("[]"), port, scheme == "https")
