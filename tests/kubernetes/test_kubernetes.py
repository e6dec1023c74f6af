"""A job on a real node of Kubernetes. Each loss is followed by what the job reports, then all records are
compared. `repl` has the rights that `repl jobs manifest` gives it, and no more.
"""

from __future__ import annotations

import json
import os
import re
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime.contract.launching import LaunchError, LaunchState
from runtime.contract.spec import naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.launch import LaunchSpec
from runtime.launch.choose import launcher_for
from runtime.launch.manifest import DRIVER, EXECUTOR, INSTANCE, name_of, secret_of
from tests import checker
from tests.kubernetes.cloud import NAMESPACE, PASSWORDS, WITHIN_S, Cloud, KubernetesJob, password, pods_of
from tests.kubernetes.node import API, BINARIES, JOBS, KubernetesNode
from tests.records import create_topic, read, wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3600)]


def test_a_job_survives_each_loss_and_is_stopped_from_another_checkout(
    cloud: Cloud, fresh: Callable[[str], str], tmp_path: Path
):
    job = KubernetesJob(cloud, tmp_path, fresh)
    source, there = (dict(cloud.lab.clusters[name].client) for name in ("dc1", "dc2"))
    create_topic(source, job.topic, 4, config=checker.TOPIC_CONFIG)
    with checker.writing(source, job.topic, checker.Spec(records=10**9, rate=100, large_every=0)) as writer:
        try:
            began = time.monotonic()
            job.repl("apply", "--auto-approve")
            print(f"apply returned after {time.monotonic() - began:.1f} s")
            job.wait_for_slots()
            assert_no_secret_is_seen(job, there)

            killed = min(job.pods(EXECUTOR))
            with recovery("an executor's pod lost"):
                job.node.kubectl("delete", "pod", killed, "-n", NAMESPACE, "--grace-period=1")
                job.wait_for_slots(without=killed)

            before, (pod,) = job.driver(), job.pods(DRIVER)
            with recovery("the driver's JVM lost"):
                end_jvm = "kill -9 $(pidof java)"
                job.node.kubectl("exec", "-n", NAMESPACE, pod, "--", "sh", "-c", end_jvm, check=False)
                job.wait_for_slots(before)
            assert set(job.pods(DRIVER)) == {pod}

            before, executors = job.driver(), set(job.pods(EXECUTOR))
            (flow,) = job.topology.more["flows"]
            flow["state"] = "paused"
            job.repl("apply", "--auto-approve")
            job.node.kubectl("delete", "pod", pod, "-n", NAMESPACE, "--wait=false")
            wait_for(lambda: job.states(before) == ["paused"], WITHIN_S, 1.0, about=job.about)
            flow["state"] = "active"
            with recovery("the driver's pod lost, and its flow resumed"):
                job.repl("apply", "--auto-approve")
                job.wait_for_slots(before)
            assert pod not in job.pods(DRIVER)
            assert executors.isdisjoint(job.pods(EXECUTOR))

            report = checker.compare(source, there, job.topic, written=writer.written, patience=120)
            assert report.clean, report
            job.topology.more = {}
            job.topology.topic(fresh("unrelated"))  # a topology that declares nothing is an error
            plan = job.repl("apply", "--auto-approve", home="another-checkout")
            assert f"job.{job.name}" in plan
            assert not job.pods(DRIVER)
            assert not job.pods(EXECUTOR)
            left = job.node.kubectl("get", "deployments,secrets", "-n", NAMESPACE, "-o=name").split()
            assert not [name for name in left if name.endswith((name_of(job.name), secret_of(job.name)))]
        finally:
            job.repl("destroy", "--auto-approve")


