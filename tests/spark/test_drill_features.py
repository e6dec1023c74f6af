"""Features of a team on real clusters: two scenarios that use most steps, one of which breaks a promise."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests.commands import repl

pytestmark = pytest.mark.spark

FEATURE = """\
Feature: Loss of paris

  Scenario: paris is cut off and comes back
    Given 60 records are written to every topic at paris
    And the group billing has read 20 records of orders at paris
    And the link to paris is 20 ms slower
    And producers write 50 records/s to orders at paris
    And the producers have written 30 records to each topic
    And the producers stop
    And the flows have copied everything
    When the topic orders at paris is changed to {config: {retention.ms: 8d}}
    Then the plan shows "retention.ms: 7d -> 8d"
    When the engineer runs repl apply
    Then the plan shows no changes
    When the engineer runs repl pause orders
    And 40 records are written to orders at paris
    And paris is cut off
    And the engineer runs repl failover paris
    Then the RPO is at most 40 records
    And the RPO is at most 300 s
    And the group billing resumes at tokyo with 0 records read again and 0 skipped
    And the RTO is at most 600 s
    And repl status shows orders as failed_over
    And no job is running
    When 25 records are written to orders at tokyo
    And the link to paris is restored
    Then salvage lists 40 records of orders
    When the engineer runs repl salvage orders --replay
    Then the group billing resumes at tokyo with 0 records read again and 0 skipped
    When the engineer runs repl failback paris
    And the engineer runs repl failback paris --switch
    Then the group billing resumes at paris with 0 records read again and 0 skipped
    And both sides hold the same records
    And nothing is orphaned

  Scenario: retention is too short, and the machine of the jobs is lost with paris
    Given 60 records are written to payments at paris
    And the group audit has read 20 records of payments at paris
    And the flows have copied everything
    And the engineer runs repl pause payments
    And 10 records are written to payments at paris
    And retention deletes every record of payments at paris
    When the engineer runs repl resume payments
    Then the exit code is 1
    And repl status shows payments as data_loss
    And payments at tokyo holds 60 records
    When the machine of the jobs is lost
    And 1 of 3 brokers of paris are lost
    And paris is lost
    And the engineer runs repl failover paris
    Then the group audit resumes at tokyo with 0 records read again and 0 skipped
    And the plan shows no changes
"""


def write(folder: Path, feature: str) -> Path:
    flow = {"from": "paris", "to": "tokyo", "follow": {"every": "500ms"}}
    names = {"orders": {"every": "500ms"}, "payments": {"sync": False}}
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
    }
    (folder / "topology.yaml").write_text(yaml.safe_dump(tree))
    (folder / "features").mkdir()
    (folder / "features" / "loss.feature").write_text(feature)
    return folder


def test_features_use_the_steps_and_the_report_says_which_promise_broke(tmp_path: Path) -> None:
    team, suites, reports = write(tmp_path, FEATURE), tmp_path / "drill.xml", tmp_path / "reports"
    env = {"REPL_HOME": str(tmp_path / "home"), "REPL_PLAN_KEY": "0123456789abcdef" * 2}
    done = repl(
        *("drill", str(team / "topology.yaml"), "--features", str(team / "features")),
        *("--junit", str(suites), "--reports", str(reports)),
        env=env,
        timeout=900,
    )
    print(done.stderr, done.stdout)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Loss of paris: paris is cut off and comes back: passed" in done.stdout
    assert (
        "group audit goes on at tokyo where it stopped: 20 read again, 0 skipped "
        "(wanted: 0 read again, 0 skipped); "
        "groups.sync is off for this flow, so its consumers start anew at tokyo"
    ) in done.stdout
    assert "The drill failed: 1 promise broken." in done.stdout

    (file,) = reports.glob("*.json")
    first, second = json.loads(file.read_text())["scenarios"]
    assert (first["rpo_records"], first["read_again"], first["skipped"]) == (40, 0, 0)
    assert second["steps"][-1]["failed"]
    passed, failed = ElementTree.parse(suites).getroot()
    assert (passed.get("failures"), failed.get("failures"), failed.get("errors")) == ("0", "1", "0")
    assert "signed with this key" in repl("drill", "--check", str(file), env=env).stdout
    assert not (tmp_path / "home" / "drill").exists()
