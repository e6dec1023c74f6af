"""Holds what the importers of MirrorMaker 2 and of Confluent Replicator share: both run on Kafka Connect.

Here are Java's properties files, the keys of a file and the notes on keys without a counterpart, and the
client settings in Java's names. What only one of the two products knows belongs to `mm2` or `replicator`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from planner.model.topology import SecretRef, Setting, Topology, secret_variable
from runtime.contract.client.keys import CREDENTIALS
from runtime.contract.spec.selection import UnreadableRegex, regex, written_out

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE = re.compile(r"[0-9A-Fa-f]{4}")


@dataclass(frozen=True, slots=True)
class Property:
    key: str
    value: str
    line: int


def properties_of(text: str) -> list[Property]:
    """Returns the properties as java.util.Properties reads them: of equal keys the last one wins."""
    found: dict[str, Property] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        found[key] = Property(key, value, number)
    return list(found.values())


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
class ConnectWorkers:
    """The Connect workers that run one flow: their group, and the topic that holds their positions.

    Both are at the flow's destination. `alias` is the name of the source cluster in that topic.
    """

    offsets_topic: str
    alias: str
    group: str


@dataclass(frozen=True, slots=True)
class ConvertedTopology:
    """A topology, and a note on each key of the files that has no counterpart or needs a remark.

    `workers` are those of each flow of MirrorMaker 2.
    """

    topology: Topology
    notes: tuple[ConversionNote, ...]
    workers: Mapping[str, ConnectWorkers] = field(default_factory=dict)


@dataclass(slots=True)
class PropertyKeys:
    """The keys of the file, and which of them are converted."""

    by_name: Mapping[str, Property]
    file: str = ""
    notes: list[ConversionNote] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def text(self, *names: str) -> str | None:
        """Returns the first of these keys that is set, and marks all of them as converted."""
        found = None
        for name in names:
            if name in self.by_name:
                self.used.add(name)
                found = self.by_name[name].value.strip() if found is None else found
        return found

    def name_of(self, *names: str) -> str | None:
        return next((name for name in names if name in self.by_name), None)

    def flag(self, default: bool, *names: str) -> bool:
        value = self.text(*names)
        return default if value is None else value.lower() == "true"

    def seconds(self, *names: str) -> int | None:
        """Returns an interval in milliseconds, or None if it is not set or not a number."""
        found = self._number("seconds", names)
        return None if found is None else found * 1000

    def milliseconds(self, *names: str) -> int | None:
        return self._number("milliseconds", names)

    def number(self, *names: str) -> int | None:
        return self._number("", names)

    def _number(self, unit: str, names: tuple[str, ...]) -> int | None:
        value = self.text(*names)
        if value is None:
            return None
        if not value.isdecimal():
            self.note(
                self.name_of(*names) or names[0],
                f"{value!r} is no number of {unit}" if unit else f"{value!r} is no number",
            )
            return None
        return int(value)

    def copies(self, *names: str) -> int | None:
        """Returns a replication factor; None for 0 and -1, which leave it to the source or the broker."""
        return None if self.text(*names) == "-1" else self._number("copies", names) or None

    def listed(self, *names: str) -> tuple[str, ...] | None:
        value = self.text(*names)
        if value is None:
            return None
        return tuple(part.strip() for part in value.split(",") if part.strip())

    def note(self, key: str, reason: str, *, loss: bool = True) -> None:
        self.used.add(key)
        line = self.by_name[key].line if key in self.by_name else 0
        one = ConversionNote(key, line, reason, loss, self.file)
        if one not in self.notes:
            self.notes.append(one)

    def rest(self) -> list[Property]:
        """Returns the keys that are not converted."""
        return [one for name, one in self.by_name.items() if name not in self.used]


@dataclass(frozen=True, slots=True)
class FlowPropertyKeys:
    """The keys of one flow: its own (`A->B.topics`) come before those of all flows (`topics`)."""

    keys: PropertyKeys
    prefix: str

    def _names(self, settings: tuple[str, ...]) -> tuple[str, ...]:
        return (*(f"{self.prefix}{one}" for one in settings), *settings)

    def text(self, *settings: str) -> str | None:
        return self.keys.text(*self._names(settings))

    def flag(self, default: bool, *settings: str) -> bool:
        return self.keys.flag(default, *self._names(settings))

    def seconds(self, *settings: str) -> int | None:
        return self.keys.seconds(*self._names(settings))

    def copies(self, *settings: str) -> int | None:
        return self.keys.copies(*self._names(settings))

    def listed(self, *settings: str) -> tuple[str, ...] | None:
        return self.keys.listed(*self._names(settings))

    def note(self, settings: tuple[str, ...], reason: str) -> None:
        """Adds a note on the first of these settings that the file has."""
        self.keys.note(self.keys.name_of(*self._names(settings)) or settings[0], reason)


# A regex for whole keys, the reason, and whether something that was wanted is not done.
Reason = tuple[str, str, bool]

NO_WORKER = "there is no Connect worker: a job runs on Spark, jobs: says how"
CLIENT_REASONS: tuple[Reason, ...] = (
    (r"(.*\.)?sasl\.kerberos\..*", "Kerberos is not supported: PLAIN, SCRAM and OAUTHBEARER are", True),
    (r"config\.providers.*", "a secret is {env: VARIABLE} or {file: path}", False),
    (r"metric.*|metrics\..*|auto\.include\.jmx.*", "jobs.<name>.metrics is the Prometheus endpoint", False),
    (
        r"ssl\.(protocol|provider|enabled\.protocols|cipher\.suites|.*manager.*|secure.*|engine.*)",
        "what OpenSSL chooses is used; ssl.cipher.suites takes OpenSSL's names",
        True,
    ),
    (r"sasl\..*", "it has no counterpart among librdkafka's settings that are used here", True),
)


def first_reason(key: str, reasons: Iterable[Reason]) -> tuple[str, bool]:
    """Returns the reason of the first regex that matches the whole key, and whether something is lost."""
    for pattern, reason, loss in reasons:
        if re.fullmatch(pattern, key):
            return reason, loss
    return "it has no counterpart", True


def java_regex_problem(pattern: str) -> str | None:
    """Returns why a regex of Java can't be used as it is, or None where it can."""
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
_ABOUT_STORES = ("ssl.truststore.", "ssl.keystore.")
CLIENT_KEYS = frozenset(
    {
        *_SAME,
        *_SECRETS,
        "sasl.jaas.config",
        "ssl.endpoint.identification.algorithm",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.password",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.password",
    }
)
_LOGIN_MODULE = re.compile(r"\s*(?P<module>[\w.]+)\s+\w+(?P<options>[^;]*);?\s*")
_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|(\S+))""")
_REFERENCE = re.compile(r"\$\{(?P<provider>\w+):(?P<where>.*)\}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def client_of(cluster: str, keys: PropertyKeys, names: Mapping[str, str]) -> dict[str, Setting]:
    """Converts client settings; `names` maps each client key to the key of the file that sets it."""
    found: dict[str, Setting] = {}
    for key, theirs in _SAME.items():
        if key in names and (value := keys.text(names[key])):
            if _REFERENCE.fullmatch(value) and theirs not in CREDENTIALS:
                keys.note(
                    names[key], "a config provider gives its value: write it out, for only credentials refer"
                )
            else:
                found[theirs] = _value(cluster, theirs, value)
    for key, theirs in _SECRETS.items():
        if key in names and (value := keys.text(names[key])):
            found[theirs] = _secret(cluster, theirs, value)
            _say_secret(keys, names[key], found[theirs])
    if "ssl.endpoint.identification.algorithm" in names:
        algorithm = keys.text(names["ssl.endpoint.identification.algorithm"])
        found["ssl.endpoint.identification.algorithm"] = algorithm or "none"
    if "sasl.jaas.config" in names:
        found |= _login(cluster, keys, names["sasl.jaas.config"])
    found |= _truststore(keys, names) | _keystore(keys, names)
    return dict(sorted(found.items()))


def _login(cluster: str, keys: PropertyKeys, name: str) -> dict[str, Setting]:
    text = keys.text(name) or ""
    read = _LOGIN_MODULE.fullmatch(text)
    if read is None:
        keys.note(
            name, "is no login configuration that can be read here: set sasl.username and sasl.password"
        )
        return {}
    options = {
        key: double or single or bare for key, double, single, bare in _OPTION.findall(read["options"])
    }
    match read["module"].rpartition(".")[2]:
        case "PlainLoginModule" | "ScramLoginModule":
            password = _secret(cluster, "sasl.password", options.get("password", ""))
            _say_secret(keys, name, password)
            return {
                "sasl.username": _value(cluster, "sasl.username", options.get("username", "")),
                "sasl.password": password,
            }
        case "OAuthBearerLoginModule":
            secret = _secret(cluster, "sasl.oauthbearer.client.secret", options.get("clientSecret", ""))
            _say_secret(keys, name, secret)
            found: dict[str, Setting] = {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": _value(
                    cluster, "sasl.oauthbearer.client.id", options.get("clientId", "")
                ),
                "sasl.oauthbearer.client.secret": secret,
            }
            if "scope" in options:
                found["sasl.oauthbearer.scope"] = options["scope"]
            return found
        case module:
            keys.note(name, f"{module} has no counterpart: PLAIN, SCRAM and OAUTHBEARER are spoken")
            return {}


def _truststore(keys: PropertyKeys, names: Mapping[str, str]) -> dict[str, Setting]:
    location = _location(keys, names, "ssl.truststore", "its certificates")
    return {} if location is None else {"ssl.ca.location": location}


def _keystore(keys: PropertyKeys, names: Mapping[str, str]) -> dict[str, Setting]:
    location = _location(keys, names, "ssl.keystore", "its certificate and key")
    return {} if location is None else {"ssl.certificate.location": location, "ssl.key.location": location}


def _location(keys: PropertyKeys, names: Mapping[str, str], store: str, what: str) -> str | None:
    """Returns the path of a PEM file. For a Java store it is a PEM file beside it, which must be made."""
    kind = keys.text(names[f"{store}.type"]) if f"{store}.type" in names else None
    if f"{store}.password" in names:
        keys.used.add(names[f"{store}.password"])
    if f"{store}.location" not in names:
        return None
    name = names[f"{store}.location"]
    location = keys.text(name) or ""
    if (kind or "JKS").upper() == "PEM" or location.endswith(".pem"):
        return location
    pem = f"{location.rpartition('.')[0] or location}.pem"
    keys.note(name, f"a Java store is not read: export {what} as PEM (keytool, then openssl) to {pem}")
    return pem


def _value(cluster: str, key: str, value: str) -> Setting:
    """Returns the reference for a value that one of Kafka's config providers fills in."""
    reference = _REFERENCE.fullmatch(value)
    return value if reference is None else _referred(cluster, key, reference)


def _secret(cluster: str, key: str, value: str) -> SecretRef:
    reference = _REFERENCE.fullmatch(value)
    if reference is None:
        return SecretRef("env", secret_variable(cluster, key))
    return _referred(cluster, key, reference)


def _referred(cluster: str, key: str, reference: re.Match[str]) -> SecretRef:
    name = reference["where"].rpartition(":")[2]
    if reference["provider"] == "env" and _ENV_NAME.fullmatch(name):
        return SecretRef("env", name)
    return SecretRef("env", secret_variable(cluster, key))


def _say_secret(keys: PropertyKeys, name: str, secret: Setting) -> None:
    assert isinstance(secret, SecretRef)
    keys.note(name, f"its secret is not copied: set the environment variable {secret.name}", loss=False)
