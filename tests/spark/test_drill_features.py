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
    And a live drill is killed, and another changes nothing
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
    And 1 of 3 brokers of tokyo are lost
    And half of paris is lost
    And the engineer runs repl failover paris
    Then the group audit resumes at tokyo with 0 records read again and 0 skipped
    And the plan shows no changes
"""


# The cluster of the scenario plays production, while its producers write.
CONFTEST = """\
import json
import signal
import subprocess
import sys

from confluent_kafka import ConsumerGroupTopicPartitions as Offsets
from confluent_kafka.admin import AdminClient, ConfigResource
from pytest_bdd import given

TOPIC = ConfigResource.Type.TOPIC


def group_offsets(admin, name):
    (found,) = admin.list_consumer_group_offsets([Offsets(name)]).values()
    return {(one.topic, one.partition): one.offset for one in found.result().topic_partitions}


def content(drill, cluster):
    admin = AdminClient(drill.replica.client(cluster))
    topics = {name: len(one.partitions) for name, one in admin.list_topics(timeout=60).topics.items()}
    configs = admin.describe_configs([ConfigResource(TOPIC, name) for name in topics])
    groups = [one.group_id for one in admin.list_consumer_groups().result().valid]
    return {
        "topics": topics,
        "configs": {
            one.name: {key: entry.value for key, entry in found.result().items()}
            for one, found in configs.items()
        },
        "groups": sorted(groups),
        # The job commits its own progress to groups that begin with "repl.".
        "offsets": {name: group_offsets(admin, name) for name in groups if not name.startswith("repl.")},
        "payments": sorted(drill.values(cluster, "payments")),
        "others": [one for one in drill.values(cluster, "orders") if "drill" not in json.loads(one)],
    }


@given("a live drill is killed, and another changes nothing")
def _(drill):
    clusters = {name: AdminClient(drill.replica.client(name)) for name in ("paris", "tokyo")}

    def synced():
        at = [set(group_offsets(admin, "billing")) for admin in clusters.values()]
        return at[0] == at[1] != set()

    drill.until(synced, "the group billing was not translated")
    drill.until(lambda: len(drill.values("tokyo", "payments")) == 60, "payments was not copied")
    before = {name: content(drill, name) for name in clusters}
    command = [sys.executable, "-m", "planner", "drill", "--against", "live"]
    folder = drill.replica.file.parent
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as killed:
        for line in killed.stderr:
            if "would lose" in line:
                break
        killed.send_signal(signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    done = drill.run("", "drill", "--against", "live", "--json")
    assert {name: content(drill, name) for name in clusters} == before
    assert done.returncode == 2, done.stderr
    report = json.loads(done.stdout)
    (scenario,) = report["scenarios"]
    assert report["against"] == "live" and not scenario["problem"], scenario
    assert scenario["rpo_records"] is not None and scenario["rto_s"] > 0, scenario
    broken = [one["text"] for one in scenario["promises"] if not one["kept"]]
    assert broken == ["payments translates its consumer groups"], scenario
    kept = [one["text"] for one in scenario["promises"] if one["kept"]]
    assert "group billing of orders would go on at tokyo where it stopped" in kept
    assert "a new heartbeat crosses orders" in kept
    figures = {name: scenario[name] for name in ("rto_s", "rpo_records", "took_s")}
    print(f"live drill: {figures}", file=sys.stderr)
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
    (folder / "features" / "conftest.py").write_text(CONFTEST)
    return folder


@pytest.mark.timeout(1800)  # two failovers, a failback, a salvage and a live drill
def test_features_use_the_steps_and_the_report_says_which_promise_broke(tmp_path: Path) -> None:
    team, suites, reports = write(tmp_path, FEATURE), tmp_path / "drill.xml", tmp_path / "reports"
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
    assert second["steps"][-1]["failed"]
    late, failed = ElementTree.parse(suites).getroot()
    assert (late.get("failures"), failed.get("failures"), failed.get("errors")) == ("1", "2", "0")
    assert "signed with this key" in repl("drill", "--check", str(file), env=env).stdout
    assert not (tmp_path / "home" / "drill").exists()
