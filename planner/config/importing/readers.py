"""The table of readers: which tool each reads, and which files it wants."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from planner.config.importing import (
    jikkou,
    mm2,
    msk_replicator,
    redpanda_migrator,
    replicator,
    strimzi,
    terraform,
    topicctl,
)
from planner.config.importing.document import ConvertedTopology
from planner.model.diagnostic import Failure, error

_MAX_FILES = 10_000
_MAX_BYTES = 32 << 20
_SUFFIXES = (".yaml", ".yml", ".json")


class Reader(NamedTuple):
    """Reads the files of a tool. `what` says which ones. With `folder`, a folder of them may be named."""

    tool: str
    what: str
    convert: Callable[[Sequence[tuple[str, str]], str], ConvertedTopology]
    folder: bool = False

    def read(self, paths: Sequence[Path], name: str) -> ConvertedTopology:
        """Returns what the files declare, as a topology of this name. Failure: one can't be read."""
        files: list[Path] = []
        for path in paths:
            if not (self.folder and path.is_dir()):
                files.append(path)
                continue
            below = list(_below(path))
            if not below:
                raise Failure(error(f"{path} holds no file of YAML or JSON", f"name {self.what}"))
            files += below
        return self.convert([(str(file), self._text(file)) for file in files], name)

    def _text(self, file: Path) -> str:
        hint = f"name {self.what}"
        try:
            if file.exists() and not file.is_file():  # a pipe would block
                raise Failure(error(f"{file} can't be read: it is no file", hint))
            if file.stat().st_size > _MAX_BYTES:
                raise Failure(error(f"{file} has more than {_MAX_BYTES >> 20} MiB", hint))
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as wrong:
            reason = wrong.strerror if isinstance(wrong, OSError) else "it is not UTF-8"
            raise Failure(error(f"{file} can't be read: {reason}", hint)) from None


def _below(folder: Path) -> Iterator[Path]:
    """Yields the files of a folder and of those below it, without links."""
    for number, path in enumerate(sorted(folder.rglob("*"))):
        if number >= _MAX_FILES:
            raise Failure(error(f"{folder} has more than {_MAX_FILES:,} files", "name a smaller folder"))
        if path.suffix in _SUFFIXES and path.is_file() and not path.is_symlink():
            yield path


# By the option that names the files.
READERS = {
    "mm2": Reader("MirrorMaker", "the MirrorMaker 2 configuration", mm2.convert),
    "replicator": Reader("Replicator", "the connector's JSON", replicator.convert),
    "strimzi": Reader("Strimzi's MirrorMaker", strimzi.WHAT, strimzi.convert),
    "terraform": Reader("Terraform", terraform.WHAT, terraform.convert),
    "topicctl": Reader("topicctl", topicctl.WHAT, topicctl.convert, folder=True),
    "jikkou": Reader("Jikkou", jikkou.WHAT, jikkou.convert, folder=True),
    "msk-replicator": Reader("MSK Replicator", msk_replicator.WHAT, msk_replicator.convert),
    "redpanda-migrator": Reader("Redpanda Connect", redpanda_migrator.WHAT, redpanda_migrator.convert),
}
