"""Reads and writes files of stored Kafka offsets: CSV, JSON, Kafka Connect's offsets, and Flink's state.

The form of a file is known by its content. Every offset is given as that of the next record to read:

| form | stored is |
| --- | --- |
| CSV, JSON, JSON lines | the next record to read, as in Kafka's committed offsets |
| Connect, sink connectors (`kafka_topic`, `kafka_offset`) | the next record to read |
| Connect, MirrorSourceConnector (`cluster`, `topic`, `offset`) | the last record that was copied |
| Flink, `KafkaPartitionSplit` | the next record to read; the stopping offset is not read any more |

A file of lines may have any size and is read line by line. A JSON document is read whole, within a limit.
Of the lines of Connect's offsets topic, the last one of each key counts, as in Connect: they are read twice.
What an entry has beside its topic and its offset stays as it is, byte by byte.
"""

import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from planner.model.diagnostic import Failure, SourceLocation, error

MAX_LINE = 1 << 20
MAX_DOCUMENT = 128 << 20
_LAST_OFFSET = (1 << 63) - 1
_LAST_PARTITION = (1 << 31) - 1
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_BOM = b"\xef\xbb\xbf"
_HINT = "repl offsets translate --help names the forms that are read"

T = TypeVar("T")
Rewrite = Callable[[str, Sequence[int]], str]
Lines = Iterable[tuple[int, str]]


class StoredOffset(NamedTuple):
    """An entry of a file: a partition, and the offsets in it that are to be translated.

    `offsets` are those of the next record to read; there may be none. `rewritten` returns the entry with
    another topic and other offsets, in the same order. `no_offset` says why the entry holds no offset of a
    Kafka topic, where it holds none. With `deleted`, the entry says that nothing is stored for the partition
    any more. Of the entries with one `key`, Connect reads the last.
    """

    line: int
    topic: str
    partition: int
    offsets: tuple[int, ...]
    rewritten: Rewrite
    no_offset: str = ""
    deleted: bool = False
    key: bytes = b""


class OffsetFile(NamedTuple):
    """A file of stored offsets that is being read.

    The entries are written between `head` and `tail`, with `separator` between them.
    """

    form: str
    entries: Iterator[StoredOffset]
    head: str = ""
    separator: str = ""
    tail: str = ""


class _Unreadable(ValueError):
    """An entry is not what its form demands."""


@contextmanager
def open_offsets(path: Path) -> Iterator[OffsetFile]:
    """Opens a file of stored offsets. Failure, also while entries are read, names the line."""
    try:
        if not path.is_file():  # a pipe would block
            raise Failure(error(f"{path} is no file", "name a file, or the folder of a Spark checkpoint"))
        with path.open("rb") as opened:
            yield _read(path, opened)
    except OSError as wrong:
        raise Failure(error(f"{path} can't be read: {wrong.strerror}", "name another file")) from None


def _read(path: Path, opened: BinaryIO) -> OffsetFile:
    """Returns the entries of a file, whose form is known by its first line."""
    if _is_long_document(opened):
        return _document(path, opened)
    lines = _lines(path, opened)
    first = next(lines, None)
    if first is None:
        raise Failure(error(f"{path} is empty", "name a file with offsets"))
    text = first[1].lstrip()
    every = chain([first], lines)
    if text.startswith(_FLINK_BEGIN):
        return OffsetFile("flink", _each_line(path, every, _flink_entry))
    if text.startswith("[") and _connect_pair(text) is not None:
        return OffsetFile("connect", _last_of_each_key(path, opened))
    if text.startswith("{") and _is_object(text):
        return OffsetFile("json-lines", _each_line(path, every, partial(_object_entry, end="\n")))
    if text.startswith(("[", "{")):
        return _document(path, opened)
    return _csv(path, first, lines)


def _is_long_document(opened: BinaryIO) -> bool:
    """Returns whether a file begins with a line of JSON that is longer than a line may be."""
    while (line := opened.readline(MAX_LINE + 1)) and not line.removeprefix(_BOM).strip():
        pass
    opened.seek(0)
    return len(line) > MAX_LINE and line.removeprefix(_BOM).lstrip().startswith((b"[", b"{"))


