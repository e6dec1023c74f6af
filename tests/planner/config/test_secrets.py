"""Secrets stay references; what is written out is never shown; resolving says what can't be had."""

# ruff: noqa: E501  (the long lines are what a user reads)

from pathlib import Path

import pytest

from planner.config import load
from planner.config.secrets import resolve
from planner.model.diagnostic import Failure
from planner.model.topology import Cluster
from tests.planner.config.given import mistakes_alone, written

CANARY = "hunter2"


def cluster(folder: Path, client: str) -> Cluster:
    text = f"apiVersion: repl/v1\nname: a\nclusters:\n  dc1:\n    bootstrap: a:1\n    client: {client}\n"
    file = written(folder, text + "topics: [{name: a, cluster: dc1}]\n")
    return load(file).clusters["dc1"]


def test_resolving_reads_the_environment_and_files_beside_the_topology(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{CANARY}\n")
    read = cluster(
        tmp_path,
        "{sasl.password: {env: P}, ssl.key.password: {file: secret}, client.rack: y, socket.timeout.ms: 10s, security.protocol: sasl_ssl}",
    )
    assert resolve(read, environment={"P": "p"}) == {
        "sasl.password": "p",
        "ssl.key.password": CANARY,
        "client.rack": "y",
        "socket.timeout.ms": "10000",
        "security.protocol": "sasl_ssl",
    }


def test_all_that_can_not_be_had_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "nothing").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large").write_text("x" * (2**20 + 1))
    read = cluster(
        tmp_path,
        "{client.id: {env: ABSENT}, sasl.username: {env: EMPTY}, sasl.password: {file: absent}, ssl.ca.pem: {file: nothing}, ssl.key.pem: {file: binary}, ssl.key.password: {file: large}}",
    )
    with pytest.raises(Failure) as raised:
        resolve(read, environment={"EMPTY": ""})
    place = f"{tmp_path / 't.yaml'}:6"
    assert [str(one) for one in raised.value.diagnostics] == [
        f'{place}:31: "client.id" of cluster dc1: the environment variable ABSENT is not set — set ABSENT before running repl',
        f'{place}:61: "sasl.username" of cluster dc1: the environment variable EMPTY is empty — set EMPTY',
        (
            f'{place}:91: "sasl.password" of cluster dc1: the file {tmp_path}/absent can\'t be read: No such file or directory — '
            "make it readable, or name another"
        ),
        f'{place}:119: "ssl.ca.pem" of cluster dc1: the file {tmp_path}/nothing is empty — write the secret into it',
        f'{place}:149: "ssl.key.pem" of cluster dc1: the file {tmp_path}/binary is not text in UTF-8 — name another',
        f'{place}:183: "ssl.key.password" of cluster dc1: the file {tmp_path}/large is larger than 1 MiB — name another',
    ]


def test_a_literal_secret_leaves_the_digest_alone(tmp_path: Path) -> None:
    digests = set()
    for secret in ("one", "two"):
        cluster(tmp_path, f"{{sasl.password: {secret}}}")
        digests.add(load(tmp_path / "t.yaml").digest)
    assert len(digests) == 1


@pytest.mark.parametrize(
    "client",
    [
        f"{{sasl.password: [{CANARY}, {{a: b}}]}}",
        f"{{sasl.password: {{env: '{CANARY}!'}}}}",
        f"{{sasl.password: {{file: {CANARY}, env: {CANARY}}}}}",
        f"{{sasl.password: {{value: {CANARY}}}}}",
        f"{{sasl.password: {{env: [{CANARY}]}}}}",
        f"{{sasl.password: !secret {CANARY}}}",
        f"{{sasl.password: '{CANARY}",
        f"[{CANARY}]",
        f"{{sasl.jaas.config: 'x password={CANARY};'}}",
    ],
)
def test_no_error_shows_a_secret(client: str, tmp_path: Path) -> None:
    text = f"apiVersion: repl/v1\nname: a\nclusters:\n  dc1:\n    bootstrap: a:1\n    client: {client}\n"
    found = mistakes_alone(tmp_path, text)
    assert found
    assert all(CANARY not in line for line in found)
