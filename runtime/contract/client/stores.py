"""Defines how an object store is reached: its address, and the settings of its client.

An address is `s3a://BUCKET/PREFIX` (or `s3://`), `gs://BUCKET/PREFIX`, or
`abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX` (or `abfss://`), with or without a prefix. The settings
of each kind of store are the whole allow-list: one that is not listed is refused. Without credentials among
them, those that the machine has are used: its environment, its profile, or its role.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal
from urllib.parse import unquote

import msgspec
from msgspec import Meta, Struct

from runtime.contract.client.web_address import WebAddress, web_address

REGION: Final = "region"
ENDPOINT: Final = "endpoint"
ACCESS_KEY: Final = "access.key"
SECRET_KEY: Final = "secret.key"  # noqa: S105 - the name of a key
SESSION_TOKEN: Final = "session.token"  # noqa: S105 - the name of a key
SERVICE_ACCOUNT_KEY: Final = "service.account.key"
ACCOUNT_KEY: Final = "account.key"
SAS_TOKEN: Final = "sas.token"  # noqa: S105 - the name of a key
CA_LOCATION: Final = "ssl.ca.location"
# These must be references; only they and the access key may be.
SECRETS: Final = frozenset({SECRET_KEY, SESSION_TOKEN, SERVICE_ACCOUNT_KEY, ACCOUNT_KEY, SAS_TOKEN})
CREDENTIALS: Final = SECRETS | {ACCESS_KEY}
LOCATIONS: Final = frozenset({CA_LOCATION})


class StoreKind(Struct, frozen=True):
    """A kind of object store: its schemes, an address as an example, and the settings of its client.

    `credential` is the setting that error texts name, `rights` are those that a reader and writer needs,
    `reusable` are the credentials that requests carry as they are: without TLS, others can use them.
    """

    schemes: tuple[str, ...]
    example: str
    keys: tuple[str, ...]
    credential: str
    rights: str
    reusable: str
    container: str = "bucket"


S3: Final = StoreKind(
    schemes=("s3a", "s3"),
    example="s3a://bucket/prefix",
    keys=(REGION, ENDPOINT, ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, CA_LOCATION),
    credential=ACCESS_KEY,
    rights="s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject",
    reusable="a session.token",
)
GCS: Final = StoreKind(
    schemes=("gs",),
    example="gs://bucket/prefix",
    keys=(ENDPOINT, SERVICE_ACCOUNT_KEY, CA_LOCATION),
    credential=SERVICE_ACCOUNT_KEY,
    rights="storage.objects.list, .get, .create and .delete",
    reusable="a bearer token (of service.account.key or of the machine's own credentials)",
)
AZURE: Final = StoreKind(
    schemes=("abfs", "abfss"),
    example="abfs://container@account.dfs.core.windows.net/prefix",
    keys=(ENDPOINT, ACCOUNT_KEY, SAS_TOKEN, CA_LOCATION),
    credential=ACCOUNT_KEY,
    rights="the role Storage Blob Data Contributor",
    reusable="the sas.token, or a bearer token of the machine's own credentials",
    container="container",
)
KINDS: Final = (S3, GCS, AZURE)
KEYS: Final = tuple(dict.fromkeys(key for kind in KINDS for key in kind.keys))

# A setting of a client is text, or a reference: {"env": VARIABLE} or {"file": path}.
Reference = dict[Literal["env", "file"], str]
Setting = str | Annotated[Reference, Meta(min_length=1, max_length=1)]

MOST_BYTES: Final = 4 << 30  # of an object: a store copies at most 5 GB at once
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_GOOGLE_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_CONTAINER: Final = re.compile(r"(?=.{3,63}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
# One form of each name: no final dot, and no empty part.
_ACCOUNT: Final = re.compile(r"[a-z0-9]{3,24}\.dfs\.(?=.{4,100}\Z)[a-z0-9-]+(?:\.[a-z0-9-]+)*")
_NAMES: Final = {"s3a": _BUCKET, "gs": _GOOGLE_BUCKET, "abfs": _CONTAINER}
_PREFIX: Final = re.compile(r"[A-Za-z0-9._=+@-]+")
_REGION: Final = re.compile(r"[a-z0-9-]{1,64}")
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN (RSA )?PRIVATE KEY-----\s")
_DEFAULT_REGION: Final = "us-east-1"


class StoreAddress(Struct, frozen=True):
    """Names a bucket, and the prefix of all names in it: "" for the whole bucket.

    `host` is that of an Azure account: `account.dfs.core.windows.net`.
    """

    scheme: str
    bucket: str
    prefix: str = ""
    host: str = ""

    def __str__(self) -> str:
        at = f"@{self.host}" if self.host else ""
        return f"{self.scheme}://{self.bucket}{at}/{self.prefix}".rstrip("/")

    @property
    def kind(self) -> StoreKind:
        return next(kind for kind in KINDS if self.scheme in kind.schemes)

    @property
    def account(self) -> str:
        """The name of the Azure account."""
        return self.host.partition(".")[0]


def is_store(address: str) -> bool:
    """Returns whether this is the address of an object store, and not the path of a folder."""
    scheme, mark, _ = address.partition("://")
    return bool(mark) and any(scheme in kind.schemes for kind in KINDS)


def store_address(address: str) -> StoreAddress:
    """Returns the parts of an address without a problem; schemes that mean the same are one."""
    scheme, _, rest = address.partition("://")
    place, _, prefix = rest.partition("/")
    kind = next(kind for kind in KINDS if scheme in kind.schemes)
    bucket, _, host = place.partition("@") if kind is AZURE else (place, "", "")
    return StoreAddress(kind.schemes[0], bucket, prefix.strip("/"), host)


def address_problem(address: str) -> tuple[str, str] | None:
    """Returns what is wrong with the address of a store, and the way out."""
    at = store_address(address)
    hint = f"write {at.kind.example}"
    if not _NAMES[at.kind.schemes[0]].fullmatch(at.bucket):
        return f"{address} names no {at.kind.container}", hint
    if at.kind is AZURE and not _ACCOUNT.fullmatch(at.host):
        return f"{address} names no account", hint
    if len(at.prefix) > 512:
        return f"the prefix of {address} is longer than 512 characters", "write a shorter one"
    for part in at.prefix.split("/") if at.prefix else ():
        if part in (".", "..") or not _PREFIX.fullmatch(part):
            return f'{address} has a part "{part}" that is not allowed', hint
    return None


def reading_problem(address: str) -> tuple[str, str] | None:
    """Returns why no flow reads its files from this store, and the way out.

    obstore's listing fails as a whole where one key has an odd form, such as `a//b`: one such object would
    stop the flow. Pages of S3 are requested and parsed without it.
    """
    kind = store_address(address).kind
    if kind is S3:
        return None
    why = "one key of an odd form, such as a//b, makes its whole listing fail"
    hint = f"read from a bucket of a store that speaks S3 ({S3.example}), or from a folder (/mnt/inbox)"
    return f"no flow reads files from {kind.schemes[0]}://: {why}", hint


def client_problem(address: str, client: Mapping[str, object]) -> tuple[str, str, str] | None:
    """Returns the key with a problem, what is wrong with it, and the way out."""
    kind = store_address(address).kind
    for key, value in client.items():
        if key not in kind.keys:
            other = "belongs to another kind of object store"
            why = other if key in KEYS else "is no setting of an object store"
            return key, why, f"it takes {', '.join(kind.keys)}"
        if isinstance(value, str):
            if key == REGION and not _REGION.fullmatch(value):
                return key, "is no region", "write it as eu-central-1"
            endpoint = web_address(value) if key == ENDPOINT else None
            if key == ENDPOINT and (endpoint is None or endpoint.path not in ("", "/")):
                return key, "is no web address", "write it as https://host:9000"
        elif key not in CREDENTIALS:
            return key, "takes no reference: it carries no credential", "write its value out"
    if (ACCESS_KEY in client) != (SECRET_KEY in client):
        return (
            ACCESS_KEY if ACCESS_KEY in client else SECRET_KEY,
            "needs the other one of access.key and secret.key",
            "write both, or neither: then the machine's own credentials are used",
        )
    if SESSION_TOKEN in client and ACCESS_KEY not in client:
        return SESSION_TOKEN, "belongs to access.key and secret.key", "write these too, or remove it"
    if ACCOUNT_KEY in client and SAS_TOKEN in client:
        return SAS_TOKEN, "stands beside account.key", "write one of them"
    return None


class ServiceAccountKey(Struct, frozen=True):
    """The parts of a Google service account's key in JSON that are used. An address in it is not."""

    client_email: str
    private_key: str
    private_key_id: str
    disable_oauth: bool = False  # emulators have it: requests carry no token
    type: Literal["service_account"] = "service_account"


