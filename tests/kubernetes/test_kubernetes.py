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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.launching import LaunchError, LaunchState
from runtime.contract.records.job_status import JobStatus
from runtime.contract.spec import naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.launch import LaunchSpec
from runtime.lab.cluster import Security
from runtime.lab.lab import Lab
from runtime.launch.choose import launcher_for
from runtime.launch.manifest import COMPONENT, DRIVER, EXECUTOR, INSTANCE, name_of, secret_of
from tests import checker
from tests.commands import repl
from tests.kubernetes.node import API, BINARIES, JOBS, KubernetesNode, kubernetes
from tests.labs import spec
from tests.records import create_topic, read, wait_for
from tests.spark.job import statuses
from tests.topologies import Topology

_WITHIN_S = 600.0  # many times what anything takes on a quiet machine
NAMESPACE, PASSWORDS = "kafka", "passwords"
pytestmark = [pytest.mark.kubernetes, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3600)]


@dataclass(frozen=True)
class Cloud:
    """A node of Kubernetes, two clusters of Kafka that its pods reach, and the kubeconfig of an operator."""

    node: KubernetesNode
    lab: Lab
    kubeconfig: Path


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with kubernetes(tmp_path_factory.mktemp("node")) as (node, network):
        lab = Lab(tmp_path_factory.mktemp("lab"))
        lab.up([replace(spec(name, security=Security.SASL), host=network.address) for name in ("dc1", "dc2")])
        try:
            node.kubectl("create", "namespace", NAMESPACE)
            passwords = [f"--from-literal={variable(name)}={password(lab, name)}" for name in lab.clusters]
            node.kubectl("create", "secret", "generic", PASSWORDS, "-n", NAMESPACE, *passwords)
            yield Cloud(node, lab, operator(node, tmp_path_factory.mktemp("operator")))
        finally:
            lab.down(purge=True)


def variable(cluster: str) -> str:
    return f"{cluster.upper()}_PASSWORD"


def password(lab: Lab, cluster: str) -> str:
    return str(lab.clusters[cluster].client["sasl.password"])


def operator(node: KubernetesNode, folder: Path) -> Path:
    """Returns the kubeconfig of an account that has the rights of the role for `repl apply` alone."""
    launch = {"launcher": "kubernetes", "master": f"k8s://https://{API}:443"}
    topology = Topology(
        "rights", folder / "rights.yaml", {"dc1": {"bootstrap": "a:1"}, "dc2": {"bootstrap": "b:1"}}
    )
    flow = {"name": "f", "from": "dc1", "to": "dc2", "topics": {"include": ["t"]}, "job": "dc2"}
    options = {"image": JOBS, "namespace": NAMESPACE}
    topology.more = {"flows": [flow], "jobs": {"dc2": {**launch, "options": options}}}
    manifest = repl("jobs", "manifest", str(topology.write()))
    assert manifest.returncode == 0, manifest.stderr
    node.kubectl("apply", "-f", "-", text=manifest.stdout)
    node.kubectl("create", "serviceaccount", "operator", "-n", NAMESPACE)
    bound = ("--role=repl-apply", f"--serviceaccount={NAMESPACE}:operator")
    node.kubectl("create", "rolebinding", "operator", "-n", NAMESPACE, *bound)
    config = json.loads(node.kubeconfig.read_text())
    config["users"][0]["user"] = {
        "token": node.kubectl("create", "token", "operator", "-n", NAMESPACE).strip()
    }
    file = folder / "operator.json"
    file.touch(0o600)
    file.write_text(json.dumps(config))
    return file


def pods_of(node: KubernetesNode, selected: str) -> dict[str, dict[str, Any]]:
    """The pods with these labels that are not being deleted, by name."""
    return {
        pod["metadata"]["name"]: pod
        for pod in node.get("pods", NAMESPACE, f"--selector={selected}")
        if "deletionTimestamp" not in pod["metadata"]
    }


