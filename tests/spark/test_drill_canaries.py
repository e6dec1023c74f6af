"""Canaries cross clusters that play production: it stays as it is, nothing is left, also after kill -9."""

import json
import re
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from planner.config import load
from planner.drill import canaries
from planner.drill.canaries import CanaryDrill
from planner.kafka import ClusterEndpoint, run_at
from planner.kafka.log import compacted, read
from planner.model.diagnostic import ExitCode, Failure
from planner.observe.disk_space import disk_space
from planner.workflows.audit.access import endpoints_of
from planner.workflows.requests import DrillRequest
from planner.workflows.topology import kill_all_below
from runtime.contract.spec import naming
from runtime.lab.lab import Lab
from tests.commands import begin, repl
from tests.records import commit_group, create_topic, group_offsets, wait_for, write
from tests.rights import Right, principal, rights

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

CLUSTERS = ("dc1", "dc2")
INTERNAL = (naming.LEDGER, naming.OFFSET_MAP, naming.PRODUCERS, naming.CHECKPOINTS, naming.STATUS)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "home"
    kill_all_below(tmp_path / "home")


def content(lab: Lab, cluster: str, topic: str) -> dict[str, Any]:
    """Everything of a cluster that a drill might change: names, settings, offsets of groups, and ends."""
    client = lab.clusters[cluster].client
    admin = AdminClient({**client, "log_level": 0})
    every = admin.list_topics(timeout=60).topics.items()
    topics = {name: len(one.partitions) for name, one in every if not naming.is_internal(name)}
    configs = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics])
    groups = [one.group_id for one in admin.list_consumer_groups().result(60).valid]
    consumer = Consumer({**client, "group.id": "ends", "log_level": 0})
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, one), timeout=60) for one in range(2)]
    finally:
        consumer.close()
    return {
        "topics": topics,
        "configs": {
            one.name: {key: entry.value for key, entry in found.result(60).items()}
            for one, found in configs.items()
        },
        # The job commits its own progress to groups that begin with "repl.".
        "offsets": {
            name: group_offsets(client, name) for name in sorted(groups) if not name.startswith("repl.")
        },
        "ends": ends,
    }


def drill_records(lab: Lab, cluster: str) -> list[bytes]:
    """The keys of internal topics that compaction would keep of a drill's flows and jobs."""
    one = lab.clusters[cluster]
    endpoint = ClusterEndpoint(cluster, one.bootstrap)
    known = AdminClient(one.client).list_topics(timeout=60).topics
    return [
        key
        for topic in INTERNAL
        if topic in known
        for partition in known[topic].partitions
        for key, record in compacted(
            run_at(endpoint, partial(read, topic=topic, partition=partition))
        ).items()
        if b"drill." in key or b'"drill.' in (record.value or b"")
    ]


