"""A drill on real clusters: a promise that is kept, and one that this topology can't keep."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from runtime.launch.processes import marked
from tests.commands import begin, repl
from tests.records import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.long]

# The rules hold what the job needs at paris, as a source and, for the failback, as a destination.
TOPOLOGY = r"""
apiVersion: repl/v1
name: shop
clusters:
  paris:
    bootstrap: kafka.paris.example.com:9092
    id: not-here
    client:
      security.protocol: SASL_SSL
      sasl.mechanism: SCRAM-SHA-256
      sasl.username: shop
      sasl.password: {env: NOT_HERE}
  tokyo:
    bootstrap: kafka.tokyo.example.com:9092
    client:
      security.protocol: SSL
      ssl.certificate.location: /not/here.crt
      ssl.key.location: /not/here.key
flows:
  - name: orders
    from: paris
    to: tokyo
    topics: {include: [orders]}
    protect: acl
    acls: {sync: true}
    groups: {every: 500ms}
    follow: {every: 500ms}
  - name: payments
    from: paris
    to: tokyo
    topics: {include: ['payments\..*']}
    groups: {sync: false}
    follow: {every: 500ms}
  - name: people
    from: paris
    to: tokyo
    topics: {include: [people, homes]}
    groups: {every: 500ms}
    transform:
      value: {format: json, schema: 'id BIGINT, email STRING, born DATE'}
      key: {format: text}
      where: value.id >= 0
      set: {value.email: 'concat(sha2(value.email, 256), value.id)'}
      drop: [value.born]
    follow: {every: 500ms}
acls:
  - {topic: [orders, people, homes], allow: [CREATE, READ, WRITE, ALTER, ALTER_CONFIGS]}
  - {topic: [payments., __repl.], prefixed: true, allow: [CREATE, READ, WRITE, ALTER, ALTER_CONFIGS]}
  - {transactional_id: repl., prefixed: true, allow: WRITE}
  - {transactional_id: '*', allow: DESCRIBE}
  - {group: shop-, prefixed: true, allow: [READ, DESCRIBE]}
  - {group: repl., prefixed: true, allow: READ}
  - {whole_cluster: true, allow: [DESCRIBE, ALTER]}
drill:
  max_rto: 1ms
  max_rpo: 100000
  samples: {homes: samples/homes.jsonl}
  versions: {paris: 3.9.1}