class KubernetesJob:
    """A job on Kubernetes as an operator has it, with one flow and two slots."""

    def __init__(self, cloud: Cloud, folder: Path, names: Callable[[str], str], **options: str) -> None:
        self.cloud, self.node, self.folder = cloud, cloud.node, folder
        self.name, self.topic = names("job"), names("orders")
        clusters: dict[str, dict[str, object]] = {
            name: {
                "bootstrap": cluster.bootstrap,
                "client": {**cluster.settings(), "sasl.password": {"env": variable(name)}},
            }
            for name, cluster in cloud.lab.clusters.items()
        }
        flow = {"name": names("flow"), "from": "dc1", "to": "dc2", "topics": {"include": [self.topic]}}
        cores = {f"spark.kubernetes.{role}.request.cores": "50m" for role in (DRIVER, EXECUTOR)}
        self.launch: dict[str, Any] = {
            "launcher": "kubernetes",
            "master": f"k8s://https://{API}:443",
            "slots": 2,
            "memory": "400m",
            "metrics": False,
            "conf": cores,
            "options": {"image": JOBS, "namespace": NAMESPACE, "secret": PASSWORDS, **options},
        }
        self.topology = Topology(names("far"), folder / "far.yaml", clusters)
        self.topology.more = {"flows": [flow | {"job": self.name}], "jobs": {self.name: self.launch}}

    def repl(self, *words: str, home: str = "home", code: int = 0) -> str:
        """Runs a command over the topology; `home` is that of another checkout."""
        environ = {
            **os.environ,
            **{variable(name): password(self.cloud.lab, name) for name in self.cloud.lab.clusters},
            "PATH": f"{BINARIES}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.cloud.kubeconfig),
            "REPL_HOME": str(self.folder / home),
        }
        done = repl(*words, "--path", str(self.topology.write()), env=environ, timeout=2 * _WITHIN_S)
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}\n{self.about()}"
        return " ".join((done.stdout + done.stderr).split())

    def pods(self, role: str) -> dict[str, dict[str, Any]]:
        """The pods of a role that are not being deleted, by name."""
        return pods_of(self.node, f"{INSTANCE}={name_of(self.name)},{COMPONENT}={role}")

    def about(self) -> str:
        """What the job and its pods say."""
        log = self.node.kubectl(
            "logs", "-n", NAMESPACE, f"deployment/{name_of(self.name)}", "--tail=60", check=False
        )
        return f"{self.node.kubectl('get', 'pods', '-n', NAMESPACE, '-o=wide', check=False)}\n{log}"

    def status(self) -> JobStatus | None:
        return self.reported()[0]

    def reported(self) -> tuple[JobStatus | None, dict[int, str]]:
        """The newest status, and the machine of each slot that runs by its report to the driver that runs."""
        there = self.cloud.lab.clusters["dc2"]
        client: dict[str, Any] = dict(there.settings())
        cluster = ClusterSpec(bootstrap=there.bootstrap, client=client)
        asked = JobSpec(job=self.name, topology="t", destination="dc2", clusters={"dc2": cluster}, flows=[])
        status, reports = statuses(asked)
        if status is None:
            return None, {}
        running = {number for number, view in enumerate(status.slots) if view.state == "running"}
        return status, {
            number: report.status.host
            for number, report in reports.items()
            if number in running and report.driver == status.driver
        }

    def wait_for_slots(self, driver_before: str = "", without: str = "") -> None:
        """Returns when two slots run in pods that are there, for another driver than the one before."""

        def run() -> bool:
            status, hosts = self.reported()
            if status is None or status.driver == driver_before or without in hosts.values():
                return False
            return len(set(hosts.values())) == 2 and set(hosts.values()) <= set(self.pods(EXECUTOR))

        wait_for(run, _WITHIN_S, 1.0, about=self.about)

    def states(self, driver_before: str) -> list[str]:
        """The states of the flows, once another driver reports them."""
        status = self.status()
        return [view.state for view in status.flows] if status and status.driver != driver_before else []

    def driver(self) -> str:
        status = self.status()
        assert status is not None
        return status.driver


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
            with lost("an executor's pod"):
                job.node.kubectl("delete", "pod", killed, "-n", NAMESPACE, "--grace-period=1")
                job.wait_for_slots(without=killed)

            before, (pod,) = job.driver(), job.pods(DRIVER)
            with lost("the driver's JVM"):
                end_jvm = "kill -9 $(pidof java)"
                job.node.kubectl("exec", "-n", NAMESPACE, pod, "--", "sh", "-c", end_jvm, check=False)
                job.wait_for_slots(before)
            assert set(job.pods(DRIVER)) == {pod}

            before, executors = job.driver(), set(job.pods(EXECUTOR))
            (flow,) = job.topology.more["flows"]
            flow["state"] = "paused"
            job.repl("apply", "--auto-approve")
            job.node.kubectl("delete", "pod", pod, "-n", NAMESPACE, "--wait=false")
            wait_for(lambda: job.states(before) == ["paused"], _WITHIN_S, 1.0, about=job.about)
            flow["state"] = "active"
            with lost("the driver's pod, and its flow resumed"):
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
        wait_for(pods, _WITHIN_S, 1.0)
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
        wait_for(lambda: pods() and pods() != [pod], _WITHIN_S, 1.0)
        assert launcher.find(spec.job).state is LaunchState.RUNNING
    finally:
        selected = f"--selector={INSTANCE}={name_of(spec.job)}"
        node.kubectl("delete", "pods", "-n", NAMESPACE, selected, "--force", "--grace-period=0")
        node.kubectl("delete", "node", lost_node, "--ignore-not-found")
        assert launcher.stop(spec.job, 1) == ""


@contextmanager
def lost(what: str) -> Iterator[None]:
    """Prints how long two slots take to run again."""
    began = time.monotonic()
    yield
    print(f"{what} lost: two slots run again after {time.monotonic() - began:.1f} s")


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
