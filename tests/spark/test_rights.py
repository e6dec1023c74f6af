"""Plan, apply and a job with principals that may do what docs/operations.md tells, and nothing more."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)
from msgspec.structs import replace

from runtime.contract.records.job_status import PartitionState
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.flow import GroupsSpec, OriginCommitsSpec
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.records import commit_group, create_topic, group_offsets, read, wait_for, write
from tests.rights import Right, principal, rights
from tests.spark.job import Running, flow_of, spec_of, start_job
from tests.topologies import at, declared

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

PREFIX = "rights-"
ORDERS, LATER, GROUP = f"{PREFIX}orders", f"{PREFIX}later", "rights-app"
CLUSTERS = ("dc1", "dc2")


def always(heading: str) -> list[Right]:
    found = [right for right in rights(heading, PREFIX) if not right.condition]
    assert len(found) > 1, heading
    return found


def topology(lab: Lab, folder: Path, user: str, granted: list[Right]) -> str:
    """A topology of one topic and one flow, planned and applied by a principal with these rights."""
    made = at(lab, "rights", folder, CLUSTERS)
    for name, cluster in made.clusters.items():
        cluster["client"] = principal(lab.clusters[name], user, granted, folder)
    made.topic(ORDERS, partitions=1, config={"retention.ms": "7d"})
    made.more["flows"] = [declared("rights", f"{PREFIX}.*", groups={"include": f"{PREFIX}.*"})]
    made.file = folder / f"{user}.yaml"
    return str(made.write())


@functools.cache
def admin(lab: Lab, cluster: str) -> AdminClient:
    return AdminClient(client(lab, cluster))


def client(lab: Lab, cluster: str) -> dict[str, Any]:
    return dict(lab.clusters[cluster].client)


def job_of(lab: Lab, folder: Path) -> Running:
    """Starts a job whose principals have the rights of a job."""
    source = principal(lab.clusters["dc1"], "rights-from", always("A job, at its sources"), folder)
    there = principal(lab.clusters["dc2"], "rights-to", always("A job, at its destination"), folder)
    groups = GroupsSpec(include=(GROUP,), every_ms=500)
    flow = flow_of(
        "rights",
        [f"{PREFIX}.*"],
        provenance="batch",
        heartbeats_every_ms=500,
        origin_commits=OriginCommitsSpec(group="repl.rights", every_ms=500),
        groups=groups,
    )
    clusters = {
        "dc1": ClusterSpec(bootstrap=lab.clusters["dc1"].bootstrap, client=source),
        "dc2": ClusterSpec(bootstrap=lab.clusters["dc2"].bootstrap, client=there),
    }
    return start_job(replace(spec_of(lab, "rights", [flow]), clusters=clusters), folder)


def arrived(lab: Lab, topic: str) -> int:
    known = admin(lab, "dc2").list_topics(timeout=60).topics
    return len(read(client(lab, "dc2"), topic)) if topic in known else 0


def committed(lab: Lab, cluster: str, group: str) -> int | None:
    """The offset of the first partition of the orders."""
    return group_offsets(client(lab, cluster), group).get((ORDERS, 0))


def until(job: Running, holds: Callable[[], bool]) -> None:
    try:
        wait_for(holds, 240)
    except AssertionError as late:
        raise AssertionError(f"{job.status()}\n{job.tail()}") from late


def a_topic_that_may_not_be_written_stops_no_other(lab: Lab, job: Running) -> None:
    closed, beside = f"{PREFIX}closed", f"{PREFIX}beside"
    dc1, there = client(lab, "dc1"), admin(lab, "dc2")
    forbidden = (
        ResourceType.TOPIC,
        closed,
        ResourcePatternType.LITERAL,
        "User:rights-to",
        "*",
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )
    for made in there.create_acls([AclBinding(*forbidden)]).values():
        made.result(60)
    create_topic(dc1, closed)
    create_topic(dc1, beside, partitions=6)  # some of them in the lane of the one that is refused
    write(dc1, closed, [b"x"] * 3)
    until(job, lambda: "TOPIC_AUTHORIZATION_FAILED" in why_of(job, closed))
    for partition in range(6):
        write(dc1, beside, [b"x"] * 2, partition=partition)
    until(job, lambda: arrived(lab, beside) == 12)
    found = [one for key, one in job.partitions().items() if key.topic == closed]
    assert [(one.state, one.position) for one in found] == [(PartitionState.RETRYING, 0)]
    assert arrived(lab, closed) == 0
    for gone in there.delete_acls([AclBindingFilter(*forbidden)]).values():
        gone.result(60)
    until(job, lambda: arrived(lab, closed) == 3)


def why_of(job: Running, topic: str) -> str:
    return " ".join(one.why for key, one in job.partitions().items() if key.topic == topic)


def test_each_principal_does_what_it_may_and_nothing_more(lab_sasl: Lab, tmp_path: Path):
    lab = lab_sasl
    looks = topology(lab, tmp_path, "rights-plan", always("To plan"))
    planned = repl("plan", looks, "--json", "--detailed-exitcode")
    assert planned.returncode == 2, planned.stderr
    plan = json.loads(planned.stdout)
    assert plan["complete"], plan["unknown"]
    addresses = {one["address"] for one in plan["resource_changes"]}
    assert {f"topic.dc1.{ORDERS}", "flow.rights", "job.dc2"} <= addresses
    refused = repl("apply", looks, "--auto-approve", "--target", f"topic.dc1.{ORDERS}")
    assert refused.returncode == 1
    assert ORDERS not in admin(lab, "dc1").list_topics(timeout=60).topics

    applies = topology(lab, tmp_path, "rights-apply", [*always("To plan"), *always("To apply")])
    for cluster in CLUSTERS:
        done = repl("apply", applies, "--auto-approve", "--target", f"topic.{cluster}.{ORDERS}")
        assert done.returncode == 0, done.stdout + done.stderr
        assert ORDERS in admin(lab, cluster).list_topics(timeout=60).topics
    with job_of(lab, tmp_path) as job:
        a_topic_that_may_not_be_written_stops_no_other(lab, job)
        does_all_its_duties(lab, job)
        assert job.stop() == 0, job.tail()

    status = repl("status", looks, "--json")
    assert json.loads(status.stdout)["flows"], status.stderr
    history = repl("history", looks)
    assert (history.returncode, history.stderr) == (0, ""), history.stdout
    drift = repl("drift", looks, "--json")
    assert drift.returncode in (0, 2), drift.stderr
    imported = repl("import", "dc1", "--path", looks, "--topics", f"{PREFIX}.*")
    assert imported.returncode == 0, imported.stderr
    assert ORDERS in imported.stdout


def does_all_its_duties(lab: Lab, job: Running) -> None:
    """Copies, creates and grows mirrors, moves groups, and commits at the origin."""
    dc1 = client(lab, "dc1")
    write(dc1, ORDERS, [b"one"] * 10)
    commit_group(dc1, GROUP, {(ORDERS, 0): 4})
    until(job, lambda: arrived(lab, ORDERS) == 10)
    create_topic(dc1, LATER)
    write(dc1, LATER, [b"two"] * 5)
    until(job, lambda: arrived(lab, LATER) == 5)
    admin(lab, "dc1").create_partitions([NewPartitions(LATER, 3)])[LATER].result(60)
    there = admin(lab, "dc2")
    until(job, lambda: len(there.list_topics(LATER, timeout=60).topics[LATER].partitions) == 3)
    until(job, lambda: committed(lab, "dc2", GROUP) == 4)
    until(job, lambda: committed(lab, "dc1", "repl.rights") == 10)
    job.wait_for(
        lambda status: (
            (status.state, status.trouble, [(view.why, view.notes) for view in status.flows])
            == ("running", "", [("", [])])
        )
    )
