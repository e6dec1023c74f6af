"""What people see of groups while a job runs, and what a paused flow still does for them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from runtime.contract.records import control
from runtime.contract.spec.flow import GroupsSpec
from runtime.contract.spec.rename import Template
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.records import create_topic, wait_for
from tests.runtime.driver.groups_world import commit, committed
from tests.runtime.slot.world import Side
from tests.spark.job import flow_of, spec_of, start_job
from tests.topologies import SILENT, at, declared

pytestmark = pytest.mark.spark


def located(topology: Path, flow: str, place: str) -> str:
    done = repl("locate", flow, place, "--path", str(topology), "--json")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["found"])


def assert_shown(sides: dict[str, Side], topology: Path, flow: str, group: str, topic: str) -> None:
    """`repl offsets` shows the group, and `repl locate` finds a record in both directions."""
    shown = repl("offsets", flow, group, "--path", str(topology))
    assert shown.returncode == 0, shown.stderr
    assert f"{group} over {flow}: dc1 → dc2" in shown.stdout
    here, there = (
        next(row for row in sides[side].read(name)[0] if row.value == b"7")
        for side, name in (("dc1", topic), ("dc2", f"dc1.{topic}"))
    )
    forth = repl("locate", flow, f"{topic}:0:{here.offset}", "--path", str(topology))
    at_dc2 = f"offset {there.offset} of dc1.{topic}-0 at dc2"
    assert forth.stdout == f"offset {here.offset} of {topic}-0 at dc1 is {at_dc2}.\n"
    back = repl("locate", flow, f"dc1.{topic}:0:{there.offset}", "--reverse", "--path", str(topology))
    assert f"is offset {here.offset} of {topic}-0 at dc1" in back.stdout
    assert located(topology, flow, f"{topic}:0@{here.timestamp + 3_600_000}") == "no_record"
    assert located(topology, flow, f"{topic}:0:100000") == "not_yet"
    none = repl("locate", flow, f"{topic}-other:0:1", "--path", str(topology))
    assert none.returncode == 1
    assert f"{topic}-other-0" in none.stderr


def test_groups_are_shown_and_a_paused_flow_goes_on_syncing_and_counts_what_would_be_lost(
    lab: Lab, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    sides = {name: Side(name, cluster.bootstrap, cluster.client) for name, cluster in lab.clusters.items()}
    topic, name = fresh("orders"), fresh("flow")
    group, late = f"{topic}-app", f"{topic}-late"
    create_topic(sides["dc1"].client, topic)
    sides["dc1"].write(topic, [{"value": b"%d" % number} for number in range(10)])
    commit(sides["dc1"], group, {(topic, 0): 7})
    groups = GroupsSpec(include=(f"{topic}.*",), every_ms=500)
    flow = flow_of(name, [topic], rename=Template(text="dc1.{topic}"), groups=groups)
    written = at(lab, "tests", tmp_path, ("dc1", "dc2"))
    written.more["flows"] = [declared(name, topic, rename="dc1.{topic}")]
    topology = written.write()

    def reads_on_from(group: str, number: int) -> bool:
        """Whether the group goes on at dc2 at the record of this number."""
        offset = committed(sides["dc2"], group).get((f"dc1.{topic}", 0))
        rows = sides["dc2"].read(f"dc1.{topic}")[0] if offset is not None else []
        return [row.value for row in rows if row.offset >= (offset or 0)][:1] == [b"%d" % number]

    with start_job(spec_of(lab, fresh("job"), [flow]), tmp_path) as job:
        wait_for(lambda: reads_on_from(group, 7), 240, about=job.tail)
        assert_shown(sides, topology, name, group, topic)

        job.tell(control.Reconfigure("pause", replace(job.spec, flows=[replace(flow, state="paused")])))
        commit(sides["dc1"], late, {(topic, 0): 3})
        wait_for(lambda: reads_on_from(late, 3), 240, about=job.tail)

        # No slot reads the source any more; the driver goes on looking where it ends.
        sides["dc1"].write(topic, [{"value": b"late"}] * 7)
        written.clusters["dc1"]["bootstrap"] = SILENT
        written.write()

        def counted() -> bool:
            rehearsed = repl("failover", "dc1", "--rehearse", "--path", str(topology))
            assert rehearsed.returncode == 0, rehearsed.stderr
            return f"flow.{name}  at least 7 records" in rehearsed.stdout

        wait_for(counted, 240, about=job.tail)
