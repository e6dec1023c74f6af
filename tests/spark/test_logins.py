"""Plan, apply, copy, lose and fail back with each login; tickets, tokens and certificates end meanwhile."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from runtime.lab.cluster import Security
from runtime.lab.spark import LabSpark, SparkCluster
from tests.certificates import PASSWORD
from tests.commands import begin, repl
from tests.logins import LIFETIME_S, Certified, Logins, certificate_lab, login_lab
from tests.records import commit_group, create_topic, group_offsets, read, wait_for, write

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]


@pytest.fixture(scope="module")
def logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logins]:
    with login_lab(tmp_path_factory.mktemp("logins"), "dc1", "dc2") as site:
        yield site


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    with certificate_lab(tmp_path_factory.mktemp("certificates"), "dc1", "dc2") as site:
        yield site


class Engineer:
    """Runs repl with a topology in which both clusters are reached by one login."""

    def __init__(
        self,
        site: Logins | Certified,
        login: str,
        folder: Path,
        job: Mapping[str, object] | None = None,
        *,
        name: str = "",
    ) -> None:
        self.lab = site.lab
        name = name or (login if job is None else f"{login}-{job['launcher']}")
        self.topic, self.flow, self.state = f"orders-{name}", f"go-{name}", folder / "state"
        self.group = f"billing-{name}"
        self.file = folder / "topology.yaml"
        self.environment = {**site.environment, "REPL_HOME": str(self.state)}
        flow = {"name": self.flow, "from": "dc1", "to": "dc2", "topics": {"include": self.topic}}
        groups = {"include": [self.group], "sync": True, "every": "1s"}
        body = {"apiVersion": "repl/v1", "name": login, "clusters": dict(site.clusters(login))}
        jobs = {} if job is None else {"jobs": {"dc2": job}}
        self.file.write_text(json.dumps(body | jobs | {"flows": [flow | {"groups": groups}]}))

    def run(self, command: str, *words: str, code: int = 0) -> str:
        done = repl(command, *words, env=self.environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def logs(self) -> str:
        return "".join(file.read_text() for file in self.state.rglob("*.log"))

    def standbys(self) -> list[str]:
        status = json.loads(self.run("status", str(self.file), "--json"))
        return [standby["state"] for standby in status["jobs"][0]["standbys"]]

    def holds(self, cluster: str, count: int) -> None:
        client = self.lab.clusters[cluster].client
        wait_for(lambda: len(read(client, self.topic)) >= count, 120)
        values = [record.value for record in read(client, self.topic)]
        assert len(values) == len(set(values)) == count


def processes_with(variable: str) -> list[int]:
    """The processes that have this in their environment: every one of a job."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def committed(engineer: Engineer, cluster: str) -> dict[tuple[str, int], int]:
    return group_offsets(engineer.lab.clusters[cluster].client, engineer.group)


@pytest.mark.parametrize("login", ["kerberos", "iam", "tokens", "scram"])
def test_a_flow_is_copied_lost_and_failed_back(logins: Logins, login: str, tmp_path: Path) -> None:
    story(logins, login, tmp_path, lambda engineer: outlive(engineer, 3 * LIFETIME_S))


def test_a_flow_is_copied_lost_and_failed_back_with_kerberos_over_tls(tmp_path: Path) -> None:
    with login_lab(tmp_path, "dc1", "dc2", security=Security.KERBEROS_TLS) as site:
        story(site, "kerberos", tmp_path, lambda engineer: outlive(engineer, 3 * LIFETIME_S))


