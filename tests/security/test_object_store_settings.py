"""Object stores: no record, spec or plan file decides where a job's credentials and records go."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runtime.contract.client.secrets import ClientSecrets
from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.spec import jobspec
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.files import FilesSpec, LinesSpec
from runtime.contract.spec.jobspec import BadJobSpec, FlowSpec, JobSpec
from runtime.contract.spec.restarts import regrouped
from runtime.contract.spec.selection import SelectionSpec

CLIENT: dict[str, Any] = {
    "endpoint": "https://s3.example.org",
    "access.key": {"env": "S3_KEY"},
    "secret.key": {"env": "S3_SECRET"},
}

AZURE = "abfs://container@account.dfs.core.windows.net/a"


def spec(
    folder: str = "s3a://bucket/a", client: dict[str, Any] | None = None, *, reads: bool = False
) -> JobSpec:
    client = CLIENT if client is None else client
    files = FilesSpec(endpoint="archive", folder=folder, client=client, format="raw")
    lines = LinesSpec(endpoint="archive", folder=folder, client=client, format="text", topic="a")
    flow = FlowSpec(
        name="f",
        source="dc1",
        destination="dc1",
        topics=SelectionSpec(include=() if reads else ("a",)),
        files=None if reads else files,
        lines=lines if reads else None,
    )
    clusters = {"dc1": ClusterSpec(bootstrap="127.0.0.1:9092")}
    return JobSpec(job="j", topology="t", destination="dc1", clusters=clusters, flows=[flow])


@pytest.mark.parametrize(
    ("folder", "client"),
    [
        ("s3a://evil/a", CLIENT),
        ("s3a://bucket/a", {**CLIENT, "endpoint": "https://evil.net"}),
        ("s3a://bucket/a", {**CLIENT, "access.key": {"env": "OTHER"}}),
        ("s3a://bucket/a", {}),
    ],
)
@pytest.mark.parametrize("reads", [False, True])
def test_a_record_can_not_send_a_running_job_to_another_store(
    folder: str, client: dict[str, Any], *, reads: bool
) -> None:
    assert regrouped(spec(reads=reads), spec(folder, client, reads=reads)) == ["f"]
    assert regrouped(spec(reads=reads), spec(reads=reads)) == []


@pytest.mark.parametrize(
    ("folder", "client", "why"),
    [
        ("s3a://bucket/../a", {}, "not allowed"),
        ("s3a://bucket", {"profile": "x"}, "profile is no setting"),
        ("s3a://bucket", {"region": "x.evil.net/"}, "region is no region"),
        ("s3a://bucket", {"endpoint": "https://good@evil.net"}, "endpoint is no web address"),
        ("gs://Bucket", {}, "names no bucket"),
        ("gs://bucket", {"region": "eu-1"}, "region belongs to another kind"),
        ("gs://bucket", {"service.account.key": "{}"}, "must not hold a secret"),
        ("abfs://container/a", {}, "names no account"),
        ("abfs://c@x.dfs.evil.net@account.dfs.core.windows.net/a", {}, "names no container"),
        ("abfs://container@account.blob.core.windows.net/a", {}, "names no account"),
        ("abfs://container@account.dfs.core.windows.net./a", {}, "names no account"),
        ("abfs://container@account.dfs.core..windows.net/a", {}, "names no account"),
        ("abfs://a.container@account.dfs.core.windows.net/a", {}, "names no container"),
        ("abfs://a--b@account.dfs.core.windows.net/a", {}, "names no container"),
        ("abfs://ab@account.dfs.core.windows.net/a", {}, "names no container"),
        (AZURE, {"access.key": "a", "secret.key": "b"}, "access.key belongs to another kind"),
        (AZURE, {"account.key": {"env": "A"}, "sas.token": {"env": "B"}}, "stands beside account.key"),
        (AZURE, {"sas.token": "sig=x"}, "must not hold a secret"),
        ("/data", {"region": "eu-1"}, "is a folder, and has no client"),
    ],
)
@pytest.mark.parametrize("reads", [False, True])
def test_a_spec_that_no_job_starts_with(
    folder: str, client: dict[str, Any], why: str, *, reads: bool
) -> None:
    with pytest.raises(BadJobSpec, match=why):
        jobspec.decode(jobspec.encode(spec(folder, client, reads=reads)))


@pytest.mark.parametrize("folder", ["gs://bucket/a", AZURE, AZURE.replace("abfs", "abfss")])
def test_no_job_reads_files_from_a_store_whose_listing_can_fail(folder: str) -> None:
    jobspec.decode(jobspec.encode(spec(folder, {})))
    with pytest.raises(
        BadJobSpec, match=r"flow f: no flow reads files from (gs|abfs)://: one key of an odd form"
    ):
        jobspec.decode(jobspec.encode(spec(folder, {}, reads=True)))


def account(**changes: object) -> str:
    """Returns the key of a service account in JSON."""
    private = "-----BEGIN PRIVATE KEY-----\nTm90LWEta2V5\n-----END PRIVATE KEY-----\n"
    key = {"type": "service_account", "client_email": "a@b", "private_key": private, "private_key_id": "1"}
    return json.dumps(key | changes)


GOOGLE = "gs://bucket"
NO_FIELDS = "is no key of a service account"


@pytest.mark.parametrize(
    ("folder", "key", "value", "why"),
    [
        (AZURE, "account.key", "hidden value!", "is not in base64"),
        (AZURE, "account.key", "aGlkZGVu\n", "is not in base64"),
        (AZURE, "sas.token", "hidden", "has a part that is not name=value"),
        (AZURE, "sas.token", "sv=hidden", "has no signature"),
        (AZURE, "sas.token", "sv=1&sig=hidden%FF", "no UTF-8"),
        (AZURE, "sas.token", "https://account.example/c?sv=1&sig=hidden", "is a whole web address"),
        (GOOGLE, "service.account.key", "/run/hidden.json", "is the path of a file"),
        (GOOGLE, "service.account.key", "hidden", "is no JSON object"),
        (GOOGLE, "service.account.key", '{"hidden', NO_FIELDS),
        (GOOGLE, "service.account.key", '{"client_email": "hidden"}', NO_FIELDS),
        (GOOGLE, "service.account.key", account(type="hidden"), NO_FIELDS),
        (GOOGLE, "service.account.key", account(private_key="hidden"), "a private_key that is not in PEM"),
    ],
)
def test_a_secret_that_can_not_be_one_is_named_without_its_value(
    folder: str, key: str, value: str, why: str
) -> None:
    with pytest.raises(ClientSettingsError, match=why) as refused:
        ClientSecrets({"GIVEN": value}).resolve_store(folder, {key: {"env": "GIVEN"}})
    assert refused.value.key == key
    assert "hidden" not in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize(
    ("folder", "key", "value"),
    [
        (AZURE, "account.key", "aGlkZGVu"),
        (AZURE, "sas.token", "?sv=2024-11-04&sr=c&sp=rwdl&sig=a%2Fb%3D"),
        (GOOGLE, "service.account.key", account()),
        (GOOGLE, "service.account.key", account(private_key="", disable_oauth=True)),
    ],
)
def test_a_secret_of_the_right_form_is_taken_as_it_is(folder: str, key: str, value: str) -> None:
    secrets = ClientSecrets({"GIVEN": value})
    assert secrets.resolve_store(folder, {key: {"env": "GIVEN"}}) == {key: value}


@pytest.mark.parametrize(
    ("folder", "client", "address"),
    [
        ("s3a://bucket", {}, "s3.us-east-1.amazonaws.com:443"),
        ("gs://bucket", {}, "storage.googleapis.com:443"),
        ("gs://bucket", {"endpoint": "http://127.0.0.1:4443"}, "127.0.0.1:4443"),
        (AZURE, {}, "account.blob.core.windows.net:443"),
        ("abfss://c-1@account.dfs.core.chinacloudapi.cn", {}, "account.blob.core.chinacloudapi.cn:443"),
    ],
)
def test_every_store_is_reached_at_an_address_that_is_allowed(
    folder: str, client: dict[str, Any], address: str
) -> None:
    ClientSecrets({"REPL_ALLOW_BOOTSTRAP": address}).check_store(folder, client)
    with pytest.raises(ClientSettingsError, match=f"{address} is not among the addresses"):
        ClientSecrets({"REPL_ALLOW_BOOTSTRAP": "elsewhere"}).check_store(folder, client)
