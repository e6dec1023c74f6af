"""The plan file: what goes in comes out, nothing secret is in it, and a touched or newer one is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from planner.diff import diff
from planner.model.desired import Declared, DesiredAcl
from planner.model.diagnostic import Failure, SourceLocation, warning
from planner.model.plan import Plan, digest_of, plain
from planner.model.step import LaunchJob, ReconfigureJob, StopJob
from planner.model.topology import Cluster, OnRemove, SecretRef, Setting
from planner.plan import make_plan, with_diagnostics
from planner.state import planfile
from tests.fakes.states import (
    acl,
    cluster,
    desired,
    flow,
    live,
    mirror,
    observed,
    owned,
    selecting,
    topology,
    wanted,
)

CLIENT: dict[str, Setting] = {
    "security.protocol": "SASL_SSL",
    "sasl.password": SecretRef("env", "DC1_PASSWORD"),
}


def plan() -> Plan:
    shop = topology(
        flow(),
        clusters=[
            Cluster("dc1", "dc1:9092", client=CLIENT, source=SourceLocation("a.yaml", 3, 3)),
            Cluster("dc2", "dc2:9092"),
        ],
    )
    want = desired(
        wanted("new", 12, 3, retention_ms="1"),
        wanted("grown", 12, 3),
        wanted("changed", retention_ms="2"),
        mirror("orders"),
        acls=(DesiredAcl(acl(), Declared()),),
        flows=(selecting(flow(), "orders"),),
    )
    doomed = owned(wanted("old"), on_remove=OnRemove.DELETE)
    seen = observed(
        cluster(
            live("grown", 6, 1),
            live("changed", retention_ms="1"),
            live("old"),
            owned=[doomed],
            acls=[acl("WRITE")],
        ),
        cluster(name="dc2"),
    )
    made = make_plan(want, seen, diff(want, seen, shop), shop, created_at="2026-01-01T00:00:00Z", targets=())
    address = made.steps[0].address
    jobs = (
        LaunchJob("launch", address, "dc2", "dc2", "{}"),
        ReconfigureJob("again", address, "dc2", "dc2", "{}", ("launch",)),
        StopJob("stop", address, "dc2", "dc2"),
    )
    return with_diagnostics(
        replace(made, steps=made.steps + jobs), [warning("w", source=SourceLocation("f", 1, 2), address="x")]
    )


def refused(path: Path) -> str:
    with pytest.raises(Failure) as failure:
        planfile.read(path)
    return str(failure.value)


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    path = tmp_path / "a plan.of any name"

    seal = planfile.write(plan(), path)

    assert planfile.load(path).plan == plan()
    assert seal == planfile.digest(plan())
    assert list(tmp_path.iterdir()) == [path]


def test_the_same_plan_is_the_same_file(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    planfile.write(plan(), one)
    planfile.write(plan(), other)

    assert one.read_bytes() == other.read_bytes()
    assert planfile.digest(plan()) != planfile.digest(replace(plan(), created_at="2026-01-02T00:00:00Z"))


def test_it_can_be_read_by_people(tmp_path: Path) -> None:
    planfile.write(plan(), tmp_path / "p")

    written = json.loads((tmp_path / "p").read_text())["plan"]

    assert written["steps"][0] == {
        "step": "create_topic",
        "id": "create:topic.dc1.new",
        "address": "topic.dc1.new",
        "cluster": "dc1",
        "topic": "new",
        "partitions": 12,
        "replication": 3,
        "config": {"retention.ms": "1"},
    }
    assert written["connections"]["dc1"]["client"]["sasl.password"] == {"kind": "env", "name": "DC1_PASSWORD"}


def test_a_secret_that_is_written_out_is_refused(tmp_path: Path) -> None:
    spoken = replace(plan(), connections={"dc1": Cluster("dc1", "x", client={"sasl.password": "canary"})})

    with pytest.raises(Failure, match=r"dc1: sasl\.password"):
        planfile.write(spoken, tmp_path / "p")

    assert not (tmp_path / "p").exists()
    assert "canary" not in repr(plain(spoken))


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


def test_a_touched_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p"
    planfile.write(plan(), path)
    path.write_text(path.read_text().replace('"partitions": 12', '"partitions": 13'))

    assert "its digest does not match" in refused(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"repl_plan": 1, "plan": {"topo', "is incomplete, or no plan file"),
        ("[]", "is no plan file"),
        ('{"a": 1}', "is no plan file"),
        ('{"repl_plan": "x"}', "newer repl"),
        ('{"repl_plan": 1, "plan": 3}', "digest does not match"),
    ],
)
def test_what_is_no_plan(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "p").write_text(content)

    assert why in refused(tmp_path / "p")


def test_a_sealed_plan_of_another_shape(tmp_path: Path) -> None:
    body = {**plain(plan()), "mode": "another"}
    sealed = {"repl_plan": 1, "digest": digest_of(body), "plan": body}
    (tmp_path / "p").write_text(json.dumps(sealed))

    assert "can't be read as a plan" in refused(tmp_path / "p")


def test_no_file_and_no_place(tmp_path: Path) -> None:
    assert "can't be read" in refused(tmp_path / "absent")
    with pytest.raises(Failure, match="can't be written"):
        planfile.write(plan(), tmp_path / "absent" / "p")


def test_what_has_no_plain_form() -> None:
    with pytest.raises(TypeError, match="object has no plain form"):
        plain(object())
    assert plain({"s": frozenset({"b", "a"})}) == {"s": ["a", "b"]}
