"""A lab with Kerberos: what `repl lab up --security kerberos` gives its user, until it is purged."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from planner.cli.app import run
from runtime.contract.client.settings import wire_settings
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import AuthenticationFailed
from runtime.lab import processes
from runtime.lab.cluster import Security
from runtime.lab.files import LabError
from runtime.lab.kdc import Kdc
from runtime.lab.lab import Lab, LabState
from tests.commands import repl
from tests.labs import run_tool, running_lab, spec
from tests.records import create_topic, read, write


def test_a_machine_without_a_kdc_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("runtime.lab.kdc._places", lambda: [str(tmp_path)])
    assert run(("lab", "up", "--security", "kerberos", "--home", str(tmp_path / "lab"))) == 1
    refusal = capsys.readouterr().err
    assert "this machine has no krb5kdc" in refusal
    assert "apt-get install krb5-kdc krb5-admin-server" in refusal
    assert "make kerberos" in refusal


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    clusters = (spec(name, security=Security.KERBEROS) for name in ("dc1", "dc2"))
    with running_lab(tmp_path_factory.mktemp("kerberos") / "lab", *clusters) as lab:
        yield lab


@pytest.mark.integration
@pytest.mark.long
class TestLab:
    async def test_a_ticket_proves_who_a_client_is(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KRB5_CONFIG", str(lab.kdc.client_settings))
        clusters = yaml.safe_load((lab.home / "topology.yaml").read_text())["clusters"]
        for name in ("dc1", "dc2"):
            settings = wire_settings(clusters[name]["bootstrap"], clusters[name]["client"])
            async with await KafkaCluster.open(settings) as opened:
                assert opened.cluster_id == lab.clusters[name].cluster_id
        wrong = {**clusters["dc1"]["client"], "sasl.kerberos.keytab": str(lab.kdc.keytab_file("app"))}
        with pytest.raises(AuthenticationFailed, match="gave no credentials of admin"):
            await KafkaCluster.open(wire_settings(clusters["dc1"]["bootstrap"], wrong))

    def test_a_topology_of_the_lab_is_planned_by_its_tickets(self, lab: Lab, tmp_path: Path) -> None:
        create_topic(lab.clusters["dc1"].client, "planned")
        file = tmp_path / "topology.yaml"
        flow = {"name": "go", "from": "dc1", "to": "dc2", "topics": {"include": "planned"}}
        clusters = yaml.safe_load((lab.home / "topology.yaml").read_text())
        file.write_text(json.dumps({"apiVersion": "repl/v1", "name": "site", **clusters, "flows": [flow]}))
        settings = {"KRB5_CONFIG": str(lab.kdc.client_settings), "REPL_ALLOW_FILES": str(lab.home)}
        done = repl("plan", str(file), env=settings)
        assert done.returncode == 0, done.stderr
        assert "Plan: 3 to add, 0 to change, 0 to destroy" in done.stdout
        unset = repl("plan", str(file), env={**settings, "KRB5_CONFIG": "/no/such/krb5.conf"})
        assert "KRB5_CONFIG" in unset.stdout + unset.stderr

    def test_kafkas_tools_log_in_by_kerberos(self, lab: Lab) -> None:
        create_topic(lab.clusters["dc1"].client, "tools")
        arguments = ("--describe", "--topic", "tools", "--command-config", "{client}")
        assert "PartitionCount: 1" in run_tool(lab, "dc1", "TopicCommand", *arguments)
        assert "GSSAPI" in (lab.clusters["dc1"].folder / "client.properties").read_text()

    def test_clients_of_librdkafka_write_and_read_by_password(self, lab: Lab) -> None:
        cluster = lab.clusters["dc2"]
        create_topic(cluster.client, "passwords")
        write(cluster.client, "passwords", [b"value"])
        assert [record.value for record in read(cluster.client, "passwords")] == [b"value"]

    def test_status_down_and_start_know_the_kdc(self, lab: Lab) -> None:
        running = lab.status().kdc
        assert running is not None
        assert running.state is LabState.UP
        assert running.pid is not None
        processes.kill([str(lab.kdc.folder / "kdc.pid")])
        assert state(lab) is LabState.DOWN
        lab.up([cluster.spec for cluster in lab.clusters.values()])
        assert state(lab) is LabState.UP
        lab.down()
        assert state(lab) is LabState.DOWN
        lab.start("dc1")
        assert state(lab) is LabState.UP
        lab.start("dc2")

    def test_secrets_of_the_realm_are_for_their_owner_only(self, lab: Lab) -> None:
        private = [
            *lab.kdc.folder.glob("*.keytab"),
            *lab.kdc.folder.glob("principal*"),
            lab.kdc.folder / "stash",
        ]
        assert len(private) > 5
        assert {path.stat().st_mode & 0o077 for path in private} == {0}


@pytest.mark.integration
@pytest.mark.long
def test_purge_removes_the_realm_and_a_failed_start_leaves_no_kdc(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    with pytest.raises(LabError):
        lab.up([spec("dc1", security=Security.KERBEROS, properties={"num.io.threads": "none"})])
    assert lab.kdc.process is None
    lab.down(purge=True)
    assert not Kdc(lab.home).exists
    assert not lab.home.exists()


def state(lab: Lab) -> LabState | None:
    kdc = lab.status().kdc
    return None if kdc is None else kdc.state
