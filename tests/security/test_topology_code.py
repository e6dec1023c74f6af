"""A topology runs nothing: no command, no library, no plugin, on the machine that plans or in a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner.kafka import ClusterEndpoint
from planner.kafka.librdkafka import admin, consumer, producer
from planner.model.diagnostic import ExitCode, Failure
from planner.model.topology import Cluster
from planner.workflows.audit.access import endpoints_of
from runtime.contract.client.secrets import ClientSecrets
from runtime.contract.client.settings import ClientSettingsError, wire_settings
from runtime.contract.spec.cluster import ClusterSpec
from tests.security.conftest import Command
from tests.topologies import Topology

pytestmark = pytest.mark.slow

SILENT = "127.0.0.1:1"
MARK = "ran"
# `runtime/contract/test_client.py` has the table of settings that are refused.
HOSTILE = {"repl.oauthbearer.token.command": "touch {mark}", "plugin.library.paths": "{library}"}


@pytest.fixture
def hostile(tmp_path: Path) -> dict[str, str]:
    library = tmp_path / "evil.so"
    library.write_bytes(b"\x7fELF")
    places = {"mark": str(tmp_path / MARK), "library": str(library)}
    return {key: value.format(**places) for key, value in HOSTILE.items()}


@pytest.mark.parametrize("key", HOSTILE)
@pytest.mark.parametrize("verb", ["validate", "plan", "status", "drift"])
def test_every_command_refuses_it_at_its_place(
    verb: str, key: str, hostile: dict[str, str], tmp_path: Path, command: Command
) -> None:
    client = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", key: hostile[key]}
    made = Topology("shop", tmp_path / "t.yaml", {"dc1": {"bootstrap": SILENT, "client": client}})
    made.topic("orders")
    file = made.write()
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if f'"{key}"' in text)
    ended = command(verb, file)
    assert ended.code == ExitCode.ERROR
    assert f"{file}:{line}:" in ended.err
    assert f'"{key}"' in ended.err
    assert not (tmp_path / MARK).exists()


@pytest.mark.parametrize("key", HOSTILE)
def test_a_cluster_out_of_a_plan_file_is_refused_before_a_client_is_made(
    key: str, hostile: dict[str, str]
) -> None:
    with pytest.raises(Failure, match=key):
        endpoints_of([Cluster("dc1", bootstrap=SILENT, client={key: hostile[key]})])


@pytest.mark.parametrize("key", HOSTILE)
@pytest.mark.parametrize("make", [admin, consumer, producer])
def test_no_client_of_the_control_plane_is_made_with_it(make: Any, key: str, hostile: dict[str, str]) -> None:
    with pytest.raises(Failure, match=key):
        make(ClusterEndpoint("dc1", SILENT, {key: hostile[key]}))


@pytest.mark.parametrize("key", HOSTILE)
def test_a_job_refuses_it_in_a_spec_or_a_record(key: str, hostile: dict[str, str]) -> None:
    spec = ClusterSpec(bootstrap=SILENT, client={key: hostile[key]})

    with pytest.raises(ClientSettingsError, match=key):
        ClientSecrets({}).resolve(spec.bootstrap, spec.client)
    with pytest.raises(ClientSettingsError, match=key):
        wire_settings(spec.bootstrap, {key: hostile[key]})


def test_the_operators_command_runs_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPL_OAUTHBEARER_TOKEN_COMMAND_DC1", "get-token")
    clusters = [Cluster(name, bootstrap=SILENT) for name in ("dc1", "dc2")]

    assert [one.token_command for one in endpoints_of(clusters).values()] == ["get-token", None]


def test_the_operators_command_is_run_by_every_client(tmp_path: Path) -> None:
    """librdkafka asks for a token as soon as a client is made."""
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    makers: tuple[Any, ...] = (admin, consumer, producer)
    for number, make in enumerate(makers):
        mark = tmp_path / str(number)
        client: Any = make(ClusterEndpoint("dc1", SILENT, settings, f"sh -c 'touch {mark}; echo token'"))
        while not mark.exists():
            client.poll(0.05)
