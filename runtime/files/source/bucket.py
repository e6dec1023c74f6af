"""The objects of a prefix in a bucket, as files that are complete and that others may overwrite or delete.

An object is its key, its ETag and its size. It is read under the condition that it still has this ETag, so
no part of another object is ever read as a part of it. What was read before under another ETag is compared by
its fingerprint. Keys are listed in the order of their bytes.
"""

from __future__ import annotations

import errno
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Final, NamedTuple, Protocol, cast

from runtime.files.manifest import EndpointUnavailable
from runtime.files.source.file_source import FileSource
from runtime.files.source.known_files import HIDDEN, PACKED, FileState, KnownFile, Listing
from runtime.files.source.open_file import OpenFile
from runtime.files.store import RangeReader

FEW: Final = 1_000  # objects that are listed each time: they are one page of S3
FULL_LOOKS: Final = 100
FULL_S: Final = 300.0
_HEAD: Final = 1 << 10
_KEPT: Final = 64 << 10  # bytes of an open object that are remembered (R8)
_LAST: Final = "\U0010ffff"
_OF_THE_STORE: Final = (errno.EHOSTUNREACH, errno.ENXIO)


class BucketObject(NamedTuple):
    """An object, by its name below the prefix."""

    name: str
    size: int
    etag: str

    @property
    def version(self) -> str:
        """The size and the ETag."""
        return f"{self.size} {self.etag}"

    @property
    def state(self) -> FileState:
        """The object as a file. Another key, size or ETag is another identity."""
        digest = hashlib.blake2b(f"{self.name}\0{self.version}".encode(), digest_size=8).digest()
        return FileState(self.size, int.from_bytes(digest) >> 1, version=self.version)


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """Some objects in the order of their names. `folders` are listed in the place of the objects in them."""

    objects: Sequence[BucketObject]
    folders: Sequence[str] = ()
    more: bool = False

    @property
    def last(self) -> str:
        """The name behind which the next page begins."""
        names = [bucket_object.name for bucket_object in self.objects[-1:]]
        return max([*names, *(f"{folder}/{_LAST}" for folder in self.folders[-1:])], default="")


class Bucket(Protocol):
    """The requests about the objects below a prefix. All raise OSError with a text for people."""

    address: str

    def check(self) -> None:
        """Raises OSError where the bucket can't be reached or listed."""

    def page(self, after: str, *, recursive: bool) -> ObjectPage:
        """Returns the first objects behind a name."""

    def newest(self, name: str) -> BucketObject:
        """Returns an object as it is now."""

    def read_version(self, version: BucketObject, start: int, length: int) -> bytes:
        """Returns a range. Raises FileNotFoundError where the object has another ETag, or is gone."""


class StoredObject(OpenFile):
    """An object that is read in ranges, always the version with which it was opened.

    It remembers its first KiB and the last 64 KiB that were read, which fingerprints are made of (R8).
    """

    complete = True
    page = 512 << 10

    def __init__(self, bucket: Bucket, version: BucketObject) -> None:
        self._bucket, self._object = bucket, version
        self._head = b""
        self._kept_from, self._kept = 0, b""

    def size(self) -> int:
        return self._object.size

    def identity(self) -> int:
        return self._object.state.identity

    def modified_ns(self) -> int:
        return 0

    def read(self, position: int, size: int) -> bytes:
        """Returns a range. Raises EndpointUnavailable where the whole bucket can't be read."""
        end = min(position + size, self._object.size)
        if position >= end:
            return b""
        for begin, text in ((0, self._head), (self._kept_from, self._kept)):
            if begin <= position and end <= begin + len(text):
                return text[position - begin : end - begin]
        tail = max(self._object.size - _KEPT, 0)
        begin, until = (tail, self._object.size) if position >= tail else (position, end)
        text = self._requested(begin, until - begin)
        if begin == 0:
            self._head = text[:_HEAD]
        self._kept_from, self._kept = max(until - _KEPT, begin), text[-_KEPT:]
        return text[position - begin : end - begin]

    def _requested(self, start: int, length: int) -> bytes:
        try:
            text = self._bucket.read_version(self._object, start, length)
        except FileNotFoundError:
            raise
        except OSError as error:
            with unavailable(self._bucket):
                if error.errno in _OF_THE_STORE:
                    raise
                self._bucket.check()
            raise
        if len(text) != length:
            raise OSError(errno.EIO, f"the store answers with {len(text)} of {length} bytes")
        return text

    def stream(self) -> BinaryIO:
        return cast(BinaryIO, RangeReader(self.read, self._object.size))

    def close(self) -> None:
        self._head = self._kept = b""