def credential_problem(key: str, value: str) -> tuple[str, str] | None:
    """Returns what is wrong with the value of a credential, and the way out. No text quotes the value."""
    match key:
        case "account.key":
            return _account_key_problem(value)
        case "sas.token":
            return _sas_problem(value)
        case "service.account.key":
            return _service_account_problem(value)
    return None


def _account_key_problem(value: str) -> tuple[str, str] | None:
    try:
        is_key = bool(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        is_key = False
    hint = "give key1 or key2 of the storage account, as Azure shows it"
    return None if is_key else ("is not in base64", hint)


def _sas_problem(value: str) -> tuple[str, str] | None:
    hint = "give the query string that Azure shows as the SAS token: sv=…&sig=…"
    pairs = [pair.partition("=") for pair in value.removeprefix("?").split("&")]
    if "://" in value:
        return "is a whole web address, and no SAS token", hint
    if not all(name and mark for name, mark, _ in pairs):
        return "has a part that is not name=value", hint
    if not any(name == "sig" and text for name, _, text in pairs):
        return "has no signature (sig=…)", hint
    try:
        unquote(value, errors="strict")
    except UnicodeDecodeError:
        return "has a percent sequence that is no UTF-8", hint
    return None


def _service_account_problem(value: str) -> tuple[str, str] | None:
    hint = (
        "give the key in JSON, as Google's console writes it, for example with {file: /run/secrets/key.json}"
    )
    if not value.lstrip().startswith("{"):
        looks_like_path = value.startswith(("/", "./", "~")) or value.endswith(".json")
        why = "is the path of a file, and not the key in it" if looks_like_path else "is no JSON object"
        return why, hint
    try:
        account = msgspec.json.decode(value, type=ServiceAccountKey)
    except (msgspec.MsgspecError, RecursionError):
        why = "is no key of a service account: it is no valid JSON, or lacks client_email, private_key or"
        return f"{why} private_key_id, or its type is not service_account", hint
    if not account.disable_oauth and not _PRIVATE_KEY.search(account.private_key):
        return "has a private_key that is not in PEM (-----BEGIN PRIVATE KEY-----)", hint
    return None


def host_of(address: str, client: Mapping[str, object]) -> WebAddress:
    """Returns where requests go, by an address and settings without a problem."""
    endpoint = client.get(ENDPOINT)
    if isinstance(endpoint, str) and (written_out := web_address(endpoint)) is not None:
        return written_out
    at = store_address(address)
    if at.kind is GCS:
        return WebAddress("storage.googleapis.com", 443, True)
    if at.kind is AZURE:
        return WebAddress(at.host.replace(".dfs.", ".blob.", 1), 443, True)
    return WebAddress(f"s3.{client.get(REGION) or _DEFAULT_REGION}.amazonaws.com", 443, True)