@pytest.mark.timeout(900)  # an apply and two drills, each with jobs of its own
def test_canaries_change_nothing_of_production_and_leave_nothing(
    lab: Lab, fresh: Callable[[str], str], tmp_path: Path, home: Path
) -> None:
    orders, billing, name = fresh("orders"), fresh("billing"), fresh("shop")
    source = lab.clusters["dc1"].client
    create_topic(source, orders, partitions=2)
    write(source, orders, [f"{number}".encode() for number in range(60)])
    flow = {"name": name, "from": "dc1", "to": "dc2", "topics": {"include": [orders]}}
    body = {
        "apiVersion": "repl/v1",
        "name": name,
        "clusters": {one: {"bootstrap": lab.clusters[one].bootstrap} for one in CLUSTERS},
        "flows": [{**flow, "groups": {"include": [billing], "every": "500ms"}}],
        "jobs": {"dc2": {"slots": 1, "memory": "512m"}},
        "drill": {"canaries": True},
    }
    file = tmp_path / "topology.yaml"
    file.write_text(json.dumps(body))
    env = {"REPL_HOME": str(home)}
    applied = repl("apply", str(file), "--auto-approve", env=env)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    commit_group(source, billing, {(orders, one): 10 for one in range(2)})
    wait_for(lambda: set(group_offsets(lab.clusters["dc2"].client, billing).values()) == {10})
    before = {one: content(lab, one, orders) for one in CLUSTERS}

    drill = ("drill", str(file), "--against", "live", "--canaries")
    with begin(*drill, env={**env, "PYTHONUNBUFFERED": "1"}) as killed:
        assert killed.stderr is not None
        said = []
        for line in killed.stderr:
            said.append(line)
            if "stops in the middle" in line:
                break
        killed.send_signal(signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL, "".join(said)
    (record,) = (home / "canaries").iterdir()
    scratch = f"__drill.{record.name}.{name}"
    for one in CLUSTERS:
        assert scratch in content(lab, one, orders)["topics"]
    assert drill_records(lab, "dc2")

    done = repl(*drill, "--json", env=env, timeout=400)
    after = {one: content(lab, one, orders) for one in CLUSTERS}
    print(done.stderr)
    assert after == before
    assert done.returncode == 0, done.stdout + done.stderr
    *_, scenario = json.loads(done.stdout)["scenarios"]
    assert scenario["passed"], scenario
    (figures,) = scenario["canaries"]
    assert (figures["flow"], figures["records"]) == (name, 200)
    assert (scenario["read_again"], scenario["skipped"]) == (0, 0)
    assert [one["measured"] for one in scenario["promises"]][1:] == ["0 read again, 0 skipped", "nothing"]
    print({key: figures[key] for key in ("p50_ms", "max_ms")})
    for one in CLUSTERS:
        assert drill_records(lab, one) == []
    assert not list((home / "canaries").iterdir())
    assert [one.name for one in (home / "jobs").iterdir()] == ["dc2"]
    planned = repl("plan", str(file), "--detailed-exitcode", env=env)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    removed = repl("destroy", str(file), "--auto-approve", env=env)
    assert removed.returncode == 0, removed.stdout + removed.stderr


HEADINGS = (
    "To plan",
    "To apply",
    "A job, at its sources",
    "A job, at its destination",
    "Canary records of a live drill",
)


def granted(*without: str) -> list[Right]:
    """What docs/operations.md grants, each once, without these operations on scratch topics."""
    operations: dict[tuple[str, str, bool], set[str]] = {}
    for one in [one for heading in HEADINGS for one in rights(heading, "canaries-") if not one.condition]:
        left_out = without if (one.resource, one.name) == ("TOPIC", "__drill.") else ()
        known = operations.setdefault((one.resource, one.name, one.prefixed), set())
        known |= {*one.operations} - {*left_out}
    return [Right(*what, tuple(sorted(allowed)), "") for what, allowed in operations.items()]


@pytest.mark.timeout(600)
def test_canaries_need_the_rights_that_the_docs_tell_and_no_more(
    lab_sasl: Lab, fresh: Callable[[str], str], tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = fresh("shop")

    def topology(user: str, rules: list[Right]) -> Path:
        clusters = {
            one: {
                "bootstrap": lab_sasl.clusters[one].bootstrap,
                "client": principal(lab_sasl.clusters[one], user, rules, tmp_path),
            }
            for one in CLUSTERS
        }
        flow = {"name": name, "from": "dc1", "to": "dc2", "topics": {"include": ["canaries-orders"]}}
        body = {"apiVersion": "repl/v1", "name": name, "clusters": clusters, "flows": [flow]}
        file = tmp_path / f"{user}.yaml"
        file.write_text(json.dumps({**body, "drill": {"canaries": True}}))
        return file

    lacking = topology(fresh("lacking"), granted("DELETE", "WRITE"))
    env = {"REPL_HOME": str(home)}  # not our own: the processes that `home` ends have it
    refused = repl("drill", str(lacking), "--against", "live", "--canaries", env=env)
    assert refused.returncode == 3, refused.stdout + refused.stderr
    for one in CLUSTERS:
        for right in ("DELETE", "WRITE"):
            assert re.search(rf"no right to {right} on topic __drill\..*\.{name} at {one}", refused.stderr)
    assert refused.stderr.count("no right to") == 4
    admins = {one: AdminClient(lab_sasl.clusters[one].client) for one in CLUSTERS}
    for admin in admins.values():
        topics = admin.list_topics(timeout=60).topics
        assert not [one for one in topics if one.startswith("__drill.") and one.endswith(f".{name}")]

    monkeypatch.setenv("REPL_HOME", str(home))
    file = topology(fresh("allowed"), granted())
    drill = CanaryDrill(DrillRequest(file, canaries=True), load(file), print)
    for name, endpoint in endpoints_of(load(file).clusters.values()).items():
        (space,) = run_at(endpoint, partial(disk_space, timeout_s=60.0)).values()
        assert isinstance(space, int), name
        assert space > canaries.LEAST_ROOM
    monkeypatch.setattr(canaries, "LEAST_ROOM", 1 << 60)
    with pytest.raises(Failure) as full:
        drill.check()
    assert [one.exit for one in full.value.diagnostics] == [ExitCode.REFUSED] * 2
    assert re.search(r"broker \d+ of dc2 has [\d,]+ MB left on a disk, and the drill needs", str(full.value))
    monkeypatch.undo()
    monkeypatch.setenv("REPL_HOME", str(home))
    drill.check()
    assert drill.notes == []
    scenario = drill.rehearse()
    assert scenario.passed, scenario
    assert [one.kept for one in scenario.promises] == [True, True, True]
