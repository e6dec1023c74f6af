"""Writes new files: whole or not at all, and never over another file."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from planner.model.diagnostic import Failure, error


@contextmanager
def new_file(file: Path, *, private: bool = True) -> Iterator[Callable[[str], object]]:
    """Yields the function that writes to a new file. In the end the whole file exists, or none.

    Only its owner may read it, for it holds records, unless `private` is off. Failure where the file is there
    already, or can't be written.
    """
    if file.exists():
        raise Failure(error(f"{file} is there already", "name a new file"))
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=file.absolute().parent, prefix=f".{file.name}.", delete=False
        ) as begun:
            try:
                yield begun.write
                begun.flush()
                os.fsync(begun.fileno())
                if not private:
                    os.umask(mask := os.umask(0))
                    os.fchmod(begun.fileno(), 0o666 & ~mask)
                os.link(begun.name, file)  # unlike a rename, it never replaces another file
            finally:
                Path(begun.name).unlink()
    except OSError as problem:
        raise Failure(
            error(f"{file} can't be written: {problem.strerror or problem}", "name another")
        ) from None
