"""A plan file that was made to harm whoever reads it: one clear error, soon, and nothing else."""

import gzip
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from planner.cli.app import run
from planner.model.plan import body_of, digest_of
from planner.state import planfile
from tests.security.plans import honest


def sealed(body: Any) -> bytes:
    return json.dumps({"repl_plan": 1, "digest": digest_of(body), "plan": body}).encode()


def edited(**changes: Any) -> bytes:
    return sealed({**body_of(honest()), **changes})


def step(**changes: Any) -> bytes:
    return edited(steps=[{**body_of(honest())["steps"][0], **changes}])


DEEP = 100_000
HOSTILE: dict[str, bytes] = {
    "nested lists": b'{"repl_plan": 1, "plan": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "nested objects": b'{"repl_plan": 1, "plan": ' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    "nested less": edited(changes=[json.loads("[" * 200 + "]" * 200)]),
    "nested in a value": edited(
        changes=[{**body_of(honest())["changes"][0], "before": {"a": json.loads("[" * 300 + "]" * 300)}}]
    ),
    "cut": sealed(body_of(honest()))[:-10],
    "compressed": gzip.compress(b'{"repl_plan": 1}'),
    "pickled": pickle.dumps({"repl_plan": 1}),
    "not text": b'{"repl_plan": 1, "digest": "\xff\xfe"}',
    "a version that is no number": b'{"repl_plan": {"a": 1}, "plan": {}}',
    "a huge number": b'{"repl_plan": 1' + b"0" * 100_000 + b"}",
    "a signature that is no text": json.dumps(
        {**json.loads(sealed(body_of(honest()))), "signature": ["x"]}
    ).encode(),
    "nothing in it": sealed({}),
    "steps that are no list": edited(steps={"a": 1}),
    "a step that is no object": edited(steps=["create"]),
    "an unknown step": step(step="run_command"),
    "a step whose kind is no text": step(step=["create_topic"]),
    "an address that is none": step(address="nowhere"),
    "an address that is no text": step(address={"kind": "topic"}),
    "partitions that are text": step(partitions="12"),
    "a config value that is an object": step(config={"retention.ms": {"env": "HOME"}}),
    "a change that is no object": edited(changes=[7]),
    "an unknown action": edited(changes=[{**body_of(honest())["changes"][0], "action": "run"}]),
    "clusters that are no ids": edited(clusters={"dc1": 7}),
    "a name that is an object": edited(topology={"env": "HOME"}),
    "a connection without an address": edited(connections={"dc1": {"name": "dc1"}}),
    "a mode that is none": edited(mode="sudo"),
    "policies of another shape": edited(policies={"max_deletes": "all"}),
    "a fingerprint that is none": edited(fingerprints=[{"address": "topic.dc1.new"}]),
}


@pytest.mark.parametrize("command", ["show", "apply"])
@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_one_clear_error(
    command: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan"
    file.write_bytes(content)

    code = run([command, str(file)])

    told = capsys.readouterr()
    assert (code, told.out) == (1, "")
    assert told.err.count("error: ") == 1
    assert str(file) in told.err
    assert len(told.err) < 2_000


def test_it_is_read_no_further_than_a_plan_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(planfile, "LARGEST", 1 << 20)
    file = tmp_path / "plan"
    with file.open("wb") as opened:
        opened.write(b'{"repl_plan": 1')
        opened.truncate(1 << 40)  # a terabyte that takes no room

    assert run(["show", str(file)]) == 1
    assert "it is larger than 1 MiB" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null", "/"])
def test_what_is_no_file(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", name]) == 1
    assert "can't be read" in capsys.readouterr().err


def test_a_pipe_that_is_never_written_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert run(["show", str(tmp_path / "pipe")]) == 1
    assert "not a regular file" in capsys.readouterr().err
