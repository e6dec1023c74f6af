"""What a job's resources say, and what the launcher makes of answers of kubectl. `make test-kubernetes` runs
them on a real API server.
"""

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runtime.contract.launching import EXECUTOR_POD, LaunchError, LaunchState
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import JobSpec
from runtime.launch import manifest, pod
from runtime.launch.choose import launcher_for
from runtime.launch.command import properties_file
from runtime.launch.manifest import name_of, secret_of
from tests.fakes.kubectl import FakeKubectl
from tests.runtime.launch.specs import spec_of

OPTIONS = {"image": "registry.example/repl:1", "namespace": "replication", "secret": "kafka-passwords"}
SPEC = spec_of(
    "orders eu: yes",
    client={"sasl.password": {"env": "DC_PASSWORD"}, "sasl.username": "repl"},
    slots=3,
    launcher="kubernetes",
    master="k8s://https://h:443",
    memory="2g",
    conf={"spark.kubernetes.driver.label.team": "payments", "spark.kubernetes.node.selector.disk": "ssd"},
    options=OPTIONS,
)
POD = {"POD_IP": "10.1.2.3", "POD_NAME": "repl-1", "PATH": os.environ["PATH"]}


def container_of(resource: dict[str, Any]) -> dict[str, Any]:
    described = resource["spec"].get("template", resource)["spec"]
    (container,) = described["containers"]
    assert isinstance(container, dict)
    return container


def test_the_spec_is_in_a_secret_and_names_passwords_only():
    secret = manifest.secret(SPEC, "of spark")
    assert jobspec.decode(secret["stringData"]["spec.json"]) == SPEC
    assert secret["stringData"]["authentication"] == "of spark"
    for resource in (manifest.deployment(SPEC), manifest.executor_pod(SPEC)):
        assert "of spark" not in json.dumps(resource)
        assert container_of(resource)["envFrom"] == [{"secretRef": {"name": "kafka-passwords"}}]


def test_the_driver_of_a_lost_node_starts_elsewhere_within_seconds_of_its_loss():
    deployed = manifest.deployment(SPEC)["spec"]
    assert deployed["replicas"] == 1
    assert deployed["strategy"] == {"type": "Recreate"}
    tolerated = {one["key"]: one["tolerationSeconds"] for one in deployed["template"]["spec"]["tolerations"]}
    assert tolerated == {"node.kubernetes.io/not-ready": 10, "node.kubernetes.io/unreachable": 10}


