"""Reads the checkpoint of a Spark Structured Streaming query, and writes it with other Kafka offsets.

A checkpoint has a file for each batch in `offsets/`, and in `commits/` for each batch that is done:

    v1
    {"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{…}}
    {"orders":{"0":42,"1":17}}

A line for each source follows the metadata; that of a Kafka source holds the next offset to read of each
partition. In version 2, the name of the source and a colon stand before it. A restarted query continues at
the offsets of the last batch. A last batch that is not done runs again from the batch before it, which Spark
demands in any case, or, where it is the first, from the initial offsets in `sources/`. Only these are kept:
older batches are never read.
"""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from planner.model.diagnostic import Failure, error

_MAX_LOG = 64 << 20
_MAX_FILES = 1_000_000
_BATCH = re.compile(r"\d{1,18}")
_ZERO = b"\0"  # before the initial offsets of a Kafka source: Spark 2.1 wanted it
_NO_OFFSETS = ("-", "{}")  # a source without an offset yet, and a Kafka source without a partition
Offsets = dict[str, dict[int, int]]
StoredPlace = tuple[str, int, int]  # a topic, a partition and the next offset to read


class _Line(Struct, frozen=True):
    """A line of a log. `offsets` are those of a Kafka source, None in any other line. `text` is the line."""

    text: str
    name: str = ""
    offsets: Offsets | None = None

    def stored(self) -> Iterator[StoredPlace]:
        """Yields what the line of a Kafka source holds."""
        for topic, partitions in (self.offsets or {}).items():
            for partition, offset in partitions.items():
                yield topic, partition, offset


class _Log(Struct, frozen=True):
    """A file with offsets, relative to the checkpoint. `prefix` are the bytes before its first line."""

    path: Path
    lines: tuple[_Line, ...]
    prefix: bytes = b""

    def sources(self) -> Iterator[tuple[str, _Line]]:
        """Yields the lines behind the metadata by the name of the source, or by its place."""
        for place, line in enumerate(self.lines[2:]):
            yield line.name or str(place), line

    def content(self, translated: Mapping[StoredPlace, tuple[str, int]]) -> bytes:
        texts = []
        for line in self.lines:
            if line.offsets is None:
                texts.append(line.text)
                continue
            offsets: dict[str, dict[str, int]] = {}
            for stored in line.stored():
                topic, offset = translated[stored]
                offsets.setdefault(topic, {})[str(stored[1])] = offset
            texts.append(f"{line.name}{msgspec.json.encode(offsets).decode()}")
        return self.prefix + "\n".join(texts).encode()


class SparkCheckpoint(Struct, frozen=True):
    """A checkpoint: its logs with offsets, and the files that stay as they are."""

    folder: Path
    logs: tuple[_Log, ...]
    others: tuple[Path, ...]

    def offsets(self) -> set[StoredPlace]:
        """Returns everything that a restarted query may read."""
        return {stored for log in self.logs for line in log.lines for stored in line.stored()}

    def write(self, into: Path, translated: Mapping[StoredPlace, tuple[str, int]]) -> None:
        """Writes it as a new folder, with the translated topics and offsets. It is there whole, or not.

        Failure where something is there already, or it can't be written.
        """
        refuse_existing(into)
        try:
            with tempfile.TemporaryDirectory(prefix=f".{into.name}.", dir=into.absolute().parent) as scratch:
                whole = Path(scratch) / "checkpoint"
                whole.mkdir()
                for name in ("offsets", "commits"):
                    (whole / name).mkdir()
                for path in self.others:
                    (whole / path).parent.mkdir(parents=True, exist_ok=True)
                    _copy(self.folder / path, whole / path)
                for log in self.logs:
                    (whole / log.path).parent.mkdir(parents=True, exist_ok=True)
                    (whole / log.path).write_bytes(log.content(translated))
                whole.rename(into)
        except OSError as wrong:
            why = wrong.strerror or str(wrong)
            raise Failure(error(f"{into} can't be written: {why}", "name another folder")) from None


def refuse_existing(into: Path) -> None:
    """Raises Failure where a checkpoint can't be written because something is there already."""
    if into.exists() or into.is_symlink():
        raise Failure(error(f"{into} is there already", "name a new folder"))


def is_checkpoint(path: Path) -> bool:
    """Returns whether a folder is a checkpoint."""
    return (path / "offsets").is_dir()


def read_checkpoint(folder: Path) -> SparkCheckpoint:
    """Reads a checkpoint. Failure says what is wrong with it."""
    try:
        return _read(folder)
    except OSError as wrong:
        raise Failure(
            error(f"{folder} can't be read: {wrong.strerror or wrong}", "look at its rights")
        ) from None


