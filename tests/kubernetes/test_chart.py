"""The Helm chart in plans/kubernetes: what its values render, and a release of it on a real node."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from runtime.lab.ports import free_ports
from runtime.launch.manifest import COMPONENT, DRIVER, EXECUTOR
from tests import checker
from tests.commands import repl
from tests.kubernetes.cloud import (
    PASSWORDS,
    WITHIN_S,
    Cloud,
    KubernetesJob,
    create_passwords,
    password,
    pods_of,
)
from tests.kubernetes.node import (
    GIT,
    HELM,
    JOBS,
    KUBECONFORM,
    POD_MONITOR,
    SCHEMAS,
    VERSION,
    KubernetesNode,
)
from tests.records import admin_of, create_topic, wait_for
from tests.topologies import declared, without_answer

pytestmark = [pytest.mark.kubernetes, pytest.mark.long, pytest.mark.timeout(3600)]
CHART = Path(__file__).parents[2] / "plans" / "kubernetes"
FILES = {"files": {"shop.yaml": "apiVersion: repl/v1\n"}}
CLONED = {
    "repository": "https://git.example.org/shop.git",
    "path": "topologies/shop",
    "image": "git:1",
    "secret": "git",
}
PAGE = {"token": {"secret": "page"}}
LEAST: dict[str, Any] = {"image": JOBS, "topology": FILES, "ui": PAGE}
EVERYTHING: dict[str, Any] = {
    "image": JOBS,
    "imagePullSecrets": ["registry"],
    "topology": {"git": CLONED, "variableFiles": ["/topology/shop.vars.yaml"]},
    "secret": PASSWORDS,
    "mounts": [
        {"secret": "ca", "path": "/etc/repl/certificates"},
        {"configMap": "kerberos", "path": "/etc/krb5"},
    ],
    "env": {"REPL_USER": "reader", "REPL_ALLOW_BOOTSTRAP": "*:9093", "NUMBER": 7},
    "pod": {
        "labels": {"team": "payments"},
        "annotations": {"example.org/contact": "payments"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "kafka", "operator": "Exists"}],
    },
    "ui": {
        **PAGE,
        "allowHosts": ["repl.internal"],
        "service": {"type": "NodePort", "annotations": {"a": "b"}},
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "annotations": {"a": "b"},
            "hosts": ["repl.example.com"],
            "tlsSecret": "certificate",
        },
    },
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "namespaces": ["kafka", "shop"]},
    "rights": {
        "enabled": True,
        "serviceAccount": "jobs",
        "appliers": [{"kind": "ServiceAccount", "name": "ci"}, {"kind": "Group", "name": "admins"}],
    },
}


def helm(*words: str, values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """Runs helm with these values."""
    command = [str(HELM), *words, "--values=-"]
    return subprocess.run(
        command, input=json.dumps(values), capture_output=True, text=True, timeout=2 * WITHIN_S, check=False
    )


def rendered(values: Mapping[str, Any]) -> str:
    done = helm(
        "template", "shop", str(CHART), "--namespace=kafka", f"--kube-version={VERSION}", values=values
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown_values() -> dict[str, Any]:
    """Returns the values that docs/kubernetes.md shows."""
    page = (CHART.parents[1] / "docs" / "kubernetes.md").read_text()
    values: dict[str, Any] = yaml.safe_load(page.partition("<<'END'\n")[2].partition("\nEND\n")[0])
    return values


@pytest.mark.parametrize(
    "values", [LEAST, EVERYTHING, shown_values()], ids=["least", "everything", "of the page"]
)
def test_the_chart_is_what_helm_and_kubernetes_take(values: dict[str, Any]):
    linted = helm("lint", "--strict", str(CHART), f"--kube-version={VERSION}", values=values)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    where = f"{SCHEMAS}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    checked = subprocess.run(
        [KUBECONFORM, "-strict", "-output=json", "-summary", f"-schema-location={where}"],
        input=rendered(values),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    summary = json.loads(checked.stdout)["summary"]
    assert summary["valid"] == len(list(yaml.safe_load_all(rendered(values))))
    assert summary["skipped"] == 0


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"topology": FILES, "ui": PAGE}, "image: name the image"),
        ({**LEAST, "ui": {}}, "ui.token.secret: name a Secret with the token"),
        ({**LEAST, "topology": {}}, "no topology: set one of"),
        ({**LEAST, "topology": {**FILES, "configMap": "shop"}}, "more than one topology"),
        ({**LEAST, "topology": {"git": {**CLONED, "image": ""}}}, "topology.git.image: name an image"),
        ({**LEAST, "topology": {"git": {**CLONED, "path": "../../etc"}}}, "at '/topology/git/path'"),
        ({**LEAST, "ui": {**PAGE, "ingress": {"enabled": True}}}, "ui.ingress.hosts: name the host"),
        ({**LEAST, "drift": {"shedule": "@daily"}}, "additional properties 'shedule' not allowed"),
        ({**LEAST, "mounts": [{"secret": "a", "configMap": "b", "path": "/c"}]}, "at '/mounts/0'"),
    ],
)
def test_a_value_that_is_missing_or_wrong_is_named(values: dict[str, Any], said: str):
    refused = helm("template", "shop", str(CHART), f"--kube-version={VERSION}", values=values)
    assert refused.returncode == 1
    assert said in refused.stderr


def test_a_text_of_the_topology_is_no_template_and_no_more_yaml():
    text = 'name: "{{ .Values.image }}"\n"a: b\nkind: Secret\n---\n'
    (config,) = [
        resource
        for resource in yaml.safe_load_all(rendered({**LEAST, "topology": {"files": {"shop.yaml": text}}}))
        if resource["kind"] == "ConfigMap"
    ]
    assert config["data"] == {"shop.yaml": text}


def test_the_rights_are_those_that_repl_prints(tmp_path: Path):
    options = {"image": JOBS, "namespace": "kafka", "service_account": "jobs"}
    job = {"launcher": "kubernetes", "master": "k8s://https://h", "options": options}
    printed = repl("jobs", "manifest", str(without_answer(tmp_path, jobs={"dc2": job})))
    assert printed.returncode == 0, printed.stderr
    expected = list(yaml.safe_load_all(printed.stdout))
    names = [(resource["kind"], resource["metadata"]["name"]) for resource in expected]
    resources = [
        resource
        for resource in yaml.safe_load_all(rendered(EVERYTHING))
        if (resource["kind"], resource["metadata"]["name"]) in names
    ]
    for resource in resources:
        assert resource["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert sorted(resources, key=str) == sorted(expected, key=str)


class Release:
    """A release of the chart in a namespace where only pods without rights on their node are allowed."""

    def __init__(self, cloud: Cloud, namespace: str) -> None:
        self.node, self.namespace, self.token = cloud.node, namespace, secrets.token_hex(24)
        node = self.node
        node.kubectl("create", "namespace", namespace)
        node.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
        create_passwords(node, cloud.lab, namespace)
        page = (f"--from-literal=token={self.token}", "-n", namespace)
        node.kubectl("create", "secret", "generic", "page", *page)

    def helm(self, *words: str, values: Mapping[str, Any]) -> str:
        where = (f"--kubeconfig={self.node.kubeconfig}", f"--namespace={self.namespace}")
        done = helm(*words, *where, values=values)
        assert done.returncode == 0, done.stderr + self.about()
        return done.stdout

    def upgrade(self, values: Mapping[str, Any], *words: str) -> str:
        return self.helm("upgrade", "--install", "shop", str(CHART), *words, values=values)

    def uninstall(self) -> None:
        where = (f"--kubeconfig={self.node.kubeconfig}", f"--namespace={self.namespace}")
        command = [str(HELM), "uninstall", "shop", "--wait", *where]
        subprocess.run(command, check=True, capture_output=True, timeout=WITHIN_S)

    def pods(self, component: str) -> dict[str, dict[str, Any]]:
        selected = f"app.kubernetes.io/instance=helm-shop,{COMPONENT}={component}"
        return pods_of(self.node, selected, self.namespace)

    def logs(self, component: str) -> str:
        """The logs of all pods of a component."""
        return "\n".join(
            self.node.kubectl("logs", pod, "-n", self.namespace, "--all-containers", check=False)
            for pod in self.pods(component)
        )

    def about(self) -> str:
        where = ("-n", self.namespace)
        shown = [self.node.kubectl("get", kind, *where, check=False) for kind in ("pods", "jobs", "events")]
        return "\n".join([*shown, self.logs("ui"), self.logs("drift")])

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Returns what the Service answers on the node."""
        (service,) = self.node.get("services", self.namespace)
        return request(self.node, f"http://{service['spec']['clusterIP']}{path}", headers)

    def status(self) -> dict[str, Any]:
        code, body = self.get("/status.json", Authorization=f"Bearer {self.token}")
        status: dict[str, Any] = json.loads(body) if code == 200 else {}
        return status

    def flows(self) -> dict[str, str]:
        """The states of the flows that the page shows."""
        return {flow["name"]: flow["state"] for flow in self.status().get("flows", ())}

    def drift(self, name: str) -> tuple[str, str]:
        """Runs the CronJob now; returns how its Job ended, and its log."""
        where = ("-n", self.namespace)
        self.node.kubectl("create", "job", name, "--from=cronjob/shop-drift", *where)

        def ended() -> str:
            (job,) = self.node.get("jobs", self.namespace, f"--field-selector=metadata.name={name}")
            conditions = job["status"].get("conditions", ())
            return next(
                (
                    condition["type"]
                    for condition in conditions
                    if condition["status"] == "True" and condition["type"] in ("Complete", "Failed")
                ),
                "",
            )

        wait_for(lambda: ended() != "", WITHIN_S, 1.0, about=self.about)
        words = (f"--selector=job-name={name}", "--tail=-1")
        logs = (
            self.node.kubectl("logs", *where, *words, f"--container={container}", check=False)
            for container in ("git", "drift")
        )
        return ended(), "".join(logs)


