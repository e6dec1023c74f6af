"""The login of an imported configuration works unchanged: MirrorMaker 2 has run with it, repl goes on."""

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from runtime.lab.cluster import LabKafkaCluster
from tests.certificates import PASSWORD
from tests.commands import repl
from tests.iam import REGION
from tests.labs import WITH_PARENT
from tests.labs.mirror_maker import ONE_COPY, SMALL, command
from tests.logins import Certified, Logins, certificate_lab, login_lab
from tests.records import create_topic, read, wait_for, write

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

Site = Logins | Certified


@pytest.fixture(scope="module")
def logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logins]:
    """Java's clients get a new ticket after a minute at the earliest."""
    with login_lab(tmp_path_factory.mktemp("logins"), "dc1", "dc2", lifetime_s=600) as site:
        yield site


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    """Certificates that outlive a MirrorMaker 2, which reads them once."""
    with certificate_lab(tmp_path_factory.mktemp("certificates"), "dc1", "dc2", lifetime_s=1800) as site:
        yield site


@pytest.fixture(params=["kerberos", "scram", "iam", "keystore"])
def login(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def site(login: str, request: pytest.FixtureRequest) -> Site:
    name = "certified" if login == "keystore" else "logins"
    chosen: Site = request.getfixturevalue(name)
    return chosen


def java_settings(site: Site, login: str, cluster: LabKafkaCluster) -> dict[str, str]:
    """Returns the settings of a Java client for the user repl, as its administrator has them."""
    if isinstance(site, Certified):
        client = site.clusters(login)[cluster.name]["client"]
        assert isinstance(client, dict)
        settings = {key: str(value) for key, value in client.items() if isinstance(value, str)}
        stores = dict.fromkeys(("ssl.keystore", "ssl.truststore"), PASSWORD)
        types = {f"{store}.type": "PKCS12" for store in stores}
        return {**settings, **types, **{f"{store}.password": word for store, word in stores.items()}}
    if login == "iam":
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
            "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        }
    if login == "kerberos":
        return {key: value for key, value in cluster.java_client("repl").items() if "bootstrap" not in key}
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    password = cluster.password_file("repl").read_text()
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": cluster.spec.mechanism,
        "sasl.jaas.config": f'{module} required username="repl" password="{password}";',
    }


def secrets_of(topology: Path, site: Site, login: str) -> dict[str, str]:
    """Returns the variables that an imported topology names, with their values."""
    variables: dict[str, str] = {}
    for settings in yaml.safe_load(topology.read_text())["clusters"].values():
        cluster = next(
            cluster
            for cluster in site.lab.clusters.values()
            if settings["bootstrap"] in (address_of(site, login, cluster), cluster.bootstrap)
        )
        for key, value in settings["client"].items():
            if isinstance(value, dict):
                secret = cluster.password_file("repl").read_text() if key == "sasl.password" else PASSWORD
                variables[value["env"]] = secret
    return variables


def address_of(site: Site, login: str, cluster: LabKafkaCluster) -> str:
    return str(site.clusters(login)[cluster.name]["bootstrap"])


def works(site: Site, login: str, topology: Path, folder: Path, topics: tuple[str, str]) -> None:
    """Plans and applies an imported topology as it is, and copies what is written from then on."""
    dc1, dc2 = (site.lab.clusters[name].client for name in ("dc1", "dc2"))
    source, mirror = topics
    if login == "iam":  # the region stands in the addresses of MSK, which these brokers do not have
        imported = yaml.safe_load(topology.read_text())
        for cluster in imported["clusters"].values():
            cluster["client"]["sasl.aws.region"] = REGION
        topology.write_text(yaml.safe_dump(imported, sort_keys=False))
    secrets = secrets_of(topology, site, login)
    environment = {**site.environment, **secrets, "REPL_HOME": str(folder / "state")}
    planned = repl("plan", str(topology), env=environment)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert "could not be read" not in planned.stdout + planned.stderr
    before = len(read(dc1, source))
    try:
        applied = repl("apply", str(topology), "--auto-approve", env=environment)
        assert applied.returncode == 0, applied.stdout + applied.stderr
        write(dc1, source, [b"later %d" % number for number in range(50)])
        wait_for(lambda: mirror in AdminClient(dict(dc2)).list_topics(timeout=60).topics, 240)
        wait_for(lambda: len(read(dc2, mirror)) >= before + 50, 240)
        expected = [record.value for record in read(dc1, source)]
        assert [record.value for record in read(dc2, mirror)] == expected
    finally:
        repl("destroy", str(topology), "--auto-approve", env=environment)


