"""A bucket that is read through obstore: objects by their ETags, and pages of their names."""

from __future__ import annotations

import errno
from typing import Any

import obstore
from obstore.exceptions import PreconditionError

from runtime.files.object_store import ObjectStore
from runtime.files.source.bucket import FEW, BucketObject, ObjectPage


class ReadBucket(ObjectStore):
    """A prefix of a bucket that is only read."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.rights = self._at.kind.reads

    def page(self, after: str, *, recursive: bool) -> ObjectPage:
        """Returns a page. Without sub-folders it is the whole listing: obstore continues no such listing."""
        with self._explained():
            if recursive:
                pages = obstore.list(self._store(), offset=after or None, chunk_size=FEW)
                listed = next(iter(pages), [])
                return ObjectPage(sorted(map(_object, listed)), more=len(listed) == FEW)
            found = obstore.list_with_delimiter(self._store())
        objects = sorted(listed for listed in map(_object, found["objects"]) if listed.name > after)
        folders = sorted(folder for folder in found["common_prefixes"] if folder > after)
        return ObjectPage(objects, folders)

    def newest(self, name: str) -> BucketObject:
        with self._explained(name):
            meta = obstore.head(self._store(), name)
        return BucketObject(name, meta["size"], meta["e_tag"] or "")

    def read_version(self, version: BucketObject, start: int, length: int) -> bytes:
        options: Any = {"range": (start, start + length), "if_match": version.etag}
        with self._explained(version.name):
            try:
                return bytes(obstore.get(self._store(), version.name, options=options).bytes())
            except PreconditionError:
                what = "the object was overwritten"
                raise FileNotFoundError(errno.ENOENT, what, self.path(version.name)) from None


def _object(meta: Any) -> BucketObject:
    return BucketObject(meta["path"], meta["size"], meta["e_tag"] or "")
