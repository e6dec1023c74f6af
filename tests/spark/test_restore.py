"""`repl restore` on real brokers and real Spark: every record once, as it was, whatever dies."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from runtime.lab.lab import Lab
from tests import checker
from tests.checker.reader import Log
from tests.checker.reader import read as consume
from tests.commands import repl
from tests.records import commit_group, create_topic, group_offsets, open_transaction, write
from tests.spark.backups import FLOW, BackupWriter
from tests.topologies import at, declared

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]
Fresh = Callable[[str], str]


class World:
    """A backup of dc1 in a folder, and a topology by which it is restored into dc2 or beside the living."""

    def __init__(self, lab: Lab, folder: Path, name: str) -> None:
        self.source, self.target = (dict(lab.clusters[one].client) for one in ("dc1", "dc2"))
        self.archive = folder / "archive"
        self.archive.mkdir()
        self.backup = BackupWriter(lab.clusters["dc1"], self.archive)
        self._env = {"REPL_ALLOW_FILES": str(lab.home)}  # the passwords of a lab with logins
        topology = at(lab, name, folder, ("dc1", "dc2"))
        for cluster, declaration in topology.clusters.items():
            declaration["client"] = dict(lab.clusters[cluster].settings())
        topology.more = {
            "endpoints": {"archive": {"file": str(self.archive), "format": "raw"}},
            "flows": [declared(FLOW, ".*", destination="archive")],
        }
        self.file = topology.write()

    def restore(
        self, *options: str, code: int = 0, to: str = "dc2", **env: str
    ) -> subprocess.CompletedProcess[str]:
        env = self._env | env
        done = repl("restore", "archive", *self._arguments(to, *options), env=env, timeout=300)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def _arguments(self, to: str, *options: str) -> list[str]:
        asked = [] if "--out" in options else ["--auto-approve"]
        return ["--path", str(self.file), "--to", to, *asked, *options]


@pytest.fixture
def world(lab: Lab, tmp_path: Path, fresh: Fresh) -> World:
    return World(lab, tmp_path, fresh("restored"))


def contents(log: Log) -> dict[int, list[tuple[int, bytes]]]:
    """Timestamps and digests of keys, values and headers, in order. Offsets may differ."""
    return {at: [(one.timestamp, one.digest) for one in seen] for at, seen in log.items()}


def settings(client: Mapping[str, Any], topic: str) -> dict[str, str]:
    """The values that are set on the topic itself."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(dict(client))  # lives until the answer is there
    entries = admin.describe_configs([resource])[resource].result(30)
    return {key: one.value for key, one in entries.items() if one.source == 1}


def at_offset(log: Log, partition: int, offset: int) -> bytes | None:
    """The digest of the first record at or after an offset."""
    return next((one.digest for one in log[partition] if one.offset >= offset), None)


