"""Lints of flows into files, and what the topology makes of them in the job spec."""

from dataclasses import replace
from pathlib import PurePath

from planner.graph import lint_offline
from planner.graph.expansion import expand
from planner.model.observed import Observed
from planner.model.topology import Compaction, FileEndpoint, FileFormat, Flow, Topology
from planner.plan.make import make_plan
from planner.render.plan.documents import html
from runtime.contract.spec import jobspec
from runtime.contract.spec.files import CompactionSpec, FilesSpec
from tests.planner.graph.build import flow, topology

LAKE = FileEndpoint(
    "lake", "/data/lake/", FileFormat.RAW, size="64k", compact=Compaction(every_ms=60_000, below="64k")
)


def with_files(*flows: Flow, into: tuple[Flow, ...] = ()) -> Topology:
    return replace(topology(*flows), file_flows={one.name: one for one in into}, endpoints={"lake": LAKE})


def linted(of: Topology) -> list[str]:
    codes = ("job-of-files", "unused-endpoint", "written-twice")
    return [f"{one.code} {one.address}" for one in lint_offline(of) if one.code in codes]


def test_an_endpoint_needs_a_flow() -> None:
    assert linted(with_files()) == ["unused-endpoint None"]
    assert linted(with_files(into=(flow("f=dc1>lake"),))) == []


def test_a_job_into_files_has_one_home_and_no_other_flows() -> None:
    there = flow("a=dc1>lake", job="j")
    assert linted(with_files(flow("b=dc1>dc2", job="j"), into=(there,))) == ["job-of-files job.j"]
    assert linted(with_files(into=(there, flow("b=dc2>lake", job="j")))) == ["job-of-files job.j"]
    assert linted(with_files(flow("b=dc1>dc2"), into=(there, flow("c=dc2>lake")))) == []


def test_one_topic_twice_in_one_folder() -> None:
    twice = flow("a=dc1>lake"), flow("b=dc1>lake", job="other")
    assert linted(with_files(into=twice)) == ["written-twice flow.b"]


def test_the_job_is_at_home_at_the_source_and_writes_as_declared() -> None:
    into = flow("to-lake=dc1>lake", every_ms=5_000)
    desired = expand(with_files(flow("b=dc1>dc2"), into=(into,)), Observed({}), PurePath())
    jobs = {one.job.name: one for one in desired.jobs}
    spec = jobs["lake"].spec
    assert spec is not None
    jobspec.check(spec)
    assert (spec.destination, sorted(spec.clusters)) == ("dc1", ["dc1"])
    (written,) = spec.flows
    assert written.files == FilesSpec(
        endpoint="lake",
        folder="/data/lake",
        format="raw",
        size_bytes=1 << 16,
        every_ms=5_000,
        compact=CompactionSpec(every_ms=60_000, below_bytes=1 << 16, retention_ms=86_400_000),
    )
    assert (written.groups.sync, written.heartbeats_every_ms, written.origin_commits) == (False, None, None)
    assert [one.name for one in spec.routes] == ["b"]
    assert jobs["dc2"].spec is not None
    assert [one.name for one in jobs["dc2"].spec.flows] == ["b"]


def test_the_plan_draws_files_as_an_end_of_their_own() -> None:
    of = with_files(into=(flow("to-lake=dc1>lake"),))
    plan = make_plan(expand(of, Observed({}), PurePath()), Observed({}), (), of)
    (planned,) = plan.flows
    assert (planned.destination_cluster, planned.endpoint) == ("dc1", "lake")
    assert "lake</text>" in html(plan)