def test_pods_have_no_right_on_their_node_and_executors_no_token():
    driver, executor = manifest.deployment(SPEC), manifest.executor_pod(SPEC)
    for resource in (driver, executor):
        assert container_of(resource)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
    assert executor["spec"]["automountServiceAccountToken"] is False
    assert driver["spec"]["template"]["spec"]["serviceAccountName"] == "repl"
    assert driver["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert driver["spec"]["template"]["metadata"]["labels"]["team"] == "payments"


@pytest.mark.parametrize(
    ("conf", "driver", "executor"),
    [
        ({}, 512 + 2048, 512 + 2048),  # memory is that of the JVM and of Python
        ({"spark.driver.memory": "4g"}, 4096 + 2048, 512 + 2048),
        ({"spark.driver.memoryOverhead": "1024"}, 512 + 1024, 512 + 2048),
        ({"spark.executor.memory": "1048576K"}, 512 + 2048, 1024 + 2048),
        ({"spark.executor.memory": "1gb", "spark.executor.memoryOverhead": "1"}, 512 + 2048, 1024 + 1),
        ({"spark.executor.memory": "1048576b", "spark.driver.memory": "0p"}, 2048, 1 + 2048),
    ],
)
def test_limits_follow_the_memory_of_conf_as_spark_reads_it(conf: dict[str, str], driver: int, executor: int):
    spec = replace(SPEC, launch=replace(SPEC.launch, conf=conf))
    resources = [
        container_of(made(spec))["resources"] for made in (manifest.deployment, manifest.executor_pod)
    ]
    for kind in ("limits", "requests"):
        assert [one[kind]["memory"] for one in resources] == [f"{driver << 10}Ki", f"{executor << 10}Ki"]


def test_the_pod_that_is_tried_has_the_cores_that_spark_gives_an_executor():
    """With a quota on limits.cpu the API server refuses a pod without that limit."""
    conf = {
        f"spark.kubernetes.executor.{kind}.cores": cores for kind, cores in (("request", "1"), ("limit", "2"))
    }
    pod = manifest.executor_pod(replace(SPEC, launch=replace(SPEC.launch, conf=conf)))
    resources = container_of(pod)["resources"]
    assert (resources["requests"]["cpu"], resources["limits"]["cpu"]) == ("1", "2")


@pytest.mark.parametrize(
    ("conf", "cores"),
    [
        ({}, "1"),
        ({"spark.driver.cores": "2"}, "2"),
        ({"spark.kubernetes.driver.request.cores": "50m"}, "50m"),
    ],
)
def test_the_driver_requests_the_cores_that_spark_would(conf: dict[str, str], cores: str):
    spec = replace(
        SPEC, launch=replace(SPEC.launch, conf={"spark.driver.cores": "2", **conf} if conf else {})
    )
    assert container_of(manifest.deployment(spec))["resources"]["requests"]["cpu"] == cores


@pytest.mark.parametrize("size", ["512mib", "1.5g", "-1g", "", "g"])
@pytest.mark.parametrize("setting", ["spark.driver.memory", "spark.executor.memoryOverhead"])
def test_a_size_that_spark_would_refuse_is_refused_before_the_launch(setting: str, size: str):
    with pytest.raises(LaunchError, match=f"{setting}: {size} is no size"):
        manifest.check(replace(SPEC, launch=replace(SPEC.launch, conf={setting: size})))


def test_the_rights_of_a_driver_end_at_pods():
    account, role, binding, apply = manifest.rights(SPEC.launch)
    assert {one["metadata"]["namespace"] for one in (account, role, binding, apply)} == {"replication"}
    assert [rule["resources"] for rule in role["rules"]] == [["pods"]]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "repl", "namespace": "replication"}]
    assert {resource for rule in apply["rules"] for resource in rule["resources"]} == {
        "deployments",
        "secrets",
        "pods",
        "pods/log",
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs the option image"),
        ({"image": "i"}, "DC_PASSWORD must come from a Secret"),
        ({**OPTIONS, "colour": "red"}, "no option colour"),
        ({**OPTIONS, "secret": "repl-dc2-job"}, "options.secret: repl-dc2-job is the job's own Secret"),
        ({**OPTIONS, "pull_secret": "repl-dc2-job"}, "options.pull_secret: repl-dc2-job is the job's own"),
    ],
)
def test_what_is_missing_is_said(options: dict[str, str], said: str):
    spec = spec_of(client={"p": {"env": "DC_PASSWORD"}}, launcher="kubernetes", options=options)
    with pytest.raises(LaunchError, match=said):
        manifest.check(spec)


@pytest.mark.parametrize("name", ["a b", "A-b", "日本", "x" * 200, "../x", "a\x1b[2J", "x\n---\nkind: Role"])
def test_any_name_of_a_job_becomes_one_of_kubernetes(name: str):
    assert name_of("dc2") == "repl-dc2"
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", secret_of(name))
    assert len({name_of(job) for job in (name, f"{name} ", "a.b", "a-b", "a_b")}) == 5


def started(spec: JobSpec, folder: Path, **environ: str) -> tuple[dict[str, str], str]:
    """The environment of a driver that starts with this spec, and its settings of Spark."""
    (folder / "spec.json").write_bytes(jobspec.encode(spec))
    command, variables = pod.driver(POD | environ, folder, folder / "state")
    file = Path(command[command.index("--spec") + 1])
    return variables, file.with_name("spark.conf").read_text()