def test_a_topic_comes_back_with_its_records_settings_and_group_offsets(world: World, fresh: Fresh) -> None:
    """Transactions, aborted ones too, compression, headers, tombstones and large records; twice is once."""
    topic, group, behind = fresh("orders"), fresh("billing"), fresh("audit")
    config = {**checker.TOPIC_CONFIG, "max.compaction.lag.ms": "123456789"}
    create_topic(world.source, topic, 3, config=config)
    checker.write(world.source, topic, checker.Spec(records=3_000))
    open_transaction(world.source, topic, fresh("aborts"), 0, 1, 2).abort_transaction(60)
    checker.write(world.source, topic, checker.Spec(records=1_000))
    wanted = consume(world.source, topic)
    middle = wanted[1][len(wanted[1]) // 2].offset
    commit_group(world.source, group, {(topic, 1): middle})
    commit_group(world.source, behind, {(topic, 2): wanted[2][-1].offset + 1})
    world.backup.round(topic)

    before = state_of(world.archive)
    done = world.restore("--topics", topic)
    assert f"topic.dc2.{topic}: restored" in done.stderr, done.stderr
    assert "restored 3 of 3 partitions" in done.stderr, done.stderr
    assert state_of(world.archive) == before  # a folder that is mounted read-only will do
    found = consume(world.target, topic)
    assert contents(found) == contents(wanted)
    assert settings(world.target, topic) == settings(world.source, topic)
    restored = group_offsets(world.target, group)[topic, 1]
    assert at_offset(found, 1, restored) == at_offset(wanted, 1, middle)
    assert group_offsets(world.target, behind) == {(topic, 2): found[2][-1].offset + 1}

    again = world.restore("--topics", topic)
    assert "holds a part of this restore" in again.stdout
    assert contents(consume(world.target, topic)) == contents(wanted)


def state_of(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """The time of each change, which a file that comes and goes leaves at its folder, and the contents."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in [folder, *folder.rglob("*")]
    }


@pytest.mark.parametrize("failpoint", ["before_ledger:2", "after_ledger:2", "after_end:2"])
def test_killed_in_the_middle_and_run_again_nothing_is_lost_or_doubled(
    world: World, fresh: Fresh, failpoint: str
) -> None:
    topic = fresh("killed")
    create_topic(world.source, topic, 1, config=checker.TOPIC_CONFIG)
    write(world.source, topic, [bytes([number % 251]) * 400_000 for number in range(120)])
    world.backup.round(topic)
    died = world.restore("--topics", topic, code=1, REPL_FAILPOINT=failpoint)
    assert "apply again" in died.stderr
    world.restore("--topics", topic)
    assert contents(consume(world.target, topic)) == contents(consume(world.source, topic))


def test_groups_of_the_snapshot_at_that_time_and_an_offset_behind_the_cut(world: World, fresh: Fresh) -> None:
    topic, group, at = fresh("cut"), fresh("group"), int(time.time() * 1000) - 3_600_000
    create_topic(world.source, topic, 1, config={"retention.ms": "-1"})
    producer = Producer(world.source)
    for number in range(10):
        producer.produce(topic, b"%d" % number, timestamp=at + number * 1000)
    producer.flush(30)
    commit_group(world.source, group, {(topic, 0): 8})
    world.backup.round(topic)
    text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime((at + 5000) // 1000))
    late = world.restore("--topics", topic, "--until", text)
    assert "no snapshot is as old as" in late.stderr + late.stdout
    assert group_offsets(world.target, group) == {}
    world.backup.dated(at)
    world.restore("--topics", topic, "--until", text)
    found = consume(world.target, topic)[0]
    assert 5 <= len(found) <= 6
    assert group_offsets(world.target, group) == {(topic, 0): found[-1].offset + 1}


def test_beside_the_living_and_only_where_nothing_is_in_the_way(
    world: World, fresh: Fresh, tmp_path: Path
) -> None:
    topic, group = fresh("living"), fresh("group")
    create_topic(world.source, topic, 2)
    write(world.source, topic, [b"one", b"two", b"three"])
    commit_group(world.source, group, {(topic, 0): 1})
    world.backup.round(topic)
    refused = world.restore("--topics", topic, to="dc1", code=3)
    assert f"topic.dc1.{topic}: it exists and holds records" in refused.stderr
    assert "--prefix or --rename" in refused.stderr
    world.restore("--topics", topic, "--rename", "{topic}.restored", to="dc1")
    beside = f"{topic}.restored"
    assert contents(consume(world.source, beside)) == contents(consume(world.source, topic))
    assert group_offsets(world.source, group) == {(topic, 0): 1}  # a renamed topic takes no group along
    asked = ("--groups", ".*", "--out", str(tmp_path / "x.plan"), "--json")
    shown = json.loads(world.restore("--topics", topic, *asked).stdout)
    addresses = [one["address"] for one in shown["resource_changes"]]
    assert addresses == [f"group.dc2.{group}", f"topic.dc2.{topic}"]


def test_rules_of_a_topic_come_back_where_asked(lab_sasl: Lab, tmp_path: Path, fresh: Fresh) -> None:
    """Rules of its own name follow a rename; a rule on more names is left out then, with a warning."""
    world, topic = World(lab_sasl, tmp_path, fresh("restored")), fresh("orders")
    other = fresh("other")
    create_topic(world.source, topic, 1)
    write(world.source, topic, [b"1", b"2"])
    own = rule(topic, ResourcePatternType.LITERAL, AclOperation.READ)
    wide = rule(topic[:-1], ResourcePatternType.PREFIXED, AclOperation.DESCRIBE)
    strange = rule(other, ResourcePatternType.LITERAL, AclOperation.WRITE)
    admin = AdminClient(world.source)  # lives until the answers are there
    for one in admin.create_acls([own, wide, strange]).values():
        one.result(30)
    world.backup.round(topic)

    without = world.restore("--topics", topic, "--rename", "plain.{topic}")
    assert "acl" not in without.stdout.lower()
    renamed = world.restore("--topics", topic, "--rename", "with.{topic}", "--acls")
    assert "rules on more than one topic are left out" in renamed.stdout + renamed.stderr
    assert rules(world.target) == {rule(f"with.{topic}", ResourcePatternType.LITERAL, AclOperation.READ)}
    world.restore("--topics", topic, "--acls")
    assert rules(world.target) >= {own, wide}
    assert strange not in rules(world.target)
    assert len(consume(world.target, topic)[0]) == 2


def rule(name: str, pattern: ResourcePatternType, operation: AclOperation) -> AclBinding:
    """A rule that allows the user app to do something."""
    allow = AclPermissionType.ALLOW
    return AclBinding(ResourceType.TOPIC, name, pattern, "User:app", "*", operation, allow)


def rules(client: Mapping[str, Any]) -> set[AclBinding]:
    """The rules of the user app on topics."""
    anything: Any = None  # the types want a text
    wanted = AclBindingFilter(
        ResourceType.TOPIC,
        anything,
        ResourcePatternType.ANY,
        "User:app",
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = AdminClient(dict(client))  # lives until the answer is there
    return set(admin.describe_acls(wanted).result(30))
