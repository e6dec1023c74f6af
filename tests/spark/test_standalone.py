"""A job on a real Master and two Workers: slots on both, one of them lost; and secrets nobody gets to see.

The clusters want SASL. Passwords are in the environment of `repl`'s process and of the Workers, nowhere else.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from runtime.contract.launching import LaunchState
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.launch import LaunchSpec
from runtime.lab.lab import Lab
from runtime.launch.supervision.supervised import SupervisedLauncher
from tests import checker
from tests.commands import repl
from tests.ports import free_port
from tests.records import create_topic, wait_for
from tests.spark.job import current_reports, flow_of, spec_of
from tests.spark.standalone import Standalone, Worker, fetched, standalone
from tests.spark.visible import files_below, visible_texts

_LOOK_S = 0.3  # each look reads the status topic, on cores that the job wants too
_STARTS_S = 240  # a job, and what its slots need of a cluster
pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.fixture
def passwords(lab_sasl: Lab) -> dict[str, str]:
    return {
        f"CANARY_{name.upper()}": str(one.client["sasl.password"]) for name, one in lab_sasl.clusters.items()
    }


@pytest.fixture
def cluster(tmp_path: Path, passwords: dict[str, str]) -> Iterator[Standalone]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with standalone(folder, passwords) as running:
        yield running


def job_of(lab: Lab, job: str, flow: str, topic: str, launch: LaunchSpec) -> JobSpec:
    spec = spec_of(lab, job, [flow_of(flow, [topic])], slots=2, launch=launch)
    return replace(
        spec,
        clusters={
            name: ClusterSpec(
                bootstrap=one.bootstrap,
                client={**one.client, "sasl.password": {"env": f"CANARY_{name.upper()}"}},
            )
            for name, one in spec.clusters.items()
        },
    )


def test_slots_on_both_workers_one_worker_lost_and_no_secret_anywhere(
    lab_sasl: Lab,
    cluster: Standalone,
    passwords: dict[str, str],
    fresh: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    for name, value in passwords.items():
        monkeypatch.setenv(name, value)  # the readers of this test resolve the references too
    source, there = (dict(lab_sasl.clusters[name].client) for name in ("dc1", "dc2"))
    topic, ui = fresh("far"), free_port()
    create_topic(source, topic, 4, config=checker.TOPIC_CONFIG)
    (tmp_path / "events").mkdir()
    conf = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(ui),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        "spark.driver.host": "127.0.0.1",
    }
    launch = LaunchSpec(launcher="standalone", master=cluster.master.url, conf=conf)
    spec = job_of(lab_sasl, fresh("job"), fresh("flow"), topic, launch)
    home = tmp_path / "jobs"
    monkeypatch.setenv("SPARK_CONF_DIR", str(cluster.conf))
    launcher = SupervisedLauncher(home, {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"})

    with checker.writing(source, topic, checker.Spec(records=10**9, rate=200, large_every=0)) as writer:
        try:
            launcher.launch(spec)
            wait_for(lambda: len(slots_below(spec, cluster.workers[0])) == 1, _STARTS_S, _LOOK_S)
            wait_for(lambda: len(slots_below(spec, cluster.workers[1])) == 1, _STARTS_S, _LOOK_S)
            wait_for(lambda: copied_by(spec) == {0, 1}, _STARTS_S, _LOOK_S)

            known, shown = look_everywhere(
                cluster, f"http://127.0.0.1:{ui}", home, tmp_path / "events", there
            )
            assert spec.job in known  # the search sees what there is
            for password in (*passwords.values(), cluster.secret):
                assert [where for where, text in shown.items() if password in text] == []

            assert_verified_on_the_cluster(spec, tmp_path)

            lost = cluster.workers[1]
            hit = slots_below(spec, lost)
            began = time.monotonic()
            lost.kill()
            wait_for(lambda: len(slots_below(spec, cluster.workers[0])) == 2, _STARTS_S, _LOOK_S)
            wait_for(
                lambda: copied_by(spec) == {0, 1} and not any(map(psutil.pid_exists, hit.values())),
                _STARTS_S,
                _LOOK_S,
            )
            print(f"a lost worker's slot copies again after {time.monotonic() - began:.1f} s")
            report = checker.compare(source, there, topic, written=writer.written, patience=120)
            assert report.clean, report
            launcher.stop(spec.job, 60)
            assert launcher.find(spec.job).why == "stopped"
        finally:
            launcher.stop(spec.job, 0)
    assert launcher.find(spec.job).state is LaunchState.ENDED


def assert_verified_on_the_cluster(spec: JobSpec, folder: Path) -> None:
    """By executors that have nothing but what was shipped to them, beside the job."""
    (flow,) = spec.flows
    clusters = {
        name: {"bootstrap": one.bootstrap, "client": one.client} for name, one in spec.clusters.items()
    }
    launch = {"launcher": "standalone", "master": spec.launch.master, "slots": 2}
    launch["conf"] = {"spark.driver.host": "127.0.0.1"}
    selected = {"include": flow.topics.include}
    declared = {"name": flow.name, "from": "dc1", "to": "dc2", "topics": selected, "job": spec.job}
    body = {"apiVersion": "repl/v1", "name": "far", "clusters": clusters, "flows": [declared]}
    file = folder / "far.yaml"
    file.write_text(json.dumps({**body, "jobs": {spec.job: launch}}))
    env = {"REPL_HOME": str(folder / "verifying"), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = repl("verify", flow.name, "--on-cluster", "--json", "--path", str(file), env=env, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout)
    assert seen["equal"]
    assert sum(one["compared"] for one in seen["partitions"]) > 0
    assert not list((folder / "verifying").rglob("*.jsonl"))  # it came to its end


def slots_below(spec: JobSpec, worker: Worker) -> dict[int, int]:
    """The process of each slot that this Worker's executors run."""
    children = {child.pid for child in worker.executors()}
    processes = {slot: report.process for slot, report in current_reports(spec).items()}
    return {slot: pid for slot, pid in processes.items() if pid in children}


def copied_by(spec: JobSpec) -> set[int]:
    return {
        slot
        for slot, report in current_reports(spec).items()
        if any(one.records for one in report.partitions)
    }


def look_everywhere(
    cluster: Standalone, ui: str, home: Path, events: Path, there: dict[str, object]
) -> tuple[str, dict[str, str]]:
    """All that others can see of the job, by place: and all of it in one."""
    shown = visible_texts(there, home, events, cluster.folder)
    applications = fetched(f"{ui}/api/v1/applications")
    number = applications.split('"id" : "')[1].split('"')[0]
    pages = ("environment/", "executors/", "jobs/", f"api/v1/applications/{number}/environment")
    shown |= {f"{ui}/{page}": fetched(f"{ui}/{page}") for page in pages}
    shown |= {f"{cluster.master.ui}/{page}": fetched(f"{cluster.master.ui}/{page}") for page in ("", "json/")}
    modes = {file: mode_of(file) for file in files_below(home) if file.suffix in (".json", ".conf")}
    assert set(modes.values()) - {None} == {0o600}, modes
    assert {folder.stat().st_mode & 0o777 for folder in home.iterdir()} == {0o700}
    assert f"{ui}/environment/" in shown
    assert "spark.eventLog.enabled" in shown[f"{ui}/environment/"]
    assert files_below(events)
    return "\n".join(shown.values()), shown


def mode_of(file: Path) -> int | None:
    """None when it is gone."""
    try:
        return file.stat().st_mode & 0o777
    except OSError:
        return None