@contextmanager
def unavailable(bucket: Bucket) -> Iterator[None]:
    """Converts the errors of a bucket into EndpointUnavailable."""
    try:
        yield
    except OSError as error:
        raise EndpointUnavailable(f"{bucket.address}: {error.strerror or error}") from error


class BucketSource(FileSource):
    """The objects below a prefix, with `recursive` also those whose names have more parts.

    Up to 1,000 objects are listed at each look. Of more, a look lists those behind the last name, and every
    100 looks or five minutes all of them: new objects that sort before, and what was overwritten or deleted.
    """

    place = "bucket"

    def __init__(
        self,
        bucket: Bucket,
        *,
        recursive: bool = False,
        in_rows: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(recursive=recursive, in_rows=in_rows)
        self._bucket, self._clock = bucket, clock
        self._seen, self._last = Listing(), ""
        self._looks, self._listed_at = 0, float("-inf")

    def listing(self) -> Listing:
        now = self._clock()
        whole = len(self._seen.files) <= FEW or self._looks >= FULL_LOOKS or now - self._listed_at >= FULL_S
        with unavailable(self._bucket):
            if whole:
                listing, self._last = self._listed_behind(Listing(), "")
                self._seen, self._looks, self._listed_at = listing, 0, now
            else:
                self._seen, self._last = self._listed_behind(self._seen, self._last)
                self._looks += 1
        return self._seen

    def _listed_behind(self, seen: Listing, last: str) -> tuple[Listing, str]:
        """Adds the objects behind the last name, and returns them all and the last name. Raises OSError."""
        files, ignored = dict(seen.files), Counter(seen.ignored)
        more = True
        while more:
            page = self._bucket.page(last, recursive=self.recursive)
            more = page.more
            if more and page.last <= last:
                raise OSError(errno.EIO, "the store lists the same objects again and again")
            last = max(last, page.last)
            for bucket_object in page.objects:
                hidden = any(part.startswith(HIDDEN) for part in bucket_object.name.split("/"))
                if hidden or not bucket_object.name or bucket_object.name.endswith("/"):
                    continue  # the last two are markers of folders
                if why := _why_ignored(bucket_object):
                    ignored[why] += 1
                else:
                    files[bucket_object.name] = bucket_object.state
        return Listing(files, ignored), last

    def open(self, name: str, version: str = "") -> StoredObject:
        if version:
            size, _, etag = version.partition(" ")
            return StoredObject(self._bucket, BucketObject(name, int(size), etag))
        return StoredObject(self._bucket, self._bucket.newest(name))

    def recheck(self, name: str) -> None:
        super().recheck(name)
        self._listed_at = float("-inf")

    def _is_unchanged(self, state: FileState, known_file: KnownFile) -> bool:
        return state.identity == known_file.identity or super()._is_unchanged(state, known_file)


def _why_ignored(bucket_object: BucketObject) -> str:
    if "" in bucket_object.name.split("/"):
        return "objects whose keys have an empty part (//)"
    if any(sign < " " or sign == "\x7f" for sign in bucket_object.name):
        return "objects whose keys have control characters"
    if bucket_object.name.endswith(PACKED):
        return "compressed files"
    return "" if bucket_object.etag else "objects without an ETag"
