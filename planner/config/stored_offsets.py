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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
from msgspec import Raw, Struct

from planner.model.diagnostic import Failure, SourceLocation, error

MAX_LINE = 1 << 20
MAX_DOCUMENT = 128 << 20
_LAST_OFFSET = (1 << 63) - 1
_LAST_PARTITION = (1 << 31) - 1
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_BOM = b"\xef\xbb\xbf"


class StoredOffset(NamedTuple):
    """An entry of a file: a partition, and the offsets in it that are to be translated.

    `offsets` are those of the next record to read; there may be none. `content` is the entry as its form
    keeps it. `no_offset` says why the entry holds no offset of a Kafka topic, where it holds none. With
    `deleted`, the entry says that nothing is stored for the partition any more.
    """

    line: int
    topic: str
    partition: int
    offsets: tuple[int, ...]
    content: object
    no_offset: str = ""
    deleted: bool = False


class OffsetFile(NamedTuple):
    """A file of stored offsets that is being read.

    `rewrite` returns an entry with another topic and other offsets, in the same order. The entries are
    written between `head` and `tail`, with `separator` between them.
    """

    form: str
    entries: Iterator[StoredOffset]
    rewrite: Callable[[StoredOffset, str, Sequence[int]], str]
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
    first = next((line for line in lines if line[1].strip()), None)
    if first is None:
        raise Failure(error(f"{path} is empty", "name a file with offsets"))
    text = first[1].lstrip()
    every = chain([first], lines)
    if text.startswith(_FLINK_BEGIN):
        return OffsetFile("flink", _each(path, every, _flink_entry), _flink_text)
    if text.startswith("[") and _connect_pair(text) is not None:
        return OffsetFile("connect", _last_of_each_key(path, opened), _connect_text)
    if text.startswith("{") and _is_object(text):
        return OffsetFile("json-lines", _each(path, every, _object_entry), _object_text, separator="")
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
    """Yields numbered lines with their ends."""
    number = 0
    while line := opened.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise _failure(path, number, f"the line is longer than {MAX_LINE:,} bytes")
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise _failure(path, number, "the line is no UTF-8") from None


def _failure(path: Path, line: int, why: str) -> Failure:
    hint = "repl offsets translate --help names the forms that are read"
    return Failure(error(why, hint, source=SourceLocation(str(path), line, 1)))


def _each(
    path: Path, lines: Iterable[tuple[int, str]], entry: Callable[[int, str], StoredOffset]
) -> Iterator[StoredOffset]:
    for number, line in lines:
        text = line.strip(" \r\n")  # a tab at the end stands before an empty value
        if not text.strip():
            continue
        try:
            yield entry(number, text)
        except (_Unreadable, msgspec.MsgspecError, RecursionError) as wrong:
            raise _failure(path, number, f"no stored offset: {wrong}") from None


def _checked(
    line: int, topic: str, partition: int, offsets: tuple[int, ...], content: object
) -> StoredOffset:
    if _TOPIC.fullmatch(topic) is None:
        raise _Unreadable(f"{topic[:260]!r} is no name of a topic")
    if not 0 <= partition <= _LAST_PARTITION:
        raise _Unreadable(f"{partition} is no partition")
    for offset in offsets:
        if not 0 <= offset <= _LAST_OFFSET:
            raise _Unreadable(f"{offset} is no offset")
    return StoredOffset(line, topic, partition, offsets, content)


def _committed(line: int, topic: str, partition: int, offset: int, content: object) -> StoredOffset:
    """Returns an entry with one offset. Kafka's clients write a negative one where nothing is committed."""
    if offset >= 0:
        return _checked(line, topic, partition, (offset,), content)
    if offset < -_LAST_OFFSET:
        raise _Unreadable(f"{offset} is no offset")
    why = f"{offset} is no offset: nothing was committed"
    return _checked(line, topic, partition, (), content)._replace(no_offset=why)


def _number(text: str, what: str) -> int:
    number = text.strip()
    digits = number.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 19):
        raise _Unreadable(f"{text[:40]!r} is no {what}")
    return int(number)


# CSV. Without a header, the columns are those that kafka-consumer-groups.sh --export writes.

_COLUMNS = {3: ("topic", "partition", "offset"), 4: ("group", "topic", "partition", "offset")}


