"""Secrets of a lab are where they belong."""

from pathlib import Path

import pytest
import yaml

from runtime.lab.lab import Lab

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("mode", ["lab_sasl", "lab_tls"])
def test_secrets_are_for_their_owner_only(mode: str, request: pytest.FixtureRequest) -> None:
    lab: Lab = request.getfixturevalue(mode)
    cluster = lab.clusters["dc1"]
    private = [
        path
        for pattern in ("secrets/*", "client.properties", "users/*/client.properties", "1/server.properties")
        for path in cluster.folder.glob(pattern)
    ]
    assert len(private) > 5
    assert {path.stat().st_mode & 0o077 for path in private} == {0}
    assert not cluster.secret_file("format.args").exists()


def test_the_topology_names_secrets_by_their_files(lab_sasl: Lab) -> None:
    text = (lab_sasl.home / "topology.yaml").read_text()
    assert lab_sasl.clusters["dc1"].client["sasl.password"] not in text
    client = yaml.safe_load(text)["clusters"]["dc1"]["client"]
    assert client["sasl.username"] == "admin"
    assert (
        Path(client["sasl.password"]["file"]).read_text() == lab_sasl.clusters["dc1"].client["sasl.password"]
    )
    written = yaml.safe_load((lab_sasl.clusters["dc1"].folder / "client.yaml").read_text())
    assert written == client