def test_an_apply_names_what_kubernetes_refuses_and_the_job_starts_once_it_is_corrected(
    cloud: Cloud, fresh: Callable[[str], str], tmp_path: Path
):
    job = KubernetesJob(cloud, tmp_path, fresh, image="repl.test/missing:1", secret="missing")
    source, there = (dict(cloud.lab.clusters[name].client) for name in ("dc1", "dc2"))
    create_topic(source, job.topic, 1, config=checker.TOPIC_CONFIG)
    quota = ("quota", "small", "-n", NAMESPACE)
    try:
        refused = job.repl("apply", "--auto-approve", code=1)
        assert "the image repl.test/missing:1 can't be pulled: " in refused
        assert "the image repl.test/missing:1 can't be pulled: " in job.repl("status")

        job.launch["options"]["image"] = JOBS
        refused = job.repl("apply", "--auto-approve", code=1)
        assert 'can\'t be started: CreateContainerConfigError: secret "missing" not found' in refused

        job.launch["options"]["secret"] = PASSWORDS
        job.node.kubectl("create", *quota, "--hard=pods=0")
        refused = job.repl("apply", "--auto-approve", code=1)
        assert re.search(r"Kubernetes refuses the driver's pod: .* exceeded quota: small", refused), refused

        job.node.kubectl("delete", *quota)
        job.node.kubectl("create", *quota, "--hard=pods=1")
        job.launch["conf"]["spark.restarted"] = "once"
        refused = job.repl("apply", "--auto-approve", code=1)
        assert re.search(r"Kubernetes says: .* exceeded quota: small", refused), refused
        assert "exceeded quota: small" in job.repl("status", code=0)

        job.node.kubectl("delete", *quota)
        job.repl("apply", "--auto-approve")
        with checker.writing(source, job.topic, checker.Spec(records=1_000)) as writer:
            writer.wait_for(500)
        report = checker.compare(source, there, job.topic, written=writer.written, patience=120)
        assert report.clean, report
    finally:
        job.repl("destroy", "--auto-approve")


def test_a_job_goes_on_where_its_node_is_drained_or_its_machine_is_lost(
    cloud: Cloud, fresh: Callable[[str], str], tmp_path: Path
):
    job = KubernetesJob(cloud, tmp_path, fresh)
    node = cloud.node
    source, there = (dict(cloud.lab.clusters[name].client) for name in ("dc1", "dc2"))
    create_topic(source, job.topic, 4, config=checker.TOPIC_CONFIG)

    def places() -> set[str]:
        """The nodes of all pods of the job."""
        pods = {**job.pods(DRIVER), **job.pods(EXECUTOR)}
        return {pod["spec"]["nodeName"] for pod in pods.values()}

    writing = checker.writing(source, job.topic, checker.Spec(records=10**9, rate=50, large_every=0))
    with node.second() as machine, writing as writer:
        try:
            node.kubectl("cordon", node.name)
            job.repl("apply", "--auto-approve")
            job.wait_for_slots()
            assert places() == {machine.name}

            node.kubectl("uncordon", node.name)
            before = job.driver()
            with recovery("the node of driver and executors drained"):
                drain(node, machine.name)
                job.wait_for_slots(before)
            assert places() == {node.name}

            node.kubectl("uncordon", machine.name)
            before = job.driver()
            drain(node, node.name)
            job.wait_for_slots(before)
            assert places() == {machine.name}
            node.kubectl("uncordon", node.name)

            before = job.driver()
            with recovery("the machine of driver and executors lost"):
                machine.lose()
                job.wait_for_slots(before)
            assert places() == {node.name}
            report = checker.compare(source, there, job.topic, written=writer.written, patience=120)
            assert report.clean, report
        finally:
            job.repl("destroy", "--auto-approve")


def drain(node: KubernetesNode, name: str) -> None:
    """Drains a node as its operator does. Executors are no pods of a controller that drain knows."""
    node.kubectl("drain", name, "--force", "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=180s")


