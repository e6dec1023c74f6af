"""Which client settings a topology may give, and what is said of the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runtime.contract.client.keys import (
    ALLOWED,
    CREDENTIALS,
    LOCATIONS,
    TOKEN_COMMAND_KEY,
    refusal,
    token_command_variables,
)


@pytest.mark.parametrize(
    ("name", "why", "way_out"),
    [
        ("plugin.library.paths", "load a library", "leave it out"),
        ("ssl.engine.location", "load a library", "leave it out"),
        ("ssl.engine.id", "load a library", "leave it out"),
        ("ssl_engine_callback_data", "not among", "operations.md"),
        ("ssl.providers", "load a library", "leave it out"),
        ("sasl.kerberos.kinit.cmd", "run a command", "sasl.mechanism PLAIN"),
        ("sasl.kerberos.keytab", "Kerberos", "sasl.mechanism PLAIN"),
        (TOKEN_COMMAND_KEY, "run a command", "REPL_OAUTHBEARER_TOKEN_COMMAND_<CLUSTER>"),
        ("ssl.keystore.location", "PEM", "ssl.certificate.location"),
        ("ssl.keystore.password", "PEM", "ssl.certificate.location"),
        ("statistics.interval.ms", "debugging", "leave it out"),
        ("stats_cb", "callback", "leave it out"),
        ("oauth_cb", "callback", "leave it out"),
        ("log_level", "debugging", "leave it out"),
        ("log_cb", "debugging", "leave it out"),
        ("logger", "debugging", "leave it out"),
        ("debug", "debugging", "leave it out"),
        ("bootstrap.servers", "not read", "beside client"),
        ("metadata.broker.list", "not read", "beside client"),
        ("group.id", "not read", "its own groups"),
        ("transactional.id", "not read", "its own transactional ids"),
        ("offset.store.path", "not among", ""),
        ("sasl.pasword", "not among", 'did you mean "sasl.password"?'),
        ("SASL.PASSWORD", "not among", 'did you mean "sasl.password"?'),
        ("", "not among", "operations.md"),
    ],
)
def test_a_setting_that_is_not_listed_is_refused(name: str, why: str, way_out: str) -> None:
    found = refusal(name)

    assert found is not None
    assert why in found.why
    assert way_out in found.way_out


def test_what_is_listed_is_taken() -> None:
    assert [name for name in sorted(ALLOWED) if refusal(name) is not None] == []
    assert not CREDENTIALS & LOCATIONS


@pytest.mark.parametrize(
    ("cluster", "variable"),
    [("dc1", "DC1"), ("eu-west.1", "EU_WEST_1"), ("Primary", "PRIMARY")],
)
def test_the_token_command_of_one_cluster_comes_first(cluster: str, variable: str) -> None:
    general = "REPL_OAUTHBEARER_TOKEN_COMMAND"

    assert token_command_variables(cluster) == (f"{general}_{variable}", general)


def test_the_docs_list_what_is_taken() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    credentials, others = re.findall(
        r"^- (?:Credentials|All others)[^:]*:((?: .*\n)(?:  .*\n)*)", page, re.MULTILINE
    )
    named = [set(re.findall(r"`([a-z.]+)`", text)) for text in (credentials.partition(":")[2], others)]

    assert named == [CREDENTIALS, ALLOWED - CREDENTIALS]