_REQUEST = """
import json, sys, urllib.error, urllib.request
url, headers = json.load(sys.stdin)
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    answer = direct.open(urllib.request.Request(url, headers=headers), timeout=30)
except urllib.error.HTTPError as refused:
    answer = refused
except OSError as failure:
    print(json.dumps([0, str(failure)]))
    sys.exit()
print(json.dumps([answer.status, answer.read().decode()]))
"""


def request(node: KubernetesNode, url: str, headers: Mapping[str, str]) -> tuple[int, str]:
    """Returns code and body of what the address answers on the node."""
    done = subprocess.run(
        node.enter(sys.executable, "-c", _REQUEST),
        input=json.dumps([url, headers]),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    code, body = json.loads(done.stdout)
    return int(code), str(body)


@dataclass(frozen=True)
class Shop:
    release: Release
    job: KubernetesJob
    values: dict[str, Any]


@pytest.fixture
def shop(cloud: Cloud, fresh: Callable[[str], str], tmp_path: Path) -> Iterator[Shop]:
    """A release of the chart, whose topology has a job that does not run yet."""
    release = Release(cloud, fresh("shop"))
    job = KubernetesJob(cloud, tmp_path, fresh, namespace=release.namespace)
    job.launch["metrics"] = {"host": "0.0.0.0"}
    job.topology.topic(fresh("payments"), partitions=1, config={"retention.ms": "1d"})
    values = {
        "image": JOBS,
        "secret": PASSWORDS,
        "timeout": "60s",
        "ui": PAGE,
        "podMonitor": {"enabled": True},
        "rights": {
            "enabled": True,
            "appliers": [{"kind": "ServiceAccount", "name": "operator", "namespace": "kafka"}],
        },
    }
    cloud.node.kubectl("create", "-f", str(POD_MONITOR))
    cloud.node.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(POD_MONITOR))
    try:
        yield Shop(release, job, values)
    finally:
        job.repl("destroy", "--auto-approve")
        cloud.node.kubectl("delete", "-f", str(POD_MONITOR))


