"""Clusters that refuse, secrets that must not be seen, and ACLs, where an authorizer stands guard."""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from runtime.contract.spec.naming import HISTORY, LEASE, REGISTRY
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.planner.apply.cut import SHORT_LEASE_MS, start
from tests.records import wait_for
from tests.rights import Right, grant
from tests.topologies import Topology, secured

pytestmark = pytest.mark.integration


def password(lab: Lab, user: str) -> str:
    return str(lab.clusters["dc1"].client_of(user)["sasl.password"])


@pytest.fixture
def limited(lab_sasl, fresh, tmp_path) -> Topology:
    """The user app may do everything with what begins with the topology's name, and nothing else."""
    made = secured(lab_sasl, fresh("shop"), tmp_path, "app", {"env": "APP_PASSWORD"})
    own = [Right("TOPIC", prefix, True, ("ALL",)) for prefix in ("__repl.", f"{made.name}-")]
    grant(lab_sasl.clusters["dc1"], "app", *own)
    return made


def test_a_password_is_seen_nowhere(lab_sasl, limited, tmp_path):
    secret = password(lab_sasl, "app")
    limited.topic(f"{limited.name}-orders", partitions=1)
    path, env = str(limited.write()), {"APP_PASSWORD": secret}
    reports = [str(tmp_path / name) for name in ("plan.md", "plan.html", "plan.bin")]
    options = [text for pair in zip(("--markdown", "--html", "--out"), reports, strict=True) for text in pair]
    runs = [
        ("plan", path, "--json", *options),
        ("show", reports[2]),
        ("apply", reports[2], "--json"),
        ("apply", path, "--auto-approve"),
        ("drift", path),
        ("history", path, "--json"),
    ]
    done = [repl(*words, env=env) for words in runs]
    assert [one.returncode for one in done] == [0] * len(runs), [one.stderr for one in done]
    written = "".join(Path(name).read_text() for name in reports)
    kept = "".join(raw(lab_sasl, topic) for topic in (REGISTRY, HISTORY, LEASE))
    assert secret not in written + kept + "".join(one.stdout + one.stderr for one in done)
    wrong = repl("apply", path, "--auto-approve", env={"APP_PASSWORD": "canary-4711"})
    assert wrong.returncode == 1
    assert "canary-4711" not in wrong.stdout + wrong.stderr


def raw(lab: Lab, topic: str) -> str:
    """Every byte of an internal topic."""
    client: Mapping[str, str] = lab.clusters["dc1"].client
    reader = Consumer({**client, "group.id": "raw-of-a-test", "enable.auto.commit": False})
    try:
        low, high = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        reader.assign([TopicPartition(topic, 0, low)])
        found = []
        while reader.position([TopicPartition(topic, 0)])[0].offset < high:
            found += [message.value() or b"" for message in reader.consume(1_000, timeout=1)]
        return b"".join(found).decode()
    finally:
        reader.close()


def rules(lab: Lab, topic: str) -> set[tuple[str, str, str]]:
    """As a broker knows them: it learns of a change a moment after the answer."""
    anybody: Any = None
    every = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.ANY,
        anybody,
        anybody,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = AdminClient(lab.clusters["dc1"].client)
    found = admin.describe_acls(every).result(timeout=60)
    return {(one.principal, one.operation.name, one.permission_type.name) for one in found}


def test_declared_acls_come_converge_and_go(lab_sasl, fresh, tmp_path):
    topology = secured(
        lab_sasl, fresh("shop"), tmp_path, "admin", {"file": password_file(lab_sasl, tmp_path)}
    )
    topic = fresh("orders")
    topology.topic(topic, partitions=1)
    rule = {"cluster": "dc1", "principal": "User:shop", "topic": topic}
    topology.more["acls"] = [{**rule, "allow": ["READ", "DESCRIBE"]}, {**rule, "deny": ["WRITE"]}]
    allowed = {("User:shop", operation, "ALLOW") for operation in ("READ", "DESCRIBE")}
    cut = start(topology.write(), SHORT_LEASE_MS, "SIGKILL", "create:acl")  # made, and nothing after that
    cut.communicate(timeout=60)
    assert cut.returncode == -signal.SIGKILL
    wait_for(lambda: rules(lab_sasl, topic) == allowed | {("User:shop", "WRITE", "DENY")})
    made = repl("apply", str(topology.file), "--auto-approve")
    assert made.returncode == 0, made.stderr
    assert made.stdout.count("made by an apply that was cut short") == 3
    again = repl("plan", str(topology.file), "--detailed-exitcode")
    assert again.returncode == 0, again.stdout
    topology.more["acls"] = [{**rule, "allow": ["READ"]}]
    fewer = repl("apply", str(topology.write()), "--auto-approve")
    assert fewer.returncode == 0, fewer.stderr
    wait_for(lambda: rules(lab_sasl, topic) == {("User:shop", "READ", "ALLOW")})
    assert "2 destroyed" in fewer.stdout


def password_file(lab: Lab, folder: Path) -> str:
    file = folder / "password"
    file.write_text(password(lab, "admin"))
    return str(file)