def _is_object(text: str) -> bool:
    """Returns whether a line is a whole entry: a document may begin with a line like it."""
    try:
        return "offsets" not in msgspec.json.decode(text, type=dict[str, Raw])
    except (msgspec.MsgspecError, RecursionError):
        return False


def _lines(path: Path, opened: BinaryIO) -> Iterator[tuple[int, str]]:
    """Yields numbered lines without their ends, and none that is blank."""
    number = 0
    while line := opened.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise _failure(path, number, f"the line is longer than {MAX_LINE:,} bytes")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise _failure(path, number, "the line is no UTF-8") from None
        if text.strip():
            yield number, text.strip(" \r\n")  # a tab at the end stands before an empty value


def _failure(path: Path, line: int, why: str) -> Failure:
    return Failure(error(why, _HINT, source=SourceLocation(str(path), line, 1)))


def _each_line(path: Path, lines: Lines, entry: Callable[[int, str], StoredOffset]) -> Iterator[StoredOffset]:
    return _each(lines, entry, lambda number, wrong: _failure(path, number, f"no stored offset: {wrong}"))


def _each_member(
    path: Path, members: Iterable[Raw], entry: Callable[[int, Raw], StoredOffset]
) -> Iterator[StoredOffset]:
    def failure(number: int, wrong: Exception) -> Failure:
        return Failure(error(f"{path}: entry {number} is no stored offset: {wrong}", _HINT))

    return _each(enumerate(members, 1), entry, failure)


def _each(
    items: Iterable[tuple[int, T]],
    entry: Callable[[int, T], StoredOffset],
    failure: Callable[[int, Exception], Failure],
) -> Iterator[StoredOffset]:
    for number, item in items:
        try:
            yield entry(number, item)
        except (_Unreadable, msgspec.MsgspecError, RecursionError) as wrong:
            raise failure(number, wrong) from None


def _checked(
    line: int, topic: str, partition: int, offsets: tuple[int, ...], rewritten: Rewrite
) -> StoredOffset:
    if _TOPIC.fullmatch(topic) is None:
        raise _Unreadable(f"{topic[:260]!r} is no name of a topic")
    if not 0 <= partition <= _LAST_PARTITION:
        raise _Unreadable(f"{partition} is no partition")
    for offset in offsets:
        if not 0 <= offset <= _LAST_OFFSET:
            raise _Unreadable(f"{offset} is no offset")
    return StoredOffset(line, topic, partition, offsets, rewritten)


def _committed(line: int, topic: str, partition: int, offset: int, rewritten: Rewrite) -> StoredOffset:
    """Returns an entry with one offset. Kafka's clients write a negative one where nothing is committed."""
    if offset >= 0:
        return _checked(line, topic, partition, (offset,), rewritten)
    if offset < -_LAST_OFFSET:
        raise _Unreadable(f"{offset} is no offset")
    why = f"{offset} is no offset: nothing was committed"
    return _checked(line, topic, partition, (), rewritten)._replace(no_offset=why)


def _number(text: str, what: str) -> int:
    number = text.strip()
    digits = number.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 19):
        raise _Unreadable(f"{text[:40]!r} is no {what}")
    return int(number)


# CSV. Without a header, the columns are those that kafka-consumer-groups.sh --export writes.

_COLUMNS = {3: ("topic", "partition", "offset"), 4: ("group", "topic", "partition", "offset")}


def _csv(path: Path, first: tuple[int, str], lines: Lines) -> OffsetFile:
    try:
        names = [name.strip().lower() for name in _row(first[1].strip())]
    except _Unreadable as wrong:
        raise _failure(path, first[0], f"no stored offset: {wrong}") from None
    header = {"topic", "partition", "offset"} <= set(names)
    if not header and len(names) not in _COLUMNS:
        raise _failure(path, first[0], "neither CSV with topic, partition and offset, nor another form")
    columns = names if header else list(_COLUMNS[len(names)])
    topic, partition, offset = (columns.index(name) for name in ("topic", "partition", "offset"))

    def entry(number: int, line: str) -> StoredOffset:
        row = _row(line)
        if len(row) != len(columns):
            raise _Unreadable(f"{len(row)} columns, not {len(columns)}")

        def rewritten(name: str, offsets: Sequence[int]) -> str:
            there = [*row]
            there[topic], there[offset] = name, str(offsets[0])
            text = ",".join(there)
            if '"' in text or text.count(",") >= len(row):
                written = io.StringIO()
                csv.writer(written, lineterminator="").writerow(there)
                text = written.getvalue()
            return f"{text}\n"

        at, stored = _number(row[partition], "partition"), _number(row[offset], "offset")
        return _committed(number, row[topic].strip(), at, stored, rewritten)

    head = f"{first[1].strip()}\n" if header else ""
    return OffsetFile("csv", _each_line(path, lines if header else chain([first], lines), entry), head)


