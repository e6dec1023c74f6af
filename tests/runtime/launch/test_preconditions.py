"""What is missing is said before anything starts."""

from pathlib import Path

import pytest

from runtime.launch.command import find_java
from runtime.launch.launcher import LaunchError, check_references, job_environment
from runtime.launch.supervision.supervised import SupervisedLauncher
from tests.fakes.spark import FakeSpark
from tests.runtime.launch.specs import spec_of


def java_of(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize("version", ["17.0.15", "21-ea", "25"])
def test_java_that_is_new_enough(tmp_path: Path, version: str):
    java = java_of(tmp_path, version)
    assert find_java({"JAVA_HOME": str(tmp_path)}) == java
    assert find_java({"PATH": str(tmp_path / "bin")}) == java


@pytest.mark.parametrize(("version", "said"), [("11.0.2", "is Java 11"), ("1.8.0_302", "is Java 8")])
def test_java_that_is_too_old(tmp_path: Path, version: str, said: str):
    java_of(tmp_path, version)
    with pytest.raises(LaunchError, match=said) as caught:
        find_java({"JAVA_HOME": str(tmp_path)})
    assert "openjdk-17" in caught.value.way_out


def test_java_is_read_from_its_release_file_first(tmp_path: Path):
    java_of(tmp_path, "17.0.1")
    (tmp_path / "release").write_text('JAVA_VERSION="11.0.2"\n')
    with pytest.raises(LaunchError, match="is Java 11"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_no_java(tmp_path: Path):
    with pytest.raises(LaunchError, match="no java was found"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(LaunchError, match="JAVA_HOME is"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})


def test_all_secrets_that_are_not_there_are_named_at_once(tmp_path: Path):
    spec = spec_of(
        client={"sasl.password": {"env": "NOT_SET"}, "ssl.key.pem": {"file": str(tmp_path / "key")}}
    )
    with pytest.raises(LaunchError) as caught:
        check_references(spec, {})
    assert "dc1: sasl.password wants the environment variable NOT_SET" in caught.value.what
    assert f"dc2: ssl.key.pem wants the file {tmp_path / 'key'}" in caught.value.what
    assert "set the variable where repl is called" in caught.value.way_out
    assert "put the file there" in caught.value.way_out
    with pytest.raises(LaunchError) as caught:
        check_references(spec, {"NOT_SET": "x"})
    assert caught.value.way_out == "put the file there, readable by who calls repl"
    (tmp_path / "key").touch()
    check_references(spec, {"NOT_SET": "x"})


@pytest.mark.parametrize(
    ("client", "environ", "why"),
    [
        ({"plugin.library.paths": "/evil.so"}, {}, "load a library"),
        ({"sasl.password": {"env": "A"}}, {"REPL_ALLOW_ENV": "B"}, "variable A is not among"),
        ({"sasl.password": {"file": "/proc/self/environ"}}, {}, "in no folder"),
        ({}, {"REPL_ALLOW_BOOTSTRAP": "*.example.org"}, "not among the addresses"),
    ],
)
def test_a_job_that_uses_what_is_not_allowed_is_not_started(
    client: dict[str, object], environ: dict[str, str], why: str
):
    with pytest.raises(LaunchError, match=why):
        check_references(spec_of(client=client), {"A": "a", **environ})


def test_yarn_wants_its_configuration(tmp_path: Path):
    java = java_of(tmp_path, "17.0.1")
    environ = {"PATH": str(java.parent), "SPARK_HOME": str(FakeSpark(tmp_path).home)}
    with pytest.raises(LaunchError, match="HADOOP_CONF_DIR"):
        SupervisedLauncher(tmp_path / "home", environ).launch(spec_of(launcher="yarn", master="yarn"))
    assert not (tmp_path / "home").exists()


def test_a_standalone_cluster_wants_its_secret(tmp_path: Path):
    java = java_of(tmp_path, "17.0.1")
    environ = {"PATH": str(java.parent), "SPARK_HOME": str(FakeSpark(tmp_path).home)}
    spec = spec_of(launcher="standalone", master="spark://h:7077")
    with pytest.raises(LaunchError, match=r"spark\.authenticate\.secret is not in") as caught:
        SupervisedLauncher(tmp_path / "home", environ).launch(spec)
    assert "spark.authenticate: false" in caught.value.way_out
    assert not (tmp_path / "home").exists()


def test_a_job_has_its_own_value_of_a_variable_and_no_key_of_the_operator():
    environ = {
        "REPL_USER": "apply",
        "REPL_JOB_ENV_REPL_USER": "job",
        "REPL_JOB_ENV_REPL_PLAN_KEY": "k",
        "REPL_PLAN_KEY": "k",
        "PATH": "/bin",
    }
    assert job_environment(environ) == {"REPL_USER": "job", "PATH": "/bin"}
