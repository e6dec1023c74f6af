"""Holds what the importers of MirrorMaker 2 and of Confluent Replicator share: both run on Kafka Connect.

Here are Java's properties files, the keys of a file and the notes on keys without a counterpart, and the
client settings in Java's names. What only one of the two products knows belongs to `mm2` or `replicator`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any

from planner.model.topology import Topology, secret_variable
from runtime.contract.client.keys import CREDENTIALS
from runtime.contract.client.settings import MSK_IAM, java_store_problem
from runtime.contract.client.stores import Setting
from runtime.contract.predecessor import ConnectOffsets
from runtime.contract.spec.selection import UnreadableRegex, regex, written_out

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE = re.compile(r"[0-9A-Fa-f]{4}")


@dataclass(frozen=True, slots=True)
class Property:
    """A key of a file, with its line. In JSON, its value may be a tuple of properties, or a list."""

    key: str
    value: Any
    line: int


def properties_of(text: str) -> list[Property]:
    """Returns the properties as java.util.Properties reads them: of equal keys the last one wins."""
    properties: dict[str, Property] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        properties[key] = Property(key, value, number)
    return list(properties.values())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields lines without comments and blanks; an odd number of backslashes at the end continues a line."""
    whole, start = "", 0
    for number, natural in enumerate(text.splitlines(), 1):
        line = natural.lstrip(" \t\f")
        if not whole and (not line or line[0] in "#!"):
            continue
        start = start if whole else number
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            whole += line[:-1]
            continue
        yield start, whole + line
        whole = ""
    if whole:
        yield start, whole


def _split(line: str) -> tuple[str, str]:
    """Returns key and value: the key ends at the first `=`, `:` or blank that is not escaped."""
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return _unescaped(key), _unescaped(rest)


def _unescaped(text: str) -> str:
    signs: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\" or at + 1 == len(text):
            signs.append(text[at])
            at += 1
            continue
        escaped = text[at + 1]
        if escaped == "u" and _UNICODE.fullmatch(text[at + 2 : at + 6]):
            signs.append(chr(int(text[at + 2 : at + 6], 16)))
            at += 6
            continue
        signs.append(_ESCAPES.get(escaped, escaped))
        at += 2
    return "".join(signs)


@dataclass(frozen=True, slots=True)
class ConversionNote:
    """A note on one key of the file. `loss` is set if the key has an effect that repl does not have."""

    key: str
    line: int
    reason: str
    loss: bool = True
    file: str = ""


@dataclass(frozen=True, slots=True)
class ConvertedTopology:
    """A topology, and a note on each key of the files that has no counterpart or needs a remark.

    `positions`: where MirrorMaker 2 keeps those of each flow.
    """

    topology: Topology
    notes: tuple[ConversionNote, ...]
    positions: Mapping[str, ConnectOffsets] = field(default_factory=dict)


