"""`repl validate`, as a user and a pipeline run it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from planner.cli.app import run
from tests.planner.config.given import CLUSTERS, written

TOPICS = "topics:\n  - {name: orders, cluster: [dc1, dc2]}\n  - {name: ledger, cluster: dc1}\n"
FLOWS = "flows:\n  - {name: dc1-to-dc2, from: dc1, to: dc2, topics: {include: ledger}}\n"


def test_every_mistake_is_a_line_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, CLUSTERS + "topics:\n  - {name: orders, cluster: dc9, partions: 3}\n")
    assert run(["validate", str(file)]) == 1
    assert capsys.readouterr() == (
        "",
        (
            f'error: {file}:7:29: there is no cluster "dc9" — did you mean "dc2"?\n'
            f'error: {file}:7:34: unknown key "partions" in a topic — did you mean "partitions"?\n'
        ),
    )


def test_warnings_do_not_fail_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, CLUSTERS + FLOWS.replace("ledger", "orders*"))
    assert run(["validate", str(file)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Valid: ")
    assert err.startswith(f'warning: {file}:7:62: "orders*" is a regex')


def test_what_can_be_proven_offline_fails_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    back = FLOWS.replace("dc1-to-dc2, from: dc1, to: dc2", "dc2-to-dc1, from: dc2, to: dc1").removeprefix(
        "flows:\n"
    )
    loop = (FLOWS + back).replace("{include: ledger}", "{include: ledger}, provenance: off")
    file = written(tmp_path, CLUSTERS + loop)
    assert run(["validate", str(file)]) == 1
    assert "provenance is off: records would be copied in an endless loop" in capsys.readouterr().err


def test_json_of_a_right_topology(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, CLUSTERS + TOPICS + FLOWS.replace("ledger", "orders*"))
    assert run(["validate", str(file), "--json"]) == 0
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert (said["format_version"], said["valid"], said["topology"], said["files"]) == (
        1,
        True,
        "test",
        [str(file)],
    )
    assert said["counts"] == {"clusters": 2, "topics": 3, "acls": 0, "quotas": 0, "flows": 1, "jobs": 1}
    assert (said["errors"], said["warnings"], len(said["digest"]), err) == (0, 1, 64, "")


def test_json_of_a_wrong_topology(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, CLUSTERS + "topics: [{name: a, cluster: dc9}]\n")
    assert run(["validate", str(file), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["valid"], said["errors"]) == (False, 1)
    assert said["diagnostics"] == [
        {
            "severity": "error",
            "summary": 'there is no cluster "dc9"',
            "way_out": 'did you mean "dc2"?',
            "code": "",
            "address": None,
            "source": {"file": str(file), "line": 6, "column": 29},
        }
    ]


COUNTED = """
import cProfile, pstats, sys
counted = cProfile.Profile()
counted.enable()
from planner.cli.app import run
code = run(sys.argv[1:])
counted.disable()
print(pstats.Stats(counted).total_calls)
sys.exit(code)
"""


def calls(*arguments: str) -> int:
    """Calls of functions from the first import on. Unlike seconds, they do not depend on other processes."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=240,
    )
    return int(done.stdout.split()[-1])


@pytest.mark.slow
def test_a_small_file_is_quick(tmp_path: Path) -> None:
    """0.6 s is promised. 450,000 calls take 0.25 s, and most of them import what the command needs."""
    assert calls("validate", str(written(tmp_path, CLUSTERS + TOPICS))) < 700_000


@pytest.mark.slow
def test_five_thousand_topics_are_quick(tmp_path: Path) -> None:
    """3 s are promised. 2,800,000 calls take 1.5 s: 470 for each topic."""
    topics = "".join(
        f'  - {{name: topic-{n}, cluster: dc1, partitions: 6, config: {{retention.ms: "{{{{ kept }}}}"}}}}\n'
        for n in range(5_000)
    )
    file = written(tmp_path, f"{CLUSTERS}vars: {{kept: 7d}}\ntopics:\n{topics}")
    assert calls("validate", str(file)) < 4_500_000
