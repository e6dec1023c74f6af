"""The job spec comes back as it was written, and says where it goes wrong."""

import msgspec
import pytest

from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import (
    AtOffsets,
    AtTimestamp,
    BadJobSpec,
    ClusterSpec,
    Earliest,
    FlowSpec,
    JobSpec,
    Latest,
    SelectionSpec,
    Start,
)
from runtime.contract.spec.rename import Match, Rename, Table, Template
from runtime.contract.spec.transform import TransformSpec


def spec(**changes: object) -> JobSpec:
    flow = FlowSpec(
        name="dc1-to-dc2",
        source="dc1",
        destination="dc2",
        topics=SelectionSpec(include=["orders"]),
        rpo_ms=5_000,
    )
    fields: dict[str, object] = {
        "job": "dc2",
        "topology": "active-active",
        "destination": "dc2",
        "clusters": {
            "dc1": ClusterSpec(bootstrap="a:1", client={"sasl.password": {"env": "DC1_PASSWORD"}}),
            "dc2": ClusterSpec(bootstrap="b:1", id="pinned"),
        },
        "flows": [flow],
    }
    return JobSpec(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "start",
    [
        Earliest(),
        Latest(),
        AtTimestamp(timestamp_ms=1_700_000_000_000),
        AtOffsets(offsets={"orders": {"0": 42}}),
    ],
)
def test_a_spec_comes_back_as_it_was_written(start: Start) -> None:
    written = spec()
    flow = FlowSpec(
        name="f", source="dc1", destination="dc2", topics=SelectionSpec(include=[".*"]), start=start
    )
    written = spec(flows=[*written.flows, flow])
    assert jobspec.decode(jobspec.encode(written)) == written


@pytest.mark.parametrize(
    "rule", [Template("{source}.{topic}"), Match("a-(.*)", "b-\\1"), Table((("orders", "orders.copy"),))]
)
def test_rename_rules_travel(rule: Rename) -> None:
    assert jobspec.rename(jobspec.rename_rule(rule)) == rule


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"{", "not a job spec"),
        (b'{"job": 1}', "job"),
        (jobspec.encode(spec()).replace(b'"job"', b'"jobb"', 1), "jobb"),
        (jobspec.encode(spec(version=2)), "version 2"),
        (jobspec.encode(spec(clusters={})), "cluster dc1 is not in clusters"),
        (jobspec.encode(spec(clusters={}, flows=[])), "destination dc2 is not in clusters"),
        (jobspec.encode(spec(destination="dc1")), "goes to dc2"),
    ],
)
def test_a_bad_spec_says_where_it_goes_wrong(text: bytes, why: str) -> None:
    with pytest.raises(BadJobSpec, match=why):
        jobspec.decode(text)


def test_a_transform_of_an_older_release_skips_filtered_records() -> None:
    """And the default is not written, so that an older release reads the spec."""
    older = spec()
    flow = msgspec.structs.replace(older.flows[0], transform=TransformSpec(where="true"))
    text = jobspec.encode(msgspec.structs.replace(older, flows=[flow]))
    assert b"on_filtered" not in text
    (read,) = jobspec.decode(text).flows
    assert read.transform is not None
    assert read.transform.on_filtered == "skip"


def test_a_flow_is_found_by_name() -> None:
    assert spec().flow("dc1-to-dc2").rpo_ms == 5_000