def _csv(path: Path, first: tuple[int, str], lines: Iterator[tuple[int, str]]) -> OffsetFile:
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
        at, stored = _number(row[partition], "partition"), _number(row[offset], "offset")
        return _committed(number, row[topic].strip(), at, stored, row)

    def text(stored: StoredOffset, name: str, offsets: Sequence[int]) -> str:
        assert isinstance(stored.content, list)
        row = [*stored.content]
        row[topic], row[offset] = name, str(offsets[0])
        text = ",".join(row)
        if '"' in text or text.count(",") >= len(row):
            written = io.StringIO()
            csv.writer(written, lineterminator="").writerow(row)
            text = written.getvalue()
        return f"{text}\n"

    head = f"{first[1].strip()}\n" if header else ""
    rows = lines if header else chain([first], lines)
    return OffsetFile("csv", _each(path, rows, entry), text, head)


def _row(line: str) -> list[str]:
    if '"' not in line:
        return line.split(",")
    try:
        (row,) = csv.reader([line], strict=True)
    except (csv.Error, ValueError):
        raise _Unreadable("the line is no row of CSV") from None
    return row


# JSON: objects with topic, partition and offset, as lines or in a list


class _Plain(Struct):
    topic: str
    partition: int
    offset: int


def _object_entry(line: int, text: str | Raw) -> StoredOffset:
    known = msgspec.json.decode(text, type=_Plain)
    content = msgspec.json.decode(text, type=dict[str, Raw])
    return _committed(line, known.topic, known.partition, known.offset, content)


def _rewritten(stored: StoredOffset, topic: str, offsets: Sequence[int]) -> str:
    assert isinstance(stored.content, dict)
    return msgspec.json.encode({**stored.content, "topic": topic, "offset": offsets[0]}).decode()


def _object_text(stored: StoredOffset, topic: str, offsets: Sequence[int]) -> str:
    return f"{_rewritten(stored, topic, offsets)}\n"


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
            objects = enumerate(msgspec.json.decode(content, type=list[Raw]), 1)
            entries = _members(path, objects, _object_entry)
            return OffsetFile("json", entries, _rewritten, "[\n", ",\n", "\n]\n")
        document = msgspec.json.decode(content, type=dict[str, Raw])
        if "offsets" not in document:
            entries = _members(path, [(1, Raw(content))], _object_entry)
            return OffsetFile("json-lines", entries, _object_text)
        objects = enumerate(msgspec.json.decode(document.pop("offsets"), type=list[Raw]), 1)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as wrong:
        hint = "repl offsets translate --help names the forms that are read"
        raise Failure(error(f"{path} is no JSON that is read here: {wrong}", hint)) from None
    others = msgspec.json.encode(document).decode()[1:-1]
    head = f'{{{others}{"," if others else ""}"offsets":[\n'
    return OffsetFile("connect-rest", _members(path, objects, _rest_entry), _rest_text, head, ",\n", "\n]}\n")


def _members(
    path: Path, members: Iterable[tuple[int, Raw]], entry: Callable[[int, Raw], StoredOffset]
) -> Iterator[StoredOffset]:
    for number, member in members:
        try:
            yield entry(number, member)
        except (_Unreadable, msgspec.MsgspecError, RecursionError) as wrong:
            hint = "repl offsets translate --help names the forms that are read"
            raise Failure(error(f"{path}: entry {number} is no stored offset: {wrong}", hint)) from None


# Kafka Connect: a partition and an offset, each an object of the connector's own


class _Sink(Struct):
    kafka_topic: str
    kafka_partition: int


class _SinkOffset(Struct):
    kafka_offset: int


class _Mirror(Struct):
    partition: int
    topic: str


class _MirrorOffset(Struct):
    offset: int


class _ConnectContent(NamedTuple):
    """`mirror`: the offset is that of the last record. `around` is the whole entry, or its key."""

    partition: dict[str, Raw]
    offset: dict[str, Raw] | None
    mirror: bool
    around: Sequence[Raw] | dict[str, Raw]


def _connect_entry(
    line: int, partition: Raw, offset: Raw, around: Sequence[Raw] | dict[str, Raw]
) -> StoredOffset:
    parts = msgspec.json.decode(partition, type=dict[str, Raw])
    stored = msgspec.json.decode(offset, type=dict[str, Raw] | None)
    match sorted(parts):
        case ["kafka_partition", "kafka_topic"]:
            content = _ConnectContent(parts, stored, mirror=False, around=around)
            sink = msgspec.json.decode(partition, type=_Sink)
            offsets = (msgspec.json.decode(offset, type=_SinkOffset).kafka_offset,) if stored else ()
            entry = _checked(line, sink.kafka_topic, sink.kafka_partition, offsets, content)
        case ["cluster", "partition", "topic"]:
            content = _ConnectContent(parts, stored, mirror=True, around=around)
            mirror = msgspec.json.decode(partition, type=_Mirror)
            last = msgspec.json.decode(offset, type=_MirrorOffset).offset if stored else -1
            offsets = (last + 1,) if last >= 0 else ()
            entry = _checked(line, mirror.topic, mirror.partition, offsets, content)
        case _:
            content = _ConnectContent(parts, stored, mirror=False, around=around)
            why = "the connector keeps no offset of Kafka that is known here"
            entry = StoredOffset(line, "", 0, (), content, why)
    return entry._replace(deleted=stored is None)


