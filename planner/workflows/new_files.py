"""Writes new files: whole or not at all, and never over another file."""

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from planner.model.diagnostic import Failure, error

# What a file system without hard links answers, such as exFAT and many mounts.
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)


@contextmanager
def new_file(
    file: Path, *, private: bool = True, link: Callable[[str, Path], None] = os.link
) -> Iterator[Callable[[str], object]]:
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
                try:
                    if not private:
                        os.umask(mask := os.umask(0))
                        os.fchmod(begun.fileno(), 0o666 & ~mask)
                    link(begun.name, file)  # unlike a rename, it never replaces another file
                except OSError as problem:
                    if problem.errno not in _NO_LINKS:
                        raise
                    _copy_to_new(Path(begun.name), file, 0o600 if private else 0o666)
            finally:
                Path(begun.name).unlink()
    except OSError as problem:
        raise Failure(
            error(f"{file} can't be written: {problem.strerror or problem}", "name another")
        ) from None


def _copy_to_new(written: Path, file: Path, mode: int) -> None:
    """Copies a written file to a name that nothing has yet; what was begun is removed where that fails."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as copy:
        try:
            copy.write(written.read_bytes())
            copy.flush()
            os.fsync(copy.fileno())
        except BaseException:
            file.unlink()
            raise
