"""Files of stored offsets keep their form; each offset that is read is that of the next record to read."""

import os
from pathlib import Path

import pytest

from planner.config import stored_offsets
from planner.config.stored_offsets import open_offsets
from planner.model.diagnostic import Failure


def moved(folder: Path, content: str | bytes, by: int = 100) -> tuple[str, list[tuple[int, ...]], str]:
    """The file's form, the next offsets that are read, and the file with these moved and topics renamed."""
    path = folder / "offsets"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with open_offsets(path) as file:
        entries = [entry for entry in file.entries if not entry.no_offset]
        texts = [
            entry.rewritten(f"dc1.{entry.topic}", [offset + by for offset in entry.offsets])
            for entry in entries
        ]
        text = file.head + file.separator.join(texts) + file.tail
    return file.form, [entry.offsets for entry in entries], text


MM2 = '["mm2",{"cluster":"a","partition":3,"topic":"orders"}]'
SINK = '["sink",{"kafka_topic":"orders","kafka_partition":0}]'
REST = '{"partition":{"kafka_topic":"orders","kafka_partition":0},"offset":'
NO_STOP = "-9223372036854775808"


@pytest.mark.parametrize(
    ("form", "content", "offsets"),
    [
        ("csv", "topic,partition,offset\norders,0,42\n", [(42,)]),
        ("json-lines", '{"topic":"orders","partition":0,"offset":42,"big":1e400}\n', [(42,)]),
        ("connect", f'{SINK}\t{{"kafka_offset":42}}\n', [(42,)]),
        ("connect", f"{MM2}\tnull\n", [()]),
        ("flink", f"[Partition: my-orders-12, StartingOffset: 42, StoppingOffset: {NO_STOP}]\n", [(42,)]),
        ("flink", "[Partition: orders-0, StartingOffset: -2, StoppingOffset: 42]\n", [(42,)]),
    ],
)
def test_a_file_keeps_its_form(
    tmp_path: Path, form: str, content: str, offsets: list[tuple[int, ...]]
) -> None:
    topic = "my-orders" if "my-orders" in content else "orders"
    expected = content.replace(topic, f"dc1.{topic}").replace("42", "142")
    assert moved(tmp_path, content) == (form, offsets, expected)


@pytest.mark.parametrize(
    ("form", "content", "offsets", "expected"),
    [
        ("csv", "orders,0,42\r\npay,1,0\n\n", [(42,), (0,)], "dc1.orders,0,142\ndc1.pay,1,100\n"),
        ("csv", '"g,1","orders",0,42\n', [(42,)], '"g,1",dc1.orders,0,142\n'),
        (
            "csv",
            "\ufeffOffset, Partition,topic,note\n42,0,orders,x\n",
            [(42,)],
            "Offset, Partition,topic,note\n142,0,dc1.orders,x\n",
        ),
        (
            "json",
            '[\n{"offset":42,"topic":"orders","partition":0},{"topic":"p","partition":1,"offset":0}]',
            [(42,), (0,)],
            (
                '[\n{"offset":142,"topic":"dc1.orders","partition":0},\n'
                '{"topic":"dc1.p","partition":1,"offset":100}\n]\n'
            ),
        ),
        (
            "connect-rest",
            f'{{"offsets":[{REST}{{"kafka_offset":42}}}},{{"partition":{{"file":"x"}},"offset":{{"at":1}}}}]}}',
            [(42,)],
            f'{{"offsets":[\n{REST.replace("ord", "dc1.ord")}{{"kafka_offset":142}}}}\n]}}\n',
        ),
        (
            "connect-rest",
            f'{{"note":{{"a":1}},"offsets":[{REST}null}}]}}',
            [()],
            f'{{"note":{{"a":1}},"offsets":[\n{REST.replace("ord", "dc1.ord")}null}}\n]}}\n',
        ),
        # MirrorSourceConnector stores the last record that it copied.
        (
            "connect",
            f'{MM2}\t{{"offset":41}}',
            [(42,)],
            f'{MM2.replace("ord", "dc1.ord")}\t{{"offset":141}}\n',
        ),
        ("connect", '["f",{"filename":"x"}]\t{"position":7}\n', [], ""),
        # Only the last line of a key counts, and it may be that its offset was deleted.
        (
            "connect",
            (
                f'{MM2}\t{{"offset":7}}\n'
                '["sink",{"kafka_topic":"pay","kafka_partition":0}]\t{"kafka_offset":5}\n\n'
                '["other",{"kafka_topic":"pay","kafka_partition":0}]\t{"kafka_offset":6}\n'
                f'{MM2}\t{{"offset":41}}\n'
                '["sink",{"kafka_partition":0,"kafka_topic":"pay"}]\t\n'
            ),
            [(6,), (42,), ()],
            (
                '["other",{"kafka_topic":"dc1.pay","kafka_partition":0}]\t{"kafka_offset":106}\n'
                f'{MM2.replace("ord", "dc1.ord")}\t{{"offset":141}}\n'
                '["sink",{"kafka_partition":0,"kafka_topic":"dc1.pay"}]\tnull\n'
            ),
        ),
    ],
)
def test_a_file_is_written_in_its_plain_form(
    tmp_path: Path, form: str, content: str, offsets: list[tuple[int, ...]], expected: str
) -> None:
    assert moved(tmp_path, content) == (form, offsets, expected)