def test_a_pod_of_a_lost_node_delays_no_new_driver_and_other_owners_change_nothing(
    cloud: Cloud, fresh: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The lost node has no kubelet, so nothing there confirms that a pod has ended."""
    monkeypatch.setenv("KUBECONFIG", str(cloud.kubeconfig))
    monkeypatch.setenv("PATH", f"{BINARIES}:{os.environ['PATH']}")
    node, lost_node = cloud.node, fresh("lost")
    launch = LaunchSpec(
        launcher="kubernetes",
        master=f"k8s://https://{API}:443",
        options={"image": JOBS, "namespace": NAMESPACE},
        conf={"spark.kubernetes.node.selector.name": lost_node},
    )
    there = ClusterSpec(bootstrap="127.0.0.1:9", id="production")
    spec = JobSpec(
        job=fresh("job"), topology="shop", destination="dc2", clusters={"dc2": there}, flows=[], launch=launch
    )
    launcher, other = (launcher_for(launch, tmp_path, owner) for owner in ("production", "staging"))

    def pods() -> list[str]:
        """The names of the job's pods that are not being deleted."""
        return list(pods_of(node, f"{INSTANCE}={name_of(spec.job)}"))

    def create(path: str, kind: str, name: str, **more: object) -> None:
        created = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more}
        node.kubectl("create", "--raw", f"/api/v1/{path}", "-f", "-", text=json.dumps(created))

    try:
        launcher.launch(spec)
        wait_for(pods, WITHIN_S, 1.0)
        (pod,) = pods()
        with pytest.raises(LaunchError, match="for the cluster production"):
            other.launch(spec)
        assert other.stop(spec.job, 1) == ""
        assert pods() == [pod]

        create("nodes", "Node", lost_node)
        target = {"apiVersion": "v1", "kind": "Node", "name": lost_node}
        create(f"namespaces/{NAMESPACE}/pods/{pod}/binding", "Binding", pod, target=target)
        assert f"{pod} on {lost_node}" in launcher.stop(spec.job, 1)
        assert launcher.find(spec.job).handle is None

        launcher.launch(spec)
        wait_for(lambda: pods() and pods() != [pod], WITHIN_S, 1.0)
        assert launcher.find(spec.job).state is LaunchState.RUNNING
    finally:
        selected = f"--selector={INSTANCE}={name_of(spec.job)}"
        node.kubectl("delete", "pods", "-n", NAMESPACE, selected, "--force", "--grace-period=0")
        node.kubectl("delete", "node", lost_node, "--ignore-not-found")
        assert launcher.stop(spec.job, 1) == ""


@contextmanager
def recovery(what: str) -> Iterator[None]:
    """Prints how long two slots take to run again."""
    began = time.monotonic()
    yield
    print(f"{what}: two slots run again after {time.monotonic() - began:.1f} s")


def assert_no_secret_is_seen(job: KubernetesJob, there: dict[str, object]) -> None:
    """Neither on a command line, nor in what Kubernetes shows but Secrets, nor in logs and topics."""
    shown: dict[str, str] = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            shown[str(entry)] = entry.read_bytes().decode(errors="replace")
        except OSError:  # gone meanwhile
            continue
    for kind in ("deployments", "replicasets", "pods", "configmaps", "events", "services"):
        shown[kind] = job.node.kubectl("get", kind, "-n", NAMESPACE, "-o=yaml")
    for pod in [*job.pods(DRIVER), *job.pods(EXECUTOR)]:
        shown[f"the log of {pod}"] = job.node.kubectl("logs", "-n", NAMESPACE, pod)
        settings = "cat $(find /var/lib/repl /tmp -type f)"
        shown[f"files of {pod}"] = job.node.kubectl(
            "exec", "-n", NAMESPACE, pod, "--", "sh", "-c", settings, check=False
        )
    for topic in (naming.STATUS, naming.CONTROL):
        for record in read(there, topic):
            shown[f"{topic} {record.offset}"] = f"{record.key!r} {record.value!r}"
    (secret,) = job.node.get("secrets", NAMESPACE, f"--field-selector=metadata.name={secret_of(job.name)}")
    values = [password(job.cloud.lab, name) for name in job.cloud.lab.clusters]
    assert job.name in shown["pods"]
    for value in (
        *values,
        secret["data"]["authentication"],
        b64decode(secret["data"]["authentication"]).decode(),
    ):
        assert [place for place, text in shown.items() if value in text] == []
