"""A plan file that was made to harm whoever reads it: one clear error, soon, and nothing else."""

import gzip
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from planner.model.plan import body_of, canonical, digest_of
from planner.state import planfile
from tests.security.conftest import Command
from tests.security.plans import honest


def sealed(body: Any) -> bytes:
    return json.dumps({"repl_plan": 1, "digest": digest_of(canonical(body)), "plan": body}).encode()


def body() -> dict[str, Any]:
    return body_of(honest().inputs)


def edited(**changes: Any) -> bytes:
    return sealed({**body(), **changes})


def topology(**changes: Any) -> bytes:
    return edited(topology={**body()["topology"], **changes})


def flow(**changes: Any) -> bytes:
    return topology(flows={"x": {**body()["topology"]["flows"]["x"], **changes}})


def dc1(**changes: Any) -> bytes:
    clusters = body()["observed"]["clusters"]
    return edited(observed={"clusters": {**clusters, "dc1": {**clusters["dc1"], **changes}}})


DEEP = 100_000
HOSTILE: dict[str, bytes] = {
    "nested lists": b'{"repl_plan": 1, "plan": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "nested objects": b'{"repl_plan": 1, "plan": ' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    "nested less": edited(targets=[json.loads("[" * 200 + "]" * 200)]),
    "cut": sealed(body())[:-10],
    "compressed": gzip.compress(b'{"repl_plan": 1}'),
    "pickled": pickle.dumps({"repl_plan": 1}),
    "not text": b'{"repl_plan": 1, "digest": "\xff\xfe"}',
    "a version that is no number": b'{"repl_plan": {"a": 1}, "plan": {}}',
    "a huge number": b'{"repl_plan": 1' + b"0" * 100_000 + b"}",
    "a signature that is no text": json.dumps({**json.loads(sealed(body())), "signature": ["x"]}).encode(),
    "a key that stands twice": sealed(body()).replace(b'"mode":', b'"mode": "destroy", "mode":'),
    "a key that stands twice inside": sealed(body()).replace(
        b'"partitions":', b'"partitions": 1, "partitions":'
    ),
    "nothing in it": sealed({}),
    "another release": edited(release="99.0"),
    "a release that is no text": edited(release=7),
    "a key that is unknown": edited(steps=[]),
    "a mode that is none": edited(mode="sudo"),
    "a rollback of nothing": edited(mode="rollback"),
    "a restore of nothing": edited(mode="restore"),
    "an adoption of a list": edited(adopt={"dc1": True}),
    "a name that is an object": topology(name={"env": "HOME"}),
    "topics that are no list": topology(topics={"a": 1}),
    "a topic that is no object": topology(topics=["orders"]),
    "a topic without a cluster": topology(topics=[{"name": "a"}]),
    "partitions that are text": topology(topics=[{"name": "a", "cluster": "dc1", "partitions": "12"}]),
    "partitions that are true": topology(topics=[{"name": "a", "cluster": "dc1", "partitions": True}]),
    "a config value that is an object": topology(
        topics=[{"name": "a", "cluster": "dc1", "config": {"retention.ms": {"env": "HOME"}}}]
    ),
    "no clusters": topology(clusters={}),
    "a secret of another kind": topology(
        clusters={"dc1": {"name": "dc1", "bootstrap": "a:1", "client": {"a": {"kind": "run", "name": "x"}}}}
    ),
    "a flow of an unknown state": flow(state="running"),
    "a rename of an unknown kind": flow(rename={"kind": "script", "text": "x"}),
    "a rename whose kind is no text": flow(rename={"kind": ["template"], "text": "x"}),
    "a rename that can't be inverted": flow(rename={"kind": "match", "match": "(.*)", "to": "same"}),
    "a regex that is none": flow(topics={"include": ["("]}),
    "a cluster that is none": edited(observed={"clusters": {"dc1": {"kind": "run_command"}}}),
    "an address that is none": dc1(owned=[{"address": "nowhere", "topology": "shop"}]),
    "an address that is no text": dc1(owned=[{"address": {"kind": "topic"}, "topology": "shop"}]),
    "quotas that are no pairs": dc1(quotas={"user": 1}),
    "a quota of three": dc1(quotas=[[{"user": "a"}, {}, {}]]),
    "a job spec of another shape": dc1(
        jobs=[{**body()["observed"]["clusters"]["dc2"]["jobs"][0], "spec": 7}]
    ),
}


@pytest.mark.parametrize(("verb", "name"), [*(("show", name) for name in HOSTILE), ("apply", "cut")])
def test_one_clear_error(verb: str, name: str, tmp_path: Path, command: Command) -> None:
    file = tmp_path / "plan"
    file.write_bytes(HOSTILE[name])
    ended = command(verb, file)
    assert (ended.code, ended.out, ended.err.count("error: ")) == (1, "", 1)
    assert str(file) in ended.err
    assert len(ended.err) < 2_000


def test_it_is_read_no_further_than_a_plan_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setattr(planfile, "LARGEST", 1 << 20)
    file = tmp_path / "plan"
    with file.open("wb") as opened:
        opened.write(b'{"repl_plan": 1')
        opened.truncate(1 << 40)  # a terabyte that takes no room
    assert "it is larger than 1 MiB" in command("show", file).err


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("/dev/zero", "can't be read"),
        ("/dev/null", "can't be read"),
        ("/", "can't be read"),
        ("a pipe that is never written to", "not a regular file"),
    ],
)
def test_what_is_no_file(name: str, why: str, tmp_path: Path, command: Command) -> None:
    file = tmp_path / name
    if not file.exists():
        os.mkfifo(file)
    ended = command("show", file)
    assert (ended.code, why in ended.err) == (1, True)


def test_a_file_that_was_not_approved_is_not_planned_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    """Its digest is compared before anything is made of what it holds."""
    file = tmp_path / "plan"
    file.write_bytes(topology(name="other"))
    monkeypatch.setattr(planfile, "plan_from", lambda _: pytest.fail("a plan was made of it"))
    ended = command("apply", file, "--expect", digest_of(canonical(body())))
    assert (ended.code, "is not the plan that was approved" in ended.err) == (3, True)
