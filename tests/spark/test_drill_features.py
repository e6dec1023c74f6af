"""Features of a team on real clusters: two scenarios that use most steps, one of which breaks a promise."""

import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.commands import repl

pytestmark = [pytest.mark.spark, pytest.mark.long]

FEATURES = Path(__file__).parents[2] / "features" / "drilling"
STEP = Path(__file__).with_name("live_drill_step.py")


def write(folder: Path, feature: str, **more: Any) -> Path:
    flow = {"from": "paris", "to": "tokyo", "follow": {"every": "500ms"}}
    names = {"orders": {"every": "500ms"}, "payments": {"sync": "cutovers" in more, "every": "500ms"}}
    tree = {
        "apiVersion": "repl/v1",
        "name": "shop",
        "clusters": {
            "paris": {"bootstrap": "kafka.paris.example.com:9092"},
            "tokyo": {"bootstrap": "kafka.tokyo.example.com:9092"},
        },
        "topics": [{"name": "orders", "cluster": "paris", "partitions": 3, "config": {"retention.ms": "7d"}}],
        "flows": [
            {"name": name, "topics": {"include": [name]}, "groups": groups, **flow}
            for name, groups in names.items()
        ],
        **more,
    }
    (folder / "topology.yaml").write_text(yaml.safe_dump(tree))
    (folder / "features").mkdir()
    shutil.copy(FEATURES / feature, folder / "features")
    shutil.copy(STEP, folder / "features" / "conftest.py")
    return folder


@pytest.mark.timeout(1800)  # two failovers, a failback, a salvage and a live drill
def test_features_use_the_steps_and_the_report_says_which_promise_broke(tmp_path: Path) -> None:
    team, suites, reports = write(tmp_path, "loss.feature"), tmp_path / "drill.xml", tmp_path / "reports"
    env = {"REPL_HOME": str(tmp_path / "home"), "REPL_PLAN_KEY": "0123456789abcdef" * 2}
    done = repl(
        *("drill", str(team / "topology.yaml"), "--features", str(team / "features")),
        *("--junit", str(suites), "--reports", str(reports), "--max-rpo", "40", "--max-rto", "1ms"),
        env=env,
        timeout=1500,
    )
    print(done.stderr, done.stdout)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Loss of paris: paris is cut off and comes back: failed" in done.stdout
    assert "(wanted: at most 0.001 s); the failover takes too long for this limit" in done.stdout
    assert (
        "group audit goes on at tokyo where it stopped: 20 read again, 0 skipped "
        "(wanted: 0 read again, 0 skipped); "
        "groups.sync is off for this flow, so its consumers start anew at tokyo"
    ) in done.stdout
    assert "The drill failed: 3 promises broken." in done.stdout

    (file,) = reports.glob("*.json")
    first, second = json.loads(file.read_text())["scenarios"]
    assert (first["rpo_records"], first["read_again"], first["skipped"]) == (40, 0, 0)
    assert [one["wanted"] for one in first["promises"] if not one["kept"]] == ["at most 0.001 s"]
    assert first["promises"][-2]["wanted"] == "at most 40"
    # The loss is counted after the step that failed.
    assert [one["failed"] for one in second["steps"][-2:]] == [True, False]
    late, failed = ElementTree.parse(suites).getroot()
    assert (late.get("failures"), failed.get("failures"), failed.get("errors")) == ("1", "2", "0")
    assert "signed with this key" in repl("drill", "--check", str(file), env=env).stdout
    assert not (tmp_path / "home" / "drill").exists()


@pytest.mark.timeout(1200)
def test_a_team_rehearses_how_it_leaves_a_cluster(tmp_path: Path) -> None:
    gate = {"for": "1s", "verify": "10%"}
    waves = [
        {"name": "billing", "topics": ["orders"], "groups": ["billing"], "gate": gate},
        {"name": "rest", "topics": [".*"], "groups": [".*"], "gate": gate},
    ]
    cutovers = [{"name": "to-tokyo", "flows": ["orders", "payments"], "waves": waves}]
    team = write(tmp_path, "leaving.feature", cutovers=cutovers)
    done = repl(
        *("drill", str(team / "topology.yaml"), "--features", str(team / "features")),
        env={"REPL_HOME": str(tmp_path / "home")},
        timeout=1100,
    )
    print(done.stderr, done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
