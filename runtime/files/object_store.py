"""The files of an endpoint in an object store, through obstore: S3, Google Cloud Storage or Azure.

A store has no rename: a file is moved by a copy and a deletion, which may be repeated. A file is created only
where there is none by a conditional put (`If-None-Match: *`); a store that ignores the condition is refused.
Every error becomes an OSError with one sentence for people, without credentials.
"""

from __future__ import annotations

import errno
import io
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar, cast

import msgspec
import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, InvalidPathError
from obstore.store import AzureStore, GCSStore, S3Store

from runtime.contract.client import stores
from runtime.contract.client.secrets import ClientSecrets, redacted
from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.client.stores import Setting, StoreAddress
from runtime.files.store import (
    MOST_READ,
    FileStore,
    NameTaken,
    NotExclusive,
    RangeReader,
    Upload,
    checked_name,
    too_long,
)

if TYPE_CHECKING:
    from obstore import WritableFile
    from obstore.store import S3Credential

_PART: Final = 5 << 20  # of an upload: with two in flight, an open file takes at most 15 MiB (R8)
_IN_FLIGHT: Final = 2
_READ: Final = 8 << 20
_AT_ONCE: Final = 16  # requests about several files
_DELETED_AT_ONCE: Final = 1_000
_WHOLE_SECOND: Final = timedelta(seconds=1)
_CONNECT: Final = timedelta(seconds=5)
_REQUEST: Final = timedelta(seconds=60)
_RETRIES: Final = 4
_RETRY: Final = timedelta(seconds=20)  # then the flow's own retries go on, and say why

_CODE: Final = re.compile(r"<Code>([A-Za-z0-9.]+)</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3})")
_T = TypeVar("_T")
_Store = S3Store | GCSStore | AzureStore
_R = TypeVar("_R")