def test_a_mirror_that_copied_nothing_before_the_next_record_has_no_last_one(tmp_path: Path) -> None:
    assert moved(tmp_path, f'{MM2}\t{{"offset":41}}', by=-42)[2] == f"{MM2.replace('ord', 'dc1.ord')}\tnull\n"


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"a,b\n", "offsets:1:1: neither CSV"),
        (b"topic,partition,offset\norders,0\n", "offsets:2:1: no stored offset: 2 columns, not 3"),
        (b"topic,partition,offset\norders,-1,1\n", "-1 is no partition"),
        (b"topic,partition,offset\norders,0,--1\n", "'--1' is no offset"),
        (b"topic,partition,offset\norders,0,-9999999999999999999\n", "is no offset"),
        (b"orders,0,1\rpay,0,1\r", "offsets:1:1: neither CSV"),
        (b'"orders,0,1\rpay,0,1"\r', "offsets:1:1: neither CSV"),
        (b'"orders",0,1\rpay,0,1\r', "offsets:1:1: no stored offset: the line is no row of CSV"),
        (b'"' + b"a" * 200_000 + b'",0,1\n', "offsets:1:1: no stored offset: the line is no row of CSV"),
        (b"a" * 200_000 + b",0,1\n", "is no name of a topic"),
        (b"topic,partition,offset\norders,0,99999999999999999999\n", "is no offset"),
        (b"topic,partition,offset\norders,0,9999999999999999999\n", "is no offset"),
        (b"topic,partition,offset\norders,2147483648,1\n", "is no partition"),
        ("topic,partition,offset\norders,٣,1\n".encode(), "is no partition"),
        (b"topic,partition,offset\nor\0ders,0,1\n", "is no name of a topic"),
        (b"topic,partition,offset\n\x1b[2J,0,1\n", "is no name of a topic"),
        (b'topic,partition,offset\n"orders,0,1\n', "no row of CSV"),
        (b"orders,0,1\n\xff,0,1\n", "offsets:2:1: the line is no UTF-8"),
        (b"orders,0,1\n" + b"x" * (stored_offsets.MAX_LINE + 1), "offsets:2:1: the line is longer than"),
        (b'{"topic":"orders","partition":0}\n', "offset"),
        (b'{"topic":"orders","partition":0,"offset":"7"}\n', "offset"),
        (b'{"topic":"orders","partition":true,"offset":7}\n', "partition"),
        (b'[{"topic":"orders","partition":0,"offset":1},7]', "entry 2 is no stored offset"),
        (b'{"offsets":[{"partition":{}}]}', "entry 1 is no stored offset: it has no partition, or no offset"),
        (DEEP.encode(), "is no JSON that is read here"),
        (f'{{"topic":"o","partition":0,"offset":1,"x":{DEEP}'.encode(), "is no JSON"),
        (b'["sink",{"kafka_topic":"o","kafka_partition":0}]\t{"kafka_offset":1}\nx\n', "offsets:2:1"),
        (b"[Partition: orders-0, StartingOffset: 1]\n", "it is no [Partition: TOPIC-0"),
    ],
)
def test_what_is_no_stored_offset_is_refused_by_its_line(tmp_path: Path, content: bytes, why: str) -> None:
    with pytest.raises(Failure) as failure:
        moved(tmp_path, content)
    (diagnostic,) = failure.value.diagnostics
    assert why in str(diagnostic)


@pytest.mark.slow
def test_a_document_may_be_one_line(tmp_path: Path) -> None:
    count = 40_000
    member = '{"topic":"orders","partition":0,"offset":42}'
    document = f"\n[{','.join([member] * count)}]\n"
    assert len(document) > stored_offsets.MAX_LINE
    assert moved(tmp_path, document)[:2] == ("json", [(42,)] * count)
    rest = '{"partition":{"kafka_topic":"orders","kafka_partition":0},"offset":{"kafka_offset":42}}'
    document = f'\ufeff{{"offsets":[{",".join([rest] * count)}]}}'
    assert moved(tmp_path, document)[:2] == ("connect-rest", [(42,)] * count)


@pytest.mark.parametrize(
    "content",
    [
        "orders,3,-1\n",
        "topic,partition,offset\norders,3,-1001\n",
        '{"topic":"orders","partition":3,"offset":-1}\n',
        '[{"topic":"orders","partition":3,"offset":-1}]',
    ],
)
def test_a_negative_offset_is_none_and_fails_no_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "offsets"
    path.write_text(content)
    with open_offsets(path) as file:
        (entry,) = file.entries
    assert (entry.topic, entry.partition, entry.offsets) == ("orders", 3, ())
    assert "is no offset: nothing was committed" in entry.no_offset


def test_a_document_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_offsets, "MAX_DOCUMENT", 50)
    with pytest.raises(Failure, match="write it as JSON lines"):
        moved(tmp_path, '[{"topic":"orders","partition":0,"offset":1}, {}]  ')


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Failure, match="is no file"), open_offsets(tmp_path / "pipe"):
        pass
