"""Resolves the references to secrets in a cluster's `client:` settings, and keeps the secrets out of texts.

This is the only code that reads the variable or file of a reference, in the planner and in a job's processes
alike. Before anything is read, the names of the settings, the addresses and the references are checked:
against the allow-list of `keys` and against the operator's three lists (`Allowances`). Those come from the
environment alone. A list that is not set has a default; a list that is set and empty allows nothing.

    REPL_ALLOW_ENV        names of variables, separated by commas; `DC1_*` stands for any name with that start
    REPL_ALLOW_FILES      folders, separated by commas
    REPL_ALLOW_BOOTSTRAP  host or host:port, separated by commas; `*` stands for any run of characters

A job's settings travel in the plan file, in the job spec, and in topics at the destination. Every client
that may read one of these can read the settings. So no setting of a job holds a secret (`secret_settings`).

librdkafka quotes a value that it refuses, and a broker may return a value that it received. Every value that
a reference resolved to is remembered here. Code that makes an error out of foreign text passes it through
`redacted`.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from runtime.contract.client import keys as client_keys
from runtime.contract.client import stores
from runtime.contract.client.keys import TOKEN_ENDPOINT_URL, token_endpoint_problem
from runtime.contract.client.settings import ClientSettingsError, parse_bootstrap
from runtime.contract.client.stores import Setting
from runtime.contract.client.web_address import PORTS, web_address

PLAN_KEY = "REPL_PLAN_KEY"  # the key that plans are signed with; no job inherits it
PLAN_KEY_FILE = "REPL_PLAN_KEY_FILE"
OPERATOR_KEYS = frozenset({PLAN_KEY, PLAN_KEY_FILE})
JOB_VARIABLES = "REPL_JOB_ENV_"  # a job gets such a variable without this beginning: its own value

SECRET_WORDS = re.compile(
    r"pass(word|wd|phrase)|secret|token(?!\.endpoint)|credential|jaas|user\.info|(^|[._])(key|keystore)\.pem$|api[._]?key",
    re.IGNORECASE,
)
# Keys of object stores under Spark's settings for Hadoop: fs.s3a.access.key, fs.azure.account.key.…
_STORE_KEYS = re.compile(
    r"(access|secret|account|private|encryption|sas)[._-]?key(\.|$)|\.sas\.", re.IGNORECASE
)
# Settings with such a name whose value is a path, a name, a class, a number or a switch.
_HARMLESS = re.compile(
    r"(file|path|provider|providers|enabled|bitlength|renewal|ratio|interval|wait|class|\.name|\.type|mapping)$"
    r"|\.secrets\.|secretkeyref\.|tokensecret\.(name|itemkey)$|secretname$|^spark\.redaction\.",
    re.IGNORECASE,
)
_JAVA_OPTION = re.compile(r"-D([^=\s]+)=\S")
SENSITIVE = "(sensitive value)"
# A shorter value is replaced only between quotes: elsewhere the replacement would break words.
_MIN_LENGTH = 6
_QUOTES = "\"'`"
_KEPT_TOKENS = 8  # of a source: each cluster of a process that uses it gets tokens of its own
_MIN_LINE_LENGTH = 16
_QUOTED_BY_LIBRDKAFKA = re.compile(r'Invalid value "(.*?)("(?= for configuration property)|\Z)', re.DOTALL)


def looks_secret(key: str) -> bool:
    """Returns whether the value of this key (`sasl.password`, `ssl.key.pem`, …) must never be shown."""
    return SECRET_WORDS.search(key) is not None


def secret_settings(conf: Mapping[str, str]) -> list[str]:
    """Returns the names of the Spark settings that hold a secret, never with a value."""
    return [
        key
        for key, value in sorted(conf.items())
        if value
        and any(
            _names_secret(name)
            for name in (_JAVA_OPTION.findall(value) if key.lower().endswith("javaoptions") else (key,))
        )
    ]


def _names_secret(key: str) -> bool:
    return _HARMLESS.search(key) is None and (looks_secret(key) or _STORE_KEYS.search(key) is not None)


class _Remembered:
    """Holds the remembered values, longest first, so that a value that contains another is replaced whole.

    Tokens are renewed for as long as a process runs, so of each source only the newest are kept. They are not
    part of the regular expression: `re` caches what it compiles, and would keep old tokens in memory.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._tokens: Mapping[Hashable, tuple[str, ...]] = {}

    def add_token(self, source: Hashable, token: str) -> None:
        with self._lock:
            older = [earlier for earlier in self._tokens.get(source, ()) if earlier != token]
            self._tokens = {**self._tokens, source: (*older, token)[-_KEPT_TOKENS:]}

    def add(self, value: str) -> None:
        lines = [line.strip() for line in value.splitlines()]
        more = {value, value.strip(), *(line for line in lines if len(line) >= _MIN_LINE_LENGTH)} - {""}
        with self._lock:
            if more <= self._values:
                return
            self._values |= more
            ordered = sorted(self._values, key=len, reverse=True)
            self._pattern = re.compile(
                "|".join(
                    re.escape(secret)
                    if len(secret) >= _MIN_LENGTH
                    else rf"(?<=[\"'`]){re.escape(secret)}(?=[\"'`])"
                    for secret in ordered
                )
            )

    def redacted(self, text: str) -> str:
        for tokens in self._tokens.values():
            for token in sorted(tokens, key=len, reverse=True):
                if len(token) >= _MIN_LENGTH:
                    text = text.replace(token, SENSITIVE)
                else:
                    for quote in _QUOTES:
                        text = text.replace(f"{quote}{token}{quote}", f"{quote}{SENSITIVE}{quote}")
        pattern = self._pattern
        return text if pattern is None else pattern.sub(SENSITIVE, text)


