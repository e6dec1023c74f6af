"""What is made once and kept beside the jars: the archive of classes, and the metadata of a new cluster."""

from pathlib import Path
from typing import Any

import pytest

from runtime.lab.brokers.storage import format_all
from runtime.lab.cluster import KAFKA_VERSION, BrokerPorts, LabClusterSpec, LabKafkaCluster, Security
from runtime.lab.files import LabError
from runtime.lab.kit import Kit, ensure_archive


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    (tmp_path / "cache" / "kafka").mkdir(parents=True)
    return Kit(str(java), f"{tmp_path}/cache/kafka/*")


class Training:
    def __init__(self, problem: Exception | None = None) -> None:
        self.runs = 0
        self.problem = problem

    def __call__(self, _scratch: Path, archive: Path) -> None:
        self.runs += 1
        if self.problem:
            raise self.problem
        archive.write_bytes(b"classes")


def test_made_once_and_used_from_then_on(kit: Kit) -> None:
    training = Training()
    ensure_archive(kit, training)
    ensure_archive(kit, training)
    assert training.runs == 1
    assert f"-XX:SharedArchiveFile={kit.archive.path}" in kit.command()


@pytest.mark.parametrize("problem", [LabError("the broker died"), OSError("disk full")])
def test_what_cannot_be_made_is_not_tried_again(kit: Kit, problem: Exception) -> None:
    training = Training(problem)
    ensure_archive(kit, training)
    ensure_archive(kit, training)
    assert training.runs == 1
    assert not kit.archive.options


def test_an_interrupt_is_no_failure(kit: Kit) -> None:
    with pytest.raises(KeyboardInterrupt):
        ensure_archive(kit, lambda _scratch, _archive: (_ for _ in ()).throw(KeyboardInterrupt))
    again = Training()
    ensure_archive(kit, again)
    assert again.runs == 1


def of_three(folder: Path, **more: Any) -> LabKafkaCluster:
    nodes = tuple(BrokerPorts(number, 1000 + number, 2000 + number) for number in (1, 2, 3))
    return LabKafkaCluster(LabClusterSpec("dc1", brokers=3, **more), "an-id", nodes, folder)


@pytest.mark.parametrize("security", [Security.PLAIN, Security.TLS])
@pytest.mark.parametrize(
    ("version", "copied"),
    [
        ("4.3.1", "bootstrap.checkpoint"),
        ("4.4.0", "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"),
    ],
)
def test_the_metadata_of_a_new_cluster_is_copied_without_the_tool(
    kit: Kit, tmp_path: Path, security: Security, version: str, copied: str
) -> None:
    (kit.jars / "bootstrap.checkpoint").write_bytes(b"metadata")
    cluster = of_three(tmp_path / "dc1", security=security, version=version)
    format_all({version: kit}, [cluster], {"dc1": {}})
    folders = [cluster.home_of(node) / "data" for node in cluster.nodes]
    assert [(folder / copied).read_bytes() for folder in folders] == [b"metadata"] * 3
    lines = [(folder / "meta.properties").read_text().splitlines() for folder in folders]
    facts = [dict(line.split("=") for line in each) for each in lines]
    assert [(each["node.id"], each["cluster.id"]) for each in facts] == [
        (str(number), "an-id") for number in (1, 2, 3)
    ]
    assert len({each["directory.id"] for each in facts}) == 3


@pytest.mark.parametrize("more", [{"properties": {"num.io.threads": "9"}}, {"security": Security.SASL}])
def test_the_tool_checks_what_was_set_and_writes_users(
    kit: Kit, tmp_path: Path, more: dict[str, Any]
) -> None:
    (kit.jars / "bootstrap.checkpoint").write_bytes(b"metadata")
    with pytest.raises(PermissionError, match="bin/java"):  # here no Java can be run
        format_all({KAFKA_VERSION: kit}, [of_three(tmp_path / "dc1", **more)], {"dc1": {"app": "secret"}})
