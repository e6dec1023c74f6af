"""What happens on a terminal and in a pipe while clusters are read."""

import os
import signal
import socket
import subprocess

import pytest

from tests.commands import REPL, begin, environment
from tests.endpoints import endpoint
from tests.records import create_topic


def test_ctrl_c_while_a_cluster_keeps_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        running = begin(
            "import", "dc1", "--bootstrap", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "60s"
        )
        connection, _ = silent.accept()  # now it waits for an answer
        with connection:
            os.killpg(running.pid, signal.SIGINT)
            output, errors = running.communicate(timeout=50)  # well before it would have given up
    assert running.returncode == 130, errors
    assert errors.strip() == "Interrupted."
    assert output == ""


@pytest.mark.integration
@pytest.mark.long
def test_into_head_and_on_a_narrow_terminal(lab, fresh) -> None:
    for number in range(3):
        create_topic(lab.clusters["dc1"].client, fresh(f"topic-{number}"))
    bootstrap = endpoint(lab, "dc1").bootstrap
    command = " ".join([*REPL, "import", "dc1", "--bootstrap", bootstrap])
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} | head -1"],
        env=environment({"COLUMNS": "40"}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# What dc1 held on ")
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
