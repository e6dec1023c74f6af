"""What the driver sees of the folder of a flow from files, and how it recognises files that were read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.contract.spec.files import LinesSpec
from runtime.files.manifest import EndpointUnavailable
from runtime.files.source.lines import FileState, KnownFile, Listing, fingerprint, list_files, open_file

if TYPE_CHECKING:
    from runtime.files.source.parquet_rows import Footers


@dataclass(slots=True)
class SourceFolder:
    """What was seen in the folder: once per round, in a thread.

    `verified` holds the files whose bytes before the position were compared. `unclear` holds known files that
    were not in their place at the last look: a look during a rotation may see no name of a file.
    """

    path: Path
    recursive: bool = False
    footers: Footers | None = None  # of Parquet files
    verified: dict[str, tuple[FileState, KnownFile]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    unclear: set[str] = field(default_factory=set)
    gone_since: dict[str, float] = field(default_factory=dict)

    def look(self) -> Listing:
        """Returns the files now. Raises EndpointUnavailable."""
        try:
            found = list_files(self.path, recursive=self.recursive)
        except FileNotFoundError as error:
            raise EndpointUnavailable(
                f"the folder {self.path} is not there: create it, or mount it"
            ) from error
        except OSError as error:
            where = error.filename or self.path
            raise EndpointUnavailable(f"the folder {where} can't be read: {error.strerror}") from error
        return found if self.footers is None else self.footers.look(self.path, found)

    def covers(self, name: str) -> bool:
        """Returns whether the look would show a file of this name."""
        return self.recursive or "/" not in name

    def holds(self, files: Mapping[str, FileState], name: str, known: KnownFile) -> bool:
        """Returns whether the file of this name holds what was read of the known file.

        A file that can't be opened is taken for what it was: its task says why it is not read.
        """
        state = files[name]
        if self.footers is None and state.size < known.position:
            return False
        if self.verified.get(name) == (state, known):
            return True
        try:
            file = open_file(self.path, name)
        except FileNotFoundError:
            return False
        except OSError:
            return name == known.name
        try:
            same = self._fingerprint(file, known.position) == known.fingerprint
        except OSError:
            return name == known.name
        finally:
            os.close(file)
        if same and name == known.name:
            self.verified[name] = state, known
        return same

    def _fingerprint(self, file: int, position: int) -> bytes | None:
        if self.footers is None:
            return fingerprint(file, position)
        from runtime.files.source.parquet_rows import parquet_fingerprint

        return parquet_fingerprint(file, position)


def folder_of(lines: LinesSpec) -> SourceFolder:
    """Returns the folder of a flow from files, at which nothing was looked yet."""
    if lines.format != "parquet":
        return SourceFolder(Path(lines.folder), lines.recursive)
    from runtime.files.source.parquet_rows import Footers  # only this format loads pyarrow

    return SourceFolder(Path(lines.folder), lines.recursive, Footers())