class ObjectStore(FileStore):
    """A prefix of a bucket. Credentials are resolved when it is first used."""

    def __init__(
        self, address: str, client: Mapping[str, Setting], environ: Mapping[str, str] | None = None
    ) -> None:
        self._at = stores.store_address(address)
        self.rights = self._at.kind.rights
        self.address = str(self._at)
        self._client = client
        self._environ = environ
        self._lock = Lock()
        self._connected: _Store | None = None
        self._is_exclusive = False

    def check(self) -> None:
        """Where the bucket refuses, the next request resolves the credentials anew."""
        with self.explaining():
            try:
                next(iter(obstore.list(self._store(), chunk_size=1)), None)
            except InvalidPathError:
                return  # the bucket answers, with a key that obstore can't show
            except BaseError:
                with self._lock:
                    self._connected = None  # the variables or files of the credentials may have changed
                raise

    def check_exclusive(self, probe: str) -> None:
        """Puts one object twice under the condition: the second put must be refused."""
        if self._is_exclusive:
            return
        name = f"{probe}/probe-{uuid.uuid4().hex}"
        with self._named(name):
            try:
                obstore.put(self._store(), name, b"1", mode="create", use_multipart=False)
                try:
                    obstore.put(self._store(), name, b"2", mode="create", use_multipart=False)
                except AlreadyExistsError:
                    self._is_exclusive = True
            except (NotImplementedError, BaseError) as error:
                if _code_of(str(error)) not in ("NotImplemented", "501"):
                    raise
        self.remove_folder(probe)
        if not self._is_exclusive:
            raise NotExclusive(
                errno.ENOTSUP,
                "the store does not honour conditional puts (If-None-Match: *), without which two drivers"
                " could write the same commit: use a store that does",
                self.address,
            )

    def names(self, folder: str, after: str = "") -> list[str]:
        if after:
            with self._named(folder):
                behind = obstore.list(self._store(), folder, offset=f"{folder}/{after}").collect()
            return [meta["path"].rpartition("/")[2] for meta in behind]
        with self._named(folder):
            listing = obstore.list_with_delimiter(self._store(), folder)
            paths = [*listing["common_prefixes"], *(meta["path"] for meta in listing["objects"])]
        return [path.rpartition("/")[2] for path in paths]

    def read(self, name: str) -> bytes:
        with self._named(name):
            result = obstore.get(self._store(), name)
            if result.meta["size"] > MOST_READ:
                raise too_long(self.path(name))
            return bytes(result.bytes())

    def read_all(self, names: Sequence[str]) -> list[bytes]:
        return self._each(self.read, names)

    def open(self, name: str) -> BinaryIO:
        with self._named(name):
            size = obstore.head(self._store(), name)["size"]
        ranges = RangeReader(lambda start, length: self.read_range(name, start, length), size)
        return cast(BinaryIO, io.BufferedReader(ranges, _READ))

    def read_range(self, name: str, start: int, length: int) -> bytes:
        with self._named(name):
            return bytes(obstore.get_range(self._store(), name, start=start, length=length))

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        return self._each(self._size, names)

    def _size(self, name: str) -> int | None:
        try:
            with self._named(name):
                return obstore.head(self._store(), name)["size"]
        except FileNotFoundError:
            return None

    def add(self, name: str, text: bytes) -> None:
        """Creates an object. After an answer that got lost, it reads back what is there."""
        try:
            with self._named(name):
                try:
                    obstore.put(self._store(), name, text, mode="create", use_multipart=False)
                except AlreadyExistsError:
                    raise NameTaken(self.path(name)) from None
        except (NameTaken, OSError):
            with suppress(OSError):
                if self.read(name) == text:
                    return  # an earlier attempt of this very put has written it
            raise

    def upload(self, name: str) -> Upload:
        return _Upload(self, name)

    def writer(self, name: str) -> WritableFile:
        return obstore.open_writer(self._store(), name, buffer_size=_PART, max_concurrency=_IN_FLIGHT)

    def move(self, moves: Sequence[tuple[str, str]]) -> list[str]:
        """Copies all files, then deletes the old ones: one of them is there at any time."""
        for names in moves:
            for name in names:
                checked_name(name)
        copied = self._each(lambda move: self._copied(*move), moves)
        self.remove(old for (old, _), done in zip(moves, copied, strict=True) if done)
        return [new for (_, new), done in zip(moves, copied, strict=True) if not done]

    def _copied(self, old: str, new: str) -> bool:
        """Copies a file, or returns False where it is not there. Raises OSError for an unfinished copy."""
        try:
            with self._named(old):
                obstore.copy(self._store(), old, new)
                if self._at.kind is stores.AZURE:
                    # It may answer before it has copied, and the new blob is empty until then.
                    expected, size = (obstore.head(self._store(), each)["size"] for each in (old, new))
                    if size != expected:
                        what = f"the store has not finished the copy ({size} of {expected} bytes)"
                        raise OSError(errno.EBUSY, f"{what}: it is tried again", self.path(new))
        except FileNotFoundError:
            return False
        return True

    def remove(self, names: Iterable[str]) -> None:
        paths = [checked_name(name) for name in names]
        if self._at.kind is not stores.S3:  # only S3 deletes many at once, also those that are not there
            self._each(self._remove, paths)
            return
        for at in range(0, len(paths), _DELETED_AT_ONCE):
            with self.explaining():
                obstore.delete(self._store(), paths[at : at + _DELETED_AT_ONCE])

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError), self.explaining():
            obstore.delete(self._store(), path)

    def remove_older(self, folder: str, age_s: float, keep: Collection[str] = ()) -> int:
        """The clock is the store's: an object that is written now shows it."""
        with self._named(folder):
            objects = obstore.list(self._store(), folder).collect()
            if not objects:
                return 0
            probe = f"{folder}/.now"
            obstore.put(self._store(), probe, b"", use_multipart=False)
            # Listings of some stores have milliseconds, and the answer about one object has whole seconds.
            now = obstore.head(self._store(), probe)["last_modified"] + _WHOLE_SECOND
        old = [
            meta["path"]
            for meta in objects
            if meta["path"] != probe
            and meta["path"] not in keep
            and (now - meta["last_modified"]).total_seconds() >= age_s
        ]
        self.remove(old)
        return len(old)

    def remove_folder(self, folder: str) -> None:
        try:
            with self._named(folder):
                paths = [meta["path"] for meta in obstore.list(self._store(), folder).collect()]
            self.remove(paths)
        except OSError:
            return  # no commit names these files, and they are removed before a later round

    def _each(self, work: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
        if len(items) < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(min(_AT_ONCE, len(items)), "store") as pool:
            return list(pool.map(work, items))

    def _store(self) -> _Store:
        """Returns the client. Raises ClientSettingsError, OSError, BaseError."""
        with self._lock:
            if self._connected is None:
                self._connected = self._connect()
            return self._connected

    def _settings(self) -> dict[str, str]:
        """Returns the settings with their credentials. Raises ClientSettingsError."""
        environ = os.environ if self._environ is None else self._environ
        return ClientSecrets(environ).resolve_store(self.address, self._client)

    def _connect(self) -> _Store:
        settings = self._settings()
        options: dict[str, Any] = {
            "allow_http": not stores.host_of(self.address, settings).tls,
            "connect_timeout": _CONNECT,
            "timeout": _REQUEST,
        }
        if stores.CA_LOCATION in settings:
            options["root_certificate"] = Path(settings[stores.CA_LOCATION]).read_bytes()
        return _CONNECT_BY_KIND[self._at.kind.schemes[0]](
            self._at,
            settings,
            {
                "prefix": self._at.prefix or None,
                "client_options": options,
                "retry_config": {"max_retries": _RETRIES, "retry_timeout": _RETRY},
            },
        )

    def _named(self, name: str) -> AbstractContextManager[None]:
        """Checks the name of a request. Raises LeadsOutside where it could be a key outside of the prefix."""
        return self.explaining(checked_name(name))

    @contextmanager
    def explaining(self, name: str = "") -> Iterator[None]:
        """Converts the errors of obstore and of the settings into OSErrors that say what they mean."""
        try:
            yield
        except ClientSettingsError as error:
            what = f"client.{error.key}: {error.why}" + (f" ({error.hint})" if error.hint else "")
            raise OSError(errno.EACCES, redacted(what), self.address) from None
        except (BaseError, ValueError, NotImplementedError, OSError) as error:
            # obstore has built-in exceptions without a number for some errors.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            host = stores.host_of(self.address, self._client)
            number, text = explained(str(error), self._at, f"{host.host}:{host.port}", self.rights)
            where = self.path(name) if name and number == errno.ENOENT else self.address
            raise OSError(number, text if number == errno.ENOENT else redacted(text), where) from None


def _connect_s3(at: StoreAddress, settings: Mapping[str, str], more: Any) -> S3Store:
    config: dict[str, Any] = {}
    if stores.ENDPOINT in settings:
        config |= endpoint_of(settings[stores.ENDPOINT].rstrip("/"))
    if stores.REGION in settings:
        config["region"] = settings[stores.REGION]
    return S3Store(at.bucket, config=cast(Any, config), credential_provider=declared(settings), **more)


def _connect_gcs(at: StoreAddress, settings: Mapping[str, str], more: Any) -> GCSStore:
    # A key may name an address, too: only the endpoint decides where requests go.
    url = settings.get(stores.ENDPOINT, f"https://{stores.host_of(str(at), settings).host}")
    config = {"base_url": url.rstrip("/")}
    if stores.SERVICE_ACCOUNT_KEY not in settings:
        return GCSStore(at.bucket, config=cast(Any, config), **more)
    with _declared_account(settings[stores.SERVICE_ACCOUNT_KEY]) as account:
        try:
            return GCSStore(at.bucket, config=cast(Any, config | account), **more)
        except BaseError as error:
            if "CryptoProvider" not in str(error):
                raise
            why = "has a private_key that is no RSA key in PEM"
            hint = "give the key in JSON, as Google's console writes it"
            raise ClientSettingsError(stores.SERVICE_ACCOUNT_KEY, why, hint) from None


_ACCOUNT_PATHS: Final = ("SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH")
_ACCOUNT_KEY: Final = "GOOGLE_SERVICE_ACCOUNT_KEY"
_BEARER_TOKEN: Final = "GOOGLE_BEARER_TOKEN"  # noqa: S105 - the name of a variable


@contextmanager
def _declared_account(key: str) -> Iterator[dict[str, Any]]:
    """Yields the settings by which obstore uses this key, and none of the environment.

    obstore takes the variables of the environment for settings, and refuses a path beside a key. So where a
    variable names a path, the key is given by a path, too: that of a file without a name. Raises
    ClientSettingsError for variables that no setting overrides.
    """
    paths = [name for name in _ACCOUNT_PATHS if name in os.environ]
    in_the_way = [_BEARER_TOKEN] if _BEARER_TOKEN in os.environ else []
    if paths and _ACCOUNT_KEY in os.environ:
        in_the_way.append(_ACCOUNT_KEY)
    if in_the_way:
        why = f"can't be used beside the environment variable {' and '.join(in_the_way)}"
        raise ClientSettingsError(stores.SERVICE_ACCOUNT_KEY, why, "unset it where the job runs")
    text = msgspec.json.encode(msgspec.json.decode(key, type=stores.ServiceAccountKey))
    if not paths:
        yield {"service_account_key": text.decode(), "skip_signature": False}
        return
    with tempfile.TemporaryFile() as file:
        file.write(text)
        file.seek(0)
        yield {"service_account": f"/dev/fd/{file.fileno()}", "skip_signature": False}


def _connect_azure(at: StoreAddress, settings: Mapping[str, str], more: Any) -> AzureStore:
    url = f"https://{stores.host_of(str(at), settings).host}"
    if stores.ENDPOINT in settings:
        url = f"{settings[stores.ENDPOINT].rstrip('/')}/{at.account}"  # it names the account in the path
    config: Any = {"account_name": at.account, "endpoint": url, "use_emulator": False}
    credential: Any = None
    if stores.ACCOUNT_KEY in settings:
        credential = {"access_key": settings[stores.ACCOUNT_KEY], "expires_at": None}
    elif stores.SAS_TOKEN in settings:
        credential = {"sas_token": settings[stores.SAS_TOKEN], "expires_at": None}
    if credential is None:
        return AzureStore(at.bucket, config=config, **more)
    config["skip_signature"] = False  # whatever the environment says
    return AzureStore(at.bucket, config=config, credential_provider=lambda: credential, **more)


_CONNECT_BY_KIND: Final[Mapping[str, Callable[[StoreAddress, Mapping[str, str], Any], _Store]]] = {
    "s3a": _connect_s3,
    "gs": _connect_gcs,
    "abfs": _connect_azure,
}


def declared(settings: Mapping[str, str]) -> Callable[[], S3Credential] | None:
    """Returns the credentials that the endpoint declares; None for those of the machine.

    Given as a whole, no token of the environment is mixed with them: it belongs to other keys.
    """
    if stores.ACCESS_KEY not in settings:
        return None
    credential: S3Credential = {
        "access_key_id": settings[stores.ACCESS_KEY],
        "secret_access_key": settings[stores.SECRET_KEY],
        "expires_at": None,
    }
    if stores.SESSION_TOKEN in settings:
        credential["token"] = settings[stores.SESSION_TOKEN]
    return lambda: credential


def endpoint_of(url: str) -> dict[str, str]:
    """Returns the settings by which requests go to this address.

    The second name comes before the endpoint of the environment.
    """
    return {"endpoint": url, "aws_endpoint_url_s3": url}


class _Upload:
    """An object that is uploaded in parts. Nothing is visible before it is complete."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self._store, self._name = store, name
        with store.explaining(checked_name(name)):
            self._writer: WritableFile | None = store.writer(name)

    def write(self, text: bytes | memoryview) -> None:
        writer = self._writer
        if writer is None:
            raise OSError(errno.EIO, "an earlier part of the file could not be written", self._store.address)
        self._writer = None  # after a failure the writer must not be closed: it would write elsewhere
        with self._store.explaining(self._name):
            writer.write(text)
        self._writer = writer

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            raise OSError(errno.EIO, "an earlier part of the file could not be written", self._store.address)
        with self._store.explaining(self._name):
            writer.close()

    def discard(self) -> None:
        """Leaves what was not completed, which no reader sees. A lifecycle rule of the store removes it."""
        self._writer = None


def _code_of(text: str) -> str:
    """Returns S3's code of an error, or the HTTP status where there is none."""
    if (code := _CODE.search(text)) is not None:
        return code[1]
    status = _STATUS.search(text)
    return status[1] if status is not None else ""


_METADATA: Final = (
    "169.254.169.254",
    "169.254.170.2",
    "metadata.google.internal",
)  # where a machine asks for the credentials of its role
# What obstore says of credentials in variables, or in files that variables name.
_UNREADABLE: Final = (
    "service account file",
    "service account path or service account key",
    "CryptoProvider",
    "Invalid Access Key",
    "Missing component in SAS",
    "Failed parsing an SAS key",
)
# What the codes of S3 and Google, and those of Azure, mean.
_MEANINGS: Final[Sequence[tuple[frozenset[str], int, str]]] = (
    (
        frozenset({"NoSuchBucket", "ContainerNotFound"}),
        errno.ENXIO,
        "the {bucket} is not there: create it",
    ),
    (
        frozenset(
            {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
            | {"TokenRefreshRequired", "InvalidSecurity", "AuthenticationRequired"}
            | {"AuthenticationFailed", "InvalidAuthenticationInfo"}
        ),
        errno.EACCES,
        "the store refuses the credentials ({code})",
    ),
    (
        frozenset(
            {"AccessDenied", "AllAccessDisabled", "AccountProblem", "403", "401"}
            | {"AuthorizationFailure", "AuthorizationPermissionMismatch", "InsufficientAccountPermissions"}
        ),
        errno.EACCES,
        "access denied ({code}): the credentials need {rights}",
    ),
    (
        frozenset({"SlowDown", "ServiceUnavailable", "RequestLimitExceeded", "ServerBusy", "503", "429"}),
        errno.EBUSY,
        "the store has no capacity for more requests now ({code})",
    ),
    (
        frozenset({"PendingCopyOperation"}),  # of Azure, to another copy with the same destination
        errno.EBUSY,
        "the store has not finished an earlier copy to this name: it is tried again",
    ),
    (
        frozenset({"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "507"}),
        errno.ENOSPC,
        "no space left in the store ({code})",
    ),
    (
        frozenset(
            {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
        ),
        errno.EINVAL,
        "the {bucket} is in another region ({code}): name it with client.region",
    ),
    (frozenset({"NoSuchKey", "BlobNotFound", "404"}), errno.ENOENT, "the file is not there"),
)
# Words in the causes of an error, in the order in which they are looked for.
_CAUSES: Final = (
    ("NotValidForName", "its certificate is for another name than that of client.endpoint"),
    ("UnknownIssuer", "its certificate is not trusted: name the authority with client.ssl.ca.location"),
    ("InvalidCertificate", "its certificate is not valid now"),
    ("dns error", "its name is not known"),
    ("lookup address", "its name is not known"),
    ("onnection refused", "the connection is refused"),
    ("ConnectionRefused", "the connection is refused"),
    ("imed out", "it does not answer in time"),
    ("TimedOut", "it does not answer in time"),
    ("InvalidMessage", "it does not speak TLS: write http:// for a store without it"),
)


def explained(text: str, at: StoreAddress, host: str, rights: str) -> tuple[int, str]:
    """Returns the number of an error of the store, and one sentence that says what it means.

    `rights` are those that the credentials need.
    """
    code, bucket = _code_of(text), f"{at.kind.container} {at.bucket}"
    if any(word in text for word in _METADATA):
        name = f"client.{at.kind.credential}"
        return errno.EACCES, f"this machine has no credentials for the store: name them with {name}"
    if not code and any(word in text for word in _UNREADABLE):
        why = "the credentials in the environment of this machine can't be read"
        return errno.EACCES, f"{why}: correct them, or name others with client.{at.kind.credential}"
    for codes, number, meaning in _MEANINGS:
        if code in codes:
            return number, meaning.format(code=code, bucket=bucket, rights=rights)
    if not code and "not found" in text.partition("\n")[0]:
        return errno.ENOENT, "the file is not there"
    if code:
        return errno.EIO, f"the store answers with the error {code}"
    cause = next((why for word, why in _CAUSES if word in text), "")
    if not cause and "HTTP error" not in text:
        return errno.EIO, f"the answer of the store at {host} can't be read"
    return errno.EHOSTUNREACH, f"the store at {host} can't be reached: {cause or 'the connection failed'}"