_REMEMBERED = _Remembered()


def remember(value: str) -> None:
    """Makes `redacted` hide this value, and each of its long lines, from now on."""
    _REMEMBERED.add(value)


def remember_token(source: Hashable, token: str) -> None:
    """Makes `redacted` hide this token, and the newest ones of the same source before it."""
    _REMEMBERED.add_token(source, token)


def redacted(text: str) -> str:
    """Returns the text with every remembered value replaced."""
    return _REMEMBERED.redacted(text)


def without_quoted_value(text: str) -> str:
    """Returns the error text of a client that could not be made, without the value that librdkafka quotes."""
    return redacted(_QUOTED_BY_LIBRDKAFKA.sub("Invalid value", text))


ALLOW_ENV = "REPL_ALLOW_ENV"
ALLOW_FILES = "REPL_ALLOW_FILES"
ALLOW_BOOTSTRAP = "REPL_ALLOW_BOOTSTRAP"
VARIABLES = (ALLOW_ENV, ALLOW_FILES, ALLOW_BOOTSTRAP)

# Secrets are usually mounted here.
USUAL_FOLDERS = ("/run/secrets", "/etc/repl")
# The system generates the content of these: the environment of processes, devices.
_GENERATED_FOLDERS = tuple(Path(folder) for folder in ("/proc", "/sys", "/dev"))
# Secrets of repl itself: no topology may use them.
_OWN_SECRETS = frozenset({"REPL_PLAN_KEY"})
MAX_BYTES = 2**20


def registry_address(url: str) -> tuple[str, int]:
    """Returns the host and the port that requests to a schema registry go to. Raises ClientSettingsError."""
    try:
        parts = urlsplit(url)
        if parts.hostname and parts.scheme in PORTS:
            return parts.hostname, parts.port or PORTS[parts.scheme]
    except ValueError:
        pass  # of the port
    raise ClientSettingsError("url", "is no web address", "write it as https://host:8081")


@dataclass(frozen=True, slots=True)
class Allowances:
    """Holds the operator's three lists. None stands for a list that is not set."""

    variables: tuple[str, ...] | None = None
    folders: tuple[str, ...] | None = None
    addresses: tuple[str, ...] | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Allowances:
        """Reads the lists from the environment."""
        return cls(*(_listed(environ.get(name)) for name in VARIABLES))

    def allows_variable(self, name: str) -> bool:
        """Returns whether a topology may use this environment variable."""
        if name in _OWN_SECRETS:
            return False
        return self.variables is None or any(
            name.startswith(variable[:-1]) if variable.endswith("*") else name == variable
            for variable in self.variables
        )

    def allows_address(self, host: str, port: int) -> bool:
        """Returns whether clients may connect to this address."""
        if self.addresses is None:
            return True
        return any(_matches(pattern, host, port) for pattern in self.addresses)

    def allows_file(self, path: Path, defaults: Iterable[Path] | None) -> bool:
        """Returns whether a file may be read, after its links are resolved.

        `defaults` are the folders that are allowed where the operator set no list; None stands for every
        folder.
        """
        real = path.resolve()
        if is_made_up(real):
            return False
        if self.folders is not None:
            folders: Iterable[Path] | None = [Path(folder) for folder in self.folders]
        else:
            folders = defaults
        return folders is None or any(real.is_relative_to(folder.resolve()) for folder in folders)


def is_made_up(path: Path) -> bool:
    """Returns whether the system generates the content of this path: processes, devices."""
    return any(path.is_relative_to(folder) for folder in _GENERATED_FOLDERS)


