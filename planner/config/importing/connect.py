"""Holds what the importers of MirrorMaker 2 and of Confluent Replicator share: both run on Kafka Connect.

Here are Java's properties files, keys with prefixes, and the client settings in Java's names. What only one
of the two products knows belongs to `mm2` or `replicator`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.config.importing.document import Fields, NoCounterpart, whole_number
from planner.config.yaml_tree import ScalarNode
from planner.model.diagnostic import SourceLocation
from planner.model.topology import secret_variable
from runtime.contract.client.keys import CREDENTIALS
from runtime.contract.client.settings import MSK_IAM, java_store_problem
from runtime.contract.client.stores import Setting
from runtime.contract.spec.selection import UnreadableRegex, regex, written_out

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE = re.compile(r"[0-9A-Fa-f]{4}")


def properties_of(text: str) -> dict[str, tuple[str, int]]:
    """Returns value and line of each key as java.util.Properties reads them: the last of equal keys wins."""
    return {key: (value, number) for number, line in _logical_lines(text) for key, value in (_split(line),)}


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


@dataclass(slots=True)
class Properties(Fields):
    """The keys of a properties file, or of a connector. Every value is a text.

    A key is looked up below each of `prefixes` in turn: a flow's own (`A->B.topics`) comes before that of all
    flows (`topics`). With `shows_others`, a key that another one comes before, and that has another value, is
    not converted.
    """

    prefixes: tuple[str, ...] = ("",)
    shows_others: bool = False

    def add(self, key: str, value: str, line: int) -> None:
        self.values[key] = ScalarNode(value.strip(), False, SourceLocation(self.file, line, 1))

    def below_any(self, *prefixes: str, shows_others: bool = False) -> "Properties":
        """Returns the same keys, looked up below these prefixes."""
        return replace(self, prefixes=prefixes, shows_others=shows_others)

    def names(self, *keys: str) -> list[str]:
        names = (f"{prefix}{key}" for prefix in self.prefixes for key in keys)
        return [name for name in names if name in self.values]

    def text(self, *names: str) -> str | None:
        """Returns the first of these keys that is set, and marks the others as converted, too."""
        texts = {
            name: node.text
            for name in self.names(*names)
            if isinstance(node := self.values[name], ScalarNode)
        }
        first = next(iter(texts.values()), None)
        self.used.update(name for name, text in texts.items() if text == first or not self.shows_others)
        return first

    def whole(self, *keys: str, unit: str = "") -> int | None:
        """Returns a whole number, or None if it is not set or not a number."""
        value = self.text(*keys)
        if value is None:
            return None
        number = whole_number(value)
        if number is None:
            self.note(keys, f"{value!r} is no number of {unit}" if unit else f"{value!r} is no number")
        return number

    def seconds(self, *keys: str) -> int | None:
        """Returns an interval in milliseconds, or None if it is not set or not a number."""
        seconds = self.whole(*keys, unit="seconds")
        return None if seconds is None else seconds * 1000

    def copies(self, *keys: str) -> int | None:
        """Returns a replication factor; None for 0 and -1, which leave it to the source or the broker."""
        return None if self.text(*keys) == "-1" else self.whole(*keys, unit="copies") or None

    def listed(self, *keys: str) -> tuple[str, ...] | None:
        value = self.text(*keys)
        return None if value is None else tuple(part.strip() for part in value.split(",") if part.strip())


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
_IAM_HANDLER = ".IAMOAuthBearerLoginCallbackHandler"
_LOGIN_MODULE = re.compile(r"\s*(?P<module>[\w.]+)\s+\w+(?P<options>[^;]*);?\s*")
_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|(\S+))""")
_REFERENCE = re.compile(r"\$\{(?P<provider>\w+):(?P<where>.*)\}")
_USER = re.compile(r"(?<=://)[^/?#]*@")  # in a URL
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def client_of(cluster: str, keys: Properties) -> dict[str, Setting]:
    """Converts client settings."""
    client: dict[str, Setting] = {}
    for key, ours in _SAME.items():
        if value := keys.text(key):
            if key == "sasl.oauthbearer.token.endpoint.url" and _USER.search(value):
                keys.note(key, "user and password in it are not copied: the client's id and secret are")
                value = _USER.sub("", value)
            if _REFERENCE.fullmatch(value) and ours not in CREDENTIALS:
                keys.note(key, "a config provider gives its value: write it out, for only credentials refer")
            else:
                client[ours] = _value(cluster, ours, value)
    for key, ours in _SECRETS.items():
        if value := keys.text(key):
            client[ours] = _secret(cluster, ours, value, keys, key)
    if (algorithm := keys.text("ssl.endpoint.identification.algorithm")) is not None:
        client["ssl.endpoint.identification.algorithm"] = algorithm or "none"
    handlers = [keys.values[name] for name in keys.names("sasl.login.callback.handler.class")]
    iam = any(isinstance(node, ScalarNode) and node.text.endswith(_IAM_HANDLER) for node in handlers[:1])
    if iam:
        client["sasl.mechanism"] = MSK_IAM
    if (login := keys.text("sasl.jaas.config")) is not None:
        client |= _login(cluster, keys, login, iam)
    client |= _store(cluster, keys, "ssl.truststore", "ssl.ca.location")
    client |= _store(cluster, keys, "ssl.keystore", "ssl.certificate.location", "ssl.key.location")
    return dict(sorted(client.items()))


def _login(cluster: str, keys: Properties, login: str, iam: bool) -> dict[str, Setting]:
    name = "sasl.jaas.config"
    written = _LOGIN_MODULE.fullmatch(login)
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


def _store(cluster: str, keys: Properties, store: str, *pem: str) -> dict[str, Setting]:
    """Returns the settings of a store; those of `pem` for one that is a PEM file."""
    kind = (keys.text(f"{store}.type") or "JKS").upper()
    secret, name = f"{store}.password", f"{store}.location"
    password, location = keys.text(secret), keys.text(name)
    if location is None:
        return {}
    if kind == "PEM" or location.endswith(".pem"):
        return dict.fromkeys(pem, location)
    if kind != "PKCS12" and not location.endswith((".p12", ".pfx")):
        why, convert = java_store_problem(location)
        keys.note(
            name, f"keytool has written PKCS #12 since Java 9; if the file {why}, {convert}", loss=False
        )
    taken: dict[str, Setting] = {name: location}
    if password:
        taken[secret] = _secret(cluster, secret, password, keys, secret)
    return taken


def _value(cluster: str, key: str, value: str) -> Setting:
    """Returns the value; of one that a config provider of Kafka fills in, the variable to set for it."""
    reference = _REFERENCE.fullmatch(value)
    if reference is None:
        return value
    name = reference["where"].rpartition(":")[2]
    is_variable = reference["provider"] == "env" and _ENV_NAME.fullmatch(name)
    return {"env": name if is_variable else secret_variable(cluster, key)}


def _secret(cluster: str, key: str, value: str, keys: Properties, name: str) -> Setting:
    """Returns the variable to set for a secret, and notes that the secret is not copied."""
    referred = _value(cluster, key, value)
    if isinstance(referred, str):
        referred = {"env": secret_variable(cluster, key)}
    keys.note(name, f"its secret is not copied: set the environment variable {referred['env']}", loss=False)
    return referred
