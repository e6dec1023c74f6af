"""A step of features/drilling: two live drills against the scenario's clusters while producers write."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

from confluent_kafka.admin import ConfigResource
from pytest_bdd import given

from planner.drill.scenario_run import ScenarioRun
from planner.drill.scratch import committed_offsets

TOPIC = ConfigResource.Type.TOPIC


def content(drill: ScenarioRun, cluster: str) -> dict[str, Any]:
    """What a live drill must not change. Records that producers write meanwhile are left out."""
    admin = drill.admin(cluster)
    topics = {name: len(one.partitions) for name, one in admin.list_topics(timeout=60).topics.items()}
    configs = admin.describe_configs([ConfigResource(TOPIC, name) for name in topics])
    listed = admin.list_consumer_groups().result().valid
    # The job commits its own progress to groups that begin with "repl.".
    groups = sorted(group.group_id for group in listed if not group.group_id.startswith("repl."))
    return {
        "topics": topics,
        "configs": {
            one.name: {key: entry.value for key, entry in found.result().items()}
            for one, found in configs.items()
        },
        "offsets": {name: committed_offsets(drill.endpoint(cluster), name) for name in groups},
        "payments": sorted(drill.values(cluster, "payments")),
        "others": [one for one in drill.values(cluster, "orders") if "drill" not in json.loads(one)],
    }


@given("a live drill is killed, and another changes nothing")
def _(drill: ScenarioRun) -> None:
    clusters = ("paris", "tokyo")

    def not_synced() -> bool:
        paris, tokyo = (committed_offsets(drill.endpoint(name), "billing").keys() for name in clusters)
        return not paris == tokyo != set()

    drill.wait_while(not_synced, "the group billing was not translated")
    drill.wait_while(lambda: len(drill.values("tokyo", "payments")) != 60, "payments was not copied")
    before = {name: content(drill, name) for name in clusters}
    command = [sys.executable, "-m", "planner", "drill", "--against", "live"]
    folder = drill.replica.file.parent
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as killed:
        for line in killed.stderr or ():
            if "would lose" in line:
                break
        killed.send_signal(signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    done = drill.run("", "drill", "--against", "live", "--json")
    assert {name: content(drill, name) for name in clusters} == before
    assert done.returncode == 2, done.stderr
    report = json.loads(done.stdout)
    (scenario,) = report["scenarios"]
    assert (report["against"], scenario["problem"]) == ("live", ""), scenario
    assert scenario["rpo_records"] is not None, scenario
    assert scenario["rto_s"] > 0, scenario
    broken = [one["text"] for one in scenario["promises"] if not one["kept"]]
    assert broken == ["payments translates its consumer groups"], scenario
    kept = [one["text"] for one in scenario["promises"] if one["kept"]]
    assert "group billing of orders would go on at tokyo where it stopped" in kept
    assert "a new heartbeat crosses orders" in kept
    figures = {name: scenario[name] for name in ("rto_s", "rpo_records", "took_s")}
    print(f"live drill: {figures}", file=sys.stderr)
