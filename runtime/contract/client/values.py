"""Defines the frozen values into which a cluster's `client:` settings are converted for the wire."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum


class ClientSettingsError(ValueError):
    """A setting that can't be applied.

    The error names the key, the reason and the remedy, never the value of a secret.
    """

    def __init__(self, key: str, why: str, way_out: str = "") -> None:
        super().__init__(f"client setting {key}: {why}" + (f" ({way_out})" if way_out else ""))
        self.key = key
        self.why = why
        self.way_out = way_out


class SecurityProtocol(Enum):
    """Lists Kafka's security protocols."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class Tls:
    """Holds the TLS settings. `location` fields are files, `pem` fields their content.

    Without a certificate authority, those of the system are trusted.
    """

    ca_location: str | None = None
    ca_pem: str | None = None
    certificate_location: str | None = None
    certificate_pem: str | None = None
    key_location: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    ciphers: str | None = None
    verify: bool = True
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class Password:
    """Holds the user name and password for PLAIN or SCRAM."""

    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenCommand:
    """Holds a command of the operator that prints a token, or JSON with `access_token` and `expires_in`."""

    command: str
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Holds the endpoint and the credentials of OpenID Connect's client credentials grant."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    ca_location: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class UnsecuredToken:
    """Describes an unsigned token that names its own principal: for trials, never for a real cluster."""

    principal: str
    lifetime_s: int = 3600
    extensions: tuple[tuple[str, str], ...] = ()


Sasl = Password | TokenCommand | TokenEndpoint | UnsecuredToken


@dataclass(frozen=True, slots=True)
class WireSettings:
    """Holds every setting that the wire needs for a cluster.

    `notes` tell people what was ignored, and why.
    """

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "repl"
    security: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: Tls | None = None
    sasl: Sasl | None = None
    request_timeout_s: float = 60.0
    connect_timeout_s: float = 30.0
    reconnect_backoff_s: float = 0.1
    reconnect_backoff_max_s: float = 10.0
    metadata_max_age_s: float = 300.0
    max_response_bytes: int = 100_000_000
    send_buffer_bytes: int = 0
    receive_buffer_bytes: int = 0
    keepalive: bool = True
    notes: tuple[str, ...] = ()


# A host's name or address, without any character that clients might parse differently.
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]|[0-9A-Fa-f:]+")


def parse_bootstrap(bootstrap: str) -> tuple[tuple[str, int], ...]:
    """Parses `host:port,[v6]:port`; a scheme before the host is allowed, as librdkafka allows it."""
    found = []
    for entry in filter(None, (part.strip() for part in bootstrap.split(","))):
        host, _, port = entry.rpartition("://")[2].rpartition(":")
        if (
            not _HOST.fullmatch(host)
            or not (port.isascii() and port.isdecimal())
            or not 0 < int(port) < 65536
        ):
            raise ClientSettingsError("bootstrap.servers", f"{entry!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ClientSettingsError("bootstrap.servers", "no broker is named")
    return tuple(found)


def bootstrap_text(brokers: Iterable[tuple[str, int]]) -> str:
    """Formats the brokers as every client reads them: no scheme, no spaces, brackets around IPv6
    addresses.
    """
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in brokers)
