"""`repl init` as a person answers it on a terminal, on real clusters."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from planner.config import load
from tests.commands import repl
from tests.records import create_topic
from tests.terminal import shown, start

pytestmark = [pytest.mark.long, pytest.mark.integration]


def answered(answers: Sequence[tuple[str, str]], *arguments: str, cwd: Path) -> tuple[int, str]:
    """Runs a command on a terminal, and types each answer when its question is there."""
    process, terminal = start(*arguments, cwd=cwd)
    told, seen, waiting = "", 0, list(answers)
    for piece in shown(terminal):
        told += piece.decode()
        if waiting and (found := re.search(waiting[0][0], told[seen:])):
            seen += found.end()
            os.write(terminal, f"{waiting.pop(0)[1]}\n".encode())
    assert not waiting, f"not asked: {waiting}\n{told}"
    return process.wait(timeout=60), told


def test_clusters_become_a_topology_with_flows_that_can_be_planned(own_lab, tmp_path: Path) -> None:
    from tests.labs import spec

    lab = own_lab(spec("a"), spec("b"))
    for name in ("orders", "payments.card"):
        create_topic(lab.clusters["a"].client, name, 2)
    first, second = (lab.clusters[name].bootstrap for name in ("a", "b"))
    code, told = answered(
        [
            (r"Address of a cluster \(HOST:PORT\): ", first),
            (r"Its name \[dc1\]: ", "east"),
            ("settings to connect by, if it needs one: ", ""),
            ("Address of another cluster .*: ", first),  # the same again
            (r"Its name \[dc2\]: ", "west"),
            ("settings to connect by, if it needs one: ", ""),
            (r"this is east again[^$]*Address of another cluster .*: ", second),
            (r"Its name \[dc2\]: ", "west"),
            ("settings to connect by, if it needs one: ", ""),
            ("Address of another cluster .*: ", ""),
            (r"What is copied where.* \[east>west\]: ", "east>wets"),
            (r'there is no cluster wets — did you mean "west"\?[^$]*\[east>west\]: ', ""),
        ],
        *("init", "shop.yaml"),
        cwd=tmp_path,
    )
    assert code == 0, told
    assert "east: 1 broker, 2 topics: orders, payments.card" in told
    assert "Wrote shop.yaml and topology.schema.json. Next: repl validate shop.yaml" in told

    file = tmp_path / "shop.yaml"
    topology = load(file)
    assert topology.name == "shop"
    assert {name: one.id for name, one in topology.clusters.items()} == {
        "east": lab.clusters["a"].cluster_id,
        "west": lab.clusters["b"].cluster_id,
    }
    assert topology.flows["east-to-west"].topics.include == ("orders", "payments.card")
    assert repl("fmt", "--check", str(file)).returncode == 0
    planned = repl("plan", str(file), "--detailed-exitcode")
    assert planned.returncode == 2, planned.stderr
    assert "topic.west.orders will be created (mirrored by flow.east-to-west)" in planned.stdout


def test_an_empty_answer_and_no_input_write_the_starter(tmp_path: Path) -> None:
    code, told = answered([(r"Address of a cluster \(HOST:PORT\): ", "")], "init", cwd=tmp_path)
    assert code == 0, told
    starter = (tmp_path / "topology.yaml").read_text()
    code, told = answered([], "init", "other", "--no-input", cwd=tmp_path)
    assert code == 0, told
    assert (tmp_path / "other" / "topology.yaml").read_text() == starter