def with_topology(shop: Shop, text: str = "") -> dict[str, Any]:
    text = text or shop.job.topology.write().read_text()
    return {**shop.values, "topology": {"files": {"shop.yaml": text}}}


def test_a_release_shows_a_job_finds_drift_and_is_removed_without_the_job(shop: Shop, cloud: Cloud):
    release, job = shop.release, shop.job
    source, there = (dict(cloud.lab.clusters[name].client) for name in ("dc1", "dc2"))
    create_topic(source, job.topic, 2, config=checker.TOPIC_CONFIG)
    notes = release.upgrade(with_topology(shop), "--wait", f"--timeout={WITHIN_S:.0f}s")
    assert f"kubectl --namespace {release.namespace} port-forward service/shop-ui 8080:http" in notes
    with checker.writing(source, job.topic, checker.Spec(records=10**9, rate=50, large_every=0)) as writer:
        job.repl("apply", "--auto-approve")
        job.wait_for_slots()

        (flow,) = (one["name"] for one in job.topology.more["flows"])
        copies = {"copying", "caught_up"}
        wait_for(lambda: release.flows().get(flow) in copies, WITHIN_S, 1.0, about=release.about)
        assert_the_page_knows_its_viewers_and_its_names(release)
        assert_a_monitor_finds_the_job(release, job)
        assert_no_secret_is_shown(release, cloud)

        ended, log = release.drift("before")
        assert (ended, "No drift" in log) == ("Complete", True), log
        topic = job.topology.topics[0]["name"]
        change_retention(source, topic)
        ended, log = release.drift("after")
        assert ended == "Failed", log
        assert topic in log
        assert "retention.ms" in log
        pods = release.node.get("pods", release.namespace, "--selector=job-name=after")
        assert len(pods) == 1  # drift is not tried again

        running = set(release.pods("ui"))
        release.upgrade(with_topology(shop, "flows: [{name: without-clusters}]\n"))
        wait_for(lambda: "error" in release.logs("ui").lower(), WITHIN_S, 1.0, about=release.about)
        assert "apiVersion" in release.logs("ui")
        assert running <= set(release.pods("ui"))
        assert release.flows().keys() == {flow}

        write_config_map(release, "topology", with_flow(job, "second"))
        from_map = {**shop.values, "topology": {"configMap": "topology"}}
        release.upgrade(from_map, "--wait", f"--timeout={WITHIN_S:.0f}s")
        wait_for(lambda: release.flows().keys() == {flow, "second"}, WITHIN_S, 1.0, about=release.about)
        running = set(release.pods("ui"))
        write_config_map(release, "topology", with_flow(job, "third"))
        wait_for(lambda: release.flows().keys() == {flow, "third"}, WITHIN_S, 1.0, about=release.about)
        assert set(release.pods("ui")) == running

        driver = job.driver()
        release.uninstall()
        wait_for(lambda: not release.pods("ui"), WITHIN_S, 1.0, about=release.about)
        killed = min(job.pods(EXECUTOR))
        job.node.kubectl("delete", "pod", killed, "-n", release.namespace, "--grace-period=1")
        job.wait_for_slots(without=killed)
        assert job.driver() == driver
    report = checker.compare(source, there, job.topic, written=writer.written, patience=120)
    assert report.clean, report


