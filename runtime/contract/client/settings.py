"""Converts a cluster's `client:` settings into frozen values and into each client's configuration. Pure.

It is the only place that does so. The names are librdkafka's, those that `client_keys` allows.
confluent-kafka gets them all. The wire, the client of the data path, gets a frozen value (`WireSettings`) of
the settings that it supports, and notes on those that it does not.

A value may refer to a secret: `{env: VAR}` or `{file: path}`. References travel, in a topology or a job spec.
They are resolved where a client is made, by `secrets`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from runtime.contract.client.keys import TOKEN_COMMAND_VARIABLE, refusal


class ClientSettingsError(ValueError):
    """A setting that can't be applied.

    The error names the key, the reason and the remedy, never the value of a secret.
    """

    def __init__(self, key: str, why: str, hint: str = "") -> None:
        super().__init__(f"client setting {key}: {why}" + (f" ({hint})" if hint else ""))
        self.key = key
        self.why = why
        self.hint = hint


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


class TokenCommand(Struct, frozen=True):
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


class UnsecuredToken(Struct, frozen=True):
    """Describes an unsigned token that names its own principal: for trials, never for a real cluster."""

    principal: str
    lifetime_s: int = 3600
    extensions: tuple[tuple[str, str], ...] = ()


Sasl = Password | TokenCommand | TokenEndpoint | UnsecuredToken


class WireSettings(Struct, frozen=True):
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


BEARER = "OAUTHBEARER"


def confluent_config(bootstrap: str, resolved: Mapping[str, str]) -> dict[str, Any]:
    """Returns the configuration for confluent-kafka, with librdkafka's own names.

    A token command is added where a client is made.
    """
    _check_names(resolved)
    return {**resolved, "bootstrap.servers": bootstrap_text(parse_bootstrap(bootstrap))}


def speaks_bearer(resolved: Mapping[str, str]) -> bool:
    """Returns whether clients authenticate with tokens, so that a token command is used."""
    mechanism = resolved.get("sasl.mechanism") or resolved.get("sasl.mechanisms") or ""
    return mechanism.upper() == BEARER


def _check_names(resolved: Mapping[str, str]) -> None:
    for name in resolved:
        if (refused := refusal(name)) is not None:
            raise ClientSettingsError(name, refused.why, refused.hint)


def wire_settings(
    bootstrap: str, resolved: Mapping[str, str], token_command: str | None = None
) -> WireSettings:
    """Returns the settings for the wire, with notes on those that it ignores.

    Raises `ClientSettingsError` for a setting that the wire cannot apply.
    """
    _check_names(resolved)
    reader = _Reader(resolved, token_command)
    security = reader.security()
    settings = WireSettings(
        bootstrap=parse_bootstrap(bootstrap),
        client_id=reader.text("client.id") or "repl",
        security=security,
        tls=reader.tls() if security.tls else None,
        sasl=reader.sasl() if security.sasl else None,
        request_timeout_s=reader.milliseconds("socket.timeout.ms", 60_000),
        connect_timeout_s=reader.milliseconds("socket.connection.setup.timeout.ms", 30_000),
        reconnect_backoff_s=reader.milliseconds("reconnect.backoff.ms", 100),
        reconnect_backoff_max_s=reader.milliseconds("reconnect.backoff.max.ms", 10_000),
        metadata_max_age_s=reader.milliseconds("topic.metadata.refresh.interval.ms", 300_000),
        max_response_bytes=reader.integer("receive.message.max.bytes", 100_000_000),
        send_buffer_bytes=reader.integer("socket.send.buffer.bytes", 0),
        receive_buffer_bytes=reader.integer("socket.receive.buffer.bytes", 0),
        keepalive=reader.boolean("socket.keepalive.enable", True),
    )
    return replace(settings, notes=reader.notes())


class _Reader:
    """Reads the settings by name and records which were read: the others are noted."""

    def __init__(self, settings: Mapping[str, str], token_command: str | None) -> None:
        self._settings = settings
        self._token_command = token_command
        self._read: set[str] = set()

    def text(self, *names: str) -> str | None:
        self._read.update(names)
        return next((self._settings[name] for name in names if self._settings.get(name)), None)

    def need(self, name: str, why: str) -> str:
        value = self.text(name)
        if value is None:
            raise ClientSettingsError(name, f"is missing; {why}")
        return value

    def integer(self, name: str, default: int) -> int:
        value = self.text(name)
        try:
            return default if value is None else int(value)
        except ValueError:
            raise ClientSettingsError(name, f"{value!r} is not a whole number") from None

    def milliseconds(self, name: str, default: int) -> float:
        return self.integer(name, default) / 1000

    def boolean(self, name: str, default: bool) -> bool:
        match (self.text(name) or "").lower():
            case "":
                return default
            case "true" | "t" | "1":
                return True
            case "false" | "f" | "0":
                return False
            case other:
                raise ClientSettingsError(name, f"{other!r} is neither true nor false")

    def security(self) -> SecurityProtocol:
        name = self.text("security.protocol") or "PLAINTEXT"
        try:
            return SecurityProtocol(name.upper())
        except ValueError:
            known = ", ".join(protocol.value for protocol in SecurityProtocol)
            raise ClientSettingsError("security.protocol", f"{name!r} is none of {known}") from None

    def tls(self) -> Tls:
        algorithm = (self.text("ssl.endpoint.identification.algorithm") or "https").lower()
        if algorithm not in ("https", "none"):
            raise ClientSettingsError("ssl.endpoint.identification.algorithm", "is https or none")
        return Tls(
            ca_location=self.text("ssl.ca.location"),
            ca_pem=self.text("ssl.ca.pem"),
            certificate_location=self.text("ssl.certificate.location"),
            certificate_pem=self.text("ssl.certificate.pem"),
            key_location=self.text("ssl.key.location"),
            key_pem=self.text("ssl.key.pem"),
            key_password=self.text("ssl.key.password"),
            ciphers=self.text("ssl.cipher.suites"),
            verify=self.boolean("enable.ssl.certificate.verification", True),
            check_hostname=algorithm == "https",
        )

    def sasl(self) -> Sasl:
        mechanism = (self.text("sasl.mechanism", "sasl.mechanisms") or "GSSAPI").upper()
        match mechanism:
            case "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512":
                why = f"sasl.mechanism {mechanism} needs it"
                return Password(mechanism, self.need("sasl.username", why), self.need("sasl.password", why))
            case "OAUTHBEARER":
                return self._oauthbearer()
            case _:
                why = (
                    f"{mechanism} is not spoken by the data path; PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 "
                    "and OAUTHBEARER are"
                )
                raise ClientSettingsError("sasl.mechanism", why)

    def _oauthbearer(self) -> Sasl:
        extensions = _pairs("sasl.oauthbearer.extensions", self.text("sasl.oauthbearer.extensions") or "")
        if self._token_command:
            return TokenCommand(self._token_command, extensions)
        if (self.text("sasl.oauthbearer.method") or "default").lower() == "oidc":
            why = "sasl.oauthbearer.method oidc needs it"
            return TokenEndpoint(
                self.need("sasl.oauthbearer.token.endpoint.url", why),
                self.need("sasl.oauthbearer.client.id", why),
                self.need("sasl.oauthbearer.client.secret", why),
                self.text("sasl.oauthbearer.scope"),
                self.text("https.ca.location"),
                extensions,
            )
        if self.boolean("enable.sasl.oauthbearer.unsecure.jwt", False):
            given = dict(_pairs("sasl.oauthbearer.config", self.text("sasl.oauthbearer.config") or ""))
            if "principal" not in given:
                raise ClientSettingsError("sasl.oauthbearer.config", "names no principal=…")
            lifetime = given.get("lifeSeconds", "3600")
            if not lifetime.isdecimal():
                raise ClientSettingsError("sasl.oauthbearer.config", "lifeSeconds is not a whole number")
            return UnsecuredToken(given["principal"], int(lifetime), extensions)
        why = (
            f"OAUTHBEARER needs the environment variable {TOKEN_COMMAND_VARIABLE}, or "
            "sasl.oauthbearer.method oidc with its endpoint"
        )
        raise ClientSettingsError("sasl.mechanism", why)

    def notes(self) -> tuple[str, ...]:
        ignored = sorted(set(self._settings) - self._read)
        return tuple(f"{key} is not used by the data path, only by the control plane" for key in ignored)


def _pairs(name: str, text: str) -> tuple[tuple[str, str], ...]:
    pairs = [tuple(part.split("=", 1)) for part in text.replace(",", " ").split()]
    if not all(len(pair) == 2 for pair in pairs):
        raise ClientSettingsError(name, "is a list of name=value")
    return tuple((pair[0], pair[1]) for pair in pairs)
