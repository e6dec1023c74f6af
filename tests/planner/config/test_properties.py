"""What holds for every text and every topology."""

import dataclasses
import random
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from planner.config import load
from planner.config.schema import starter
from planner.model.diagnostic import Failure
from planner.model.topology import Topology
from runtime.contract.spec.shapes import Key, ListShape, MapShape, OffOrShape, RecordShape, Shape, record_of

TOPOLOGY = record_of(Topology)
EVERYTHING = Path("planner/config/schema/example.yaml").read_text(encoding="utf-8")
PIECES = ["", "\t", "{{ x", "}}", "&a ", "*a", "'", '"', "\n", ": ", "- ", "[", "<<: ", "~"]


def outcome(*contents: bytes) -> Topology | Failure:
    """What loading gives; any other exception is the test's failure."""
    with tempfile.TemporaryDirectory() as folder:
        for number, content in enumerate(contents):
            (Path(folder) / f"{number}.yaml").write_bytes(content)
        try:
            return load(Path(folder))
        except Failure as failure:
            return failure


def refused(found: Topology | Failure) -> None:
    assert isinstance(found, Failure)
    assert found.diagnostics
    assert all(one.summary and one.hint for one in found.diagnostics)


@given(st.text() | st.text(alphabet="ab:-[]{}&*!|>'\"#%@`,?\t\n <{%}1~.\\"))
def test_any_text_is_a_topology_or_a_failure(text: str) -> None:
    refused(outcome(text.encode("utf-8", "surrogatepass")))


@given(st.binary())
def test_any_bytes_are_a_topology_or_a_failure(content: bytes) -> None:
    refused(outcome(content))


@given(st.data())
def test_any_damage_to_a_topology_is_a_failure_or_harmless(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([EVERYTHING, starter()]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        until = data.draw(st.integers(at, min(len(text), at + 20)))
        put = data.draw(st.sampled_from(PIECES))
        text = text[:at] + put + text[until:]
    outcome(text.encode())


WORDS = sorted(set(TOPOLOGY.by_name) | {"{{ x }}", "off", "dc1", "dc2", "7d", "a(", "{topic}", "yes"})


def keys_of(shape: Shape) -> list[Key]:
    match shape:
        case RecordShape():
            return list(shape.keys)
        case ListShape():
            return keys_of(shape.item)
        case MapShape():
            return keys_of(shape.value)
        case OffOrShape():
            return keys_of(shape.shape)
        case _:
            return []


def any_value(shape: Shape | None, depth: int = 4) -> st.SearchStrategy[Any]:
    """Values that are sometimes of the right shape, so that reading gets deep."""
    plain = (
        st.sampled_from(WORDS) | st.integers(-5, 5) | st.booleans() | st.none() | st.floats(allow_nan=False)
    )
    if depth == 0 or shape is None:
        return plain
    keys = {key.name: key for key in keys_of(shape)}
    if not keys:
        return (
            plain | st.lists(plain, max_size=2) | st.dictionaries(st.sampled_from(WORDS), plain, max_size=2)
        )
    maps = st.fixed_dictionaries(
        {}, optional={name: any_value(key.shape, depth - 1) for name, key in keys.items()}
    )
    return maps | st.lists(maps, max_size=2) | st.dictionaries(st.sampled_from(["dc1", "dc2"]), maps) | plain


@given(any_value(TOPOLOGY))
def test_any_yaml_is_a_topology_or_a_failure(value: object) -> None:
    base = {"apiVersion": "repl/v1", "name": "a", "clusters": {"dc1": {"bootstrap": "a:1"}}}
    document = {**base, **value} if isinstance(value, dict) else value
    outcome(yaml.safe_dump(document).encode())


names = st.text(alphabet="abcxyz-", min_size=1, max_size=8).filter(lambda name: name[0].isalpha())
configs = st.dictionaries(
    st.sampled_from(["retention.ms", "segment.ms"]), st.sampled_from(["7d", 1000, "{{ kept }}"]), max_size=2
)


@st.composite
def topologies(draw: st.DrawFn) -> dict[str, Any]:
    topics = draw(st.lists(names, unique=True, max_size=5))
    flows = draw(st.lists(names, unique=True, min_size=1, max_size=4))
    return {
        "apiVersion": "repl/v1",
        "name": draw(names),
        "vars": {"kept": "3d"},
        "clusters": {
            "dc1": {"bootstrap": "a:1"},
            "dc2": {"bootstrap": "b:1", "client": {"client.rack": "y", "client.id": {"env": "Z"}}},
        },
        "defaults": {
            "topic": {"config": draw(configs), "partitions": 3},
            "flow": {"groups": {"every": "9s"}},
        },
        "topics": [
            {"name": name, "cluster": draw(st.sampled_from(["dc1", ["dc1", "dc2"]])), "config": draw(configs)}
            for name in topics
        ],
        "flows": [
            {
                "name": name,
                "from": "dc1",
                "to": "dc2",
                "topics": {"include": name},
                "rpo": "5s",
                "acls": {"sync": True},
            }
            for name in flows
        ],
        "jobs": {"dc2": {"slots": 3, "memory": "1g"}},
        "policies": {"require": {"partitions": ">=1", "replication": ">=1"}},
    }


def shuffled(value: Any, order: random.Random) -> Any:
    """The same content with keys, and entries of lists of maps, in another order."""
    if isinstance(value, dict):
        pairs = [(key, shuffled(one, order)) for key, one in value.items()]
        order.shuffle(pairs)
        return dict(pairs)
    if isinstance(value, list) and value and isinstance(value[0], dict):
        entries = [shuffled(one, order) for one in value]
        order.shuffle(entries)
        return entries
    return value


def placeless(value: Any) -> Any:
    """A topology without its places."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = ((one.name, getattr(value, one.name)) for one in dataclasses.fields(value))
        return {name: placeless(one) for name, one in named if name != "source"}
    if isinstance(value, Struct):
        return {name: placeless(getattr(value, name)) for name in value.__struct_fields__ if name != "source"}
    if isinstance(value, dict):
        return {key: placeless(one) for key, one in value.items()}
    return [placeless(one) for one in value] if isinstance(value, tuple) else value


@given(topologies(), st.randoms(use_true_random=False), st.integers(1, 3))
def test_the_order_of_keys_and_the_split_into_files_never_matter(
    content: dict[str, Any], order: random.Random, parts: int
) -> None:
    one = outcome(yaml.safe_dump(content).encode())
    pairs = list(shuffled(content, order).items())
    files = [yaml.safe_dump(dict(pairs[part::parts]), sort_keys=False).encode() for part in range(parts)]
    other = outcome(*files)
    assert isinstance(one, Topology)
    assert isinstance(other, Topology)
    assert other.digest == one.digest
    assert placeless(other) == placeless(one)
