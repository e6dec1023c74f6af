"""Schema registries: no topology, plan file or record has a job send credentials to another registry."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Literal

import pytest
from msgspec.structs import replace

from planner.config import load
from planner.graph.jobs import standby_spec
from planner.model.diagnostic import ExitCode
from runtime.contract.client.stores import Setting
from runtime.contract.records.manifest import StoredSchemas, decode_schemas, encode
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.schemas import RegistrySpec, SchemaSync
from runtime.contract.spec.selection import SelectionSpec
from runtime.contract.spec.transform import FormatSpec, TransformSpec
from runtime.schemas.client import RegistryUnavailable, SchemaRegistry
from runtime.schemas.copier import SchemaCopier, SchemaNotCopied
from tests.fakes.registry import registry_server
from tests.security.conftest import Command

PASSWORD: dict[str, Setting] = {"sasl.username": "repl", "sasl.password": {"env": "REGISTRY_PASSWORD"}}
OURS = RegistrySpec(url="https://registry.example.org", client=PASSWORD)
ELSEWHERE = RegistrySpec(url="https://evil.net", client=PASSWORD)
OTHER_SECRET = RegistrySpec(
    url="https://registry.example.org", client={"sasl.password": {"env": "AWS_SECRET_ACCESS_KEY"}}
)
SHOP = """
apiVersion: repl/v1
name: shop
clusters: {dc1: {bootstrap: "127.0.0.1:1"}, dc2: {bootstrap: "127.0.0.1:1"}}
flows:
  - name: there
    from: dc1
    to: dc2
    topics: {include: [orders]}
    transform:
      value:
        format: avro
        schema: '"string"'
        registry: {url: "%s", client: {sasl.username: repl, sasl.password: {env: %s}}}
      where: topic = 'orders'
