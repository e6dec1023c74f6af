"""A bucket that is read: its keys as they are, and objects by their ETags.

obstore can't list a page that has a key with an empty part or with a control character. So pages are
requested here, at an address that obstore signs with the credentials of the store. All other requests are
obstore's own.
"""

from __future__ import annotations

import errno
import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, cast
from urllib.parse import quote, unquote_plus
from xml.etree import ElementTree

import obstore
from obstore.exceptions import BaseError, PreconditionError
from obstore.store import S3Store

from runtime.contract.client import stores
from runtime.contract.client.settings import ClientSettingsError
from runtime.files.object_store import ObjectStore, declared, endpoint_of
from runtime.files.source.bucket import BucketObject, ObjectPage

_VALID: Final = timedelta(minutes=10)
_USED_S: Final = 300.0  # of an address that was signed
_REMEMBERED: Final = 64
_ANSWERS_WITHIN_S: Final = 60.0
_MOST_BYTES: Final = 64 << 20  # of a page: 1,000 keys of 1 KiB take about 4 MiB
_MOST_OF_AN_ERROR: Final = 64 << 10
_FAILURES: Final = (
    BaseError,
    ClientSettingsError,
    ElementTree.ParseError,
    OSError,
    ValueError,
    http.client.HTTPException,
)


class S3Bucket(ObjectStore):
    """A prefix of a bucket of S3 that is only read."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.rights = "s3:ListBucket and s3:GetObject"
        self._signed: dict[str, tuple[str, float]] = {}
        self._opener: urllib.request.OpenerDirector | None = None

    def page(self, after: str, *, recursive: bool) -> ObjectPage:
        """Returns a page. Where that fails, obstore's listing says why, or the page is tried once more."""
        try:
            return self._page(after, recursive=recursive)
        except _FAILURES:
            self._signed.clear()  # the credentials of a role may have expired
            self.check()
        with self.explaining():
            try:
                return self._page(after, recursive=recursive)
            except (http.client.HTTPException, ElementTree.ParseError) as error:
                raise ValueError(str(error)) from error

    def newest(self, name: str) -> BucketObject:
        with self.explaining(name):
            meta = obstore.head(self._store(), name)
        return BucketObject(name, meta["size"], meta["e_tag"] or "")

    def read_version(self, version: BucketObject, start: int, length: int) -> bytes:
        options: Any = {"range": (start, start + length), "if_match": version.etag}
        with self.explaining(version.name):
            try:
                return bytes(obstore.get(self._store(), version.name, options=options).bytes())
            except PreconditionError:
                what = "the object was overwritten"
                raise FileNotFoundError(errno.ENOENT, what, self.path(version.name)) from None

    def _page(self, after: str, *, recursive: bool) -> ObjectPage:
        """Requests and parses one page. Raises the errors of _FAILURES."""
        prefix = f"{self._at.prefix}/" if self._at.prefix else ""
        query = {"list-type": "2", "encoding-type": "url", "prefix": prefix}
        if not recursive:
            query["delimiter"] = "/"
        if after:
            query["start-after"] = prefix + after
        request = urllib.request.Request(self._address_of(query))  # noqa: S310 - an endpoint is http(s)://
        try:
            with self._opened().open(request, timeout=_ANSWERS_WITHIN_S) as answer:
                return _parsed(answer.read(_MOST_BYTES), prefix)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read(_MOST_OF_AN_ERROR).decode(errors="replace")
            raise ValueError(f"status code: {error.code} {text}") from None

    def _address_of(self, query: Mapping[str, str]) -> str:
        """Returns the signed address of a request about the bucket.

        obstore signs the addresses of objects. With the request as its endpoint, it signs that: the path of
        the object "" is "/", which becomes the value of a parameter that stores ignore.
        """
        text = "&".join(f"{key}={quote(value, safe='')}" for key, value in query.items())
        now = time.monotonic()
        cached = self._signed.get(text)
        if cached is not None and now - cached[1] < _USED_S:
            return cached[0]
        settings = self._settings()
        at = stores.host_of(self.address, settings)
        base = settings.get(stores.ENDPOINT, f"https://{at.host}").rstrip("/")
        config: dict[str, Any] = {
            **endpoint_of(f"{base}/{self._at.bucket}?{text}&x-id="),
            "virtual_hosted_style_request": True,
            "region": settings.get(stores.REGION, "us-east-1"),
        }
        signing = S3Store(
            self._at.bucket,
            config=cast(Any, config),
            client_options=cast(Any, {"allow_http": not at.tls}),
            credential_provider=declared(settings),
        )
        signed = obstore.sign(signing, "GET", "", _VALID)
        if len(self._signed) >= _REMEMBERED:
            self._signed.clear()
        self._signed[text] = signed, now
        return signed

    def _opened(self) -> urllib.request.OpenerDirector:
        if self._opener is None:
            context = ssl.create_default_context()
            if (authority := self._settings().get(stores.CA_LOCATION)) is not None:
                context.load_verify_locations(authority)
            self._opener = urllib.request.build_opener(
                urllib.request.HTTPSHandler(context=context), _NoRedirect
            )
        return self._opener


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it could lead to an address that this machine does not allow."""

    def redirect_request(self, *_: object) -> None:
        return None


def _parsed(text: bytes, prefix: str) -> ObjectPage:
    """Returns the page in an answer. Raises ElementTree.ParseError, ValueError."""
    if b"<!" in text:
        raise ValueError("an answer of S3 declares no types and no entities")
    root = ElementTree.fromstring(text)  # noqa: S314 - without a declaration there is nothing to expand
    space = root.tag.rpartition("}")[0] + "}" if root.tag.startswith("{") else ""
    if root.tag != f"{space}ListBucketResult":
        raise ValueError("no listing")
    encoded = root.findtext(f"{space}EncodingType") == "url"

    def name_of(element: ElementTree.Element, tag: str) -> str:
        key = element.findtext(f"{space}{tag}") or ""
        return (unquote_plus(key, errors="strict") if encoded else key).removeprefix(prefix)

    objects = [
        BucketObject(
            name_of(element, "Key"),
            int(element.findtext(f"{space}Size") or 0),
            element.findtext(f"{space}ETag") or "",
        )
        for element in root.iter(f"{space}Contents")
    ]
    folders = [
        name_of(element, "Prefix").removesuffix("/") for element in root.iter(f"{space}CommonPrefixes")
    ]
    return ObjectPage(objects, folders, root.findtext(f"{space}IsTruncated") == "true")
