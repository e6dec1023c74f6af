"""A writer of `_repl/` of a shared folder or bucket forges the manifest: nothing outside is read or changed.

The forgeries have right digests: they are written as a job writes them, by whoever may write the folder.
"""

import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.records.manifest import (
    UnreadableCommit,
    decode,
    decode_checkpoint,
    decode_list,
    decode_snapshot,
)
from runtime.contract.spec.files import in_own_folder, name_problem
from runtime.files.backup import DamagedFile, check_file, flows_in, read_backup
from runtime.files.manifest import EndpointUnavailable, ManifestFolder, ManifestProblem
from runtime.files.object_store import ObjectStore
from runtime.files.snapshots import SnapshotFolder
from runtime.files.store import MOST_READ, FileStore, LeadsOutside, LocalFolder
from tests.s3 import ADMIN, s3_server

FILE: dict[str, Any] = {
    "path": "orders/f-00000-00000000000000000000-11111111.log",
    "staged": "staging/1/x.part",
    "topic": "orders",
    "topic_id": "11" * 16,
    "partition": 0,
    "first": 0,
    "end": 1,
    "records": 1,
    "size": 6,
    "crc32c": 0,
}
OWNER = {"topology": "t", "job": "lake", "cluster_id": "c1"}
COMMIT: dict[str, Any] = {
    "version": 2,
    "number": 1,
    "flow": "f",
    "owner": OWNER,
    "generation": 1,
    "at_ms": 1,
    "format": "raw",
}
CHECKPOINT: dict[str, Any] = {
    "flow": "f",
    "number": 1,
    "commit": "",
    "at_ms": 1,
    "owner": OWNER,
    "format": "raw",
}
SNAPSHOT: dict[str, Any] = {"flow": "f", "cluster_id": "c1", "generation": 1, "at_ms": 1_000}
ELSEWHERE = [
    "../../../victim/id_rsa",
    "orders/../../victim/id_rsa",
    "/etc/passwd",
    "//server/share",
    "orders//x",
    "orders/./x",
    "orders/",
    "..",
    ".",
    "",
    "..\\..\\victim",
    "C:/victim",
    "orders/x\0.log",
    "orders/x\n.log",
    "orders/" + "x" * 300,
    "x/" * 3_000 + "x",
]


def sealed(value: object) -> bytes:
    line = json.dumps(value).encode()
    return line + b"\n" + sha256(line).hexdigest().encode() + b"\n"


class Lake:
    """A shared folder, with a file outside of it that the user of the job may write."""

    def __init__(self, tmp_path: Path) -> None:
        self.root, self.victim = tmp_path / "lake", tmp_path / "victim"
        self.own = self.root / "_repl/f"
        self.victim.mkdir()
        (self.victim / "id_rsa").write_text("secret")
        (self.own / "log").mkdir(parents=True)
        (self.own / "staging/1").mkdir(parents=True)
        self.folder = ManifestFolder(str(self.root), "f")

    def write(self, name: str, value: object) -> None:
        path = self.own / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sealed(value))

    def commit(self, **parts: object) -> None:
        self.write(f"log/{1:020d}.json", COMMIT | parts)

    @property
    def outside(self) -> dict[str, str]:
        """Everything beside the shared folder."""
        top = self.root.parent
        found = (path for path in top.rglob("*") if self.root not in (path, *path.parents))
        return {str(path): path.read_text() if path.is_file() else "" for path in found}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    before = lake.outside
    yield lake
    assert lake.outside == before


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_name_that_could_lead_out_is_refused_where_it_is_decoded(lake: Lake, name: str) -> None:
    for forged in (
        {"files": [FILE | {"path": name}]},
        {"files": [FILE | {"staged": name}]},
        {"files": [FILE | {"staged": f"staging/{name}"}]},
        {"files": [FILE], "replaced": ["orders/a.log", name]},
        {"small": {"below": 1, "files": [FILE | {"path": name}]}},
    ):
        lake.commit(**forged)
        with pytest.raises(ManifestProblem, match=r"log/0+1\.json can't be read: .*name of a"):
            lake.folder.read()
    with pytest.raises(UnreadableCommit):
        decode_list(sealed({"flow": "f", "files": [FILE | {"path": name}]}))
    assert name_problem(name)


def test_no_file_is_published_over_a_manifest_or_taken_from_beside_the_staged_ones(lake: Lake) -> None:
    for part, name in (
        ("path", f"_repl/other/log/{1:020d}.json"),
        ("path", f"_REPL/other/log/{1:020d}.json"),
        ("staged", "log/00000000000000000001.json"),
        ("staged", "replaced/orders/x.log"),
    ):
        lake.commit(files=[FILE | {part: name}])
        with pytest.raises(ManifestProblem, match="can't be read"):
            lake.folder.read()
    lake.commit(replaced=["_repl/other/log/00000000000000000001.json"])
    with pytest.raises(ManifestProblem, match="holds no data files"):
        lake.folder.read()


