"""What a job's resources say, and what the launcher makes of answers of kubectl. `make test-kubernetes` runs
them on a real API server.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.launching import EXECUTOR_POD, LaunchError, LaunchState
from runtime.contract.spec import jobspec
from runtime.launch import manifest, pod
from runtime.launch.choose import launcher_for
from runtime.launch.command import properties_file
from runtime.launch.manifest import name_of
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


def test_memory_is_that_of_the_jvm_and_of_python():
    for resource in (manifest.deployment(SPEC), manifest.executor_pod(SPEC)):
        resources = container_of(resource)["resources"]
        assert resources["limits"]["memory"] == resources["requests"]["memory"] == f"{(512 + 2048) << 10}Ki"


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
    ],
)
def test_what_is_missing_is_said(options: dict[str, str], said: str):
    spec = spec_of(client={"p": {"env": "DC_PASSWORD"}}, launcher="kubernetes", options=options)
    with pytest.raises(LaunchError, match=said):
        manifest.check(spec)


def test_names():
    assert name_of("dc2") == "repl-dc2"
    assert len({name_of(job) for job in ("a.b", "a-b", "a_b", "A-b", "日本")}) == 5
    assert len(name_of("x" * 200)) <= 63


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


def deployed(*pods: dict[str, Any], **status: Any) -> str:
    metadata = {"labels": {manifest.COMPONENT: manifest.DRIVER}}
    items = [
        {"kind": "Deployment", "metadata": {}, "status": status},
        *({"kind": "Pod", "metadata": metadata, "status": one} for one in pods),
    ]
    return json.dumps({"items": items})


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"image": "registry.example/repl:1", **state}]}


@pytest.mark.parametrize(
    ("answer", "state", "why"),
    [
        (json.dumps({"items": []}), LaunchState.UNKNOWN, "there is no Deployment"),
        (deployed(), LaunchState.RUNNING, ""),
        (
            deployed(
                conditions=[
                    {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small,\x1b[2J"}
                ]
            ),
            LaunchState.RUNNING,
            "Kubernetes refuses the driver's pod: exceeded quota: small, [2J",
        ),
        (
            deployed(
                {
                    "conditions": [
                        {"type": "PodScheduled", "status": "False", "message": "Insufficient memory"}
                    ]
                }
            ),
            LaunchState.RUNNING,
            "no node takes the driver's pod: Insufficient memory",
        ),
        (
            deployed(container(state={"waiting": {"reason": "ImagePullBackOff", "message": "not found"}})),
            LaunchState.RUNNING,
            "the image registry.example/repl:1 can't be pulled: ImagePullBackOff: not found",
        ),
        (
            deployed(
                container(state={"waiting": {"reason": "CreateContainerConfigError", "message": "no x"}})
            ),
            LaunchState.RUNNING,
            "the driver's container can't be started: CreateContainerConfigError: no x",
        ),
        (deployed(container(state={"waiting": {"reason": "ContainerCreating"}})), LaunchState.RUNNING, ""),
        (deployed(container(state={"running": {}})), LaunchState.RUNNING, ""),
        (
            deployed(
                container(
                    state={"waiting": {"reason": "CrashLoopBackOff"}},
                    lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                )
            ),
            LaunchState.RESTARTING,
            "the driver ended with 137 (OOMKilled)",
        ),
        (
            deployed(container(state={"terminated": {"exitCode": 75, "reason": "Error"}})),
            LaunchState.ENDED,
            "fenced",
        ),
    ],
)
def test_what_kubernetes_says_of_a_driver_is_named(
    answer: str, state: LaunchState, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    kubectl = FakeKubectl(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    kubectl.answers("get", answer)
    status = launcher_for(SPEC.launch, tmp_path).find(SPEC.job)
    assert status.state is state
    assert status.why.startswith(why) if why else not status.why


def test_kubectl_gets_a_job_and_deletes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kubectl = FakeKubectl(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    kubectl.answers("get", json.dumps({"items": []}))
    launcher, name = launcher_for(SPEC.launch, tmp_path), name_of(SPEC.job)
    handle = launcher.launch(SPEC)
    assert handle.where == f"deployment replication/{name}"
    secret, deployment = json.loads(kubectl.applied)["items"]
    assert (secret["kind"], deployment["kind"]) == ("Secret", "Deployment")
    assert len(secret["stringData"]["authentication"]) == 64
    assert all(asked.startswith("--namespace replication ") for asked in kubectl.asked)
    assert secret["stringData"]["authentication"] not in " ".join(kubectl.asked)

    kubectl.answers("get", deployed(container(state={"running": {}})))
    with pytest.raises(LaunchError, match="runs already") as caught:
        launcher.launch(SPEC)
    assert f"kubectl delete deployment {name} --namespace replication" in caught.value.hint

    kubectl.answers("logs", "one\ntwo\n")
    assert launcher.tail(SPEC.job) == ["one", "two"]
    launcher.stop(SPEC.job, 30)
    asked = "\n".join(kubectl.asked)
    assert f"delete deployment {name} --ignore-not-found --cascade=foreground --timeout=30s" in asked
    assert kubectl.asked[-1].endswith(f"delete secret {name} --ignore-not-found")


def test_what_kubectl_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    launcher = launcher_for(SPEC.launch, tmp_path)
    with pytest.raises(LaunchError, match="kubectl was not found"):
        launcher.launch(SPEC)
    kubectl = FakeKubectl(tmp_path)
    kubectl.refuses("get", "no such host")
    assert launcher.find(SPEC.job).why == "kubectl get: no such host"
    with pytest.raises(LaunchError, match="is not known"):
        launcher.launch(SPEC)
