"""Converts a cluster's `client:` settings into frozen values and into each client's configuration. Pure.

It is the only place that does so. The names are librdkafka's, those that `client_keys` allows.
The wire, the client of the data path, gets a frozen value (`WireSettings`) of the settings that it supports,
and notes on those that it does not. confluent-kafka gets those that librdkafka has.

A value may refer to a secret: `{env: VAR}` or `{file: path}`. References travel, in a topology or a job spec.
They are resolved where a client is made, by `secrets`.
"""

from __future__ import annotations

import re
import shlex
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
class Store:
    """Holds a file of PKCS #12 with keys or certificates, as Java's tools make it, and its password."""

    location: str
    password: str | None = field(default=None, repr=False)


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
    keystore: Store | None = None
    truststore: Store | None = None
    ciphers: str | None = None
    verify: bool = True
    check_hostname: bool = True

    @property
    def files(self) -> tuple[str, ...]:
        """Returns every file or folder that these settings name."""
        stores = (store.location for store in (self.keystore, self.truststore) if store is not None)
        locations = (self.ca_location, self.certificate_location, self.key_location)
        return (*filter(None, locations), *stores)


@dataclass(frozen=True, slots=True)
class Password:
    """Holds the user name and password for PLAIN or SCRAM."""

    mechanism: str
    username: str
    password: str = field(repr=False)


class Kerberos(Struct, frozen=True):
    """Says as whom to log in by GSSAPI.

    Without a keytab, the tickets are those of this machine's credential cache, as kinit leaves them.
    """

    service: str = "kafka"
    principal: str | None = None
    keytab: str | None = None


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


class MskIam(Struct, frozen=True):
    """Says in which region of AWS the cluster is, and which role to assume.

    The credentials are those that the SDK of AWS finds where the process runs.
    """

    region: str
    role: str | None = None
    session: str = "repl"
    extensions: tuple[tuple[str, str], ...] = ()


TokenSource = TokenCommand | TokenEndpoint | UnsecuredToken | MskIam
Sasl = Password | Kerberos | TokenSource


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
    addresses = []
    for entry in filter(None, (part.strip() for part in bootstrap.split(","))):
        host, _, port = entry.rpartition("://")[2].rpartition(":")
        if (
            not _HOST.fullmatch(host)
            or not (port.isascii() and port.isdecimal())
            or not 0 < int(port) < 65536
        ):
            raise ClientSettingsError("bootstrap.servers", f"{entry!r} is not host:port")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ClientSettingsError("bootstrap.servers", "no broker is named")
    return tuple(addresses)


def bootstrap_text(brokers: Iterable[tuple[str, int]]) -> str:
    """Formats the brokers as every client reads them: no scheme, no spaces, brackets around IPv6
    addresses.
    """
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in brokers)


# Settings of the wire that librdkafka does not have, or does not have on every machine.
_NOT_LIBRDKAFKAS = ("sasl.aws.", "sasl.kerberos.", "ssl.keystore.", "ssl.truststore.")


def confluent_config(bootstrap: str, resolved: Mapping[str, str]) -> dict[str, Any]:
    """Returns the configuration for confluent-kafka, with librdkafka's own names.

    What comes from a store of keys, and tokens, are added where a client is made.
    """
    _check_names(resolved)
    settings = {key: text for key, text in resolved.items() if not key.startswith(_NOT_LIBRDKAFKAS)}
    if (settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "").upper() == MSK_IAM:
        settings = {key: text for key, text in settings.items() if key != "sasl.mechanisms"}
        settings["sasl.mechanism"] = "OAUTHBEARER"
    return {**settings, "bootstrap.servers": bootstrap_text(parse_bootstrap(bootstrap))}


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
    reader = _Reader(bootstrap, resolved, token_command)
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


MSK_IAM = "AWS_MSK_IAM"
# The addresses of Amazon MSK, provisioned and serverless, name the region.
_REGION = re.compile(r"[a-z]{2,4}(-[a-z0-9]{1,20}){1,4}")
_MSK_HOST = re.compile(r".+\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")


