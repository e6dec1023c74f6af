"""What spark-submit is called with: nothing that anybody may not see."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from runtime.contract.spec.transform import TransformSpec
from runtime.launch.command import HEARTBEATS, check_secret, properties_file, spark_home, submission
from runtime.launch.folder import JobFolder
from runtime.launch.launcher import LaunchError
from tests.runtime.launch.specs import spec_of

SPARK = Path("/opt/spark")


def test_local(tmp_path: Path):
    folder = JobFolder(tmp_path, "dc2")
    found = submission(spec_of(conf={"spark.ui.enabled": "true"}), folder, SPARK)
    assert found.command[:3] == ("/opt/spark/bin/spark-submit", "--master", "local[2]")
    assert found.command[3:5] == ("--properties-file", str(folder.properties))
    assert found.command[-2:] == ("--spec", str(folder.spec))
    assert found.properties["spark.driver.memory"] == "512m"
    assert found.properties["spark.ui.enabled"] == "true"  # what the topology says lies over ours
    assert found.variables["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert not found.packaged


def test_a_start_after_a_failure_is_told_so(tmp_path: Path):
    folder = JobFolder(tmp_path, "dc2")
    found = submission(spec_of(), folder, SPARK, restarted=True)
    assert found.command[-3:] == ("--spec", str(folder.spec), "--restarted")


def test_the_topologys_java_options_come_after_ours(tmp_path: Path):
    spec = spec_of(conf={"spark.driver.extraJavaOptions": "-Xss1m"})
    options = submission(spec, JobFolder(tmp_path, "dc2"), SPARK).properties["spark.driver.extraJavaOptions"]
    assert options.index("-Xss512k") < options.index("-Xss1m")


@pytest.mark.parametrize("launcher", ["local", "standalone"])
def test_a_job_with_a_transform_has_both_compilers(tmp_path: Path, launcher: str):
    spec = spec_of(launcher=launcher)
    masked = replace(spec, flows=[replace(spec.flows[0], transform=TransformSpec(where="key IS NOT NULL"))])
    for one, limited in ((spec, True), (masked, False)):
        found = submission(one, JobFolder(tmp_path, "dc2"), SPARK).properties
        options = [value for key, value in found.items() if key.endswith("extraJavaOptions")]
        assert [("-XX:TieredStopAtLevel=1" in value) for value in options] == [limited] * len(options)


def test_standalone(tmp_path: Path):
    spec = spec_of(
        launcher="standalone", master="spark://h:7077", slots=3, options={"python": "./env/bin/python"}
    )
    found = submission(spec, JobFolder(tmp_path, "dc2"), SPARK)
    assert "--py-files" in found.command
    assert found.packaged
    assert found.variables["PYSPARK_PYTHON"] == "./env/bin/python"
    assert "SPARK_LOCAL_IP" not in found.variables  # the workers must reach the driver
    assert (found.properties["spark.cores.max"], found.properties["spark.executor.cores"]) == ("3", "1")


@pytest.mark.parametrize("launcher", ["standalone", "yarn"])
def test_a_lost_executor_is_noticed_in_seconds_unless_the_topology_sets_the_times(
    tmp_path: Path, launcher: str
):
    folder = JobFolder(tmp_path, "dc2")
    found = submission(spec_of(launcher=launcher), folder, SPARK).properties
    assert found["spark.storage.blockManagerHeartbeatTimeoutMs"] == "30s"
    assert found["spark.executor.heartbeatInterval"] == found["spark.network.timeoutInterval"] == "5s"
    for key in ("spark.network.timeout", "spark.executor.heartbeatInterval"):
        conf = {key: "60s"}
        chosen = submission(spec_of(launcher=launcher, conf=conf), folder, SPARK).properties
        assert {name: chosen[name] for name in (*HEARTBEATS, key) if name in chosen} == conf


@pytest.mark.parametrize("launcher", ["local", "standalone", "yarn"])
def test_sparks_processes_authenticate_each_other_unless_the_topology_says_no(tmp_path: Path, launcher: str):
    folder = JobFolder(tmp_path, "dc2")
    found = submission(spec_of(launcher=launcher), folder, SPARK).properties
    assert found["spark.authenticate"] == "true"
    assert found["spark.network.crypto.enabled"] == "true"
    off = spec_of(launcher=launcher, conf={"spark.authenticate": "false"})
    assert submission(off, folder, SPARK).properties["spark.authenticate"] == "false"


@pytest.mark.parametrize(
    "key",
    [
        "spark.x.sasl.password",
        "spark.x.sasl.jaas.config",
        "sasl.username",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.location",
        "my.token",
        "spark.authenticate.secret",
        "spark.hadoop.fs.s3a.access.key",
    ],
)
def test_what_sparks_ui_shows_leaves_out_what_may_hold_a_secret(tmp_path: Path, key: str):
    pattern = submission(spec_of(), JobFolder(tmp_path, "dc2"), SPARK).properties["spark.redaction.regex"]
    assert re.search(pattern, key)
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
        assert "SPARK_CONF_DIR" in caught.value.way_out
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


def test_yarn(tmp_path: Path):
    spec = spec_of(launcher="yarn", master="yarn", slots=2, memory="2g", options={"queue": "replication"})
    found = submission(spec, JobFolder(tmp_path, "dc2"), SPARK)
    assert found.command[1:5] == ("--master", "yarn", "--deploy-mode", "client")
    assert found.properties["spark.yarn.queue"] == "replication"
    assert found.properties["spark.executor.memoryOverhead"] == "2g"
    assert found.properties["spark.executor.instances"] == "2"


def test_an_option_that_nobody_knows_is_refused(tmp_path: Path):
    with pytest.raises(LaunchError, match="no option colour") as caught:
        submission(spec_of(options={"colour": "red"}), JobFolder(tmp_path, "dc2"), SPARK)
    assert "python" in caught.value.way_out


def test_settings_are_written_as_java_reads_them():
    text = properties_file({"spark.a b": " x\\y", "spark.c": "ü\n=:#"})
    assert text == b"spark.a\\ b=\\ x\\\\y\nspark.c=\\u00fc\\n=:#\n"


def test_where_spark_is(tmp_path: Path):
    assert (spark_home({}) / "jars").is_dir()  # the package's
    with pytest.raises(LaunchError, match="no bin/spark-submit"):
        spark_home({"SPARK_HOME": str(tmp_path)})