@pytest.mark.parametrize("kind", SparkCluster)
def test_slots_of_a_cluster_of_machines_log_in_with_the_keytab_of_their_machine(
    logins: Logins, kind: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in logins.environment.items():
        monkeypatch.setenv(name, value)
    cluster = LabSpark(tmp_path / "spark", kind)
    try:
        cluster.up(workers=1, memory_mb=3072, cores=4)
        conf = {"spark.driver.host": "127.0.0.1"}
        job: dict[str, object] = {"launcher": kind.value, "memory": "400m", "conf": conf}
        if kind is SparkCluster.STANDALONE:
            conf["spark.authenticate"] = "true"
            job["master"] = cluster.master
        else:  # containers of YARN do not get the variables of the machine
            settings = logins.environment["KRB5_CONFIG"]
            conf |= {f"spark.{part}.KRB5_CONFIG": settings for part in ("executorEnv", "yarn.appMasterEnv")}
        engineer = Engineer(logins, "kerberos", tmp_path, job)
        engineer.environment |= cluster.environment
        create_topic(logins.lab.clusters["dc1"].client, engineer.topic)
        engineer.run("apply", str(engineer.file), "--auto-approve")
        outlive(engineer, 3 * LIFETIME_S, 0)
        engineer.run("destroy", str(engineer.file), "--auto-approve")
    finally:
        cluster.down()


@pytest.mark.parametrize("form", ["keystore", "pem", "encrypted-pem", "pem-store"])
def test_a_certificate_is_renewed_meanwhile(certified: Certified, form: str, tmp_path: Path) -> None:
    def outlived(engineer: Engineer) -> int:
        lab = certified.lab
        count = outlive(engineer, certified.renewals.lifetime_s)
        # The certificates that the job began with have ended: it connects again with newer ones.
        lab.kill("dc2")
        lab.start("dc2")
        return outlive(engineer, 1, count)

    story(certified, form, tmp_path, outlived)


@pytest.mark.parametrize("form", ["keystore", "encrypted-pem"])
def test_a_certificate_that_has_ended_is_named(certified: Certified, form: str, tmp_path: Path) -> None:
    engineer = Engineer(certified, form, tmp_path)
    certified.renewals.write(-60, "-ended")
    topology = json.loads(engineer.file.read_text())
    engineer.file.write_text(json.dumps(topology | {"clusters": certified.clusters(form, "-ended")}))
    said = engineer.run("plan", str(engineer.file), code=1)
    assert "refused the client certificate: it ended on " in said
    assert PASSWORD not in said


def test_a_user_whose_password_was_revoked_is_named_and_goes_on_once_it_is_back(
    logins: Logins, tmp_path: Path
) -> None:
    engineer = Engineer(logins, "scram", tmp_path, name="revoked")
    cluster = logins.lab.clusters["dc2"]
    admin = AdminClient({**cluster.client, "log_level": 2})
    create_topic(logins.lab.clusters["dc1"].client, engineer.topic)
    engineer.run("apply", str(engineer.file), "--auto-approve")
    count = outlive(engineer, 1, 0)
    deletion = UserScramCredentialDeletion("repl", ScramMechanism.SCRAM_SHA_512)
    for done in admin.alter_user_scram_credentials([deletion]).values():
        done.result(60)
    try:
        write(logins.lab.clusters["dc1"].client, engineer.topic, [b"meanwhile %d" % at for at in range(10)])
        said = engineer.run("plan", str(engineer.file), code=1)
        assert "SCRAM-SHA-512" in said
        assert "sasl.username and sasl.password" in said
        wait_for(lambda: "SCRAM-SHA-512" in engineer.logs(), 60)  # the job's sessions have ended
    finally:
        password = cluster.password_file("repl").read_text()
        entry = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        back = UserScramCredentialUpsertion("repl", entry, password.encode())
        for done in admin.alter_user_scram_credentials([back]).values():
            done.result(60)
    assert password not in said + engineer.logs()
    engineer.holds("dc2", count + 10)
    engineer.run("destroy", str(engineer.file), "--auto-approve")


def test_a_standby_takes_over_with_its_own_keytab(logins: Logins, tmp_path: Path) -> None:
    engineer = Engineer(logins, "kerberos", tmp_path, {"launcher": "local", "standby": 1})
    create_topic(logins.lab.clusters["dc1"].client, engineer.topic)
    engineer.run("apply", str(engineer.file), "--auto-approve")
    count = outlive(engineer, 1, 0)
    other = {"REPL_HOME": str(tmp_path / "other")}
    standby = begin("standby", "dc2", str(engineer.file), env=engineer.environment | other)
    try:
        wait_for(lambda: engineer.standbys() == ["watching"], 60)
        engineer.run("drill", str(engineer.file), "--against", "live")
        for process in processes_with(f"REPL_HOME={engineer.state}"):
            os.kill(process, signal.SIGKILL)
        outlive(engineer, 3 * LIFETIME_S, count)
        engineer.run("destroy", str(engineer.file), "--auto-approve")
    finally:
        for process in processes_with(f"REPL_HOME={tmp_path / 'other'}"):
            os.kill(process, signal.SIGKILL)
        standby.communicate(timeout=60)


def outlive(engineer: Engineer, seconds: float, count: int = 200) -> int:
    """Writes and copies for so long, and returns the number of records."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        client = engineer.lab.clusters["dc1"].client
        write(client, engineer.topic, [b"second %d" % (count + number) for number in range(10)])
        count += 10
        engineer.holds("dc2", count)
    return count


def story(site: Logins | Certified, login: str, folder: Path, outlived: Callable[[Engineer], int]) -> None:
    """`outlived` copies for longer than a login lives."""
    engineer, lab = Engineer(site, login, folder), site.lab
    dc1, dc2 = (lab.clusters[name].client for name in ("dc1", "dc2"))
    create_topic(dc1, engineer.topic)
    write(dc1, engineer.topic, [b"first %d" % number for number in range(200)])
    commit_group(dc1, engineer.group, {(engineer.topic, 0): 90})

    assert "Plan: " in engineer.run("plan", str(engineer.file))
    engineer.run("apply", str(engineer.file), "--auto-approve")
    count = outlived(engineer)
    for process in processes_with(f"REPL_HOME={engineer.state}"):
        os.kill(process, signal.SIGKILL)
    write(dc1, engineer.topic, [b"third %d" % number for number in range(50)])
    wait_for(lambda: "job.dc2" in engineer.run("plan", str(engineer.file)), 60)  # it is not heard of any more
    engineer.run("apply", str(engineer.file), "--auto-approve")
    engineer.holds("dc2", count + 50)
    wait_for(lambda: committed(engineer, "dc2") == {(engineer.topic, 0): 90}, 60)
    lab.kill("dc1")
    engineer.run("failover", "dc1", str(engineer.file), "--auto-approve")
    assert committed(engineer, "dc2") == {(engineer.topic, 0): 90}
    write(dc2, engineer.topic, [b"survivor %d" % number for number in range(30)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", site.java_options)
        lab.start("dc1")
    engineer.run("failback", "dc1", str(engineer.file), "--auto-approve")
    engineer.run("failback", "dc1", str(engineer.file), "--switch", "--auto-approve")
    engineer.holds("dc1", count + 80)
    engineer.holds("dc2", count + 80)
    engineer.run("destroy", str(engineer.file), "--auto-approve")