def _connect_parts(stored: StoredOffset, topic: str, offsets: Sequence[int]) -> tuple[bytes, bytes]:
    """Returns partition and offset as they are stored at the other side."""
    content = stored.content
    assert isinstance(content, _ConnectContent)
    name = "topic" if content.mirror else "kafka_topic"
    partition = msgspec.json.encode({**content.partition, name: topic})
    if not offsets or content.offset is None:
        return partition, msgspec.json.encode(content.offset)
    if not content.mirror:
        return partition, msgspec.json.encode({**content.offset, "kafka_offset": offsets[0]})
    # Where no record lies before the next one, no record was the last one: the connector begins at 0.
    offset = {**content.offset, "offset": offsets[0] - 1} if offsets[0] else None
    return partition, msgspec.json.encode(offset)


def _rest_entry(line: int, member: Raw) -> StoredOffset:
    content = msgspec.json.decode(member, type=dict[str, Raw])
    if not {"partition", "offset"} <= content.keys():
        raise _Unreadable("it has no partition, or no offset")
    return _connect_entry(line, content["partition"], content["offset"], content)


def _rest_text(stored: StoredOffset, topic: str, offsets: Sequence[int]) -> str:
    assert isinstance(stored.content, _ConnectContent)
    assert isinstance(stored.content.around, dict)
    partition, offset = _connect_parts(stored, topic, offsets)
    content = {**stored.content.around, "partition": Raw(partition), "offset": Raw(offset)}
    return msgspec.json.encode(content).decode()


def _connect_pair(text: str) -> tuple[str, str] | None:
    """Returns key and value of a line `["NAME",{…}]<tab>{…}`."""
    key, tab, value = text.partition("\t")
    return (key, value) if tab and key.rstrip().endswith("]") else None


def _last_of_each_key(path: Path, opened: BinaryIO) -> Iterator[StoredOffset]:
    """Returns the entries that count: what stands before them was replaced, or deleted."""
    opened.seek(0)
    last: dict[bytes, int] = {}
    for entry in _each(path, _lines(path, opened), _connect_line):
        last[_connect_key(entry)] = entry.line
    kept = set(last.values())
    opened.seek(0)
    return _each(path, (line for line in _lines(path, opened) if line[0] in kept), _connect_line)


def _connect_key(stored: StoredOffset) -> bytes:
    """Returns a digest of connector and partition, whatever the order of the partition's fields."""
    content = stored.content
    assert isinstance(content, _ConnectContent)
    assert not isinstance(content.around, dict)
    key = msgspec.json.encode([content.around[0], dict(sorted(content.partition.items()))])
    return hashlib.blake2b(key, digest_size=16).digest()


def _connect_line(line: int, text: str) -> StoredOffset:
    pair = _connect_pair(text)
    if pair is None:
        raise _Unreadable("a line is the key, a tab and the value")
    key = msgspec.json.decode(pair[0], type=list[Raw])
    if len(key) != 2:
        raise _Unreadable("the key is no list of a connector and a partition")
    value = pair[1].strip() or "null"  # a tombstone: some tools print nothing
    return _connect_entry(line, key[1], Raw(value.encode()), key)


def _connect_text(stored: StoredOffset, topic: str, offsets: Sequence[int]) -> str:
    assert isinstance(stored.content, _ConnectContent)
    assert not isinstance(stored.content.around, dict)
    partition, offset = _connect_parts(stored, topic, offsets)
    key = msgspec.json.encode([stored.content.around[0], Raw(partition)])
    return f"{key.decode()}\t{offset.decode()}\n"


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
    bounds = int(split[3]), int(split[4])
    offsets = tuple(offset for offset in bounds if offset >= 0)
    return _checked(line, split[1], int(split[2]), offsets, bounds)


def _flink_text(stored: StoredOffset, topic: str, offsets: Sequence[int]) -> str:
    assert isinstance(stored.content, tuple)
    translated = iter(offsets)
    start, stop = (next(translated) if bound >= 0 else bound for bound in stored.content)
    return f"[Partition: {topic}-{stored.partition}, StartingOffset: {start}, StoppingOffset: {stop}]\n"