@pytest.mark.parametrize(
    "forged",
    [
        {"number": 10**30},
        {"number": 0},
        {"generation": 2**80},
        {"at_ms": 10**18},
        {"at_ms": -1},
        {"files": [FILE | {"size": -1}]},
        {"files": [FILE | {"records": 10**40}]},
        {"files": [FILE | {"partition": 10**9}]},
        {"files": [FILE | {"crc32c": 2**40}]},
        {"files": [FILE | {"topic_id": "no hex"}]},
        {"files": [FILE | {"first_timestamp": 10**30}]},
        {"positions": [{"topic": "a", "topic_id": "", "partition": 2**31, "position": 0}]},
        {"positions": [{"topic": "a", "topic_id": "", "partition": 0, "position": 2**64}]},
        {"checkpoint": {"number": 1, "digest": "../../../../victim/id_rsa"}},
        {"checkpoint": {"number": 1, "digest": "A" * 64}},
        {"checkpoint": {"number": 10**25, "digest": "a" * 64}},
        {"flow": "g"},
    ],
)
def test_numbers_and_digests_have_bounds(lake: Lake, forged: dict[str, Any]) -> None:
    lake.commit(**forged)
    with pytest.raises(ManifestProblem, match=r"log/0+1\.json"):
        lake.folder.read()


def test_checkpoints_and_snapshots_have_bounds_too() -> None:
    decode(sealed(COMMIT))
    decode_checkpoint(sealed(CHECKPOINT))
    decode_snapshot(sealed(SNAPSHOT))
    topic = {"name": "a", "ids": ["aa"], "since_ms": 1, "begins": {"0": 0}, "positions": []}
    decode_checkpoint(sealed(CHECKPOINT | {"topics": [topic]}))
    for forged in (
        {"lists": [{"digest": "../../../victim/id_rsa", "files": 1}]},
        {"topics": [topic | {"ids": ["zz"]}]},
        {"topics": [topic | {"begins": {"1000000000": 0}}]},
        {"topics": [topic | {"since_ms": 10**30}]},
    ):
        with pytest.raises(UnreadableCommit):
            decode_checkpoint(sealed(CHECKPOINT | forged))
    for wrong in (
        {"topics": [{"name": "a", "topic_id": "", "partitions": 10**9}]},
        {"topics": [{"name": "a", "topic_id": "", "partitions": 1, "replication": 10**9}]},
        {"offsets": [{"group": "g", "topic": "a", "partition": -1, "offset": 0}]},
        {"offsets": [{"group": "g", "topic": "a", "partition": 0, "offset": 2**70}]},
        {"at_ms": 10**30},
    ):
        with pytest.raises(UnreadableCommit):
            decode_snapshot(sealed(SNAPSHOT | wrong))


def test_a_snapshot_of_another_flow_is_not_taken(lake: Lake) -> None:
    lake.write("snapshots/19700101T000001.000Z.json", SNAPSHOT | {"flow": "g"})
    snapshots = SnapshotFolder(str(lake.root), "f")
    assert snapshots.times() == [1_000]
    with pytest.raises(ManifestProblem, match="another time or flow"):
        snapshots.read(1_000)


def test_each_file_operation_refuses_the_name_before_it_makes_a_folder(tmp_path: Path, lake: Lake) -> None:
    (lake.own / "staging/1/x.part").write_text("mine")
    folder = LocalFolder(lake.root)
    store = ObjectStore("s3://bucket/prefix", {"region": "r", "endpoint": "http://127.0.0.1:1"})
    for name in ELSEWHERE:
        for one in (folder, store):
            for refused in _operations(one, name):
                with pytest.raises(LeadsOutside, match="the name"):
                    refused()
    assert sorted(path.name for path in lake.root.iterdir()) == ["_repl"]
    assert (lake.own / "staging/1/x.part").read_text() == "mine"


def _operations(store: FileStore, name: str) -> list[Callable[[], object]]:
    return [
        lambda: store.read(name),
        lambda: store.open(name),
        lambda: store.sizes([name]),
        lambda: store.add(name, b"x"),
        lambda: store.upload(name),
        lambda: store.move([("_repl/f/staging/1/x.part", name)]),
        lambda: store.move([("_repl/f/staging/1/x.part", "made/x"), (name, "orders/x")]),
        lambda: store.remove([name]),
        lambda: store.remove_older(name, 0),
        lambda: store.remove_folder(name),
        lambda: store.names(name),
    ]


