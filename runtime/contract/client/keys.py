"""Holds the allow-list of client settings that a topology, a plan file or a record may give.

The names are librdkafka's, Java's for key stores, and `sasl.aws.*` for IAM. A setting that is not listed is
refused. That covers every setting that loads a library, an engine or a plugin, runs a command, writes a file,
or belongs to the product itself. The planner
checks a topology by this list, and so does every process that makes a client.

Token endpoints must be https, unless the operator allows http.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import NamedTuple
from urllib.parse import urlsplit

TOKEN_ENDPOINT_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a key
ALLOW_INSECURE = "REPL_ALLOW_INSECURE_TOKEN_ENDPOINT"
TOKEN_COMMAND_KEY = "repl.oauthbearer.token.command"  # noqa: S105 - the name of a key
TOKEN_COMMAND_VARIABLE = "REPL_OAUTHBEARER_TOKEN_COMMAND"  # noqa: S105 - the name of a variable
# These settings identify or authenticate a client: only their values may be references.
CREDENTIALS = frozenset(
    {
        "client.id",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.kerberos.principal",
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
)
# Those of them that are always secret, also without a reference.
SECRETS = frozenset(
    {
        "sasl.password",
        "sasl.oauthbearer.client.secret",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
)
# Files that a client reads. OpenSSL takes a folder of certificates as an authority, too.
LOCATIONS = frozenset(
    {
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.crl.location",
        "https.ca.location",
        "sasl.kerberos.keytab",
        "ssl.keystore.location",
        "ssl.truststore.location",
    }
)
_OTHERS = frozenset(
    {
        "api.version.fallback.ms",
        "api.version.request",
        "api.version.request.timeout.ms",
        "broker.address.family",
        "broker.address.ttl",
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "enable.ssl.certificate.verification",
        "message.max.bytes",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "receive.message.max.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "sasl.aws.region",
        "sasl.aws.role.arn",
        "sasl.aws.role.session.name",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
        "socket.keepalive.enable",
        "socket.max.fails",
        "socket.nagle.disable",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "socket.timeout.ms",
        "ssl.cipher.suites",
        "ssl.curves.list",
        "ssl.endpoint.identification.algorithm",
        "ssl.keystore.type",
        "ssl.sigalgs.list",
        "ssl.truststore.type",
        "topic.metadata.propagation.max.ms",
        "topic.metadata.refresh.fast.interval.ms",
        "topic.metadata.refresh.interval.ms",
        "topic.metadata.refresh.sparse",
    }
)
ALLOWED = CREDENTIALS | LOCATIONS | _OTHERS
_LIBRARY = "would load a library into the process, and a topology must not run code"
_LEAVE_OUT = "leave it out"


def token_endpoint_problem(url: str | None, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Returns what is wrong with the address and what to do, or None where secrets may be sent to it.

    librdkafka sends the client's secret to http addresses without a warning: this check comes before it.
    """
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        host, secret, _ = parts.hostname, parts.password or parts.username, parts.port
    except ValueError:
        return "is not an address", "write https://host/path"
    if parts.scheme not in ("https", "http") or not host:
        return "is not an https address", "write https://host/path"
    if secret:
        return "holds a user name or a password", "write them as sasl.oauthbearer.client.id and client.secret"
    if parts.scheme == "http" and environ.get(ALLOW_INSECURE) != "1":
        return (
            "is not https, so the client's secret would travel in clear text",
            f"use https; for a trial, set the environment variable {ALLOW_INSECURE}=1",
        )
    return None


class SettingRefusal(NamedTuple):
    """Says why a setting is refused, as one clause, and what to do instead."""

    why: str
    hint: str


_KERBEROS = SettingRefusal(
    "is not a setting of this client, which gets and renews its tickets itself",
    "use sasl.kerberos.principal and sasl.kerberos.keytab",
)
_BOOTSTRAP = SettingRefusal("is not read here", "use bootstrap, beside client")
_LOGS = SettingRefusal(
    "is for debugging librdkafka, whose log lines and statistics are not shown", _LEAVE_OUT
)

_BY_NAME = {
    TOKEN_COMMAND_KEY: SettingRefusal(
        "would run a command, and a topology must not run code",
        f"set the environment variable {TOKEN_COMMAND_VARIABLE}, or {TOKEN_COMMAND_VARIABLE}_<CLUSTER> for "
        "one cluster, where repl and its jobs run",
    ),
    "sasl.kerberos.kinit.cmd": SettingRefusal(
        "would run a command, and a topology must not run code", _KERBEROS.hint
    ),
    "sasl.jaas.config": SettingRefusal(
        "is not a setting of this client (librdkafka's names are used)", "use sasl.username and sasl.password"
    ),
    "bootstrap.servers": _BOOTSTRAP,
    "metadata.broker.list": _BOOTSTRAP,
    "group.id": SettingRefusal("is not read here", "leave it out: the product uses its own groups"),
    "transactional.id": SettingRefusal(
        "is not read here", "leave it out: the product uses its own transactional ids"
    ),
    "ssl.key": SettingRefusal(
        "is not a value that a topology can give", "use ssl.key.pem or ssl.key.location"
    ),
    "ssl.certificate": SettingRefusal(
        "is not a value that a topology can give", "use ssl.certificate.pem or ssl.certificate.location"
    ),
    "ssl.ca": SettingRefusal("is not a value that a topology can give", "use ssl.ca.pem or ssl.ca.location"),
    "debug": _LOGS,
    "statistics.interval.ms": _LOGS,
    **dict.fromkeys(
        (
            *("opaque", "acks", "request.required.acks", "isolation.level", "enable.idempotence"),
            *("enable.auto.commit", "enable.partition.eof", "auto.offset.reset", "allow.auto.create.topics"),
        ),
        SettingRefusal("is set by the product itself", _LEAVE_OUT),
    ),
}
_BY_PREFIX = {
    "plugin.": SettingRefusal(_LIBRARY, _LEAVE_OUT),
    "ssl.engine": SettingRefusal(_LIBRARY, _LEAVE_OUT),
    "ssl.providers": SettingRefusal(_LIBRARY, _LEAVE_OUT),
    "sasl.kerberos.": _KERBEROS,
    "log": _LOGS,
}


def refusal(name: str) -> SettingRefusal | None:
    """Returns why a client setting of this name is refused, or None where it is allowed."""
    if name in ALLOWED:
        return None
    if name in _BY_NAME:
        return _BY_NAME[name]
    for prefix, prefix_refusal in _BY_PREFIX.items():
        if name.startswith(prefix):
            return prefix_refusal
    if name.endswith("_cb"):
        return SettingRefusal("is a callback, and a topology must not run code", _LEAVE_OUT)
    close = get_close_matches(name.casefold(), ALLOWED, n=1, cutoff=0.6)
    return SettingRefusal(
        "is not among the client settings that a topology may give",
        f'did you mean "{close[0]}"?' if close else "docs/operations.md lists them",
    )


def token_command_variables(cluster: str) -> tuple[str, str]:
    """Returns the variables that may hold a cluster's token command; the first one that is set counts."""
    name = cluster.upper().replace("-", "_").replace(".", "_")
    return f"{TOKEN_COMMAND_VARIABLE}_{name}", TOKEN_COMMAND_VARIABLE
