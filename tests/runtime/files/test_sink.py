"""The sink of a flow into files claims a manifest, and finishes what a driver before it began (R1, R3)."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from runtime.contract.spec.jobspec import JobSpec
from runtime.driver.flows.files_sink import FilesSink
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.flows.rounds import RoundTasks
from runtime.files.manifest import EndpointUnavailable, ManifestFolder, ManifestProblem
from runtime.kafka.cluster import KafkaCluster
from tests.runtime.files.lake import NOON, Lake, in_this_process
from tests.runtime.slot.world import flow_spec
from tests.spark.exported import files_of, lines_of

SOURCE = cast(KafkaCluster, SimpleNamespace(cluster_id="c1"))


async def nothing(*_: object) -> None:
    return


async def two() -> int:
    return 2


TASKS = cast(RoundTasks, SimpleNamespace(count=two, run=in_this_process))


def sink_of(lake: Lake, *, job: str = "lake", generation: int = 1, copied: bool = False) -> FilesSink:
    """The sink of a driver's flow; with `copied` the ledger knows that it has copied records."""
    spec = flow_spec("f", "dc1", "dc1", files=lake.spec)
    ledger = SimpleNamespace(all_progress=lambda _: {"orders-0": 7} if copied else {})
    leadership = SimpleNamespace(ensure=nothing, commit=nothing)
    flow: Any = SimpleNamespace(
        name="f",
        spec=spec,
        job=JobSpec(job=job, topology="t", destination="dc1", clusters={}, flows=[spec]),
        generation=generation,
        selected=list,
        shared=SimpleNamespace(ledger=ledger, leadership=leadership, clusters=None),
    )
    return FilesSink(cast(DriverFlow, flow), lake.spec)


def claim(sink: FilesSink) -> list[int]:
    """Claims the manifest, and returns the positions that it has."""
    return [position.position for position in asyncio.run(sink.positions(SOURCE)).values()]


@pytest.mark.parametrize(
    ("sink", "why"),
    [
        ({"job": "other"}, "job lake of topology t writes"),
        ({"generation": 0}, "was claimed by generation 1, and this is generation 0"),
        ({"format": "parquet"}, "holds json files of this flow, and the topology says parquet"),
    ],
)
def test_a_manifest_that_is_not_the_flows_is_not_claimed(
    tmp_path: Path, sink: dict[str, Any], why: str
) -> None:
    lake = Lake(tmp_path, "json")
    lake.round(NOON)
    lake.spec = replace(lake.spec, format=sink.pop("format", "json"))
    with pytest.raises(ManifestProblem, match=why):
        claim(sink_of(lake, **sink))
    assert ManifestFolder(lake.spec.folder, "f").read().last == lake.last


def test_a_manifest_that_is_gone_is_not_begun_anew(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", "json")
    with pytest.raises(ManifestProblem, match="the manifest of f is gone from"):
        claim(sink_of(lake, copied=True))
    (tmp_path / "lake").rmdir()
    with pytest.raises(EndpointUnavailable, match="is not there: create it, or mount it"):
        claim(sink_of(lake, copied=True))


def test_each_generation_claims_a_manifest_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "json")
    lake.round(NOON, NOON)
    lake.folder.add(lake.state, replace(lake.next(), selection="of the topics"))
    sink = sink_of(lake, generation=2)
    for _ in range(2):
        assert claim(sink) == [2]
        sink.forget()
    last = ManifestFolder(lake.spec.folder, "f").read().last
    assert last is not None
    assert (last.number, last.generation, last.selection) == (lake.last.number + 1, 2, "of the topics")


def test_a_commit_that_was_not_finished_is(tmp_path: Path) -> None:
    """The driver died between the commit and the move of its files into place."""
    lake = Lake(tmp_path, "json")
    lake.commit(NOON)
    assert files_of(tmp_path) == []
    claim(sink_of(lake))
    assert len(files_of(tmp_path)) == 1


class Killed(BaseException):
    """The driver ends where this is raised: nothing of its own code runs behind it."""


@pytest.mark.parametrize(
    ("step", "merged", "doubled"), [("add", False, False), ("publish", True, False), ("hide", True, True)]
)
def test_wherever_a_driver_dies_in_a_merge_the_next_one_finishes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, merged: bool, doubled: bool
) -> None:
    """It dies before this step. A reader of the folder may see records twice until then, and misses none."""
    lake = Lake(tmp_path, "json")
    for _ in range(3):
        lake.round(NOON)
    lines = lines_of(tmp_path)
    sink = sink_of(lake)
    claim(sink)

    def dies(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(ManifestFolder, step, dies)
        with pytest.raises(Killed):
            asyncio.run(sink.tidy(TASKS))
    last = ManifestFolder(lake.spec.folder, "f").read().last
    assert last is not None
    assert bool(last.replaced) is merged
    seen = lines_of(tmp_path)
    assert (sorted(set(seen)), len(seen) > len(lines)) == (lines, doubled)

    following = sink_of(lake, generation=2)
    claim(following)
    asyncio.run(following.tidy(TASKS))
    assert lines_of(tmp_path) == lines
    assert (len(files_of(tmp_path)), list(following.notes())) == (1, [])
