"""Converts a cluster's client settings from Java's names to librdkafka's. Passwords become references."""

import re
from collections.abc import Mapping

from planner.config.connect.notes import PropertyKeys
from planner.model.topology import SecretRef, Setting, secret_variable
from runtime.contract.client.keys import CREDENTIALS

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
