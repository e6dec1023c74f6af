"""What `repl ui` says before it serves, how it ends, and that it serves where no cluster answers."""

import json
import signal
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.commands import begin, repl
from tests.topologies import without_answer

pytestmark = pytest.mark.slow


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    return without_answer(tmp_path)


def test_it_serves_where_no_cluster_answers_and_ends_with_ctrl_c(topology: Path) -> None:
    process = begin("ui", str(topology), "--port", "0", "--json", "--timeout", "1s", "--every", "100ms")
    assert process.stdout is not None
    try:
        told = json.loads(process.stdout.readline())
        with urlopen(told["url"] + "events") as events:
            next(line for line in events if line == b"event: change\n")
        with urlopen(told["url"]) as answer:
            page = answer.read().decode()
    finally:
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)

    assert told == {"format_version": 1, "url": told["url"], "token": False}
    assert "Cluster dc1 does not answer" in page
    assert "not known what would be lost" in page
    assert (process.returncode, output, "Traceback" in errors) == (130, "", False)


def test_a_taken_port(topology: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = repl("ui", str(topology), "--port", str(port))

    assert (done.returncode, done.stdout) == (1, "")
    assert f"127.0.0.1:{port} is taken: another process listens there" in done.stderr
    assert "--port 0" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--address", "0.0.0.0"], "0.0.0.0 can be reached from other machines, so the pages need a token"),
        (["--token-file", "none"], "--token-file none: No such file or directory"),
        (["--port", "65536"], "65536 is not in the range"),
    ],
)
def test_what_it_refuses(topology: Path, options: list[str], said: str) -> None:
    done = repl("ui", str(topology), *options)

    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr


def test_a_path_without_a_topology(tmp_path: Path) -> None:
    nothing = repl("ui", str(tmp_path / "none.yaml"))
    (tmp_path / "wrong.yaml").write_text("apiVersion: repl/v1\nname: x\nflow: []\n")
    wrong = repl("ui", str(tmp_path / "wrong.yaml"))

    assert (nothing.returncode, wrong.returncode) == (1, 1)
    assert "no such file or folder" in nothing.stderr
    assert "wrong.yaml:3:1" in wrong.stderr