def _read(folder: Path) -> SparkCheckpoint:
    files = list(_files(folder))
    offsets, commits = _batches(files, "offsets"), _batches(files, "commits")
    if not offsets:
        raise Failure(
            error(f"{folder} is no checkpoint with a batch: offsets/ has none", "name a query's checkpoint")
        )
    last = max(offsets)
    kept = [last - 1, last] if last else [0]
    if missing := [batch for batch in kept if batch not in offsets]:
        raise Failure(
            error(
                f"{folder} has no offsets/{missing[0]}, which Spark reads before those of batch {last}",
                "copy it whole",
            )
        )
    logs = [_offsets_log(folder, offsets[batch]) for batch in kept]
    _demand_the_same_sources(folder, logs)
    if not any(line.offsets is not None for log in logs for line in log.lines):
        raise Failure(error(f"{folder}: the query reads no Kafka topic", "name another checkpoint"))
    others = []
    for path in files:
        batch = path.name.removeprefix(".").removesuffix(".crc")
        match path.parts:
            case ("offsets", _):
                continue  # the old checksums would not fit
            case ("commits", _) if _BATCH.fullmatch(batch) and int(batch) not in kept:
                continue
            case ("sources", _, _) if batch == "0" and (initial := _initial_log(folder, path)) is not None:
                if path.name == "0" and last == 0 and last not in commits:
                    logs.append(initial)
            case _:
                others.append(path)
    return SparkCheckpoint(folder, tuple(logs), tuple(others))


def _files(folder: Path) -> Iterator[Path]:
    """Yields the files below a folder, relative to it. Failure: a link, a device, or too many of them."""
    count = 0
    for base, folders, names in os.walk(folder, onerror=_raise):
        for name in (*folders, *names):
            path = Path(base) / name
            mode = path.lstat().st_mode
            count += 1
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                raise Failure(
                    error(
                        f"{path} is neither a file nor a folder", "Spark writes no links: copy what is meant"
                    )
                )
            if count > _MAX_FILES:
                raise Failure(error(f"{folder} has more than {_MAX_FILES:,} files", "name a checkpoint"))
            if stat.S_ISREG(mode):
                yield path.relative_to(folder)


def _raise(wrong: OSError) -> None:
    raise wrong


def _batches(files: list[Path], name: str) -> dict[int, Path]:
    return {
        int(path.name): path
        for path in files
        if path.parts == (name, path.name) and _BATCH.fullmatch(path.name)
    }


def _offsets_log(folder: Path, path: Path) -> _Log:
    try:
        lines = _content(folder / path).decode().split("\n")
    except UnicodeDecodeError:
        raise _unreadable(folder / path, "it is no UTF-8") from None
    version = re.fullmatch(r"v([12])", lines[0])
    if version is None or len(lines) < 3:
        raise _unreadable(folder / path, "it does not begin with v1 or v2, or is cut")
    named = version[1] == "2"
    return _Log(
        path,
        (*map(_Line, lines[:2]), *(_source_line(folder / path, line, named=named) for line in lines[2:])),
    )


def _demand_the_same_sources(folder: Path, logs: list[_Log]) -> None:
    """Demands that a line which holds Kafka's offsets in one batch holds them in each: else it was cut.

    Without names, Spark refuses another number of sources; sources with names may come and go.
    """
    kafka = {source for log in logs for source, line in log.sources() if line.offsets is not None}
    for log in logs:
        for source, line in log.sources():
            text = line.text.removeprefix(line.name)
            if source in kafka and line.offsets is None and text not in _NO_OFFSETS:
                raise _unreadable(folder / log.path, "the line of a Kafka source is cut")
        if log.lines[0].text == logs[0].lines[0].text == "v1" and len(log.lines) != len(logs[0].lines):
            raise _unreadable(folder / log.path, "it has not as many sources as the batch before")


def _source_line(path: Path, text: str, *, named: bool) -> _Line:
    name, colon, rest = text.partition(":") if named else ("", "", text)
    offsets = _kafka_offsets(rest)
    if (named and not colon) or (offsets is None and rest.startswith("{") and not _is_json(rest)):
        raise _unreadable(path, "the line of a source is cut")
    numbers = [number for at in (offsets or {}).values() for stored in at.items() for number in stored]
    if any(number < 0 for number in numbers):
        raise _unreadable(path, "a partition or an offset is negative")
    return _Line(text, f"{name}{colon}", offsets)


def _initial_log(folder: Path, path: Path) -> _Log | None:
    """Returns the initial offsets of a Kafka source; None for what another source keeps."""
    content_path = path if path.name == "0" else path.with_name("0")
    content = _content(folder / content_path)
    prefix = _ZERO if content.startswith(_ZERO) else b""
    try:
        lines = content.removeprefix(prefix).decode().split("\n")
    except UnicodeDecodeError:
        return None
    offsets = _kafka_offsets(lines[-1])
    if len(lines) != 2 or lines[0] != "v1" or offsets is None:
        return None
    return _Log(path, (_Line(lines[0]), _Line(lines[1], "", offsets)), prefix)


def _kafka_offsets(text: str) -> Offsets | None:
    """Returns the offsets of a Kafka source; None for a line of another source."""
    try:
        offsets = msgspec.json.decode(text, type=dict[str, dict[int, int]])
    except (msgspec.MsgspecError, RecursionError):
        return None
    return offsets or None


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.MsgspecError:
        return False
    except RecursionError:
        return True
    return True


def _content(path: Path) -> bytes:
    """Returns a small file without following a link."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
        content = opened.read(_MAX_LOG + 1)
    if len(content) > _MAX_LOG:
        raise _unreadable(path, f"it is larger than {_MAX_LOG >> 20} MiB")
    return content


def _copy(source: Path, into: Path) -> None:
    with (
        os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened,
        into.open("xb") as copied,
    ):
        shutil.copyfileobj(opened, copied, 1 << 20)


def _unreadable(path: Path, why: str) -> Failure:
    return Failure(
        error(f"{path} is no log of Spark: {why}", "copy the checkpoint while its query is stopped")
    )
