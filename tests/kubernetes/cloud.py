"""A node of Kubernetes with two clusters of Kafka, and a job there as an operator has it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.contract.records.job_status import JobStatus
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobSpec
from runtime.lab.lab import Lab
from runtime.launch.manifest import COMPONENT, DRIVER, EXECUTOR, INSTANCE, name_of
from tests.commands import repl
from tests.kubernetes.node import API, BINARIES, JOBS, KubernetesNode
from tests.records import wait_for
from tests.spark.job import statuses
from tests.topologies import Topology

WITHIN_S = 600.0  # many times what anything takes on a quiet machine
NAMESPACE, PASSWORDS = "kafka", "passwords"


@dataclass(frozen=True)
class Cloud:
    """A node of Kubernetes, two clusters of Kafka that its pods reach, and the kubeconfig of an operator."""

    node: KubernetesNode
    lab: Lab
    kubeconfig: Path


def variable(cluster: str) -> str:
    return f"{cluster.upper()}_PASSWORD"


def password(lab: Lab, cluster: str) -> str:
    return str(lab.clusters[cluster].client["sasl.password"])


def create_passwords(node: KubernetesNode, lab: Lab, namespace: str) -> None:
    """Creates the Secret that the topology refers to."""
    passwords = [f"--from-literal={variable(name)}={password(lab, name)}" for name in lab.clusters]
    node.kubectl("create", "secret", "generic", PASSWORDS, "-n", namespace, *passwords)


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


def pods_of(node: KubernetesNode, selected: str, namespace: str = NAMESPACE) -> dict[str, dict[str, Any]]:
    """The pods with these labels that are not being deleted, by name."""
    return {
        pod["metadata"]["name"]: pod
        for pod in node.get("pods", namespace, f"--selector={selected}")
        if "deletionTimestamp" not in pod["metadata"]
    }


class KubernetesJob:
    """A job on Kubernetes as an operator has it, with one flow and two slots."""

    def __init__(self, cloud: Cloud, folder: Path, names: Callable[[str], str], **options: str) -> None:
        self.cloud, self.node, self.folder = cloud, cloud.node, folder
        self.name, self.topic = names("job"), names("orders")
        self.namespace = options.get("namespace", NAMESPACE)
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
        done = repl(*words, "--path", str(self.topology.write()), env=environ, timeout=2 * WITHIN_S)
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}\n{self.about()}"
        return " ".join((done.stdout + done.stderr).split())

    def pods(self, role: str) -> dict[str, dict[str, Any]]:
        """The pods of a role that are not being deleted, by name."""
        return pods_of(self.node, f"{INSTANCE}={name_of(self.name)},{COMPONENT}={role}", self.namespace)

    def about(self) -> str:
        """What the job and its pods say."""
        there = ("-n", self.namespace)
        log = self.node.kubectl("logs", *there, f"deployment/{name_of(self.name)}", "--tail=60", check=False)
        return f"{self.node.kubectl('get', 'pods', *there, '-o=wide', check=False)}\n{log}"

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
            number: report.host
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

        wait_for(run, WITHIN_S, 1.0, about=self.about)

    def states(self, driver_before: str) -> list[str]:
        """The states of the flows, once another driver reports them."""
        status = self.status()
        return [view.state for view in status.flows] if status and status.driver != driver_before else []

    def driver(self) -> str:
        status = self.status()
        assert status is not None
        return status.driver