def not_set(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the lists that the operator has not set."""
    return tuple(name for name in VARIABLES if name not in environ)


def _listed(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)


def _matches(pattern: str, host: str, port: int) -> bool:
    """Matches `host`, `host:port`, `[v6]` or `[v6]:port`; case and a final dot do not count."""
    if pattern.startswith("["):
        wanted, _, rest = pattern[1:].partition("]")
        wanted_port = rest.removeprefix(":")
    elif pattern.count(":") > 1:
        wanted, wanted_port = pattern, ""
    else:
        wanted, _, wanted_port = pattern.partition(":")
    if wanted_port not in ("", "*") and wanted_port != str(port):
        return False
    parts = (re.escape(part) for part in _folded(wanted).split("*"))
    return re.fullmatch(".*".join(parts), _folded(host)) is not None


def _folded(host: str) -> str:
    return host.lower().removesuffix(".")


Value = Setting | int | float | bool | Mapping[str, str]


class ClientSecrets:
    """Reads the settings of clusters for one process.

    `folders` are where files may be read if REPL_ALLOW_FILES is not set; None allows every folder. A planner
    gives the topology's own folder, so that its author can name no other file. A job gives None: its spec was
    checked when it was planned.
    """

    def __init__(self, environ: Mapping[str, str], folders: Sequence[Path] | None = None) -> None:
        self._environ = environ
        self._allowed = Allowances.of(environ)
        self._folders = None if folders is None else (*folders, *(Path(folder) for folder in USUAL_FOLDERS))

    def resolve(self, bootstrap: str, client: Mapping[str, Value]) -> dict[str, str]:
        """Returns the text of every setting.

        Raises ClientSettingsError for the first one that can't be read.
        """
        self.check_all(bootstrap, client)
        return {key: self.text(key, value) for key, value in client.items()}

    def check_all(self, bootstrap: str, client: Mapping[str, Value]) -> None:
        """Checks every setting and reads nothing.

        Raises ClientSettingsError for the first one that is not allowed.
        """
        self.check_addresses(bootstrap, client)
        for key, value in client.items():
            self.check(key, value)

    def check_addresses(self, bootstrap: str, client: Mapping[str, Value]) -> None:
        """Checks the addresses to which credentials are sent: the brokers and the token endpoint."""
        for host, port in parse_bootstrap(bootstrap):
            self._check_address("bootstrap.servers", host, port)
        endpoint = client.get(TOKEN_ENDPOINT_URL)
        if isinstance(endpoint, str):
            url = web_address(endpoint)
            if url is None:
                raise ClientSettingsError(
                    TOKEN_ENDPOINT_URL, "is no web address", "write it as https://host/path"
                )
            problem = token_endpoint_problem(endpoint, self._environ)
            if problem is not None:
                raise ClientSettingsError(TOKEN_ENDPOINT_URL, *problem)
            self._check_address(TOKEN_ENDPOINT_URL, url.host, url.port)

    def resolve_store(self, address: str, client: Mapping[str, Value]) -> dict[str, str]:
        """Returns the text of every setting of an object store's client.

        Raises ClientSettingsError for the first one that can't be read.
        """
        self.check_store(address, client)
        settings = {key: self.text(key, value) for key, value in client.items()}
        for key, text in settings.items():
            if (problem := stores.credential_problem(key, text)) is not None:
                raise ClientSettingsError(key, *problem)
        return settings

    def check_store(self, address: str, client: Mapping[str, Value]) -> None:
        """Checks every setting of an object store's client, and the address that its requests go to.

        It reads nothing. Raises ClientSettingsError for the first one that is not allowed.
        """
        if (problem := stores.client_problem(address, client)) is not None:
            raise ClientSettingsError(*problem)
        at = stores.host_of(address, client)
        self._check_address(stores.ENDPOINT, at.host, at.port)
        for key, value in client.items():
            if key in stores.LOCATIONS:
                self._check_location(key, Path(str(value)))
            elif not isinstance(value, str):
                self._check_reference(key, value)

    def resolve_registry(self, url: str, client: Mapping[str, Value]) -> dict[str, str]:
        """Returns the text of every setting of a schema registry's client.

        Raises ClientSettingsError for the first one that can't be read.
        """
        self.check_registry(url, client)
        return {key: self.text(key, value) for key, value in client.items()}

    def check_registry(self, url: str, client: Mapping[str, Value]) -> None:
        """Checks every setting of a schema registry's client, and the address that its requests go to.

        It reads nothing. Raises ClientSettingsError for the first one that is not allowed.
        """
        self._check_address("url", *registry_address(url))
        for key, value in client.items():
            self.check(key, value)

    def _check_address(self, key: str, host: str, port: int) -> None:
        if not self._allowed.allows_address(host, port):
            raise ClientSettingsError(
                key,
                f"{host}:{port} is not among the addresses that this machine allows",
                f"the operator adds it to {ALLOW_BOOTSTRAP}",
            )

    def check(self, key: str, value: Value) -> None:
        """Checks one setting and its reference and reads nothing.

        Raises ClientSettingsError where it is not allowed.
        """
        refused = client_keys.refusal(key)
        if refused is not None:
            raise ClientSettingsError(key, refused.why, refused.hint)
        match value:
            case str() if key in client_keys.LOCATIONS:
                self._check_location(key, Path(value))
            case bool() | str() | int() | float():
                return
            case _ if key not in client_keys.CREDENTIALS:
                raise not_a_credential(key)
            case _:
                self._check_reference(key, value)

    def _check_reference(self, key: str, value: Value) -> None:
        match value:
            case {"env": str(name)} if isinstance(value, Mapping) and len(value) == 1:
                if not self._allowed.allows_variable(name):
                    raise ClientSettingsError(
                        key,
                        f"the environment variable {name} is not among those that a topology may use here",
                        f"the operator adds it to {ALLOW_ENV}",
                    )
            case {"file": str(path)} if isinstance(value, Mapping) and len(value) == 1:
                if not self._allowed.allows_file(Path(path), self._folders):
                    raise ClientSettingsError(
                        key,
                        f"the file {path} is in no folder that a topology may read here",
                        f"the operator adds its folder to {ALLOW_FILES}",
                    )
            case _:
                raise ClientSettingsError(key, "a reference is {env: VARIABLE} or {file: path}")

    def _check_location(self, key: str, path: Path) -> None:
        """Checks a file that the client itself reads.

        The client sends none of its content: where the operator set no list, any folder is allowed.
        """
        if "\0" in str(path):
            raise ClientSettingsError(key, "holds a NUL character, which no path has", "name another")
        if not self._allowed.allows_file(path, None):
            raise ClientSettingsError(
                key,
                f"{path} is in no folder that a topology may read here",
                f"the operator adds its folder to {ALLOW_FILES}",
            )
        try:
            mode = path.stat().st_mode
        except OSError:
            return  # the client reports the error itself
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise ClientSettingsError(key, f"{path} is neither a file nor a folder", "name another")

    def text(self, key: str, value: Value) -> str:
        """Returns the setting's text, and remembers secrets and resolved references. Call `check` first."""
        match value:
            case bool():
                return "true" if value else "false"
            case str() | int() | float():
                text = str(value)
                if key in client_keys.SECRETS or key in stores.SECRETS:
                    remember(text)
                return text
            case {"env": name}:
                text = self._variable(key, name)
            case {"file": path}:
                text = _contents(key, Path(path))
            case _:
                raise ClientSettingsError(key, "a reference is {env: VARIABLE} or {file: path}")
        remember(text)
        return text

    def _variable(self, key: str, name: str) -> str:
        text = self._environ.get(name)
        if text is None:
            raise ClientSettingsError(
                key, f"the environment variable {name} is not set", f"set {name} before running repl"
            )
        if not text:
            raise ClientSettingsError(key, f"the environment variable {name} is empty", f"set {name}")
        return text

    def token_command(self, cluster: str) -> str | None:
        """Returns the operator's command that prints OAUTHBEARER tokens for this cluster."""
        commands = (self._environ.get(name) for name in client_keys.token_command_variables(cluster))
        return next((command for command in commands if command), None)


def not_a_credential(key: str) -> ClientSettingsError:
    """Returns the error for a reference in another setting than a credential.

    References are for credentials alone: an error may quote the value of any other setting.
    """
    return ClientSettingsError(key, "takes no reference: it carries no credential", "write its value out")


def _contents(key: str, path: Path) -> str:
    """Returns the text of a regular file without the newline at its end."""
    try:
        # Opened without blocking: a named pipe would block the process until another one writes to it.
        descriptor = os.open(path.resolve(), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise ClientSettingsError(key, f"{path} is not a regular file", "name another")
            content = opened.read(MAX_BYTES + 1)
        text = content[:MAX_BYTES].decode("utf-8")
    except OSError as wrong:
        why = f"the file {path} can't be read: {wrong.strerror}"
        raise ClientSettingsError(key, why, "make it readable, or name another") from None
    except UnicodeDecodeError:
        raise ClientSettingsError(key, f"the file {path} is not text in UTF-8", "name another") from None
    if len(content) > MAX_BYTES:
        raise ClientSettingsError(key, f"the file {path} is larger than 1 MiB", "name another")
    stripped = text.removesuffix("\n").removesuffix("\r")
    if not stripped:
        raise ClientSettingsError(key, f"the file {path} is empty", "write the secret into it")
    return stripped