jobs: {dc2: {standby: 1}}
"""


@pytest.fixture(autouse=True)
def operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPL_ALLOW_BOOTSTRAP", "127.0.0.1,registry.example.org:443")
    monkeypatch.setenv("REPL_ALLOW_ENV", "REGISTRY_*")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
    monkeypatch.setenv("REGISTRY_PASSWORD", "a password")


def job(registry: RegistrySpec) -> JobSpec:
    """A job with a transform that decodes keys by the schemas of a registry."""
    form = FormatSpec(format="avro", schema='"string"', registry=registry)
    flow = FlowSpec(
        name="there",
        source="dc1",
        destination="dc2",
        topics=SelectionSpec(include=("orders",)),
        transform=TransformSpec(key=form, where="true"),
    )
    clusters = {name: ClusterSpec(bootstrap="127.0.0.1:1") for name in ("dc1", "dc2")}
    return JobSpec(job="dc2", topology="shop", destination="dc2", clusters=clusters, flows=[flow])


@pytest.mark.parametrize(
    ("url", "variable", "why"),
    [
        ("https://evil.net", "REGISTRY_PASSWORD", "evil.net:443 is not among the addresses"),
        ("https://registry.example.org:8081", "REGISTRY_PASSWORD", "example.org:8081 is not among"),
        ("https://registry.example.org", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY is not among"),
    ],
)
@pytest.mark.parametrize("line", ["plan {}", "apply {}", "try there --sample {}.jsonl --path {}"])
def test_a_transform_asks_no_registry_that_this_machine_does_not_allow(
    line: str, url: str, variable: str, why: str, tmp_path: Path, command: Command
) -> None:
    """A trial gives Spark the variables of the topology alone, so what is allowed is checked before."""
    file = tmp_path / "t.yaml"
    file.write_text(SHOP % (url, variable))
    Path(f"{file}.jsonl").write_text('{"topic": "orders", "value": "x"}\n')
    ended = command(*line.format(file, file).split())
    assert ended.code == ExitCode.ERROR
    assert why in ended.err


@pytest.mark.parametrize("registry", [ELSEWHERE, OTHER_SECRET])
def test_a_record_sends_no_standby_to_another_registry(registry: RegistrySpec, tmp_path: Path) -> None:
    """The spec that a job runs by is a record of __repl.status."""
    file = tmp_path / "t.yaml"
    file.write_text(SHOP % (OURS.url, "REGISTRY_PASSWORD"))
    running = job(registry)
    with pytest.raises(KeyError, match=r"the registry of flow\.there"):  # this topology has one of the value
        standby_spec(running, load(file), PurePath("/here"))

    (flow,) = running.flows
    assert flow.transform is not None
    values = replace(flow.transform, value=flow.transform.key, key=FormatSpec())
    running = replace(running, flows=[replace(flow, transform=values)])
    (found,) = standby_spec(running, load(file), PurePath("/here")).flows
    assert found.transform == replace(values, value=replace(values.value, registry=OURS))


@pytest.mark.parametrize("subject", ["", ".", "..", ":.:", ":.other:", "::", "__GLOBAL"])
@pytest.mark.parametrize("ids", ["keep", "translate"])
async def test_no_schema_of_a_source_has_settings_of_all_subjects_changed(
    subject: str, ids: Literal["keep", "translate"]
) -> None:
    """A copied schema refers to the subject: it would be put into mode IMPORT, to get its version."""
    with registry_server() as source, registry_server() as destination:
        source.add(2, "string", subject, 1)
        referred = {"name": "x", "subject": subject, "version": 1}
        source.add(1, {"type": "array", "items": "x"}, "orders-value", 1, references=[referred])
        here, there = (SchemaRegistry(RegistrySpec(url=server.url), {}) for server in (source, destination))
        copier = SchemaCopier(here, there, SchemaSync(sync=True, ids=ids))
        with pytest.raises(SchemaNotCopied) as refused:
            await copier.ensure(1, "orders", "orders")
        here.close()
        there.close()
    assert str(refused.value).isprintable()
    assert destination.modes == {None: "READWRITE"}
    assert destination.levels == {None: "BACKWARD"}
    assert all(path.startswith("/schemas/ids/") for path in destination.asked)


async def test_names_that_are_no_subjects_are_not_listed() -> None:
    with registry_server() as server:
        for subject in ("", ".", "..", ":.:", "orders-value", ":.other:orders-value"):
            server.add(1, "string", subject, 1)
        client = SchemaRegistry(RegistrySpec(url=server.url), {})
        assert await client.subjects() == [":.other:orders-value", "orders-value"]
        client.close()


@pytest.mark.parametrize("part", ["metadata", "ruleSet"])
@pytest.mark.parametrize(("number", "is_read"), [((1 << 63) - 1, True), (1 << 63, False), (-(10**40), False)])
async def test_whatever_is_read_of_a_registry_can_be_read_from_a_backup(
    part: str, number: int, is_read: bool
) -> None:
    with registry_server() as server:
        server.schemas[1] = {"schema": '"string"', part: {"limits": [number]}}
        client = SchemaRegistry(RegistrySpec(url=server.url), {})
        if is_read:
            stored = StoredSchemas(flow="f", number=1, versions=[(await client.schema(1)).at("s", 1, 1)])
            assert decode_schemas(encode(stored)) == stored
        else:
            with pytest.raises(RegistryUnavailable, match="the answer is not that of a registry"):
                await client.schema(1)
        client.close()


@pytest.mark.parametrize("part", ["metadata", "ruleSet"])
@pytest.mark.parametrize(("levels", "is_read"), [(60, True), (70, False), (600, False)])
async def test_metadata_that_are_nested_without_end_are_no_answer(
    part: str, levels: int, is_read: bool
) -> None:
    """Some can just be decoded, and not be compared at a deeper place of the stack."""
    deep: dict[str, object] = {}
    for _ in range(levels - 1):
        deep = {"more": deep}
    with registry_server() as server:
        server.schemas[1] = {"schema": '"string"', part: deep}
        client = SchemaRegistry(RegistrySpec(url=server.url), {})
        if is_read:
            assert (await client.schema(1)).fingerprint()
        else:
            with pytest.raises(RegistryUnavailable, match="the answer is not that of a registry"):
                await client.schema(1)
        client.close()
