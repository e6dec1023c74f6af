"""A job's settings hold no secret of Spark: not in the YAML, not in a plan, not in a job spec."""

from pathlib import Path

import pytest

from planner.config import load
from planner.model.diagnostic import Failure
from planner.model.plan import body_of
from planner.model.topology import Job
from planner.render.plan.json import json_text
from planner.state import planfile
from runtime.contract.client.secrets import secret_settings
from runtime.contract.launching import LaunchError
from runtime.launch import manifest
from runtime.launch.folder import JobFolder
from runtime.launch.supervision.supervised import SupervisedLauncher
from tests.fakes.replacing import replace
from tests.fakes.states import flow, topology
from tests.planner.plan.jobs import plan
from tests.runtime.launch.specs import spec_of

CANARY = "canary-of-spark"
SECRETS = (
    "spark.authenticate.secret",
    "spark.ssl.keyPassword",
    "spark.ssl.ui.trustStorePassword",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.s3a.bucket.logs.access.key",
    "spark.hadoop.fs.s3a.session.token",
    "spark.hadoop.fs.s3a.encryption.key",
    "spark.hadoop.fs.azure.account.key.store.blob.core.windows.net",
    "spark.hadoop.fs.azure.sas.box.store.blob.core.windows.net",
    "spark.hadoop.fs.azure.account.oauth2.client.secret",
    "spark.hadoop.fs.gs.auth.service.account.private.key",
    "spark.kubernetes.authenticate.oauthToken",
    "spark.executorEnv.DC1_PASSWORD",
)
HARMLESS = (
    "spark.authenticate",
    "spark.authenticate.secret.file",
    "spark.authenticate.secretBitLength",
    "spark.ssl.keyStore",
    "spark.hadoop.fs.s3a.aws.credentials.provider",
    "spark.hadoop.hadoop.security.credential.provider.path",
    "spark.kubernetes.driver.secrets.spark-secret",
    "spark.kubernetes.driver.secretKeyRef.SPARK_SECRET",
    "spark.kubernetes.authenticate.oauthTokenFile",
    "spark.kubernetes.kerberos.tokenSecret.name",
    "spark.executorEnv.DC1_PASSWORD_FILE",
    "spark.security.credentials.hive.enabled",
    "spark.redaction.regex",
    "spark.ui.port",
)


def test_a_secret_is_told_from_what_is_only_named_so() -> None:
    assert [key for key in SECRETS if not secret_settings({key: "x"})] == []
    assert secret_settings(dict.fromkeys(HARMLESS, "x")) == []


def test_a_secret_is_an_error_at_its_place_that_does_not_show_it(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        "apiVersion: repl/v1\nname: a\n"
        "clusters: {dc1: {bootstrap: a:1}, dc2: {bootstrap: b:1}}\n"
        "flows: [{name: f, from: dc1, to: dc2, topics: {include: a}}]\n"
        f"jobs:\n  dc2:\n    conf:\n      spark.ui.port: 4050\n      spark.authenticate.secret: {CANARY}\n"
    )

    with pytest.raises(Failure) as failure:
        load(tmp_path / "t.yaml")

    (told,) = failure.value.diagnostics
    assert told.source is not None
    assert (told.source.line, told.source.column) == (9, 34)
    assert '"spark.authenticate.secret" is a secret of Spark' in told.summary
    assert "spark-defaults.conf" in told.hint
    assert CANARY not in str(told)


def test_java_options_with_a_password() -> None:
    options = "-Dnetworkaddress.cache.ttl=5 -Djavax.net.ssl.trustStorePassword=x"

    assert secret_settings({"spark.driver.extraJavaOptions": options}) == ["spark.driver.extraJavaOptions"]
    assert secret_settings({"spark.driver.extraJavaOptions": "-Djavax.net.ssl.trustStore=/x"}) == []


def test_a_plan_refuses_it_and_does_not_carry_it(tmp_path: Path) -> None:
    """Behind the reader of the YAML: for a topology that came otherwise."""
    job = Job("dc2", conf={"spark.authenticate.secret": CANARY})
    made = plan(replace(topology(flow("x")), jobs={"dc2": job}))

    assert [one.code for one in made.diagnostics if one.severity.value == "error"] == ["job-secret"]
    assert CANARY not in json_text(made)
    assert CANARY not in repr(made)
    assert CANARY not in str(body_of(made.inputs))
    with pytest.raises(Failure, match=r"dc2: spark\.authenticate\.secret"):
        planfile.write(made, tmp_path / "p")


def test_no_spec_is_written_with_it(tmp_path: Path) -> None:
    spec = spec_of(conf={"spark.authenticate.secret": CANARY})
    folder = JobFolder(tmp_path, "dc2")
    folder.make()

    with pytest.raises(LaunchError, match=r"spark\.authenticate\.secret") as refused:
        folder.write_spec(spec)
    with pytest.raises(LaunchError, match=r"spark\.authenticate\.secret"):
        manifest.check(spec_of(launcher="kubernetes", options={"image": "i"}, conf=spec.launch.conf))

    assert CANARY not in f"{refused.value} {refused.value.hint}"
    assert list(folder.path.iterdir()) == []


def test_a_job_does_not_inherit_the_key_of_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPL_PLAN_KEY", CANARY)
    monkeypatch.setenv("REPL_PLAN_KEY_FILE", "/etc/repl/key")
    monkeypatch.setenv("DC1_PASSWORD", "is inherited")

    environ = SupervisedLauncher(tmp_path).environ

    assert environ["DC1_PASSWORD"] == "is inherited"
    assert not {"REPL_PLAN_KEY", "REPL_PLAN_KEY_FILE"} & environ.keys()