@dataclass(slots=True)
class PropertyKeys:
    """The keys of a file, which of them are converted, and the notes on others.

    A key is looked up below each of `prefixes` in turn: a flow's own (`A->B.topics`) comes before that of all
    flows (`topics`).
    """

    by_name: Mapping[str, Property]
    file: str = ""
    notes: list[ConversionNote] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    prefixes: tuple[str, ...] = ("",)

    def below(self, prefix: str) -> "PropertyKeys":
        """Returns the same keys, looked up first below the prefix."""
        return replace(self, prefixes=(prefix, ""))

    def _names(self, keys: Iterable[str]) -> list[str]:
        keys = tuple(keys)
        return [f"{prefix}{key}" for prefix in self.prefixes for key in keys]

    def text(self, *keys: str) -> str | None:
        """Returns the first of these keys that is set, and marks all of them as converted."""
        names = [name for name in self._names(keys) if name in self.by_name]
        self.used.update(names)
        return self.by_name[names[0]].value.strip() if names else None

    def name_of(self, *keys: str) -> str | None:
        """Returns the name in the file of the first of these keys that is set."""
        return next((name for name in self._names(keys) if name in self.by_name), None)

    def flag(self, default: bool, *keys: str) -> bool:
        value = self.text(*keys)
        return default if value is None else value.lower() == "true"

    def seconds(self, *keys: str) -> int | None:
        """Returns an interval in milliseconds, or None if it is not set or not a number."""
        seconds = self._number("seconds", keys)
        return None if seconds is None else seconds * 1000

    def milliseconds(self, *keys: str) -> int | None:
        return self._number("milliseconds", keys)

    def number(self, *keys: str) -> int | None:
        return self._number("", keys)

    def _number(self, unit: str, keys: tuple[str, ...]) -> int | None:
        value = self.text(*keys)
        if value is None or value.isdecimal():
            return None if value is None else int(value)
        self.note(keys, f"{value!r} is no number of {unit}" if unit else f"{value!r} is no number")
        return None

    def copies(self, *keys: str) -> int | None:
        """Returns a replication factor; None for 0 and -1, which leave it to the source or the broker."""
        return None if self.text(*keys) == "-1" else self._number("copies", keys) or None

    def listed(self, *keys: str) -> tuple[str, ...] | None:
        value = self.text(*keys)
        if value is None:
            return None
        return tuple(part.strip() for part in value.split(",") if part.strip())

    def note(self, keys: str | tuple[str, ...], reason: str, *, loss: bool = True) -> None:
        """Adds a note on the first of these keys that the file has."""
        keys = (keys,) if isinstance(keys, str) else keys
        name = self.name_of(*keys) or keys[0]
        self.used.add(name)
        line = self.by_name[name].line if name in self.by_name else 0
        note = ConversionNote(name, line, reason, loss, self.file)
        if note not in self.notes:
            self.notes.append(note)

    def rest(self) -> list[str]:
        """Returns the names that are not converted."""
        return [name for name in self.by_name if name not in self.used]

    def explain(self, name: str, key: str, rows: Iterable["NoCounterpart"]) -> None:
        """Adds the note of the first row for a key, which the file has under this name."""
        value = self.by_name[name].value.strip()
        row = next((row for row in rows if re.fullmatch(row.keys, key)), _NOTHING_SAID)
        if row.without_effect is None or not re.fullmatch(row.without_effect, value, re.IGNORECASE):
            self.note(name, row.reason.replace("{class}", value.rpartition(".")[2]), loss=row.loss)


@dataclass(frozen=True, slots=True)
class NoCounterpart:
    """A row of an importer's table: keys that become no key of ours, and the sentence that says why.

    `keys` is a regex of whole keys, of which the first row counts. `loss` is set if they have an effect that
    repl does not have. `without_effect` is a regex of values that ask for what repl does anyway, in any case
    of letters: of these there is no note. `{class}` in the reason is the class that the value names.
    """

    keys: str
    reason: str
    loss: bool = False
    without_effect: str | None = None


_NOTHING_SAID = NoCounterpart(".*", "it has no counterpart", loss=True)
# What MirrorMaker 2 and Replicator have alike. Each importer's own rows come before these.
CONNECT_ROWS = (
    NoCounterpart(r"exactly\.once\..*|transaction\.boundary.*", "every flow copies exactly once"),
    NoCounterpart(
        r"(.*\.)?producer\..*",
        "whole record batches are copied as they are, so there is nothing to tune here",
    ),
    NoCounterpart(r"(.*\.)?consumer\..*", "what the job reads by is chosen by itself"),
    NoCounterpart(r"(.*\.)?admin\..*", "--timeout and --lock-timeout are given with the command"),
    NoCounterpart(
        r"listeners.*|rest\..*|dedicated\..*|group\.id|plugin\..*|(key|value|header)\.converter.*|internal\..*"
        r"|connector\..*|scheduled\..*|task\..*|offset\.flush.*|worker\..*|rebalance\..*|session\..*|name"
        r"|config\.action\.reload|cluster\.(id|threads)",
        "there is no Connect worker: a job runs on Spark, jobs: says how",
    ),
    NoCounterpart(
        r"(.*\.)?sasl\.kerberos\..*",
        "tickets are got and renewed with the keytab, without kinit and its timers",
    ),
    NoCounterpart(
        r"(.*\.)?sasl\.(client|login)\.callback\.handler\.class",
        "sasl.mechanism and its keys say how to log in: the class {class} has no counterpart",
        loss=True,
        without_effect=r".*\.IAMClientCallbackHandler|.*\.IAMOAuthBearerLoginCallbackHandler",
    ),
    NoCounterpart(r"config\.providers.*", "a secret is {env: VARIABLE} or {file: path}"),
    NoCounterpart(
        r"metric.*|metrics\..*|auto\.include\.jmx.*", "jobs.<name>.metrics is the Prometheus endpoint"
    ),
    NoCounterpart(
        r"ssl\.(protocol|provider|enabled\.protocols|cipher\.suites|.*manager.*|secure.*|engine.*)",
        "what OpenSSL chooses is used; ssl.cipher.suites takes OpenSSL's names",
        loss=True,
    ),
    NoCounterpart(
        r"sasl\..*", "it has no counterpart among librdkafka's settings that are used here", loss=True
    ),
)