def _row(line: str) -> list[str]:
    if '"' not in line:
        return line.split(",")
    try:
        (row,) = csv.reader([line], strict=True)
    except (csv.Error, ValueError):
        raise _Unreadable("the line is no row of CSV") from None
    return row


# JSON: objects with topic, partition and offset, as lines or in a list


def _member(members: Mapping[str, Raw], name: str, kind: type[T]) -> T:
    """Returns a member of a JSON object. _Unreadable: it is missing, or of another kind."""
    if name not in members:
        raise _Unreadable(f"Object missing required field `{name}`")
    try:
        return msgspec.json.decode(members[name], type=kind)
    except msgspec.ValidationError as wrong:
        raise _Unreadable(f"{wrong} - at `$.{name}`") from None


def _object_entry(line: int, text: str | Raw, end: str = "") -> StoredOffset:
    content = msgspec.json.decode(text, type=dict[str, Raw])

    def rewritten(topic: str, offsets: Sequence[int]) -> str:
        return msgspec.json.encode({**content, "topic": topic, "offset": offsets[0]}).decode() + end

    topic, partition = _member(content, "topic", str), _member(content, "partition", int)
    return _committed(line, topic, partition, _member(content, "offset", int), rewritten)


def _document(path: Path, opened: BinaryIO) -> OffsetFile:
    """Returns the entries of a list, or of Connect's answer to GET /connectors/NAME/offsets."""
    opened.seek(0)
    content = opened.read(MAX_DOCUMENT + 1)
    if len(content) > MAX_DOCUMENT:
        why = f"a JSON document of more than {MAX_DOCUMENT >> 20} MiB"
        raise Failure(error(f"{path}: {why}", "write it as JSON lines, which may have any size"))
    content = content.removeprefix(_BOM)
    try:
        if content.lstrip()[:1] == b"[":
            entries = _each_member(path, msgspec.json.decode(content, type=list[Raw]), _object_entry)
            return OffsetFile("json", entries, "[\n", ",\n", "\n]\n")
        document = msgspec.json.decode(content, type=dict[str, Raw])
        if "offsets" not in document:
            return OffsetFile(
                "json-lines", _each_member(path, [Raw(content)], partial(_object_entry, end="\n"))
            )
        members = msgspec.json.decode(document.pop("offsets"), type=list[Raw])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as wrong:
        raise Failure(error(f"{path} is no JSON that is read here: {wrong}", _HINT)) from None
    others = msgspec.json.encode(document).decode()[1:-1]
    head = f'{{{others}{"," if others else ""}"offsets":[\n'
    return OffsetFile("connect-rest", _each_member(path, members, _rest_entry), head, ",\n", "\n]}\n")


# Kafka Connect: a partition and an offset, each an object of the connector's own. A sink connector stores the
# next record to read, MirrorSourceConnector the last one that was copied.


