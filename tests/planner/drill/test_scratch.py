"""The scratch topology of a live drill: its names, what it refuses, and what a removal may touch."""

import datetime
from pathlib import Path
from typing import Literal

import pytest
from msgspec import structs

from planner.config import load
from planner.drill.canaries import CanaryDrill
from planner.drill.routes import routes_of
from planner.drill.scratch import (
    ScratchRun,
    keys_of_run,
    record_of,
    recorded_runs,
    refuse_foreign,
    refuse_touching,
    removable,
    scratch_topology,
)
from planner.graph.expansion import lint_offline
from planner.model.address import job_address, topic_address
from planner.model.diagnostic import ExitCode, Failure, Severity
from planner.model.step import Step
from planner.model.topology import AclRule, OnRemove, Topology
from planner.observe.rights import delete_is_missing
from planner.plan.steps.jobs import StopJob
from planner.plan.steps.topics import CreateTopic, DeleteTopic
from planner.workflows.requests import DrillRequest
from runtime.batch import Record
from runtime.contract.records import job_status, ledger
from runtime.contract.records.group_records import GroupPartition, encode_checkpoint_key
from runtime.contract.records.job_status import StatusKey
from runtime.contract.records.ledger import GenerationKey, PartitionKey, ProgressKey, SegmentKey
from runtime.contract.records.provenance import FlowProducer, encode_producer, encode_producer_key
from runtime.contract.spec import naming
from runtime.contract.spec.rename import Template
from tests.commands import repl
from tests.fakes.replacing import replace
from tests.fakes.tables import cases

AT = datetime.datetime(2026, 11, 23, 5, 45, tzinfo=datetime.UTC)
RUN = ScratchRun("20261123T054500Z-0a1b2c3d")
TOPOLOGY = """\
apiVersion: repl/v1
name: shop
clusters:
  paris: {bootstrap: "127.0.0.1:1"}
  tokyo: {bootstrap: "127.0.0.1:2"}
  lima: {bootstrap: "127.0.0.1:3"}
topics:
  - {name: orders, cluster: paris, protect: true}
flows:
  - name: orders
    from: paris
    to: tokyo
    topics: {include: [".*"]}
    rename: "paris.{topic}"
    rate_limit: 50MB/s
    rpo: 5s
    transform: {value: {format: text}, where: "value LIKE 'eu-%'"}
  - {name: back, from: tokyo, to: paris, topics: {include: [payments]}, provenance: headers, protect: acl}
  - {name: resting, from: paris, to: lima, topics: {include: [orders]}, state: paused}
drill: {canaries: true}
"""


def topology(folder: Path, text: str = TOPOLOGY) -> Topology:
    (folder / "topology.yaml").write_text(text)
    return load(folder / "topology.yaml")


def test_a_run_is_named_by_its_time_and_known_by_its_topology_alone() -> None:
    run = ScratchRun.new(AT)
    assert run.began == AT
    assert run != ScratchRun.new(AT)
    assert ScratchRun.of_topology(run.topology("shop"), "shop") == run
    for other in ("shop", "shop.drill.", "shop.drill.x", f"bank.drill.{run.id}", f"{run.topology('shop')}.x"):
        assert ScratchRun.of_topology(other, "shop") is None


