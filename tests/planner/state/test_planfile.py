"""The plan file: what goes in comes out, nothing secret is in it, and a touched or newer one is refused."""

import json
from pathlib import Path

import pytest

from planner.config import load
from planner.model.address import topic_address
from planner.model.diagnostic import Failure, SourceLocation, warning
from planner.model.plain import NotPlain, plain, value_of
from planner.model.plan import Mode, Plan, body_of, digest, release
from planner.model.topology import Cluster, FileEndpoint, Topology
from planner.plan.make import plan_from, with_diagnostics
from planner.plan.steps import step_of
from planner.plan.steps.topics import CreateTopic, Reassign
from planner.state import planfile
from runtime.contract.client.stores import Setting
from runtime.contract.spec.flow import AtOffsets
from runtime.contract.spec.rename import Match
from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.transform import FormatSpec, TransformSpec
from tests.fakes.replacing import replace
from tests.fakes.states import inputs, with_inputs
from tests.planner.plan.jobs import record_of
from tests.security.plans import X, honest, shop, state

ODD = {"start": AtOffsets({"orders": {0: 42}}), "rename": Match("(a)", "b-\\1")}
SHOP = replace(shop(), flows={name: replace(flow, **ODD) for name, flow in shop().flows.items()})


def plan(shop: Topology = SHOP, **more: object) -> Plan:
    made = plan_from(inputs(shop, state(), created_at="2026-01-01T00:00:00Z", **more))
    return with_diagnostics(made, [warning("w", source=SourceLocation("f", 1, 2), address="x")])


def refused(path: Path) -> str:
    with pytest.raises(Failure) as failure:
        planfile.load(path).plan()
    return str(failure.value)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"mode": Mode.DESTROY},
        {"mode": Mode.ROLLBACK, "applied": record_of(honest().steps)},
        {"adopt": ("dc1",)},
        {"targets": ("topic.dc1.new",)},
        {"folder": "/builds/7"},
    ],
)
def test_whatever_a_plan_is_made_for_it_is_made_again(tmp_path: Path, more: dict[str, object]) -> None:
    made, path = plan(**more), tmp_path / "a plan.of any name"  # type: ignore[arg-type]

    seal = planfile.write(made, path)

    assert planfile.load(path).plan() == made
    assert made.steps or "adopt" in more
    assert seal == digest(made)
    assert list(tmp_path.iterdir()) == [path]


def test_a_plan_that_can_not_be_written_leaves_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()  # a file can't take its place

    with pytest.raises(Failure, match="the plan can't be written"):
        planfile.write(plan(), tmp_path / "p")

    assert [path.name for path in tmp_path.iterdir()] == ["p"]


SPOKEN: dict[str, Setting] = {"sasl.password": "canary"}
REGISTRY = TransformSpec(
    value=FormatSpec("avro", registry=RegistrySpec(url="http://r:1", client={"sasl.password": "canary"}))
)


@pytest.mark.parametrize(
    ("shop", "named"),
    [
        (
            replace(SHOP, clusters={"dc1": Cluster("dc1", bootstrap="x", client=SPOKEN)}),
            r"dc1: sasl\.password",
        ),
        (
            replace(SHOP, endpoints={"lake": FileEndpoint("lake", folder="s3a://b", client=SPOKEN)}),
            "lake: sasl",
        ),
        (replace(SHOP, flows={"x": replace(X, transform=REGISTRY)}), "registry: sasl"),
    ],
)
def test_a_secret_that_is_written_out_is_refused(tmp_path: Path, shop: Topology, named: str) -> None:
    spoken = Plan(inputs(shop, state()))

    with pytest.raises(Failure, match=named):
        planfile.write(spoken, tmp_path / "p")

    assert not (tmp_path / "p").exists()
    assert "canary" not in repr(body_of(spoken.inputs))