class _Reader:
    """Reads the settings by name and records which were read: the others are noted."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str], token_command: str | None) -> None:
        self._bootstrap = bootstrap
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
            protocols = ", ".join(protocol.value for protocol in SecurityProtocol)
            raise ClientSettingsError("security.protocol", f"{name!r} is none of {protocols}") from None

    def tls(self) -> Tls:
        algorithm = (self.text("ssl.endpoint.identification.algorithm") or "https").lower()
        if algorithm not in ("https", "none"):
            raise ClientSettingsError("ssl.endpoint.identification.algorithm", "is https or none")
        keystore, truststore = self._store("ssl.keystore"), self._store("ssl.truststore")
        certificate, authority = self.text("ssl.certificate.location"), self.text("ssl.ca.location")
        key, key_pem = self.text("ssl.key.location"), self.text("ssl.key.pem")
        certificate_pem, authority_pem = self.text("ssl.certificate.pem"), self.text("ssl.ca.pem")
        if keystore and (certificate or certificate_pem or key or key_pem):
            why = "stands beside ssl.certificate.* or ssl.key.*"
            raise ClientSettingsError("ssl.keystore.location", why, "keep one")
        if truststore and (authority or authority_pem):
            raise ClientSettingsError("ssl.truststore.location", "stands beside ssl.ca.*", "keep one")
        if isinstance(keystore, str):
            certificate = key = keystore
        if isinstance(truststore, str):
            authority = truststore
        return Tls(
            ca_location=authority,
            ca_pem=authority_pem,
            certificate_location=certificate,
            certificate_pem=certificate_pem,
            key_location=key,
            key_pem=key_pem,
            key_password=self.text("ssl.key.password"),
            keystore=keystore if isinstance(keystore, Store) else None,
            truststore=truststore if isinstance(truststore, Store) else None,
            ciphers=self.text("ssl.cipher.suites"),
            verify=self.boolean("enable.ssl.certificate.verification", True),
            check_hostname=algorithm == "https",
        )

    def _store(self, name: str) -> Store | str | None:
        """Returns a store of PKCS #12, or the path of a PEM file where the type says so."""
        location, password = self.text(f"{name}.location"), self.text(f"{name}.password")
        kind = (self.text(f"{name}.type") or "PKCS12").upper()
        if location is None:
            if password or f"{name}.type" in self._settings:
                raise ClientSettingsError(f"{name}.location", "is missing; it names the file")
            return None
        match kind:
            case "PKCS12":
                return Store(location, password)
            case "PEM":
                return location
            case "JKS":
                raise ClientSettingsError(f"{name}.type", *java_store_problem(location))
            case _:
                raise ClientSettingsError(f"{name}.type", f"{kind!r} is none of PKCS12, PEM, JKS")

    def sasl(self) -> Sasl:
        mechanism = self.text("sasl.mechanism", "sasl.mechanisms")
        if mechanism is None and self.text("sasl.username"):
            why = "is missing; with sasl.username it is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"
            raise ClientSettingsError("sasl.mechanism", why)
        match (mechanism or "GSSAPI").upper():
            case "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512" as name:
                why = f"sasl.mechanism {name} needs it"
                return Password(name, self.need("sasl.username", why), self.need("sasl.password", why))
            case "GSSAPI":
                return self._kerberos()
            case "OAUTHBEARER":
                return self._oauthbearer()
            case name if name == MSK_IAM:
                return self._msk_iam()
            case name:
                why = (
                    f"{name} is not supported; PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI "
                    f"and {MSK_IAM} are"
                )
                raise ClientSettingsError("sasl.mechanism", why)

    def _kerberos(self) -> Kerberos:
        keytab, principal = self.text("sasl.kerberos.keytab"), self.text("sasl.kerberos.principal")
        if keytab and not principal:
            why = "is missing; sasl.kerberos.keytab may hold the keys of several"
            raise ClientSettingsError("sasl.kerberos.principal", why)
        return Kerberos(self.text("sasl.kerberos.service.name") or "kafka", principal, keytab)

    def _msk_iam(self) -> MskIam:
        region = self.text("sasl.aws.region")
        if region is None:
            hosts = (_MSK_HOST.fullmatch(host.lower()) for host, _ in parse_bootstrap(self._bootstrap))
            region = next((host[1] for host in hosts if host), None)
        if region is None:
            why = (
                f"is missing; sasl.mechanism {MSK_IAM} needs it where the address of no broker names a region"
            )
            raise ClientSettingsError("sasl.aws.region", why)
        if not _REGION.fullmatch(region):
            raise ClientSettingsError("sasl.aws.region", f"{region!r} is no region", "write it as eu-west-1")
        role, session = self.text("sasl.aws.role.arn"), self.text("sasl.aws.role.session.name")
        extensions = _pairs("sasl.oauthbearer.extensions", self.text("sasl.oauthbearer.extensions") or "")
        return MskIam(region, role, session or "repl", extensions)

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
        return tuple(
            f"{key} is not used with this security.protocol and sasl.mechanism"
            if key.startswith(_NOT_LIBRDKAFKAS)
            else f"{key} is not used by the data path, only by the control plane"
            for key in ignored
        )


def java_store_problem(location: str) -> tuple[str, str]:
    """Returns what is wrong with a store in Java's own format, and the command that converts it."""
    stores = f"-srckeystore {shlex.quote(location)} -destkeystore {shlex.quote(f'{location}.p12')}"
    convert = f"convert it: keytool -importkeystore {stores} -deststoretype PKCS12, and name that file"
    return "is a Java key store (JKS), which only Java reads", convert


def _pairs(name: str, text: str) -> tuple[tuple[str, str], ...]:
    pairs = [tuple(part.split("=", 1)) for part in text.replace(",", " ").split()]
    if not all(len(pair) == 2 for pair in pairs):
        raise ClientSettingsError(name, "is a list of name=value")
    return tuple((pair[0], pair[1]) for pair in pairs)
