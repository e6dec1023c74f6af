"""Where the files of a flow come from, and what was seen there: a folder, or a prefix of a bucket.

All methods block. A file that is not there is a FileNotFoundError; another OSError has a text for people.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from runtime.files.source.known_files import FileState, KnownFile, Listing
from runtime.files.source.lines import fingerprint
from runtime.files.source.open_file import OpenFile

if TYPE_CHECKING:
    from runtime.files.source.parquet_rows import Footers


class FileSource(ABC):
    """The files of a flow, and what was seen of them: once per round, in a thread.

    `verified` holds the files whose bytes before the position were compared. `unclear` holds known files that
    were not in their place at the last look: a look during a rotation may see no name of a file.
    """

    place: ClassVar[str]  # for people

    def __init__(self, *, recursive: bool, in_rows: bool) -> None:
        self.recursive = recursive
        self.verified: dict[str, tuple[FileState, KnownFile]] = {}
        self.sizes: dict[str, int] = {}
        self.unclear: set[str] = set()
        self.gone_since: dict[str, float] = {}
        self.footers: Footers | None = None
        if in_rows:
            from runtime.files.source.parquet_rows import Footers  # only this format loads pyarrow

            self.footers = Footers(self.open, self.recheck)

    @abstractmethod
    def listing(self) -> Listing:
        """Returns the files now, with their sizes in bytes. Raises EndpointUnavailable."""

    @abstractmethod
    def open(self, name: str, version: str = "") -> OpenFile:
        """Opens a file for reading, with `version` no other version of it. Raises OSError.

        The file, and this method, raise EndpointUnavailable where no file of the source can be read now.
        """

    def recheck(self, name: str) -> None:
        """Makes the next look list everything, because this file differs from the last listing."""
        self.verified.pop(name, None)

    def forget(self) -> None:
        """Discards what was compared: it is compared again."""
        self.verified.clear()

    def _is_unchanged(self, state: FileState, known_file: KnownFile) -> bool:
        """Returns whether the state shows that the file has not changed, so that it need not be read."""
        return self.verified.get(known_file.name) == (state, known_file)

    def look(self) -> Listing:
        """Returns the files now, with their sizes in the unit of positions. Raises EndpointUnavailable."""
        listing = self.listing()
        return listing if self.footers is None else self.footers.look(listing)

    def covers(self, name: str) -> bool:
        """Returns whether a look would show a file of this name."""
        return self.recursive or "/" not in name

    def holds(self, files: Mapping[str, FileState], name: str, known_file: KnownFile) -> bool:
        """Returns whether the file of this name holds what was read of the known file.

        A file that can't be opened is taken for what it was: its task says why it is not read. So is a
        version that was overwritten since the look: the next look shows the new one. Raises
        EndpointUnavailable.
        """
        state = files[name]
        if self.footers is None and state.size < known_file.position:
            return False
        if name == known_file.name and self._is_unchanged(state, known_file):
            return True
        try:
            with self.open(name, state.version) as file:
                of = fingerprint if self.footers is None else self.footers.fingerprint
                same = of(file, known_file.position) == known_file.fingerprint
        except FileNotFoundError:
            self.recheck(name)
            return bool(state.version) and name == known_file.name
        except OSError:
            return name == known_file.name
        if same and name == known_file.name:
            self.verified[name] = state, known_file
        return same
