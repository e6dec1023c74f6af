"""A drill on real clusters: a promise that is kept, and one that this topology can't keep."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests.commands import repl

pytestmark = pytest.mark.spark


def topology(folder: Path) -> Path:
    flow = {"from": "paris", "to": "tokyo", "follow": {"every": "500ms"}}
    file = folder / "topology.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "repl/v1",
                "name": "shop",
                "clusters": {
                    "paris": {"bootstrap": "kafka.paris.example.com:9092", "id": "not-here"},
                    "tokyo": {"bootstrap": "kafka.tokyo.example.com:9092"},
                },
                "flows": [
                    {
                        "name": "orders",
                        "topics": {"include": ["orders"]},
                        "groups": {"every": "500ms"},
                        **flow,
                    },
                    {
                        "name": "payments",
                        "topics": {"include": [r"payments\..*"]},
                        "groups": {"sync": False},
                        **flow,
                    },
                ],
                "drill": {"max_rto": "10m"},
            }
        )
    )
    return file


def test_a_drill_finds_the_group_that_starts_anew(tmp_path: Path) -> None:
    file = topology(tmp_path)
    home = tmp_path / "home"
    page, suites, metrics = (tmp_path / name for name in ("drill.html", "drill.xml", "drill.prom"))
    done = repl(
        *("drill", str(file), "--html", str(page), "--junit", str(suites), "--metrics", str(metrics)),
        env={"REPL_HOME": str(home)},
        timeout=900,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "group drill-orders goes on at tokyo where it stopped: 0 read again, 0 skipped" in done.stdout
    assert "group drill-payments goes on at tokyo where it stopped: 100 read again, 0 skipped" in done.stdout
    assert "groups.sync is off for this flow, so its consumers start anew at tokyo" in done.stdout
    assert "The drill failed: 1 promise broken." in done.stdout

    (report,) = json.loads(
        repl("drill", str(file), "--history", "--json", env={"REPL_HOME": str(home)}).stdout
    )["drills"]
    (scenario,) = report["scenarios"]
    assert [one["kept"] for one in scenario["promises"]] == [True, True, True, False, True, True, True]
    assert scenario["rto_s"] > 0
    assert [one["command"].split()[1] for one in scenario["steps"] if one["command"]][:2] == [
        "apply",
        "failover",
    ]
    (suite,) = ElementTree.parse(suites).getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")
    assert "paris is lost" in page.read_text()
    assert 'repl_drill_passed{topology="shop"} 0' in metrics.read_text()
    assert "repl_drill_last_success_timestamp" not in metrics.read_text()
    assert not (home / "drill").exists()
