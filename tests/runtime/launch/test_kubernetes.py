"""The manifest holds to the operator's fields and to our spec; kubectl does the rest. No cluster was here."""

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from runtime.contract.launching import LaunchError, LaunchState
from runtime.contract.spec import jobspec
from runtime.launch.choose import launcher_for
from runtime.launch.kubernetes import SPARK_VERSION, manifest, name_of
from tests.fakes.kubectl import FakeKubectl
from tests.runtime.launch.spark_application import SECRET, SPARK_APPLICATION
from tests.runtime.launch.specs import spec_of

OPTIONS = {"image": "registry.example/repl:1", "namespace": "replication", "secret": "kafka-passwords"}
SPEC = spec_of(
    "orders eu: yes",
    client={"sasl.password": {"env": "DC_PASSWORD"}, "sasl.username": "repl"},
    slots=3,
    launcher="kubernetes",
    master="k8s://https://h:443",
    memory="2g",
    conf={"spark.kubernetes.driver.label.team": "it's: #1"},
    options=OPTIONS,
)


def documents(text: str) -> tuple[Any, Any]:
    secret, application = yaml.safe_load_all(text)
    return secret, application


@pytest.mark.parametrize(
    "spec", [SPEC, spec_of(launcher="kubernetes", master="k8s://h", options={"image": "i"})]
)
def test_the_manifest_has_only_fields_that_the_operator_knows(spec: jobspec.JobSpec):
    secret, application = documents(manifest(spec))
    jsonschema.validate(secret, SECRET)
    jsonschema.validate(application, SPARK_APPLICATION)


def test_the_spec_comes_back_as_it_was_and_secrets_are_named_only():
    secret, application = documents(manifest(SPEC))
    assert jobspec.decode(secret["stringData"]["spec.json"]) == SPEC
    parts = application["spec"]["driver"], application["spec"]["executor"]
    for part in parts:
        assert part["envSecretKeyRefs"] == {"DC_PASSWORD": {"name": "kafka-passwords", "key": "DC_PASSWORD"}}
        assert {one["name"] for one in part["secrets"]} == {name_of(SPEC.job), "kafka-passwords"}
        assert part["memoryOverhead"] == "2g"
    assert application["spec"]["executor"]["instances"] == 3
    assert application["spec"]["sparkConf"]["spark.kubernetes.driver.label.team"] == "it's: #1"
    assert application["spec"]["arguments"][-1] == "--final-is-success"  # R10: fenced is not started again


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
        manifest(spec)


def test_names():
    assert name_of("dc2") == "repl-dc2"
    assert len({name_of(job) for job in ("a.b", "a-b", "a_b", "A-b", "日本")}) == 5
    assert len(name_of("x" * 200)) <= 63


def test_kubectl_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kubectl = FakeKubectl(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    launcher, name = launcher_for(SPEC.launch, tmp_path), name_of(SPEC.job)
    assert launcher.find(SPEC.job).state is LaunchState.UNKNOWN
    handle = launcher.launch(SPEC)
    assert handle.where == f"sparkapplication replication/{name}"
    assert documents(kubectl.applied)[1]["metadata"]["name"] == name
    assert all(asked.startswith("--namespace replication ") for asked in kubectl.asked)

    states = {
        "RUNNING": LaunchState.RUNNING,
        "PENDING_RERUN": LaunchState.RESTARTING,
        "COMPLETED": LaunchState.ENDED,
        "UNKNOWN": LaunchState.UNKNOWN,
    }
    for word, state in states.items():
        kubectl.answers("get", json.dumps({"status": {"applicationState": {"state": word}}}))
        assert launcher.find(SPEC.job).state is state
    kubectl.answers("get", json.dumps({}))  # just made: the operator has not looked yet
    with pytest.raises(LaunchError, match="runs already") as caught:
        launcher.launch(SPEC)
    assert f"kubectl delete sparkapplication {name} --namespace replication" in caught.value.hint

    launcher.update(SPEC)
    assert next(iter(yaml.safe_load_all(kubectl.applied)))["kind"] == "Secret"
    kubectl.answers("logs", "one\ntwo\n")
    assert launcher.tail(SPEC.job) == ["one", "two"]
    launcher.stop(SPEC.job, 30)
    assert f"delete sparkapplication {name} --ignore-not-found --wait --timeout=30s" in kubectl.asked[-2]


def test_what_kubectl_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    launcher = launcher_for(SPEC.launch, tmp_path)
    with pytest.raises(LaunchError, match="kubectl was not found"):
        launcher.launch(SPEC)
    kubectl = FakeKubectl(tmp_path)
    kubectl.refuses("get", "no such host")
    assert launcher.find(SPEC.job).why == "kubectl get: no such host"
    with pytest.raises(LaunchError, match="can't be told"):
        launcher.launch(SPEC)


def test_the_version_of_spark_in_a_manifest_is_the_one_of_this_release():
    assert metadata.version("pyspark") == SPARK_VERSION
    _, application = documents(manifest(SPEC))
    assert application["spec"]["sparkVersion"] == SPARK_VERSION
