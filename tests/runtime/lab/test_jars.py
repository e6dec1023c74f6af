"""The cache of jars is whole or not there, through cut downloads, full disks, two at once and no network.

Ivy is the real one; the repository it asks is a small one in a folder, and where the network is to be gone, a
port of this machine where nobody answers."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.java import find_java
from runtime.lab import kit
from runtime.lab.cluster import KAFKA_VERSION, KafkaVersion
from runtime.lab.files import LabError
from runtime.lab.kit import SETTINGS, UNPINNED, IvyDependency, IvyRequest
from runtime.machine import cache_folder
from tests.commands import environment
from tests.labs import mirror_maker

pytestmark = pytest.mark.integration

THING = IvyRequest("thing-1.0", (IvyDependency("org.example", "thing", "1.0", transitive=True),), count=2)
FETCH = """
import os
from runtime.java import find_java
from runtime.lab import kit
from runtime.lab.kit import IvyDependency, IvyRequest
request = IvyRequest("thing-1.0", (IvyDependency("org.example", "thing", "1.0", transitive=True),), count=2)
print(kit.classpath(str(find_java(os.environ)), request, lambda what, done, total: print(done, total)))
"""


def java() -> str:
    return str(find_java(os.environ))


def publish(root: Path, name: str, content: bytes, *needs: str) -> None:
    folder = root / "org" / "example" / name / "1.0"
    folder.mkdir(parents=True)
    (folder / f"{name}-1.0.jar").write_bytes(content)
    needed = "".join(
        f"<dependency><groupId>org.example</groupId><artifactId>{one}</artifactId><version>1.0</version></dependency>"
        for one in needs
    )
    (folder / f"{name}-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
        f"<artifactId>{name}</artifactId><version>1.0</version><dependencies>{needed}</dependencies></project>"
    )


def settings(path: Path, root: str) -> str:
    path.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers>'
        f'<ibiblio name="here" m2compatible="true" root="{root}"/></resolvers></ivysettings>'
    )
    return str(path)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with thing, which needs part; an empty cache folder."""
    root = tmp_path / "repository"
    publish(root, "part", os.urandom(1_000))
    publish(root, "thing", os.urandom(1_500_000), "part")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(UNPINNED, "1")
    monkeypatch.setenv(SETTINGS, settings(tmp_path / "ivysettings.xml", root.as_uri()))
    return root


def left_over(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if path.name.startswith(".")]


def test_fetched_once_with_what_it_needs(repository: Path) -> None:
    steps: list[tuple[int, int]] = []
    classpath = kit.classpath(java(), THING, lambda _, done, total: steps.append((done, total)))
    folder = cache_folder() / "thing-1.0"
    assert classpath == f"{folder}/*"
    assert sorted(path.name for path in folder.glob("*.jar")) == ["part-1.0.jar", "thing-1.0.jar"]
    assert steps[-1] == (4, 4)
    shutil.rmtree(repository)  # nothing is asked for a second time
    assert kit.classpath("no-java-is-needed", THING) == classpath
    assert not left_over(cache_folder())


def test_a_damaged_cache_is_fetched_again(repository: Path, tmp_path: Path) -> None:
    kit.classpath(java(), THING)
    folder = cache_folder() / "thing-1.0"
    whole = (folder / "thing-1.0.jar").read_bytes()
    listed = (folder / kit.MANIFEST).read_text()
    damages: dict[str, bytes | None] = {
        "thing-1.0.jar": whole[:700_000],
        "part-1.0.jar": None,
        "stranger-1.0.jar": b"",
        kit.MANIFEST: listed[:20].encode(),
    }
    for name, content in damages.items():
        damaged = shutil.copytree(folder, tmp_path / f"damaged-{name}")
        assert kit.whole(damaged)
        if content is None:
            (damaged / name).unlink()
        else:
            (damaged / name).write_bytes(content)
        assert not kit.whole(damaged), name
    (folder / "thing-1.0.jar").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))  # of the same size
    assert not kit.whole(folder)
    kit.classpath(java(), THING)
    assert kit.whole(folder)
    assert (folder / "thing-1.0.jar").read_bytes() == whole


def test_a_damaged_cache_without_network_is_not_used(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.classpath(java(), THING)
    folder = cache_folder() / "thing-1.0"
    (folder / "part-1.0.jar").write_bytes(b"half")
    monkeypatch.setenv(SETTINGS, settings(tmp_path / "gone.xml", "http://127.0.0.1:1/"))
    with pytest.raises(LabError, match=r"could not be fetched: .*Connection refused.* — check the network"):
        kit.classpath(java(), THING)
    assert not kit.whole(folder)


def test_a_set_without_pins_is_refused_where_the_operator_does_not_take_it(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(UNPINNED)
    with pytest.raises(LabError, match=r"thing-1.0 have no pinned checksums — choose one of .*kafka-4.4.0"):
        kit.classpath(java(), THING)
    assert not (cache_folder() / "thing-1.0").exists()


def test_a_repository_that_gives_another_jar_than_the_pinned_one_is_refused(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own checksum files fit: whoever exchanges a jar there can exchange them, too."""
    right = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in repository.rglob("*.jar")}
    monkeypatch.setattr(kit, "_pins", lambda _file: {"thing-1.0": right})
    kit.classpath(java(), THING)
    other = {
        "another jar": right | {"thing-1.0.jar": "0" * 64},
        "a jar too many": {"thing-1.0.jar": right["thing-1.0.jar"]},
        "a jar too few": right | {"other-1.0.jar": "0" * 64},
    }
    for pins in other.values():
        monkeypatch.setattr(kit, "_pins", lambda _file, pins=pins: {"thing-1.0": pins})
        with pytest.raises(LabError, match=r"of thing-1.0 is not the one that was pinned: nothing of it"):
            kit.classpath(java(), THING)


def test_the_versions_that_were_seen_to_run_are_pinned() -> None:
    for version in ("2.4.1", "2.5.1", "2.8.2", "3.0.2", "3.9.1", "4.1.1", "4.2.1", "4.3.1", KAFKA_VERSION):
        pins = kit.pinned(kit.broker_jars(KafkaVersion.of(version)))
        assert pins is not None
        assert {f"kafka_2.13-{version}.jar", f"kafka-clients-{version}.jar"} <= pins.keys()
        assert all(len(bytes.fromhex(digest)) == 32 for digest in pins.values())
    assert kit.pinned(mirror_maker.JARS) is not None


def test_disk_full_while_fetching(repository: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: the same error at the same write."""
    limited = ("sh", "-c", 'ulimit -f 500; exec "$@"', "sh")
    done = subprocess_of(limited)
    assert done.returncode == 1
    assert "LabError: the disk is full: thing-1.0 could not be fetched — free some space" in done.stderr
    assert not left_over(tmp_path / "cache" / "repl")
    assert subprocess_of().returncode == 0


def test_two_at_once_fetch_once(repository: Path) -> None:
    both = [
        subprocess.Popen([sys.executable, "-c", FETCH], env=environment({}), stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=180)[0].decode().splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0][-1] == said[1][-1]
    assert sorted(len(lines) > 1 for lines in said) == [False, True], (
        "only one of them had something to report"
    )
    assert kit.whole(cache_folder() / "thing-1.0")


def subprocess_of(through: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*through, sys.executable, "-c", FETCH],
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