def test_a_scratch_topology_has_nothing_of_the_topology_but_its_clusters_and_ways(tmp_path: Path) -> None:
    known = topology(tmp_path)
    scratch = scratch_topology(known, RUN)
    assert set(scratch.clusters) == {"paris", "tokyo"}
    assert {(one.cluster, one.name) for one in scratch.topics} == {
        (cluster, f"__drill.{RUN.id}.{flow}") for cluster in ("paris", "tokyo") for flow in ("orders", "back")
    }
    assert all(one.on_remove is OnRemove.DELETE and not one.protect for one in scratch.topics)
    assert {one.config["message.timestamp.type"] for one in scratch.topics} == {"CreateTime"}
    assert set(scratch.flows) == {f"drill.{RUN.id}.orders", f"drill.{RUN.id}.back"}
    for flow in scratch.flows.values():
        assert (flow.acls_sync, flow.quotas_sync, flow.protect) == (False, False, "off")
        assert flow.transform is None
        assert flow.heartbeats_every_ms is None
        assert flow.origin_commits is None
        assert flow.rate_limit == 1_000_000
        assert flow.job == f"drill.{RUN.id}.{flow.destination_cluster}"
        assert flow.groups.include == flow.topics.include
    assert scratch.flows[RUN.name("back")].provenance == known.flows["back"].provenance
    assert scratch.flows[RUN.name("orders")].rpo_ms == 5_000
    assert set(scratch.jobs) == {RUN.name("paris"), RUN.name("tokyo")}
    assert {(one.source, one.destination, one.topic, one.mirror) for one in routes_of(scratch)} == {
        ("paris", "tokyo", RUN.topic("orders"), RUN.topic("orders")),
        ("tokyo", "paris", RUN.topic("back"), RUN.topic("back")),
    }
    assert not [one for one in lint_offline(scratch) if one.severity is Severity.ERROR]


def test_a_flow_that_would_copy_scratch_topics_refuses_the_drill(tmp_path: Path) -> None:
    known = topology(tmp_path)
    scratch = scratch_topology(known, RUN)
    refuse_touching(known, scratch)  # `.*` does not match names that the default denials hide
    open_ended = structs.replace(known.flows["orders"].topics, default_exclude=False)
    flows = {**known.flows, "orders": structs.replace(known.flows["orders"], topics=open_ended)}
    with pytest.raises(
        Failure, match=r"it would copy scratch topics of a drill, such as __drill\."
    ) as refused:
        refuse_touching(replace(known, flows=flows), scratch)
    assert refused.value.exit_code is ExitCode.REFUSED
    assert "topics.exclude" in str(refused.value.diagnostics[0])