@pytest.mark.parametrize(
    ("content", "known"),
    [
        (b'{"repl_plan": 1}', True),
        (b'\n { "repl_plan":2', True),
        (b"apiVersion: repl/v1", False),
        (b"{name: repl_plan}", False),
    ],
)
def test_known_by_its_content(tmp_path: Path, content: bytes, known: bool) -> None:
    (tmp_path / "x.yaml").write_bytes(content)

    assert planfile.is_plan_file(tmp_path / "x.yaml") is known
    assert not planfile.is_plan_file(tmp_path)
    assert not planfile.is_plan_file(tmp_path / "absent")


def test_a_newer_one_is_refused_politely(tmp_path: Path) -> None:
    (tmp_path / "p").write_text('{"repl_plan": 2, "digest": "", "plan": {}}')

    assert refused(tmp_path / "p").endswith(
        "was made by a newer repl (plan format 2, this one reads 1) — "
        "install that version, or make the plan again with this one"
    )


def test_one_of_another_release_is_refused_naming_both(tmp_path: Path) -> None:
    """It would make other steps of the same inputs than those that were approved."""
    planfile.write(with_inputs(plan(), release="0.0.1"), tmp_path / "p")

    told = refused(tmp_path / "p")

    assert f"was made by repl 0.0.1, and this is repl {release()}" in told
    assert "apply it with repl 0.0.1, or make the plan again" in told


def test_a_touched_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p"
    planfile.write(plan(), path)
    path.write_text(path.read_text().replace('"partitions": 12', '"partitions": 13'))

    assert "its digest does not match" in refused(path)


def test_no_file_and_no_place(tmp_path: Path) -> None:
    assert "can't be read" in refused(tmp_path / "absent")
    with pytest.raises(Failure, match="can't be written"):
        planfile.write(plan(), tmp_path / "absent" / "p")


def test_a_step_names_its_kind() -> None:
    address = topic_address("dc1", "a")
    create = CreateTopic("1", address, "dc1", "a", 1, None, {"k": "v"})
    moved = Reassign("2", address, "dc1", "a", ((1, 2),), ((1,),), needs=("1",))

    assert plain(create) == {
        "kind": "create_topic",
        "id": "1",
        "address": "topic.dc1.a",
        "cluster": "dc1",
        "topic": "a",
        "partitions": 1,
        "replication": None,
        "config": {"k": "v"},
    }
    assert [step_of(plain(step)) for step in (create, moved)] == [create, moved]
    with pytest.raises(NotPlain, match="Invalid value 'run'"):
        step_of({"kind": "run"})
    with pytest.raises(NotPlain, match=r"Expected `int \| null`, got `str` - at `\$\.partitions`"):
        step_of({**plain(create), "partitions": "1"})


EXAMPLES = [Path("planner/config/schema/example.yaml"), *sorted(Path("plans/examples").glob("*.yaml"))]


@pytest.mark.parametrize("file", EXAMPLES, ids=[one.stem for one in EXAMPLES])
def test_every_key_of_the_language_comes_back(file: Path) -> None:
    declared = load(file)
    tree = plain(declared)
    read = value_of(json.loads(json.dumps(tree)), Topology)

    assert read == declared
    assert plain(read) == tree  # else the plan file would be refused as one that nobody wrote


def test_a_word_that_is_the_default_may_be_written(tmp_path: Path) -> None:
    text = (
        "apiVersion: repl/v1\nname: shop\nclusters: {dc1: {bootstrap: 'a:1'}, dc2: {bootstrap: 'b:1'}}\n"
        "flows:\n  - {name: f, from: dc1, to: dc2, topics: {include: [orders]}%s}\n"
    )
    short, long = tmp_path / "short.yaml", tmp_path / "long.yaml"
    short.write_text(text % "")
    long.write_text(text % ", provenance: auto, state: active")

    trees = [plain(load(file).flows["f"]) for file in (short, long)]
    assert trees[0] | {"source": None} == trees[1] | {"source": None}
