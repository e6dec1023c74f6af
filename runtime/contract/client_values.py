"""The frozen values that a cluster's `client:` settings become for the wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class ClientSettingsError(ValueError):
    """A setting that can't work: says the key, why, and the way out. Never the value of a secret."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"client setting {key}: {why}")
        self.key = key
        self.why = why


class SecurityProtocol(Enum):
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
    """Locations are files, `pem` fields their content. Without an authority the system's are trusted."""

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
    """PLAIN or SCRAM."""

    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenCommand:
    """A command that prints a token, or JSON with `access_token` and `expires_in`."""

    command: str
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """OpenID Connect's client credentials grant."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    ca_location: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class UnsecuredToken:
    """An unsigned token that names its own principal: for trying things, never for a real cluster."""

    principal: str
    lifetime_s: int = 3600
    extensions: tuple[tuple[str, str], ...] = ()


Sasl = Password | TokenCommand | TokenEndpoint | UnsecuredToken


@dataclass(frozen=True, slots=True)
class WireSettings:
    """What the wire needs to know of a cluster. `notes` are for people: what was ignored, and why."""

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