def with_flow(job: KubernetesJob, name: str) -> str:
    """Returns the topology of the job with one more flow."""
    topology = yaml.safe_load(job.topology.write().read_text())
    topology["flows"].append(declared(name, name, state="paused", job=job.name))
    return json.dumps(topology)


def write_config_map(release: Release, name: str, text: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"shop.yaml": text},
    }
    release.node.kubectl("apply", "-n", release.namespace, "-f", "-", text=json.dumps(config))


def change_retention(client: dict[str, Any], topic: str) -> None:
    """Changes a setting of a topic, as people do by hand."""
    entry = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin_of(client).incremental_alter_configs([resource])[resource].result(60)


def assert_the_page_knows_its_viewers_and_its_names(release: Release) -> None:
    assert release.get("/status.json")[0] == 401
    bearer = f"Bearer {release.token}"
    name = f"shop-ui.{release.namespace}.svc"
    assert release.get("/", Host=name, Authorization=bearer)[0] == 200
    assert release.get("/", Host="evil.example", Authorization=bearer)[0] == 421


def assert_a_monitor_finds_the_job(release: Release, job: KubernetesJob) -> None:
    """What the PodMonitor selects answers where it says, with the metrics of the job."""
    (monitor,) = release.node.get("podmonitors", release.namespace)
    spec = monitor["spec"]
    assert spec["namespaceSelector"]["matchNames"] == [release.namespace]
    selected = ",".join(f"{label}={value}" for label, value in spec["selector"]["matchLabels"].items())
    pods = pods_of(release.node, selected, release.namespace)
    assert pods.keys() == job.pods(DRIVER).keys()
    (pod,), (endpoint,) = pods.values(), spec["podMetricsEndpoints"]
    url = f"http://{pod['status']['podIP']}:{endpoint['portNumber']}{endpoint['path']}"
    code, body = request(release.node, url, {})
    assert code == 200
    assert "repl_job_up 1" in body