def test_a_file_names_the_run_and_other_files_name_none(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    assert recorded_runs(path) == set()
    file = record_of(path, RUN)
    file.parent.mkdir(parents=True)
    for name in (RUN.id, "notes", f"{RUN.id}.part"):
        file.with_name(name).touch()
    assert recorded_runs(path) == {RUN}


def test_drills_of_this_machine_and_those_that_are_an_hour_old_are_removed() -> None:
    here = ScratchRun.new(AT)
    young = ScratchRun.new(AT - datetime.timedelta(minutes=59))
    old = ScratchRun.new(AT - datetime.timedelta(minutes=61))
    assert removable({here, young, old}, {here}, AT) == [old, here]


def delete(topic: str) -> DeleteTopic:
    return DeleteTopic(f"delete {topic}", topic_address("paris", topic), "paris", topic, "id")


@pytest.mark.parametrize(
    "step",
    [
        delete("orders"),
        delete("__drill.orders"),
        delete(f"__drill.{RUN.id}-orders"),
        delete("__drill.20261123T054500Z-ffffffff.orders"),
        StopJob("stop tokyo", job_address("tokyo"), "tokyo", "tokyo"),
        CreateTopic("make", topic_address("paris", RUN.topic("x")), "paris", RUN.topic("x"), 1, 1, {}),
    ],
)
def test_a_removal_refuses_every_name_that_is_not_its_runs(step: Step) -> None:
    fine: list[Step] = [
        delete(RUN.topic("orders")),
        StopJob("stop", job_address(RUN.name("tokyo")), "tokyo", RUN.name("tokyo")),
    ]
    refuse_foreign(fine, RUN)
    with pytest.raises(Failure, match="no drill names it so") as refused:
        refuse_foreign([*fine, step], RUN)
    assert refused.value.exit_code is ExitCode.REFUSED


def stored(key: bytes, value: bytes | None = b"x", offset: int = 0) -> Record:
    return Record(offset, 0, key, value, ())


def ledger_keys(flow: str) -> list[bytes]:
    of = PartitionKey(flow, "orders", 0)
    return [ledger.encode_key(key) for key in (GenerationKey(flow), ProgressKey(of), SegmentKey(of, 0, 1))]


@cases(
    "topic keys",
    {
        naming.LEDGER: (naming.LEDGER, ledger_keys),
        naming.OFFSET_MAP: (naming.OFFSET_MAP, ledger_keys),
        naming.CHECKPOINTS: (
            naming.CHECKPOINTS,
            lambda flow: [encode_checkpoint_key(flow, GroupPartition("billing", "orders", 0))],
        ),
        naming.STATUS: (
            naming.STATUS,
            lambda job: [
                job_status.encode_key(key) for key in (StatusKey("job", job), StatusKey("slot", job, 3))
            ],
        ),
    },
)
def test_only_the_records_of_the_run_are_forgotten(topic, keys) -> None:
    mine = keys(RUN.name("orders"))
    others = [
        key
        for name in ("orders", "drill", f"drill.{RUN.id}", "drill.20261123T054500Z-ffffffff.orders", "")
        for key in keys(name)
    ]
    records = [stored(key) for key in [*others, *mine, b"not a key", b'["newer","of",1]']]
    assert keys_of_run(topic, records, RUN) == mine
    assert keys_of_run(topic, [*records, *(stored(key, None) for key in mine)], RUN) == []


def test_producer_ids_of_the_run_are_forgotten() -> None:
    def producer(number: int, flow: str) -> Record:
        value = encode_producer(FlowProducer(flow, "paris", "id", Template(text="{topic}")))
        return stored(encode_producer_key(number), value)

    damaged = stored(encode_producer_key(3), b"\x7f")
    records = [producer(1, "orders"), producer(2, RUN.name("orders")), damaged]
    assert keys_of_run(naming.PRODUCERS, records, RUN) == [encode_producer_key(2)]


def rule(
    operation: str, principal: str = "User:repl", permission: Literal["ALLOW", "DENY"] = "ALLOW"
) -> AclRule:
    return AclRule("paris", "TOPIC", "t", "LITERAL", principal, "*", operation, permission)


@cases(
    "rules writable missing",
    {
        "a super user, or open topics: the broker allows WRITE": ([], True, False),
        "rules of another": ([rule("WRITE", "User:app")], True, False),
        "WRITE alone": ([rule("WRITE")], True, True),
        "both": ([rule("WRITE"), rule("DELETE")], True, False),
        "DELETE of another": ([rule("WRITE", "User:*"), rule("DELETE", "User:app")], True, True),
        "all": ([rule("ALL")], True, False),
        "all but DELETE": ([rule("ALL"), rule("DELETE", permission="DENY")], True, True),
        "DELETE denied to everyone": ([rule("ALL"), rule("DELETE", "User:*", "DENY")], True, True),
        "no rule, and the broker refuses to write": ([], False, True),
        "DELETE, and the broker refuses to write": ([rule("DELETE")], False, False),
    },
)
def test_acls_tell_whether_delete_is_missing(rules, writable, missing) -> None:
    assert delete_is_missing(rules, "User:repl", writable=writable) is missing


def test_canaries_need_leave_in_the_topology_and_an_active_flow(tmp_path: Path) -> None:
    request = DrillRequest(tmp_path / "topology.yaml", canaries=True)

    def drill(text: str) -> CanaryDrill:
        return CanaryDrill(request, topology(tmp_path, text), lambda _: None)

    with pytest.raises(Failure, match=r"declare drill: \{canaries: true\}") as refused:
        drill(TOPOLOGY.replace("canaries: true", "canaries: false"))
    assert refused.value.exit_code is ExitCode.REFUSED
    with pytest.raises(Failure, match="no flow between clusters is active"):
        drill(TOPOLOGY.replace("drill:", "defaults: {flow: {state: paused}}\ndrill:"))
    assert drill(TOPOLOGY).run.began


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_refuses_canaries_before_anything_is_made(tmp_path: Path) -> None:
    topology(tmp_path)
    home = tmp_path / "home"
    done = repl(
        "drill", str(tmp_path), "--against", "live", "--canaries", env={"REPL_HOME": str(home)}, timeout=100
    )
    assert done.returncode == 1, done.stderr
    assert "the rights at paris can't be read" in done.stderr
    assert not list((home / "canaries").glob("*"))