def _connect_entry(
    line: int, partition: Raw, offset: Raw, written: Callable[[Raw, Raw], str]
) -> StoredOffset:
    """Returns an entry; `written` is its text with another partition and offset."""
    parts = msgspec.json.decode(partition, type=dict[str, Raw])
    stored = msgspec.json.decode(offset, type=dict[str, Raw] | None)
    mirror = parts.keys() == {"cluster", "partition", "topic"}
    prefix = "" if mirror else "kafka_"

    def rewritten(topic: str, offsets: Sequence[int]) -> str:
        there = stored
        if offsets and stored is not None:
            number = offsets[0] - mirror
            # Where no record lies before the next one, no record was the last one: the connector begins at 0.
            there = {**stored, f"{prefix}offset": Raw(str(number).encode())} if number >= 0 else None
        moved = {**parts, f"{prefix}topic": Raw(msgspec.json.encode(topic))}
        return written(Raw(msgspec.json.encode(moved)), Raw(msgspec.json.encode(there)))

    if not mirror and parts.keys() != {"kafka_partition", "kafka_topic"}:
        why = "the connector keeps no offset of Kafka that is known here"
        return StoredOffset(line, "", 0, (), rewritten, why, deleted=stored is None)
    topic, at = _member(parts, f"{prefix}topic", str), _member(parts, f"{prefix}partition", int)
    offsets: tuple[int, ...] = ()
    if stored:
        number = _member(stored, f"{prefix}offset", int)
        offsets = (number + mirror,) if number >= 0 or not mirror else ()
    return _checked(line, topic, at, offsets, rewritten)._replace(deleted=stored is None)


def _rest_entry(line: int, member: Raw) -> StoredOffset:
    content = msgspec.json.decode(member, type=dict[str, Raw])
    if not {"partition", "offset"} <= content.keys():
        raise _Unreadable("it has no partition, or no offset")

    def written(partition: Raw, offset: Raw) -> str:
        return msgspec.json.encode({**content, "partition": partition, "offset": offset}).decode()

    return _connect_entry(line, content["partition"], content["offset"], written)


def _connect_pair(text: str) -> tuple[str, str] | None:
    """Returns key and value of a line `["NAME",{…}]<tab>{…}`."""
    key, tab, value = text.partition("\t")
    return (key, value) if tab and key.rstrip().endswith("]") else None


def _last_of_each_key(path: Path, opened: BinaryIO) -> Iterator[StoredOffset]:
    """Returns the entries that count: what stands before them was replaced, or deleted."""
    opened.seek(0)
    last = {entry.key: entry.line for entry in _each_line(path, _lines(path, opened), _connect_line)}
    kept = set(last.values())
    opened.seek(0)
    return _each_line(path, (line for line in _lines(path, opened) if line[0] in kept), _connect_line)


def _connect_line(line: int, text: str) -> StoredOffset:
    pair = _connect_pair(text)
    if pair is None:
        raise _Unreadable("a line is the key, a tab and the value")
    key = msgspec.json.decode(pair[0], type=list[Raw])
    if len(key) != 2:
        raise _Unreadable("the key is no list of a connector and a partition")
    connector, partition = key

    def written(moved: Raw, offset: Raw) -> str:
        return f"{msgspec.json.encode([connector, moved]).decode()}\t{bytes(offset).decode()}\n"

    value = pair[1].strip() or "null"  # a tombstone: some tools print nothing
    entry = _connect_entry(line, partition, Raw(value.encode()), written)
    # The order of the partition's fields has no meaning.
    parts = dict(sorted(msgspec.json.decode(partition, type=dict[str, Raw]).items()))
    digest = hashlib.blake2b(msgspec.json.encode([connector, parts]), digest_size=16)
    return entry._replace(key=digest.digest())


# Flink: the text of a KafkaPartitionSplit, as the State Processor API prints it. A negative offset is none:
# -2 begins at earliest, -1 at latest, -3 at the group's commit; the smallest number never stops.

_FLINK_BEGIN = "[Partition: "
_FLINK = re.compile(
    r"\[Partition: ([A-Za-z0-9._-]{1,249})-(\d{1,10}), StartingOffset: (-?\d{1,19}), "
    r"StoppingOffset: (-?\d{1,19})\]"
)


def _flink_entry(line: int, text: str) -> StoredOffset:
    split = _FLINK.fullmatch(text.strip())
    if split is None:
        raise _Unreadable("it is no [Partition: TOPIC-0, StartingOffset: 1, StoppingOffset: 2]")
    partition, bounds = int(split[2]), (int(split[3]), int(split[4]))

    def rewritten(topic: str, offsets: Sequence[int]) -> str:
        translated = iter(offsets)
        start, stop = (next(translated) if bound >= 0 else bound for bound in bounds)
        return f"[Partition: {topic}-{partition}, StartingOffset: {start}, StoppingOffset: {stop}]\n"

    return _checked(line, split[1], partition, tuple(at for at in bounds if at >= 0), rewritten)
