"""`repl ui` serves where no cluster answers, and ends with Ctrl-C."""

import json
import signal
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.commands import begin
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