"""


def topology(folder: Path) -> Path:
    tree = yaml.safe_load(TOPOLOGY)
    for rule in tree["acls"]:
        rule |= {"cluster": "paris", "principal": "User:shop"}
    value = {"text": '{"id": 7, "email": "a@b.c", "born": "2001-02-03"}'}
    (folder / "samples").mkdir()
    (folder / "samples" / "homes.jsonl").write_text(json.dumps({"key": None, "value": value, "headers": []}))
    file = folder / "topology.yaml"
    file.write_text(yaml.safe_dump(tree))
    return file


def test_a_drill_finds_the_group_that_starts_anew(tmp_path: Path) -> None:
    file = topology(tmp_path)
    home = tmp_path / "home"
    page, metrics = tmp_path / "drill.html", tmp_path / "drill.prom"
    done = repl(
        *("drill", str(file), "--html", str(page), "--metrics", str(metrics)),
        env={"REPL_HOME": str(home)},
        timeout=900,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "group drill-orders goes on at tokyo where it stopped: 0 read again, 0 skipped" in done.stdout
    assert "group drill-payments goes on at tokyo where it stopped: 100 read again, 0 skipped" in done.stdout
    assert "groups.sync is off for this flow, so its consumers start anew at tokyo" in done.stdout
    assert "group drill-people goes on at tokyo where it stopped: 0 read again, 0 skipped" in done.stdout
    assert "(wanted: at most 0.001 s)" in done.stdout
    assert "The drill failed: 2 promises broken." in done.stdout

    (report,) = json.loads(
        repl("drill", str(file), "--history", "--json", env={"REPL_HOME": str(home)}).stdout
    )["drills"]
    (scenario,) = report["scenarios"]
    assert {one["text"]: one["measured"] for one in scenario["promises"] if not one["kept"]} == {
        "time from the loss until a consumer of each group read on (RTO)": f"{scenario['rto_s']:.1f} s",
        "group drill-payments goes on at tokyo where it stopped": "100 read again, 0 skipped",
    }
    (taken,) = [one for one in scenario["promises"] if "transform of people" in one["text"]]
    assert taken["measured"] == "0 bad, 600 arrived, 0 left out by where"
    assert [one["text"] for one in scenario["promises"]][-2:] == [
        "both sides hold the same records, each once",
        "a plan shows no changes",
    ]
    measured = {one["text"]: one["measured"] for one in scenario["promises"]}
    assert {text: found for text, found in measured.items() if "rule" in text or "drill-other" in text} == {
        "drill-other can't write the mirrors of orders at tokyo, though a rule lets it": "0 of 1 topics",
        "rules on the topics of orders are at tokyo": "1 of 1 topics",
        "after the failover, drill-other may write the mirrors of orders at tokyo": "1 of 1 topics",
    }
    assert {text: found for text, found in measured.items() if "principal" in text} == {
        f"the jobs' principal User:shop has the rights at paris that {what}": "all that copying needs"
        for what in ("the flows need", "the failback needs")
    }
    applied = next(one for one in scenario["steps"] if one["command"].startswith("repl apply"))
    assert "acl.paris.allow.User:shop.WRITE.topic.orders: created" in applied["output"]
    assert {"people", "homes"} <= {note.partition(":")[0] for note in report["notes"]}
    assert scenario["rto_s"] > 0
    assert [one["command"].split()[1] for one in scenario["steps"] if one["command"]][:2] == [
        "apply",
        "failover",
    ]
    assert "paris is lost" in page.read_text()
    assert 'repl_drill_passed{topology="shop"} 0' in metrics.read_text()
    assert "repl_drill_last_success_timestamp" not in metrics.read_text()
    assert not (home / "drill").exists()


def test_a_right_that_the_job_lacks_ends_the_drill_and_is_named(tmp_path: Path) -> None:
    file = topology(tmp_path)
    tree = yaml.safe_load(file.read_text())
    tree["clusters"]["tokyo"]["principal"] = "User:CN=repl,O=shop"
    rule = {"cluster": "tokyo", "principal": "User:CN=repl,O=shop"}
    tree["acls"] += [
        {**rule, "topic": ["orders", "people", "homes", "payments.", "__repl."], "prefixed": True}
        | {"allow": ["CREATE", "READ", "ALTER", "ALTER_CONFIGS"]},
        {**rule, "topic": ["people", "homes", "payments.", "__repl."], "prefixed": True, "allow": "WRITE"},
        {**rule, "transactional_id": "repl.", "prefixed": True, "allow": "WRITE"},
        {**rule, "group": "*", "allow": "READ", "host": "10.0.0.7"},
        {**rule, "whole_cluster": True, "allow": ["DESCRIBE", "ALTER"]},
    ]
    file.write_text(yaml.safe_dump(tree))
    done = repl("drill", str(file), env={"REPL_HOME": str(tmp_path / "home")}, timeout=900)
    assert done.returncode == 2, done.stdout + done.stderr
    (broken,) = [one for one in done.stdout.splitlines() if one.lstrip().startswith("BROKEN")]
    assert (
        "the jobs' principal User:CN=repl,O=shop has the rights at tokyo that the flows need:"
        " it lacks WRITE on topic orders (wanted: all that copying needs)"
    ) in broken
    assert "failover" not in done.stdout


@contextmanager
def begun(file: Path, home: Path, until: str) -> Iterator["subprocess.Popen[str]"]:
    """A drill that has just said so, in a process of its own."""
    env = {"REPL_HOME": str(home), "PYTHONUNBUFFERED": "1"}
    with begin("drill", str(file), env=env) as process:
        try:
            assert process.stderr is not None
            lines = []
            for line in process.stderr:
                lines.append(line)
                if until in line:
                    break
            else:
                raise AssertionError("".join(lines))
            yield process
        finally:
            process.kill()


def test_a_drill_that_was_killed_is_removed_by_the_next_and_sigterm_removes_that_one(tmp_path: Path) -> None:
    file, home = topology(tmp_path), tmp_path / "home"
    below = f"REPL_HOME={home / 'drill' / '.home'}"
    with begun(file, home, "the flows copy everything") as first:
        first.send_signal(signal.SIGKILL)
        assert first.wait(60) == -signal.SIGKILL
    left = set(marked(below))
    assert left
    assert (home / "drill" / ".lab").exists()

    with begun(file, home, "the topology is applied") as second:
        assert not left & set(marked(below))
        second.send_signal(signal.SIGTERM)
        _, said = second.communicate(timeout=240)
    assert second.returncode == 130
    assert "interrupted: the clusters and jobs are removed" in said
    wait_for(lambda: not list(marked(below)))
    assert not (home / "drill").exists()