def test_a_driver_starts_with_the_mounted_spec_and_again_with_the_newest(tmp_path: Path):
    mounted, state = tmp_path / "mounted", tmp_path / "state"
    mounted.mkdir()
    (mounted / "spec.json").write_bytes(jobspec.encode(SPEC))

    command, environ = pod.driver(POD, mounted, state)

    file = Path(command[command.index("--spec") + 1])
    assert jobspec.decode(file.read_bytes()) == SPEC
    assert "--restarted" not in command
    settings = (file.parent / "spark.conf").read_text()
    for setting in (
        {"spark.kubernetes.container.image": "registry.example/repl:1"},
        {"spark.kubernetes.namespace": "replication"},
        {"spark.driver.host": "10.1.2.3"},
        {"spark.executor.instances": "3"},
        {"spark.executor.memoryOverhead": "2g"},
        {"spark.executor.maxNumFailures": "2147483647"},
        {"spark.authenticate.secret.file": "/etc/repl/job/authentication"},
        {"spark.kubernetes.executor.podTemplateFile": environ[EXECUTOR_POD]},
    ):
        assert properties_file(setting).decode() in settings
    assert json.loads(Path(environ[EXECUTOR_POD]).read_bytes()) == manifest.executor_pod(SPEC)
    assert str(file.parent / "spark.conf") in environ["PYSPARK_SUBMIT_ARGS"]

    newer = spec_of(SPEC.job, slots=7, launcher="kubernetes", master="k8s://h", options=OPTIONS)
    file.write_bytes(jobspec.encode(newer))  # by the driver, which took it from a command
    command, _ = pod.driver(POD, mounted, state)
    assert command[-1] == "--restarted"
    assert jobspec.decode(file.read_bytes()) == newer


def test_a_master_is_one_argument_of_spark_submit(tmp_path: Path):
    master = "k8s://https://h:443 --conf spark.authenticate=false"
    spec = replace(SPEC, slots=0, launch=replace(SPEC.launch, master=master))
    environ, settings = started(spec, tmp_path)
    words = shlex.split(environ["PYSPARK_SUBMIT_ARGS"])  # as pyspark reads them
    assert words[:2] == ["--master", master]
    assert words[2:4] == ["--deploy-mode", "client"]
    assert properties_file({"spark.executor.instances": "1"}).decode() in settings  # slots: auto


def test_a_driver_with_an_address_of_ipv6_is_reached_by_it(tmp_path: Path):
    _, settings = started(SPEC, tmp_path, POD_IP="fd00::7")
    assert properties_file({"spark.driver.host": "[fd00::7]"}).decode() in settings


def test_an_executor_gets_the_arguments_and_options_that_spark_gives_its_container():
    given = {
        "SPARK_DRIVER_URL": "spark://x@10.1.2.3:7078",
        "SPARK_EXECUTOR_ID": "2",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "repl-exec-2",
        "SPARK_EXECUTOR_MEMORY": "512m",
        **{f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in range(12)},
    }
    command = pod.executor({**os.environ, **given})
    assert command[1:13] == [f"-Dn={number}" for number in range(12)]
    assert command[13:16] == ["-Dspark.master=k8s://", "-Xms512m", "-Xmx512m"]
    backend = command.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    arguments = dict(zip(command[backend + 1 :: 2], command[backend + 2 :: 2], strict=True))
    assert arguments["--driver-url"] == "spark://x@10.1.2.3:7078"
    assert arguments["--podName"] == "repl-exec-2"


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKubectl:
    monkeypatch.setenv("PATH", str(tmp_path))
    return FakeKubectl(tmp_path)


