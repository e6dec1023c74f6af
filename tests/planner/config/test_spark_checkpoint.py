"""Checkpoints of Spark: what a restarted query reads is translated, and nothing else is changed."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.config import spark_checkpoint
from planner.config.spark_checkpoint import is_checkpoint, read_checkpoint
from planner.model.diagnostic import Failure

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


def translated(folder: Path, into: Path) -> dict[str, str]:
    """The files of the checkpoint whose offsets are 100 more, in renamed topics."""
    read = read_checkpoint(folder)
    there = {(topic, at, offset): (f"dc1.{topic}", offset + 100) for topic, at, offset in read.offsets()}
    read.write(into, there)
    files = (path for path in into.rglob("*") if path.is_file())
    return {str(path.relative_to(into)): path.read_text() for path in files}


def moved(number: int, *others: str) -> str:
    return offsets(number + 100, *others).replace("orders", "dc1.orders")


def test_a_query_that_ended_its_last_batch_goes_on_behind_it(tmp_path: Path) -> None:
    files = {
        **{f"offsets/{batch}": offsets(batch) for batch in range(4)},
        **{f"offsets/.{batch}.crc": "sum" for batch in range(4)},
        **{f"commits/{batch}": DONE for batch in range(4)},
        "sources/0/0": '\0v1\n{"orders":{"0":0,"1":0}}',
        "state/0/1/4.delta": "rows",
    }
    assert translated(checkpoint(tmp_path / "old", files), tmp_path / "new") == {
        "metadata": '{"id":"x"}',
        "offsets/2": moved(2),
        "offsets/3": moved(3),
        "commits/2": DONE,
        "commits/3": DONE,
        "state/0/1/4.delta": "rows",
    }


def test_a_batch_that_was_cut_runs_again_from_the_batch_before(tmp_path: Path) -> None:
    files = {
        **{f"offsets/{batch}": offsets(batch) for batch in range(4)},
        **{f"commits/{batch}": DONE for batch in range(3)},
    }
    new = translated(checkpoint(tmp_path / "old", files), tmp_path / "new")
    assert new == {"metadata": '{"id":"x"}', "offsets/2": moved(2), "offsets/3": moved(3), "commits/2": DONE}


def test_a_first_batch_that_was_cut_runs_again_from_the_initial_offsets(tmp_path: Path) -> None:
    initial = '\0v1\n{"orders":{"0":7,"1":8}}'
    files = {"offsets/0": offsets(9), "sources/0/0": initial, "sources/0/.0.crc": "sum"}
    new = translated(checkpoint(tmp_path / "old", files), tmp_path / "new")
    assert new == {
        "metadata": '{"id":"x"}',
        "offsets/0": moved(9),
        "sources/0/0": '\0v1\n{"dc1.orders":{"0":107,"1":108}}',
    }
    assert (tmp_path / "new" / "commits").is_dir()


def test_other_sources_stay_as_they_are(tmp_path: Path) -> None:
    files = {
        "offsets/0": offsets(1, '{"logOffset":3}', "-"),
        "commits/0": DONE,
        "sources/0/0": '\0v1\n{"orders":{"0":0}}',
        "sources/1/0": 'v1\n{"path":"/data/x","timestamp":1,"batchId":0}',
    }
    new = translated(checkpoint(tmp_path / "old", files), tmp_path / "new")
    assert new["offsets/0"] == moved(1, '{"logOffset":3}', "-")
    assert new["sources/1/0"] == files["sources/1/0"]
    assert "sources/0/0" not in new


def test_sources_with_names(tmp_path: Path) -> None:
    named = f'v2\n{META}\nleft:{{"orders":{{"0":5}}}}\nright:-'
    new = translated(checkpoint(tmp_path / "old", {"offsets/0": named, "commits/0": DONE}), tmp_path / "new")
    assert new["offsets/0"] == f'v2\n{META}\nleft:{{"dc1.orders":{{"0":105}}}}\nright:-'


def test_a_kafka_source_without_an_offset_yet(tmp_path: Path) -> None:
    files = {"offsets/0": offsets(1, "-", "{}"), "offsets/1": offsets(2, PAY, PAY), "commits/0": DONE}
    new = translated(checkpoint(tmp_path / "old", files), tmp_path / "new")
    there = '{"dc1.pay":{"0":103}}'
    assert (new["offsets/0"], new["offsets/1"]) == (moved(1, "-", "{}"), moved(2, there, there))


def test_sources_with_names_come_and_go(tmp_path: Path) -> None:
    files = {"offsets/0": f"v2\n{META}\na:{PAY}\nold:1", "offsets/1": f"v2\n{META}\nnew:{PAY}\na:{PAY}"}
    new = translated(checkpoint(tmp_path / "old", files), tmp_path / "new")
    assert new["offsets/0"].endswith('\na:{"dc1.pay":{"0":103}}\nold:1')


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
        translated(folder, tmp_path / "new")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(Failure, match="is there already"):
        translated(folder, tmp_path / "dangling")
    with pytest.raises(Failure, match="can't be written"):
        translated(folder, tmp_path / "missing" / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "new", "old"]
    assert is_checkpoint(folder)
    assert not is_checkpoint(tmp_path)