def java_regex_problem(pattern: str) -> str | None:
    """Returns why a regex of Java can't be used as it is; None where it can."""
    if written_out(pattern) is not None:
        return None
    try:
        regex(pattern)
    except UnreadableRegex as wrong:
        return f"the regex of Java {pattern} {wrong.what}: {wrong.hint}; repl validate shows where"
    return None


# Java's name → librdkafka's, where the value means the same.
_SAME = {
    "security.protocol": "security.protocol",
    "sasl.kerberos.service.name": "sasl.kerberos.service.name",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.oauthbearer.token.endpoint.url": "sasl.oauthbearer.token.endpoint.url",
    "client.id": "client.id",
    "client.rack": "client.rack",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
}
_SECRETS = {"ssl.key.password": "ssl.key.password", "ssl.keystore.key": "ssl.key.pem"}
CLIENT_KEYS = frozenset(
    {
        *_SAME,
        *_SECRETS,
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "ssl.endpoint.identification.algorithm",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.password",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.password",
    }
)
_IAM_HANDLER = ".IAMOAuthBearerLoginCallbackHandler"
_LOGIN_MODULE = re.compile(r"\s*(?P<module>[\w.]+)\s+\w+(?P<options>[^;]*);?\s*")
_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|(\S+))""")
_REFERENCE = re.compile(r"\$\{(?P<provider>\w+):(?P<where>.*)\}")
_USER = re.compile(r"(?<=://)[^/?#]*@")  # in a URL
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def client_of(cluster: str, keys: PropertyKeys, names: Mapping[str, str]) -> dict[str, Setting]:
    """Converts client settings; `names` maps each client key to the key of the file that sets it."""
    client: dict[str, Setting] = {}
    for key, ours in _SAME.items():
        if key in names and (value := keys.text(names[key])):
            if key == "sasl.oauthbearer.token.endpoint.url" and _USER.search(value):
                keys.note(
                    names[key], "user and password in it are not copied: the client's id and secret are"
                )
                value = _USER.sub("", value)
            if _REFERENCE.fullmatch(value) and ours not in CREDENTIALS:
                keys.note(
                    names[key], "a config provider gives its value: write it out, for only credentials refer"
                )
            else:
                client[ours] = _value(cluster, ours, value)
    for key, ours in _SECRETS.items():
        if key in names and (value := keys.text(names[key])):
            client[ours] = _secret(cluster, ours, value, keys, names[key])
    if "ssl.endpoint.identification.algorithm" in names:
        algorithm = keys.text(names["ssl.endpoint.identification.algorithm"])
        client["ssl.endpoint.identification.algorithm"] = algorithm or "none"
    handler = names.get("sasl.login.callback.handler.class", "")
    iam = bool(handler) and keys.by_name[handler].value.strip().endswith(_IAM_HANDLER)
    if iam:
        keys.used.add(handler)
        client["sasl.mechanism"] = MSK_IAM
    if "sasl.jaas.config" in names:
        client |= _login(cluster, keys, names["sasl.jaas.config"], iam)
    client |= _store(cluster, keys, names, "ssl.truststore", "ssl.ca.location")
    client |= _store(cluster, keys, names, "ssl.keystore", "ssl.certificate.location", "ssl.key.location")
    return dict(sorted(client.items()))


def _login(cluster: str, keys: PropertyKeys, name: str, iam: bool) -> dict[str, Setting]:
    written = _LOGIN_MODULE.fullmatch(keys.text(name) or "")
    if written is None:
        keys.note(
            name, "is no login configuration that can be read here: set sasl.username and sasl.password"
        )
        return {}
    options = {
        key: double or single or bare for key, double, single, bare in _OPTION.findall(written["options"])
    }

    def value(key: str, option: str) -> Setting:
        return _value(cluster, key, options.get(option, ""))

    def secret(key: str, option: str) -> Setting:
        return _secret(cluster, key, options.get(option, ""), keys, name)

    match "IAMLoginModule" if iam else written["module"].rpartition(".")[2]:
        case "PlainLoginModule" | "ScramLoginModule":
            return {
                "sasl.username": value("sasl.username", "username"),
                "sasl.password": secret("sasl.password", "password"),
            }
        case "OAuthBearerLoginModule":
            return {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": value("sasl.oauthbearer.client.id", "clientId"),
                "sasl.oauthbearer.client.secret": secret("sasl.oauthbearer.client.secret", "clientSecret"),
                **({"sasl.oauthbearer.scope": options["scope"]} if "scope" in options else {}),
            }
        case "Krb5LoginModule":
            keytab = options.get("useKeyTab", "false").lower() == "true"
            taken = {
                "sasl.kerberos.keytab": options.get("keyTab") if keytab else None,
                "sasl.kerberos.principal": options.get("principal"),
                "sasl.kerberos.service.name": options.get("serviceName"),
            }
            return {key: _value(cluster, key, text) for key, text in taken.items() if text}
        case "IAMLoginModule":
            if "awsProfileName" in options:
                keys.note(name, "set the environment variable AWS_PROFILE where repl and its jobs run")
            elif "awsStsRegion" in options:
                keys.note(name, "awsStsRegion has no counterpart: STS is asked in the cluster's region")
            taken = {
                "sasl.aws.role.arn": options.get("awsRoleArn"),
                "sasl.aws.role.session.name": options.get("awsRoleSessionName"),
            }
            if any(_REFERENCE.fullmatch(text) for text in taken.values() if text):
                keys.note(name, "a config provider gives its role: write it out, for only credentials refer")
                return {}
            return {key: text for key, text in taken.items() if text}
        case module:
            keys.note(name, f"{module} has no counterpart: PLAIN, SCRAM, OAUTHBEARER, GSSAPI and IAM have")
            return {}


def _store(
    cluster: str, keys: PropertyKeys, names: Mapping[str, str], store: str, *pem: str
) -> dict[str, Setting]:
    """Returns the settings of a store; those of `pem` for one that is a PEM file."""
    kind = (keys.text(names[f"{store}.type"]) if f"{store}.type" in names else None) or "JKS"
    secret = f"{store}.password"
    password = keys.text(names[secret]) if secret in names else None
    if f"{store}.location" not in names:
        return {}
    name = names[f"{store}.location"]
    location = keys.text(name) or ""
    if kind.upper() == "PEM" or location.endswith(".pem"):
        return dict.fromkeys(pem, location)
    if kind.upper() != "PKCS12" and not location.endswith((".p12", ".pfx")):
        why, convert = java_store_problem(location)
        keys.note(
            name, f"keytool has written PKCS #12 since Java 9; if the file {why}, {convert}", loss=False
        )
    taken: dict[str, Setting] = {f"{store}.location": location}
    if password:
        taken[secret] = _secret(cluster, secret, password, keys, names[secret])
    return taken


def _value(cluster: str, key: str, value: str) -> Setting:
    """Returns the value; of one that a config provider of Kafka fills in, the variable to set for it."""
    reference = _REFERENCE.fullmatch(value)
    if reference is None:
        return value
    name = reference["where"].rpartition(":")[2]
    own = reference["provider"] == "env" and _ENV_NAME.fullmatch(name)
    return {"env": name if own else secret_variable(cluster, key)}


def _secret(cluster: str, key: str, value: str, keys: PropertyKeys, name: str) -> Setting:
    """Returns the variable to set for a secret, and notes that the secret is not copied."""
    referred = _value(cluster, key, value)
    if isinstance(referred, str):
        referred = {"env": secret_variable(cluster, key)}
    keys.note(name, f"its secret is not copied: set the environment variable {referred['env']}", loss=False)
    return referred


def unused(names: Sequence[str], is_taken: Callable[[str], bool]) -> str:
    """Returns the first of these names that is not taken; where all are, the last one with a number."""
    numbered = (f"{names[-1]}-{number}" for number in count(2))
    return next(name for name in chain(names, numbered) if not is_taken(name))
