"""What spark-submit is called with, and what must be there before it: no secret is shown."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runtime.contract.launching import LaunchError
from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.transform import FormatSpec, TransformSpec
from runtime.java import find_java
from runtime.launch.command import (
    HEARTBEATS,
    check_secret,
    properties,
    properties_file,
    spark_home,
    spark_submit,
    variables_of,
)
from runtime.launch.folder import JobFolder
from runtime.launch.launcher import check_references, job_environment
from runtime.launch.supervision.supervised import SupervisedLauncher
from tests.fakes.spark import FakeSpark
from tests.runtime.launch.specs import spec_of

SPARK = Path("/opt/spark")


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return JobFolder(tmp_path, "dc2")


def settings(folder: JobFolder, **launch: Any) -> Mapping[str, str]:
    return properties(spec_of(**launch), folder)


def test_local(folder: JobFolder):
    spec = spec_of(conf={"spark.ui.enabled": "true"})
    command = spark_submit(spec, folder, SPARK)
    assert command[:3] == ["/opt/spark/bin/spark-submit", "--master", "local[2]"]
    assert command[3:5] == ["--properties-file", str(folder.properties)]
    assert command[-2:] == ["--spec", str(folder.spec)]
    assert properties(spec, folder)["spark.driver.memory"] == "512m"
    assert properties(spec, folder)["spark.ui.enabled"] == "true"  # what the topology says lies over ours
    assert variables_of(spec, folder, SPARK)["SPARK_LOCAL_IP"] == "127.0.0.1"
    again = spark_submit(spec_of(), folder, SPARK, restarted=True)
    assert again[-3:] == ["--spec", str(folder.spec), "--restarted"]
    options = settings(folder, conf={"spark.driver.extraJavaOptions": "-Xss1m"})
    ours_first = options["spark.driver.extraJavaOptions"]
    assert ours_first.index("-Xss512k") < ours_first.index("-Xss1m")


@pytest.mark.parametrize("launcher", ["local", "standalone"])
def test_a_job_with_a_transform_has_both_compilers(folder: JobFolder, launcher: str):
    spec = spec_of(launcher=launcher)
    masked = replace(spec, flows=[replace(spec.flows[0], transform=TransformSpec(where="key IS NOT NULL"))])
    for one, limited in ((spec, True), (masked, False)):
        found = properties(one, folder)
        options = [value for key, value in found.items() if key.endswith("extraJavaOptions")]
        assert [("-XX:TieredStopAtLevel=1" in value) for value in options] == [limited] * len(options)


def test_standalone_and_yarn(folder: JobFolder):
    options = {"python": "./env/bin/python", "archives": "/env.tar.gz#env", "files": "/a"}
    spec = spec_of(launcher="standalone", master="spark://h:7077", slots=3, options=options)
    assert "--py-files" in spark_submit(spec, folder, SPARK)
    variables, found = variables_of(spec, folder, SPARK), properties(spec, folder)
    assert variables["PYSPARK_PYTHON"] == "./env/bin/python"
    assert "SPARK_LOCAL_IP" not in variables  # the workers must reach the driver
    assert (found["spark.cores.max"], found["spark.executor.cores"]) == ("3", "1")
    assert (found["spark.archives"], found["spark.files"]) == ("/env.tar.gz#env", "/a")
    options["queue"] = "replication"
    spec = spec_of(launcher="yarn", master="yarn", slots=2, memory="2g", options=options)
    found = properties(spec, folder)
    assert spark_submit(spec, folder, SPARK)[1:5] == ["--master", "yarn", "--deploy-mode", "client"]
    assert found["spark.yarn.queue"] == "replication"
    assert found["spark.yarn.dist.archives"] == "/env.tar.gz#env"
    assert found["spark.yarn.dist.files"] == "/a"
    assert not {"spark.archives", "spark.files"} & found.keys()  # the driver would send them, too
    assert found["spark.executor.memoryOverhead"] == "2g"
    assert found["spark.executor.instances"] == "2"


@pytest.mark.parametrize("launcher", ["standalone", "yarn"])
def test_a_lost_executor_is_noticed_in_seconds_unless_the_topology_sets_the_times(
    folder: JobFolder, launcher: str
):
    found = settings(folder, launcher=launcher)
    assert found["spark.storage.blockManagerHeartbeatTimeoutMs"] == "30s"
    assert found["spark.executor.heartbeatInterval"] == found["spark.network.timeoutInterval"] == "5s"
    for key in ("spark.network.timeout", "spark.executor.heartbeatInterval"):
        chosen = settings(folder, launcher=launcher, conf={key: "60s"})
        assert {name: chosen[name] for name in (*HEARTBEATS, key) if name in chosen} == {key: "60s"}


@pytest.mark.parametrize("launcher", ["local", "standalone", "yarn"])
def test_sparks_processes_authenticate_each_other_unless_the_topology_says_no(
    folder: JobFolder, launcher: str
):
    found = settings(folder, launcher=launcher)
    assert found["spark.authenticate"] == found["spark.network.crypto.enabled"] == "true"
    off = settings(folder, launcher=launcher, conf={"spark.authenticate": "false"})
    assert off["spark.authenticate"] == "false"


def test_sparks_ui_shows_no_setting_that_may_hold_a_secret(folder: JobFolder):
    pattern = settings(folder)["spark.redaction.regex"]
    secret = (
        "spark.x.sasl.password spark.x.sasl.jaas.config sasl.username ssl.key.pem ssl.key.password "
        "ssl.keystore.location my.token spark.authenticate.secret spark.hadoop.fs.s3a.access.key"
    )
    assert [key for key in secret.split() if not re.search(pattern, key)] == []
    assert not re.search(pattern, "spark.executor.cores")


def test_a_standalone_cluster_has_a_secret_of_its_own(tmp_path: Path):
    """Spark reads it from spark-defaults.conf by itself: it is in no plan, no YAML and no command line."""
    launch = spec_of(launcher="standalone", master="spark://h:7077").launch
    environ = {"SPARK_CONF_DIR": str(tmp_path)}
    for text in (None, "", "# spark.authenticate.secret x", "spark.authenticate true"):
        if text is not None:
            (tmp_path / "spark-defaults.conf").write_text(text)
        with pytest.raises(LaunchError, match=r"spark\.authenticate\.secret is not in") as caught:
            check_secret(launch, SPARK, environ)
        assert "SPARK_CONF_DIR" in caught.value.hint
    for text in (
        "spark.authenticate.secret x",
        "a b\n  spark.authenticate.secret = x",
        "spark.authenticate.secret:x",
    ):
        (tmp_path / "spark-defaults.conf").write_text(text)
        check_secret(launch, SPARK, environ)
    check_secret(replace(launch, conf={"spark.authenticate": "false"}), SPARK, {})
    for launcher in ("local", "yarn", "kubernetes"):  # Spark makes one there
        check_secret(spec_of(launcher=launcher).launch, SPARK, {})


def test_an_unknown_option_is_refused(folder: JobFolder):
    with pytest.raises(LaunchError, match="no option colour") as caught:
        spark_submit(spec_of(options={"colour": "red"}), folder, SPARK)
    assert "python" in caught.value.hint


def test_settings_are_written_as_java_reads_them():
    text = properties_file({"spark.a b": " x\\y", "spark.c": "ü\n=:#"})
    assert text == b"spark.a\\ b=\\ x\\\\y\nspark.c=\\u00fc\\n=:#\n"


def test_where_spark_is(tmp_path: Path):
    assert (spark_home({}) / "jars").is_dir()  # the package's
    with pytest.raises(LaunchError, match="no bin/spark-submit"):
        spark_home({"SPARK_HOME": str(tmp_path)})


# What is missing is said before anything starts


def java_of(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("version", "release", "problem"),
    [
        ("17.0.15", None, None),
        ("21-ea", None, None),
        ("25", None, None),
        ("11.0.2", None, "is Java 11"),
        ("1.8.0_302", None, "is Java 8"),
        ("17.0.1", "11.0.2", "is Java 11"),  # its release file is read first
    ],
)
def test_java_is_new_enough_or_too_old(
    tmp_path: Path, version: str, release: str | None, problem: str | None
):
    java, environ = java_of(tmp_path, version), {"JAVA_HOME": str(tmp_path)}
    if release is not None:
        (tmp_path / "release").write_text(f'JAVA_VERSION="{release}"\n')
    if problem is None:
        assert find_java(environ) == find_java({"PATH": str(tmp_path / "bin")}) == java
        return
    with pytest.raises(LaunchError, match=problem) as caught:
        find_java(environ)
    assert "openjdk-17" in caught.value.hint


def test_no_java(tmp_path: Path):
    with pytest.raises(LaunchError, match="no java was found"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(LaunchError, match="JAVA_HOME is"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin"})
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.1"\n')
    java_of(tmp_path, "21.0.1").chmod(0o644)
    with pytest.raises(LaunchError, match="there is no program"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_a_java_for_another_machine_is_named_with_the_way_out(tmp_path: Path):
    """Its release file is as good as any, and it would fail only where Spark or a broker starts."""
    head = bytearray(Path(sys.executable).read_bytes()[:64])
    head[18] ^= 0xFF  # the processor
    java = java_of(tmp_path, "21.0.1")
    java.write_bytes(bytes(head))
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.1"\n')

    with pytest.raises(LaunchError, match=f"JAVA_HOME is {tmp_path}, but {java} could not be run") as caught:
        find_java({"JAVA_HOME": str(tmp_path)})
    assert "made for another kind of machine" in str(caught.value)
    assert caught.value.hint.startswith("correct or unset JAVA_HOME")
    with pytest.raises(LaunchError, match=f"^{java} could not be run") as caught:
        find_java({"PATH": str(tmp_path / "bin")})
    assert "set JAVA_HOME" in caught.value.hint


def test_all_secrets_that_are_not_there_are_named_at_once(tmp_path: Path):
    spec = spec_of(
        client={"sasl.password": {"env": "NOT_SET"}, "ssl.key.pem": {"file": str(tmp_path / "key")}}
    )
    with pytest.raises(LaunchError) as caught:
        check_references(spec, {})
    assert "dc1: sasl.password wants the environment variable NOT_SET" in caught.value.what
    assert f"dc2: ssl.key.pem wants the file {tmp_path / 'key'}" in caught.value.what
    assert "set the variable where repl is called" in caught.value.hint
    assert "put the file there" in caught.value.hint
    with pytest.raises(LaunchError) as caught:
        check_references(spec, {"NOT_SET": "x"})
    assert caught.value.hint == "put the file there, readable by who calls repl"
    (tmp_path / "key").touch()
    check_references(spec, {"NOT_SET": "x"})


@pytest.mark.parametrize("launcher", ["local", "standalone"])
def test_the_secrets_of_schema_registries_are_looked_for(launcher: Any):
    """That of a transform is needed by executors alone, which on a cluster have their own environment."""
    registry = RegistrySpec(url="https://r", client={"sasl.password": {"env": "SYNC"}})
    decoding = replace(registry, client={"sasl.password": {"env": "DECODE"}})
    spec = spec_of(launcher=launcher)
    transform = TransformSpec(value=FormatSpec(format="avro", schema="{}", registry=decoding))
    spec = replace(spec, registries={"dc1": registry}, flows=[replace(spec.flows[0], transform=transform)])
    with pytest.raises(LaunchError) as caught:
        check_references(spec, {})
    missing = ["registry of dc1: sasl.password wants the environment variable SYNC, which is not set"]
    if launcher == "local":
        missing.append("registry of f: sasl.password wants the environment variable DECODE, which is not set")
    assert caught.value.what == "; ".join(missing)


@pytest.mark.parametrize(
    ("launch", "problem", "hint"),
    [
        ({"launcher": "yarn", "master": "yarn"}, "HADOOP_CONF_DIR", ""),
        (
            {"launcher": "standalone", "master": "spark://h:7077"},
            r"spark\.authenticate\.secret is not in",
            "spark.authenticate: false",
        ),
    ],
)
def test_a_job_whose_cluster_lacks_a_setting_is_not_launched(
    tmp_path: Path, launch: dict[str, Any], problem: str, hint: str
):
    java = java_of(tmp_path, "17.0.1")
    environ = {"PATH": str(java.parent), "SPARK_HOME": str(FakeSpark(tmp_path).home)}
    with pytest.raises(LaunchError, match=problem) as caught:
        SupervisedLauncher(tmp_path / "home", environ).launch(spec_of(**launch))
    assert hint in caught.value.hint
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