def deployed(*pods: dict[str, Any], **status: Any) -> str:
    metadata = {"labels": {manifest.COMPONENT: manifest.DRIVER}}
    items = [
        {"kind": "Deployment", "metadata": {}, "status": status},
        *({"kind": "Pod", "metadata": metadata, "status": one} for one in pods),
    ]
    return json.dumps({"items": items})


def container(now: dict[str, Any] | None = None, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """The status of a pod whose driver has this state, and had that one before."""
    driver = {
        "name": "driver",
        "image": "registry.example/repl:1",
        "state": now or {},
        "lastState": before or {},
    }
    return {"containerStatuses": [{"name": "istio-proxy", "state": {"running": {}}}, driver]}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def ended(code: int, reason: str, message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


QUOTA = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small,\x1b[2J"}
NO_NODE = {"type": "PodScheduled", "status": "False", "message": "Insufficient memory"}
RUNNING: dict[str, Any] = {"running": {}}
NO_CONFIG = waiting("CreateContainerConfigError", "no x")
CANNOT_START = "the driver's container can't be started: CreateContainerConfigError: no x"
UNPULLED = "the image registry.example/repl:1 can't be pulled: ImagePullBackOff: not found"
STATE = LaunchState


@pytest.mark.parametrize(
    ("answer", "state", "why"),
    [
        (json.dumps({"items": []}), STATE.UNKNOWN, "there is no Deployment"),
        ("E1128\x1b[2J", STATE.UNKNOWN, "kubectl did not answer in JSON: E1128 [2J"),
        (deployed(), STATE.RUNNING, ""),
        (
            deployed(conditions=[QUOTA]),
            STATE.RUNNING,
            "Kubernetes refuses the driver's pod: exceeded quota: small, [2J",
        ),
        (
            deployed({"conditions": [NO_NODE]}),
            STATE.RUNNING,
            "no node takes the driver's pod: Insufficient memory",
        ),
        (deployed(container(waiting("ImagePullBackOff", "not found"))), STATE.RUNNING, UNPULLED),
        (deployed(container(NO_CONFIG)), STATE.RUNNING, CANNOT_START),
        (deployed(container(waiting("ContainerCreating"))), STATE.RUNNING, ""),
        (deployed(container(RUNNING)), STATE.RUNNING, ""),
        (deployed({"containerStatuses": [{"name": "istio-proxy"}]}), STATE.RUNNING, ""),
        (
            deployed(container(waiting("CrashLoopBackOff"), ended(137, "OOMKilled"))),
            STATE.RESTARTING,
            "the driver ended with 137 (OOMKilled)",
        ),
        (deployed(container(NO_CONFIG, ended(1, "Error"))), STATE.RUNNING, CANNOT_START),
        (
            deployed(container(ended(128, "StartError", "no tini\x1b[2J"))),
            STATE.RESTARTING,
            "the driver ended with 128 (StartError: no tini [2J)",
        ),
        (deployed(container(ended(75, "Error"))), STATE.ENDED, "fenced"),
    ],
)
def test_what_kubernetes_says_of_a_driver_is_named(
    answer: str, state: LaunchState, why: str, kubectl: FakeKubectl, tmp_path: Path
):
    kubectl.answers("get", answer)
    status = launcher_for(SPEC.launch, tmp_path).find(SPEC.job)
    assert status.state is state
    assert status.why.startswith(why) if why else not status.why


def of_cluster(destination: str, topology: str = "tests") -> JobSpec:
    clusters = {**SPEC.clusters, "dc2": replace(SPEC.clusters["dc2"], id=destination)}
    return replace(SPEC, topology=topology, clusters=clusters)


def there(kubectl: FakeKubectl, *objects: dict[str, Any]) -> None:
    """The namespace has these Deployments, Secrets and pods."""
    for kind in ("deployment", "secret", "pods"):
        kinds = ("Deployment", "Pod") if kind == "pods" else ("Deployment", "Secret")
        items = [one for one in objects if one["kind"] in kinds]
        names = {
            "deployment": f"deployment/{name_of(SPEC.job)}",
            "secret": f"secret/{secret_of(SPEC.job)}",
            "pods": "deployments,pods",
        }
        kubectl.answers(f"get {names[kind]}", json.dumps({"kind": "List", "items": items}))


def test_kubectl_gets_a_job_and_deletes_it(kubectl: FakeKubectl, tmp_path: Path):
    kubectl.answers("get deployments,pods", json.dumps({"items": []}))
    launcher, name = launcher_for(SPEC.launch, tmp_path), name_of(SPEC.job)
    handle = launcher.launch(SPEC)
    assert handle.where == f"deployment replication/{name}"
    secret, deployment = json.loads(kubectl.applied)["items"]
    assert (secret["kind"], deployment["kind"]) == ("Secret", "Deployment")
    assert len(secret["stringData"]["authentication"]) == 64
    assert all(asked.startswith("--namespace replication ") for asked in kubectl.asked)
    assert secret["stringData"]["authentication"] not in " ".join(kubectl.asked)

    kubectl.answers("get deployments,pods", deployed(container(RUNNING)))
    with pytest.raises(LaunchError, match="runs already") as caught:
        launcher.launch(SPEC)
    assert f"kubectl delete deployment {name} --namespace replication" in caught.value.hint

    kubectl.answers("logs", "one\ntwo\n")
    assert launcher.tail(SPEC.job) == ["one", "two"]
    kubectl.answers("logs", "")
    kubectl.answers("logs --previous", "of the container before\n")
    assert launcher.tail(SPEC.job) == ["of the container before"]
    kubectl.refuses("logs --previous", "previous terminated container not found")
    assert launcher.tail(SPEC.job) == []
    there(kubectl, secret, deployment)
    assert launcher.stop(SPEC.job, 30) == ""
    asked = "\n".join(kubectl.asked)
    assert f"delete deployment {name} --ignore-not-found --cascade=foreground --timeout=30s" in asked
    assert kubectl.asked[-1].endswith(f"delete secret {name}-job --ignore-not-found")


@pytest.mark.parametrize(
    ("destination", "topology", "kind"),
    [("prod", "shop", "Deployment"), ("prod", "shop", "Secret"), ("", "", "Deployment"), ("", "", "Secret")],
)
def test_what_another_owner_has_is_left_as_it_is(
    kubectl: FakeKubectl, tmp_path: Path, destination: str, topology: str, kind: str
):
    """A job of the same name for another cluster, or an object that is not one of repl."""
    owner = of_cluster(destination, topology)
    made = manifest.secret(owner, "x") if kind == "Secret" else manifest.deployment(owner)
    if not destination:
        del made["metadata"]["annotations"], made["metadata"]["labels"]
    there(kubectl, made)
    mine = of_cluster("staging")
    launcher = launcher_for(mine.launch, tmp_path, "staging")

    if kind == "Deployment":
        assert launcher.find(mine.job).runs is None
    says = (
        f"{kind} repl-.* (belongs to the job .* of the topology shop, for the cluster prod|not made by repl)"
    )
    with pytest.raises(LaunchError, match=says):
        launcher.launch(mine)
    if kind == "Secret":
        with pytest.raises(LaunchError, match="no Secret"):
            launcher.update(mine)
    launcher.stop(mine.job, 1)
    changes = [asked for asked in kubectl.asked if f" {kind.lower()} " in asked or " apply " in asked]
    assert changes == []
    if kind == "Deployment":
        assert not [asked for asked in kubectl.asked if " delete " in asked]


def test_the_secret_gets_the_spec_that_runs(kubectl: FakeKubectl, tmp_path: Path):
    there(kubectl, manifest.secret(SPEC, "x"))
    launcher_for(SPEC.launch, tmp_path).update(SPEC)
    assert jobspec.decode(json.loads(kubectl.applied)["stringData"]["spec.json"]) == SPEC
    assert f" patch secret {secret_of(SPEC.job)} " in kubectl.asked[-1]


def test_a_deployment_that_cannot_be_deleted_is_an_error(kubectl: FakeKubectl, tmp_path: Path):
    """Pods that were deleted alone would be made again, without --restarted."""
    there(kubectl, manifest.deployment(SPEC), manifest.secret(SPEC, "x"))
    kubectl.refuses("delete deployment", "Forbidden")
    with pytest.raises(LaunchError, match="kubectl delete: Forbidden"):
        launcher_for(SPEC.launch, tmp_path).stop(SPEC.job, 1)
    assert [asked for asked in kubectl.asked if " delete " in asked and " deployment " not in asked] == []


def test_a_pod_of_a_lost_node_delays_no_new_driver_and_is_named(kubectl: FakeKubectl, tmp_path: Path):
    """Kubernetes deletes it when its node is back, or gone for good."""
    deleted = manifest.deployment(SPEC)
    deleted["metadata"]["deletionTimestamp"] = "2026-11-28T13:00:00Z"
    pod_of_lost = {
        "kind": "Pod",
        "metadata": {"name": "repl-1", "deletionTimestamp": "x", "labels": {manifest.COMPONENT: "driver"}},
        "spec": {"nodeName": "node-7"},
        "status": {},
    }
    there(kubectl, deleted, manifest.secret(SPEC, "x"), pod_of_lost)
    kubectl.answers("get pods", json.dumps({"items": [pod_of_lost]}))
    kubectl.refuses("delete deployment --cascade=foreground", "timed out waiting for the condition")
    kubectl.refuses("delete pods --timeout=60s", "timed out waiting for the condition")
    launcher = launcher_for(SPEC.launch, tmp_path)

    left = launcher.stop(SPEC.job, 1)

    assert "repl-1 on node-7" in left
    assert "kubectl delete pod NAME --force --grace-period=0 --namespace replication" in left
    assert [asked for asked in kubectl.asked if f"delete deployment {name_of(SPEC.job)}" in asked][-1:] == [
        asked for asked in kubectl.asked if "--cascade=background" in asked
    ]
    assert kubectl.asked[-1].endswith(f"delete secret {secret_of(SPEC.job)} --ignore-not-found")

    kubectl.answers("get deployments,pods", json.dumps({"items": [pod_of_lost]}))
    launcher.launch(SPEC)
    assert kubectl.asked[-1].endswith("apply --server-side --force-conflicts --field-manager=repl -f -")


def test_an_answer_that_is_no_json_and_a_kubectl_that_does_not_run_are_errors(
    kubectl: FakeKubectl, tmp_path: Path
):
    launcher = launcher_for(SPEC.launch, tmp_path)
    kubectl.answers("get", "E1128\x1b[2J")
    with pytest.raises(LaunchError, match=r"did not answer in JSON: E1128 \[2J") as unreadable:
        launcher.launch(SPEC)
    assert unreadable.value.hint == "look whether kubectl is a wrapper that adds text"
    (tmp_path / "kubectl").write_bytes(b"\x7fELF")
    with pytest.raises(LaunchError, match="kubectl can't be run: Exec format error") as broken:
        launcher.stop(SPEC.job, 1)
    assert broken.value.hint == "install it again where repl is called"


def test_what_kubectl_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    launcher = launcher_for(SPEC.launch, tmp_path)
    with pytest.raises(LaunchError, match="kubectl was not found"):
        launcher.launch(SPEC)
    kubectl = FakeKubectl(tmp_path)
    kubectl.refuses("get deployments,pods", "no such host")
    assert launcher.find(SPEC.job).why == "kubectl get: no such host"
    with pytest.raises(LaunchError, match="is not known") as unknown:
        launcher.launch(SPEC)
    assert unknown.value.hint == "look at kubectl's context and its rights"
