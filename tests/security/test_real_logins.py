"""At real brokers: the same authorities and the same logins through every client of this product."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from planner.kafka import ClusterEndpoint
from planner.model.observed import Unreachable
from runtime.contract.client.settings import wire_settings
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.lab.lab import Lab
from tests.endpoints import endpoint, observed
from tests.fakes.replacing import replace

pytestmark = pytest.mark.integration


def planner_enters(one: ClusterEndpoint) -> bool:
    return not isinstance(observed({"dc1": one}).clusters["dc1"], Unreachable)


def data_path_enters(one: ClusterEndpoint) -> bool:
    async def opened() -> bool:
        try:
            async with await KafkaCluster.open(wire_settings(one.bootstrap, one.settings)):
                return True
        except WireError:
            return False

    return asyncio.run(opened())


def librdkafka_enters(one: ClusterEndpoint) -> bool:
    refused = list[KafkaError]()
    own: dict[str, Any] = {"bootstrap.servers": one.bootstrap, "log_level": 0, "error_cb": refused.append}
    client = AdminClient({**own, **one.settings})
    until = time.monotonic() + 10
    while not refused and time.monotonic() < until:  # it tries again for ever, so its events count
        try:
            return bool(client.list_topics(timeout=0.2).brokers)
        except KafkaException:
            client.poll(0)
    return False


FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
ENTRANCES = (planner_enters, data_path_enters, librdkafka_enters)


def with_settings(one: ClusterEndpoint, more: Mapping[str, str], *without: str) -> ClusterEndpoint:
    kept = {key: value for key, value in one.settings.items() if key not in without}
    return replace(one, settings={**kept, **more})


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_an_authority_is_trusted_from_file_folder_and_text(lab_tls: Lab, entrance, tmp_path: Path) -> None:
    good = endpoint(lab_tls, "dc1")
    ca = Path(good.settings["ssl.ca.location"])
    hashed = subprocess.run(
        ["openssl", "x509", "-in", str(ca), "-noout", "-subject_hash"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (tmp_path / f"{hashed}.0").write_text(ca.read_text())

    assert entrance(good)
    assert entrance(with_settings(good, {"ssl.ca.location": str(tmp_path)}))
    as_text = {key.replace(".location", ".pem"): Path(good.settings[key]).read_text() for key in FILES}
    assert entrance(with_settings(good, as_text, *FILES))


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_another_authority_is_not_trusted(lab_tls: Lab, entrance, tmp_path: Path) -> None:
    good = endpoint(lab_tls, "dc1")
    other = tmp_path / "other.pem"
    command = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=other", "-days", "2"]
    made = ["openssl", *command, "-keyout", str(tmp_path / "key"), "-out", str(other)]
    subprocess.run(made, capture_output=True, check=True)

    assert not entrance(with_settings(good, {"ssl.ca.location": str(other)}))
    assert not entrance(with_settings(good, {"ssl.ca.pem": other.read_text()}, "ssl.ca.location"))
    assert not entrance(with_settings(good, {}, "ssl.ca.location"))


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_scram_logs_in_with_the_right_password_alone(lab_sasl: Lab, entrance) -> None:
    good = endpoint(lab_sasl, "dc1")

    assert entrance(good)
    assert not entrance(with_settings(good, {"sasl.password": "wrong"}))