def assert_no_secret_is_shown(release: Release, cloud: Cloud) -> None:
    values = [release.token, *(password(cloud.lab, name) for name in cloud.lab.clusters)]
    shown = {
        kind: release.node.kubectl("get", kind, "-n", release.namespace, "-o=yaml")
        for kind in ("deployments", "cronjobs", "jobs", "pods", "configmaps", "events", "services")
    }
    shown["the page's log"] = release.logs("ui")
    shown["the page's command line"] = release.node.kubectl(
        "exec", "-n", release.namespace, "deployment/shop-ui", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline"
    )
    assert "--token-file" in shown["the page's command line"]
    assert [kind for kind, text in shown.items() for value in values if value in text] == []


def test_drift_takes_its_topology_from_a_repository_at_each_run(
    cloud: Cloud, fresh: Callable[[str], str], tmp_path: Path
):
    release = Release(cloud, fresh("git"))
    where = ("-n", release.namespace)
    login = ("--from-literal=username=reader", f"--from-literal=password={release.token}")
    release.node.kubectl("create", "secret", "generic", "git", *where, *login)
    repository = Repository(tmp_path / "shop.git")
    job = drifting_job(cloud, release, tmp_path, fresh)
    address = cloud.lab.clusters["dc1"].bootstrap.rpartition(":")[0]
    with served(repository.folder.parent, address, f"reader:{release.token}") as url:
        git = {"repository": f"{url}/shop.git", "path": "topologies/shop", "image": GIT, "secret": "git"}
        values = {"image": JOBS, "secret": PASSWORDS, "timeout": "60s", "ui": {"enabled": False}}
        repository.commit("topologies/shop/shop.yaml", job.topology.write().read_text())
        release.upgrade({**values, "topology": {"git": git}})
        ended, log = release.drift("first")
        assert (ended, "No drift" in log) == ("Complete", True), log

        repository.commit("topologies/shop/shop.yaml", "apiVersion: repl/v1\nname: 7\n")
        release.upgrade({**values, "topology": {"git": git}, "drift": {"retries": 0}})
        ended, log = release.drift("second")
        assert ended == "Failed"
        assert "/topology/topologies/shop/shop.yaml" in log

        release.upgrade({**values, "topology": {"git": {**git, "ref": "gone"}}, "drift": {"retries": 0}})
        ended, log = release.drift("third")
        assert ended == "Failed"
        assert "Remote branch gone not found" in log
        shown = release.node.kubectl("get", "pods,jobs,cronjobs", *where, "-o=yaml") + log
        assert release.token not in shown


def drifting_job(cloud: Cloud, release: Release, folder: Path, names: Callable[[str], str]) -> KubernetesJob:
    """Returns a job whose topology declares one topic, and no flow."""
    job = KubernetesJob(cloud, folder, names, namespace=release.namespace)
    job.topology.more = {}
    job.topology.topic(names("payments"), partitions=1)
    return job


