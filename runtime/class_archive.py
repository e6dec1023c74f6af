"""An archive of the classes that a JVM loads (AppCDS): the next JVM starts with a third less work.

A JVM that runs once writes it at its end. Java ignores an archive that does not fit, and everything works
without one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from runtime.machine import hold

_KEPT_S: Final = 30 * 24 * 3600


class ClassArchive:
    """A ClassArchive is the file for one Java and one set of jars: `STEM-DIGEST.jsa` in `folder`."""

    def __init__(self, folder: Path, stem: str, java: Path, jars: Iterable[Path] = ()) -> None:
        files = [f"{file} {file.stat().st_mtime_ns}" for file in (java.resolve(), *sorted(jars))]
        self.path = folder / f"{stem}-{hashlib.sha256(repr(files).encode()).hexdigest()[:12]}.jsa"
        self._stem = stem

    @property
    def options(self) -> tuple[str, ...]:
        """The option of a JVM that uses the archive: none where there is none, or another user wrote it."""
        try:
            if self.path.stat().st_uid != os.geteuid():
                return ()
            os.utime(self.path)  # its time says when it was used last
        except OSError:
            return ()
        return (f"-XX:SharedArchiveFile={self.path}",)

    @contextmanager
    def making(self) -> Iterator[Path | None]:
        """Yields the file that a JVM has to write within the block; at its end it becomes the archive.

        Yields None where there is an archive, or another process makes one. Archives that no JVM has used
        for 30 days are removed, and what a process that was killed left behind. Raises OSError, also where
        nothing was written.
        """
        folder = self.path.parent
        folder.mkdir(parents=True, exist_ok=True)
        lock = hold(folder / f"{self._stem}.lock")
        if lock is None:
            yield None
            return
        with os.fdopen(lock):
            if self.path.exists():
                yield None
                return
            self._remove_unused()
            with tempfile.TemporaryDirectory(prefix=self._scratch, dir=folder) as scratch:
                made = Path(scratch) / self.path.name
                yield made
                made.rename(self.path)

    @property
    def _scratch(self) -> str:
        return f".{self._stem}."

    def _remove_unused(self) -> None:
        for folder in self.path.parent.glob(f"{self._scratch}*"):
            shutil.rmtree(folder, ignore_errors=True)
        for file in self.path.parent.glob(f"{self._stem}-*.jsa"):
            if time.time() - file.stat().st_mtime > _KEPT_S:
                file.unlink()