def test_mirror_maker_2s_file_works_and_goes_on_where_it_ended(
    site: Site, login: str, tmp_path: Path
) -> None:
    clusters, topic = site.lab.clusters, f"mm2-{login}"
    settings = {
        **ONE_COPY,
        "clusters": "dc1, dc2",
        "dc1->dc2.enabled": "true",
        "dc1->dc2.topics": topic,
        "dc2->dc1.enabled": "false",
        "tasks.max": "1",
        "sync.topic.acls.enabled": "false",
        "emit.heartbeats.enabled": "false",
        "offset.storage.topic": f"mm2-offsets-{login}",
        **{f"{name}.bootstrap.servers": address_of(site, login, clusters[name]) for name in clusters},
        **{
            f"{name}.{key}": value
            for name, cluster in clusters.items()
            for key, value in java_settings(site, login, cluster).items()
        },
    }
    create_topic(clusters["dc1"].client, topic, config={"retention.ms": "-1"})
    write(clusters["dc1"].client, topic, [b"first %d" % number for number in range(100)])
    jvm = (*SMALL, *clusters["dc1"].login_options)
    words = command(tmp_path / "mm2.properties", settings, jvm)
    taking = []
    if login != "iam":  # Java's IAM module is Amazon's own, and is not among the jars
        run_until_copied([*WITH_PARENT, *words], tmp_path / "mm2.log", clusters["dc2"], f"dc1.{topic}")
        taking = ["--take-over"]
    topology = tmp_path / "imported.yaml"
    environment = {**site.environment, **secrets_before(site)}
    done = repl(
        *("import", "--mm2", str(tmp_path / "mm2.properties"), *taking, "-o", str(topology)), env=environment
    )
    assert done.returncode == 0, done.stderr
    works(site, login, topology, tmp_path, (topic, f"dc1.{topic}"))


def secrets_before(site: Site) -> dict[str, str]:
    """Returns the variables by the names that an import gives them."""
    variables = {}
    for name, cluster in site.lab.clusters.items():
        for store in ("KEYSTORE", "TRUSTSTORE"):
            variables[f"{name.upper()}_SSL_{store}_PASSWORD"] = PASSWORD
        if cluster.spec.security.sasl:
            variables[f"{name.upper()}_SASL_PASSWORD"] = cluster.password_file("repl").read_text()
    return variables


def run_until_copied(words: list[str], log: Path, cluster: LabKafkaCluster, mirror: str) -> None:
    with log.open("wb") as output:
        running = subprocess.Popen(words, stdout=output, stderr=output)
    try:
        wait_for(lambda: mirror in AdminClient(dict(cluster.client)).list_topics(timeout=60).topics, 240)
        wait_for(lambda: len(read(cluster.client, mirror)) == 100, 240)
        running.send_signal(signal.SIGTERM)
        running.wait(60)
    finally:
        running.kill()
        running.wait(60)


def test_replicators_connector_works(site: Site, login: str, tmp_path: Path) -> None:
    clusters, topic = site.lab.clusters, f"replicator-{login}"
    config: dict[str, Any] = {
        "connector.class": "io.confluent.connect.replicator.ReplicatorSourceConnector",
        "topic.whitelist": topic,
    }
    for side, name in (("src", "dc1"), ("dest", "dc2")):
        own: Mapping[str, str] = java_settings(site, login, clusters[name])
        config |= {f"{side}.kafka.{key}": value for key, value in own.items()}
        config[f"{side}.kafka.bootstrap.servers"] = address_of(site, login, clusters[name])
    file, topology = tmp_path / "connector.json", tmp_path / "imported.yaml"
    file.write_text(json.dumps({"name": f"copy-{login}", "config": config}))
    create_topic(clusters["dc1"].client, topic, config={"retention.ms": "-1"})
    write(clusters["dc1"].client, topic, [b"first %d" % number for number in range(100)])
    done = repl("import", "--replicator", str(file), "-o", str(topology), env=site.environment)
    assert done.returncode == 0, done.stderr
    works(site, login, topology, tmp_path, (topic, topic))
