"""What goes wrong around the lab is one clear sentence and exit 1, no traceback; nothing is left running."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from planner.cli.app import run
from runtime.lab.cluster import LabClusterSpec
from runtime.lab.files import LabError, exclusive
from runtime.lab.lab import Lab
from tests.commands import begin, repl
from tests.labs import spec
from tests.records import wait_for

Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refused:
    """refused("lab", "up", PATH="…") → the sentence with which a command is refused in this environment."""

    def told(*arguments: str, **environ: str | None) -> str:
        with monkeypatch.context() as changed:
            for name, value in environ.items():
                if value is None:
                    changed.delenv(name, raising=False)
                else:
                    changed.setenv(name, value)
            assert run(arguments) == 1
        said = capsys.readouterr().err
        assert "Traceback" not in said
        assert said.count("error:") == 1
        return said.partition("error: ")[2]

    return told


def processes_of(home: Path) -> list[str]:
    """Every process, java above all, that has to do with a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(home) in words and int(entry.name) != os.getpid():
            found.append(words.replace("\0", " "))
    return found


def test_no_java(tmp_path: Path, refused: Refused) -> None:
    said = refused("lab", "up", "--home", str(tmp_path / "lab"), PATH=str(tmp_path), JAVA_HOME=None)
    assert "Java 17 or newer is needed; no java was found on PATH — install it" in said


def test_two_at_once(tmp_path: Path, refused: Refused) -> None:
    with exclusive(tmp_path / "lock", "repl lab up"):
        said = refused("lab", "up", "--ports", "auto", "--home", str(tmp_path))
    assert f"repl lab up cannot begin: repl lab up (process {os.getpid()}" in said


@pytest.mark.parametrize("place", ["a-file", "a-file/below", "/proc/lab"])
def test_home_not_writable(tmp_path: Path, place: str, refused: Refused) -> None:
    (tmp_path / "a-file").touch()
    home = str(tmp_path / place)
    said = refused("lab", "up", "--home", home)
    assert said.startswith(f"{home}: cannot be written to: ")
    assert "choose another --home" in said


def test_unknown_cluster(tmp_path: Path, refused: Refused) -> None:
    for action in ("kill", "start", "pause", "unpause"):
        said = refused("lab", action, "dc9", "--home", str(tmp_path))
        assert "there is no cluster 'dc9' in this lab — bring it up first: repl lab up" in said


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--clusters", ","), "--clusters names no cluster"),
        (("--clusters", "../dc1"), "is not a name for a cluster"),
        (("--version", "dc3=2.8.2"), "--version dc3=2.8.2 names none of these"),
        (("--set", "retention"), "--set retention is not KEY=VALUE"),
        (("--set", "=1"), "--set =1 is not KEY=VALUE"),
        (
            ("--set", "dc9:a=b"),
            "--set dc9:a=b is for 'dc9', which is none of these clusters — they are dc1, dc2",
        ),
        (("--clusters", "a,b,c,d,e,f"), "no more fixed ports for another cluster — use --ports auto"),
    ],
)
def test_flags_that_make_no_sense(
    tmp_path: Path, flags: tuple[str, ...], sentence: str, refused: Refused
) -> None:
    assert sentence in refused("lab", "up", "--home", str(tmp_path / "lab"), *flags)


def test_a_folder_that_holds_other_things_is_not_touched(tmp_path: Path, refused: Refused) -> None:
    mine = tmp_path / "dc1" / "mine"
    mine.parent.mkdir()
    mine.touch()
    refused("lab", "up", "--home", str(tmp_path), "--ports", "auto")
    run(("lab", "down", "--purge", "--home", str(tmp_path)))
    assert mine.exists()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.mark.integration
class TestWithJava:
    def test_taken_port_names_its_holder(self, tmp_path: Path, listener: socket.socket) -> None:
        port = listener.getsockname()[1]
        with pytest.raises(LabError, match=rf"127.0.0.1:{port} is taken by process {os.getpid()} \(.*python"):
            Lab(tmp_path / "lab").up([LabClusterSpec("dc1", port=port)])
        assert not processes_of(tmp_path)

    def test_a_port_of_another_lab_names_that_lab(self, tmp_path: Path, lab: Lab) -> None:
        port = lab.clusters["dc1"].nodes[0].port
        with pytest.raises(LabError, match=f"a broker of the lab in {lab.home}.*--ports auto"):
            Lab(tmp_path / "lab").up([LabClusterSpec("dc1", port=port)])

    @pytest.mark.parametrize(
        ("moment", "security"), [("format.args", "sasl"), ("kafka.Kafka", "plain")], ids=["format", "start"]
    )
    def test_ctrl_c_leaves_nothing(self, tmp_path: Path, moment: str, security: str) -> None:
        home = tmp_path / "lab"
        process = begin("lab", "up", "--ports", "auto", "--home", str(home), "--security", security)
        wait_for(lambda: any(moment in one for one in processes_of(home)), 120, longest=0.1)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole foreground group
        _, said = process.communicate(timeout=180)
        assert process.returncode == 130, said
        assert "Traceback" not in said
        assert not processes_of(home)
        assert "There is no lab" in repl("lab", "status", "--home", str(home)).stderr

    def test_a_broker_that_dies_shows_its_last_words(self, tmp_path: Path) -> None:
        broken = spec("dc1", properties={"authorizer.class.name": "no.such.Class"})
        lab = Lab(tmp_path / "lab")
        with pytest.raises(
            LabError, match=r"dc1 died at its start(.|\n)*ClassNotFoundException: no.such.Class"
        ):
            lab.up([broken, spec("dc2")])
        assert not processes_of(tmp_path)
        assert not lab.clusters

    def test_what_kafka_refuses_to_format(self, tmp_path: Path) -> None:
        with pytest.raises(LabError, match=r"refused to format dc1: .*Not a number of type INT"):
            Lab(tmp_path / "lab").up([spec("dc1", properties={"broker.session.timeout.ms": "soon"})])
