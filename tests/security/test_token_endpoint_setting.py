"""A token endpoint without TLS is refused where settings are read: at validate, at plan, and in a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.config import load
from planner.config.secrets import resolve as planner_resolve
from planner.model.diagnostic import Failure
from planner.model.topology import Cluster
from runtime.contract.client.keys import ALLOW_INSECURE
from runtime.contract.client.secrets import ClientSecrets
from runtime.contract.client.settings import ClientSettingsError

KEY = "sasl.oauthbearer.token.endpoint.url"
CLEAR = "http://idp.example.org/token"
SAFE = "https://idp.example.org/token"


def topology(folder: Path, url: str) -> Path:
    file = folder / "t.yaml"
    file.write_text(
        "apiVersion: repl/v1\nname: a\nclusters:\n  dc1:\n    bootstrap: a:1\n"
        f"    client: {{sasl.oauthbearer.method: oidc, {KEY}: '{url}'}}\n"
        "topics: [{name: a, cluster: dc1}]\n"
    )
    return file


def test_validate_names_the_place_and_takes_https_and_what_the_operator_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Failure) as failure:
        load(topology(tmp_path, "https://me:hush@idp/token"))
    (found,) = failure.value.diagnostics
    assert found.code == "token-endpoint"
    assert f'"{KEY}" of cluster dc1 holds a user name or a password' in found.summary
    assert ":6" in str(found.source)
    assert "hush" not in str(found)
    assert load(topology(tmp_path, SAFE)).clusters["dc1"].client[KEY] == SAFE
    monkeypatch.setenv(ALLOW_INSECURE, "1")
    assert load(topology(tmp_path, CLEAR)).clusters["dc1"].client[KEY] == CLEAR


def test_the_planner_checks_it_before_it_connects() -> None:
    clear, safe = (Cluster("dc1", bootstrap="a:1", client={KEY: url}) for url in (CLEAR, SAFE))

    with pytest.raises(Failure) as failure:
        planner_resolve(clear, environment={})
    assert "not https" in failure.value.diagnostics[0].summary
    assert planner_resolve(safe, environment={}) == {KEY: SAFE}
    assert planner_resolve(clear, environment={ALLOW_INSECURE: "1"}) == {KEY: CLEAR}


def test_a_job_checks_it_again() -> None:
    """Its settings may come from a spec that no validate has seen."""
    with pytest.raises(ClientSettingsError, match=f"{KEY}: is not https.*{ALLOW_INSECURE}=1"):
        ClientSecrets({}).resolve("a:1", {KEY: CLEAR})
    assert ClientSecrets({}).resolve("a:1", {KEY: SAFE}) == {KEY: SAFE}
    assert ClientSecrets({ALLOW_INSECURE: "1"}).resolve("a:1", {KEY: CLEAR}) == {KEY: CLEAR}