class Repository:
    """A bare repository with the branch main."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._work = folder, folder.with_suffix(".work")
        self._git("init", "--quiet", "--bare", "--initial-branch=main", str(folder))
        self._git("clone", "--quiet", str(folder), str(self._work))

    def commit(self, name: str, text: str) -> None:
        file = self._work / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        self._git("-C", str(self._work), "add", name)
        self._git("-C", str(self._work), "commit", "--quiet", "--message=change")
        self._git("-C", str(self._work), "push", "--quiet", "origin", "HEAD:main")

    def _git(self, *words: str) -> None:
        names = ("-c", "user.name=test", "-c", "user.email=test@example.org")
        subprocess.run(["git", *names, *words], check=True, capture_output=True, timeout=60)


@contextmanager
def served(folder: Path, address: str, login: str) -> Iterator[str]:
    """Serves the repositories of a folder to those who log in, by git's own program; yields the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            expected = f"Basic {b64encode(login.encode()).decode()}"
            if self.headers.get("Authorization") != expected:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            environment = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "REQUEST_METHOD": self.command,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            }
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            command = ["git", "http-backend"]
            done = subprocess.run(command, input=sent, env=environment, capture_output=True, check=True)
            head, _, body = done.stdout.partition(b"\r\n\r\n")
            lines = [line.partition(": ") for line in head.decode().splitlines()]
            code = next((value for name, _, value in lines if name == "Status"), "200")
            self.send_response(int(code.split()[0]))
            for name, _, value in lines:
                if name != "Status":
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_request(self, *_: object) -> None:
            """Prints nothing."""

    with ThreadingHTTPServer((address, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{address}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_drift_clones_its_topology_over_ssh_from_the_host_that_is_known(
    cloud: Cloud, fresh: Callable[[str], str], tmp_path: Path
):
    release = Release(cloud, fresh("ssh"))
    repository = Repository(tmp_path / "shop.git")
    job = drifting_job(cloud, release, tmp_path, fresh)
    repository.commit("topologies/shop/shop.yaml", job.topology.write().read_text())
    address = cloud.lab.clusters["dc1"].bootstrap.rpartition(":")[0]
    with served_over_ssh(repository.folder, address, tmp_path / "ssh") as server:
        git = {"repository": server.url, "path": "topologies/shop", "image": GIT, "secret": "git"}
        values = {"image": JOBS, "secret": PASSWORDS, "timeout": "60s", "ui": {"enabled": False}}
        for run, host, outcome, said in (
            ("known", server.host, "Complete", "No drift"),
            ("another", server.deploy, "Failed", "Host key verification failed"),
        ):
            write_deploy_key(release, server.deploy.read_text(), server.known_as(host))
            release.upgrade({**values, "topology": {"git": git}, "drift": {"retries": 0}})
            ended, log = release.drift(run)
            assert (ended, said in log) == (outcome, True), log
        shown = release.node.kubectl(
            "get", "pods,jobs,cronjobs,configmaps", "-n", release.namespace, "-o=yaml"
        )
        assert server.deploy.read_text().splitlines()[1] not in shown + log


def write_deploy_key(release: Release, key: str, known_hosts: str) -> None:
    """Writes the Secret that the clone logs in with."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "git"},
        "stringData": {"ssh-privatekey": key, "known_hosts": known_hosts},
    }
    release.node.kubectl("apply", "-n", release.namespace, "-f", "-", text=json.dumps(secret))


@dataclass(frozen=True)
class SshServer:
    """An SshServer serves one repository to those who have the deploy key; `host` is its own key."""

    url: str
    host: Path
    deploy: Path

    def known_as(self, key: Path) -> str:
        """Returns the line of known_hosts by which this server has the key."""
        address, _, port = self.url.removeprefix("ssh://root@").partition("/")[0].rpartition(":")
        return f"[{address}]:{port} {key.with_suffix('.pub').read_text()}"


@contextmanager
def served_over_ssh(repository: Path, address: str, folder: Path) -> Iterator[SshServer]:
    """Serves a repository by OpenSSH, and ends the server."""
    folder.mkdir()
    host, deploy = folder / "host", folder / "deploy"
    for key in (host, deploy):
        words = ("-q", "-t", "ed25519", "-N", "", "-f", str(key))
        subprocess.run(("ssh-keygen", *words), check=True, timeout=60)
    command = f"git-upload-pack '{repository}'"
    authorized = folder / "authorized_keys"
    authorized.write_text(f'restrict,command="{command}" {deploy.with_suffix(".pub").read_text()}')
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where sshd takes its rights away
    port = next(free_ports(address))
    settings = {
        "ListenAddress": f"{address}:{port}",
        "HostKey": host,
        "PidFile": "none",
        "AuthorizedKeysFile": authorized,
        "PermitRootLogin": "forced-commands-only",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "UsePAM": "no",
        "StrictModes": "no",  # folders of tests may be writable for others
    }
    config = folder / "sshd_config"
    config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    with subprocess.Popen(("/usr/sbin/sshd", "-D", "-e", "-f", str(config))) as server:
        try:
            wait_for(lambda: answers(address, port), WITHIN_S, about=lambda: f"sshd: {server.poll()}")
            yield SshServer(f"ssh://root@{address}:{port}{repository}", host, deploy)
        finally:
            server.terminate()


def answers(address: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((address, port), timeout=1):
        return True
    return False