@pytest.mark.parametrize("at", ["_repl", "_repl/f", "_repl/f/staging", "_repl/f/replaced", "orders"])
def test_a_link_in_the_place_of_a_folder_is_not_followed(lake: Lake, at: str) -> None:
    """`staging` as a link to a home folder once emptied it: what was staged and not committed is removed."""
    (lake.victim / "1").mkdir()
    (lake.victim / "1/notes").write_text("keep")
    before = lake.outside
    (lake.own / "staging/1/x.part").write_text("mine")
    path = lake.root / at
    if path.exists():
        path.rename(lake.root / "away")
    path.symlink_to(lake.victim)
    store, name = LocalFolder(lake.root), f"{at}/1/notes"
    for refused in _operations(store, name):
        with pytest.raises(LeadsOutside, match=f"{path} is a symbolic link"):
            refused()
    for clear in (lambda: lake.folder.clear_staging(1), lambda: lake.folder.remove_replaced(0)):
        with suppress(ManifestProblem):
            clear()
    assert lake.outside == before
    (lake.victim / "1/notes").unlink()
    (lake.victim / "1").rmdir()


def test_a_link_in_the_place_of_a_file_is_neither_read_nor_moved(lake: Lake) -> None:
    lake.commit(files=[FILE])
    state = lake.folder.read()
    assert state.last is not None
    (file,) = state.last.files
    staged = lake.own / "staging/1/x.part"
    staged.symlink_to(lake.victim / "id_rsa")
    touched = (lake.victim / "id_rsa").stat().st_mtime_ns
    with pytest.raises(ManifestProblem, match="is a symbolic link"):
        lake.folder.publish([file])
    assert (lake.victim / "id_rsa").stat().st_mtime_ns == touched
    assert not (lake.root / "orders").exists()
    staged.unlink()
    (lake.root / "orders").mkdir()
    (lake.root / file.path).symlink_to(lake.victim / "id_rsa")
    with pytest.raises(DamagedFile, match="is a symbolic link"):
        check_file(lake.folder, file)
    commit = lake.own / f"log/{1:020d}.json"
    commit.unlink()
    commit.symlink_to(lake.victim / "id_rsa")
    with pytest.raises(ManifestProblem, match="is a symbolic link"):
        read_backup(str(lake.root), "f")


def test_a_pipe_or_an_endless_file_is_no_commit(lake: Lake) -> None:
    commit = lake.own / f"log/{1:020d}.json"
    os.mkfifo(commit)
    with pytest.raises(EndpointUnavailable, match="no regular file"):
        lake.folder.read()
    commit.unlink()
    with commit.open("wb") as file:
        file.truncate(MOST_READ + 1)
    with pytest.raises(EndpointUnavailable, match="more than"):
        lake.folder.read()


def test_what_is_listed_has_to_have_a_plain_name(lake: Lake) -> None:
    lake.commit()
    for name in ("x\ny", "a\\b"):
        (lake.root / "_repl" / name / "log").mkdir(parents=True)
        (lake.root / "_repl" / name / f"log/{1:020d}.json").write_text("x")
    assert flows_in(LocalFolder(lake.root)) == ["f"]


@pytest.mark.slow
def test_a_forged_manifest_reaches_no_key_outside_of_the_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in ADMIN.items():
        monkeypatch.setenv(variable, value)
    with s3_server(tmp_path) as server:
        bucket = server.create_bucket(f"b-{uuid.uuid4().hex}")
        server.put(bucket, "victim/id_rsa", b"secret")
        folder = ManifestFolder(f"s3://{bucket}/lake/prefix", "f", server.settings)
        for forged in (
            {"files": [FILE | {"staged": "staging/../../../../../victim/id_rsa"}]},
            {"files": [FILE], "replaced": ["../../victim/id_rsa"]},
        ):
            server.put(bucket, f"lake/prefix/_repl/f/log/{1:020d}.json", sealed(COMMIT | forged))
            with pytest.raises(ManifestProblem, match="can't be read"):
                folder.read()
        server.put(bucket, f"lake/prefix/_repl/f/log/{1:020d}.json", sealed(COMMIT | {"files": [FILE]}))
        assert folder.read().last is not None
        assert sorted(server.objects(bucket)) == [f"lake/prefix/_repl/f/log/{1:020d}.json", "victim/id_rsa"]


def test_a_topic_named_as_the_folder_of_manifests_is_not_among_them() -> None:
    assert in_own_folder("{topic}/", "_repl")
    assert in_own_folder("{topic}/date={date}/", "_repl")
    assert in_own_folder("{topic}/", "_Repl")  # a file system may ignore the case of names
    assert not in_own_folder("{topic}/", "_repl.orders")
    assert not in_own_folder("raw/{topic}/", "_repl")
