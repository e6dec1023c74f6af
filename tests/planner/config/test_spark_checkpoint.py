"""Checkpoints of Spark: what a restarted query reads is translated, and nothing else is changed."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.config import spark_checkpoint
from planner.config.spark_checkpoint import is_checkpoint, read_checkpoint
from planner.model.diagnostic import Failure
from tests.fakes.tables import cases

META = '{"batchWatermarkMs":0,"batchTimestampMs":1}'
PAY = '{"pay":{"0":3}}'
DONE = 'v1\n{"nextBatchWatermarkMs":0}'


def offsets(number: int, *others: str) -> str:
    return "\n".join(["v1", META, f'{{"orders":{{"0":{number},"1":{number}}}}}', *others])


def checkpoint(folder: Path, files: Mapping[str, str]) -> Path:
    for name, content in {"metadata": '{"id":"x"}', **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def translation(folder: Path, into: Path) -> dict[str, str]:
    """The files of the checkpoint whose offsets are 100 more, in renamed topics."""
    read = read_checkpoint(folder)
    there = {(topic, at, offset): (f"dc1.{topic}", offset + 100) for topic, at, offset in read.offsets()}
    read.write(into, there)
    files = (path for path in into.rglob("*") if path.is_file())
    return {str(path.relative_to(into)): path.read_text() for path in files}


def moved(number: int, *others: str) -> str:
    return offsets(number + 100, *others).replace("orders", "dc1.orders")


FOUR = {f"offsets/{batch}": offsets(batch) for batch in range(4)}
LAST_TWO = {"offsets/2": moved(2), "offsets/3": moved(3), "commits/2": DONE}
START = '\0v1\n{"orders":{"0":7,"1":8}}'
OF_FILES = 'v1\n{"path":"/data/x","timestamp":1,"batchId":0}'
RENAMED = '{"dc1.pay":{"0":103}}'


@cases(
    "files translated",
    {
        "a query that ended its last batch goes on behind it": (
            {
                **FOUR,
                **{f"offsets/.{batch}.crc": "sum" for batch in range(4)},
                **{f"commits/{batch}": DONE for batch in range(4)},
                "sources/0/0": START,
                "state/0/1/4.delta": "rows",
            },
            {**LAST_TWO, "commits/3": DONE, "state/0/1/4.delta": "rows"},
        ),
        "a batch that was cut runs again from the batch before": (
            {**FOUR, **{f"commits/{batch}": DONE for batch in range(3)}},
            LAST_TWO,
        ),
        "a first batch that was cut runs again from the initial offsets": (
            {"offsets/0": offsets(9), "sources/0/0": START, "sources/0/.0.crc": "sum"},
            {"offsets/0": moved(9), "sources/0/0": '\0v1\n{"dc1.orders":{"0":107,"1":108}}'},
        ),
        "other sources stay as they are": (
            {
                "offsets/0": offsets(1, '{"logOffset":3}', "-"),
                "commits/0": DONE,
                "sources/0/0": START,
                "sources/1/0": OF_FILES,
            },
            {
                "offsets/0": moved(1, '{"logOffset":3}', "-"),
                "commits/0": DONE,
                "sources/1/0": OF_FILES,
            },
        ),
        "sources with names": (
            {"offsets/0": f"v2\n{META}\nleft:{PAY}\nright:-", "commits/0": DONE},
            {"offsets/0": f"v2\n{META}\nleft:{RENAMED}\nright:-", "commits/0": DONE},
        ),
        "a Kafka source without an offset yet": (
            {"offsets/0": offsets(1, "-", "{}"), "offsets/1": offsets(2, PAY, PAY), "commits/0": DONE},
            {"offsets/0": moved(1, "-", "{}"), "offsets/1": moved(2, RENAMED, RENAMED), "commits/0": DONE},
        ),
        "sources with names come and go": (
            {"offsets/0": f"v2\n{META}\na:{PAY}\nold:1", "offsets/1": f"v2\n{META}\nnew:{PAY}\na:{PAY}"},
            {
                "offsets/0": f"v2\n{META}\na:{RENAMED}\nold:1",
                "offsets/1": f"v2\n{META}\nnew:{RENAMED}\na:{RENAMED}",
            },
        ),
    },
)
def test_a_restarted_query_reads_on(files, translated, tmp_path: Path) -> None:
    found = translation(checkpoint(tmp_path / "old", files), tmp_path / "new")
    assert found == {"metadata": '{"id":"x"}', **translated}
    assert (tmp_path / "new" / "commits").is_dir()


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"offsets/x": ""}, "is no checkpoint with a batch"),
        ({"offsets/3": offsets(3)}, "has no offsets/2, which Spark reads before those of batch 3"),
        ({"offsets/0": "v9\n{}\n{}", "commits/0": DONE}, "does not begin with v1 or v2"),
        ({"offsets/0": "v1\n{}", "commits/0": DONE}, "or is cut"),
        ({"offsets/0": f"v1\n{META}\n5", "commits/0": DONE}, "reads no Kafka topic"),
        ({"offsets/0": f"v1\n{META}\n" + "[" * 100_000, "commits/0": DONE}, "reads no Kafka topic"),
        ({"offsets/0": f'v1\n{META}\n{{"o":{{"0":-1}}}}', "commits/0": DONE}, "negative"),
        ({"offsets/0": offsets(1, '{"pay":{"0":4'), "commits/0": DONE}, "offsets/0 .* source is cut"),
        ({"offsets/0": f"v2\n{META}\nleft", "commits/0": DONE}, "offsets/0 .* source is cut"),
        ({"offsets/0": offsets(1, PAY), "offsets/1": offsets(2, "")}, "offsets/1 .* Kafka source is cut"),
        ({"offsets/0": offsets(1, "4"), "offsets/1": offsets(2, PAY)}, "offsets/0 .* Kafka source is cut"),
        ({"offsets/0": offsets(1, PAY), "offsets/1": offsets(2)}, "offsets/1 .* not as many sources"),
        (
            {"offsets/0": f"v2\n{META}\na:{PAY}", "offsets/1": f"v2\n{META}\nb:1\na:"},
            "offsets/1 .* Kafka source is cut",
        ),
    ],
)
def test_what_is_no_checkpoint(tmp_path: Path, files: dict[str, str], why: str) -> None:
    with pytest.raises(Failure, match=why):
        read_checkpoint(checkpoint(tmp_path / "old", files))


@pytest.mark.parametrize("name", ["state", "offsets/1", "sources/0/0"])
def test_a_link_is_not_followed(tmp_path: Path, name: str) -> None:
    """It could name any file of the machine, which would be copied into the new checkpoint."""
    folder = checkpoint(tmp_path / "old", {"offsets/0": offsets(1), "commits/0": DONE})
    (tmp_path / "secret").mkdir()
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(tmp_path / "secret")
    with pytest.raises(Failure, match="neither a file nor a folder"):
        read_checkpoint(folder)


def test_a_log_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoint(tmp_path / "old", {"offsets/0": offsets(1), "commits/0": DONE})
    monkeypatch.setattr(spark_checkpoint, "_MAX_LOG", 20)
    with pytest.raises(Failure, match="is larger"):
        read_checkpoint(folder)


def test_a_folder_that_is_there_is_never_written_to(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "old", {"offsets/0": offsets(1), "commits/0": DONE})
    (tmp_path / "new").mkdir()
    with pytest.raises(Failure, match="is there already"):
        translation(folder, tmp_path / "new")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(Failure, match="is there already"):
        translation(folder, tmp_path / "dangling")
    with pytest.raises(Failure, match="can't be written"):
        translation(folder, tmp_path / "missing" / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "new", "old"]
    assert is_checkpoint(folder)
    assert not is_checkpoint(tmp_path)
