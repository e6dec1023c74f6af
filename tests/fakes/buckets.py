"""A bucket in memory: it counts requests, and fails on demand."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

from runtime.files.source.bucket import BucketObject, ObjectPage

MISSING = OSError(errno.ENXIO, "the bucket is not there: create it")
DENIED = OSError(errno.EACCES, "access denied (AccessDenied)")


@dataclass
class FakeBucket:
    """Lists pages in the order of keys, as S3 does, and reads an object only with its ETag.

    `fails` is the error of all requests, `unreadable` are the names of objects that can't be read.
    """

    address: str = "s3a://bucket/in"
    page_size: int = 1_000
    fails: OSError | None = None
    unreadable: set[str] = field(default_factory=set)
    listed: list[str] = field(default_factory=list)  # the names behind which pages were listed
    ranges: list[tuple[int, int]] = field(default_factory=list)
    _objects: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    _puts: int = 0

    def put(self, name: str, text: bytes = b"line\n", etag: str | None = None) -> None:
        """Writes an object. Each put gives another ETag, as an upload in parts does."""
        self._puts += 1
        self._objects[name] = text, f'"{self._puts}"' if etag is None else etag

    def delete(self, name: str) -> None:
        del self._objects[name]

    def check(self) -> None:
        if self.fails is not None:
            raise self.fails

    def page(self, after: str, *, recursive: bool) -> ObjectPage:
        self.check()
        self.listed.append(after)
        found: dict[str, BucketObject | None] = {}
        for name, (text, etag) in sorted(self._objects.items(), key=lambda one: one[0].encode()):
            folder, below, _ = name.partition("/")
            if name.encode() <= after.encode():
                continue
            if below and not recursive:
                found[folder] = None
            else:
                found[name] = BucketObject(name, len(text), etag)
        some = list(found.items())[: self.page_size]
        objects = [one for _, one in some if one is not None]
        return ObjectPage(objects, [name for name, one in some if one is None], len(some) < len(found))

    def newest(self, name: str) -> BucketObject:
        self.check()
        if name not in self._objects:
            raise FileNotFoundError(errno.ENOENT, "the file is not there", name)
        text, etag = self._objects[name]
        return BucketObject(name, len(text), etag)

    def read_version(self, one: BucketObject, start: int, length: int) -> bytes:
        self.check()
        self.ranges.append((start, length))
        if one.name in self.unreadable:
            raise DENIED
        if one != self.newest(one.name):
            raise FileNotFoundError(errno.ENOENT, "the object was overwritten", one.name)
        return self._objects[one.name][0][start : start + length]
