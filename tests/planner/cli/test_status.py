"""What `status`, `read` and `clients` say before they reach a cluster, and where none answers."""

import json
import re
from pathlib import Path

import pytest

from planner.render.status import FlowHistory
from runtime.audit.status.join import join
from tests.commands import repl
from tests.runtime.audit.given import NOW, asked, destination, ledger, look, progress, source
from tests.topologies import without_answer

pytestmark = pytest.mark.slow


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    return without_answer(tmp_path)


def test_status_where_no_cluster_answers(topology: Path):
    done = repl("status", str(topology), "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["format_version"]) == (1, 1)
    assert [one["answers"] for one in document["clusters"]] == [False, False]
    assert document["flows"][0]["state"] == "unknown"
    shown = repl("status", str(topology), "--over", "0s")
    assert shown.returncode == 1
    assert "Cluster dc1 does not answer" in shown.stdout
    assert not shown.stderr


def test_status_of_a_topology_without_flows(topology: Path):
    body = json.loads(topology.read_text())
    del body["flows"]
    topology.write_text(json.dumps({**body, "topics": [{"name": "orders", "cluster": "dc1"}]}))
    done = repl("status", str(topology))
    assert (done.returncode, done.stdout) == (
        0,
        "lonely declares no flow: there is nothing to replicate.\n",
    )


@pytest.mark.parametrize("command", ["read", "clients"])
def test_a_cluster_that_is_not_declared(topology: Path, command: str):
    done = repl(command, "dc3", "--path", str(topology))
    assert done.returncode == 1
    assert "there is no cluster dc3 in this topology — did you mean dc" in done.stderr
    assert "its clusters: dc1, dc2" in done.stderr


@pytest.mark.parametrize("words", ["read dc1", "clients dc1", "offsets one g --timeout 2s"])
def test_a_cluster_that_does_not_answer_is_one_sentence(topology: Path, words: str):
    done = repl(*words.split(), "--path", str(topology))
    assert done.returncode == 1
    assert done.stderr.startswith("error: dc")
    assert re.search("— is dc[12] up, and is its bootstrap right?", done.stderr)
    assert "Traceback" not in done.stderr


def test_a_place_that_can_not_be_read_is_an_error(topology: Path):
    done = repl("read", "dc1", "orders", "--from", "yesterday", "--path", str(topology))
    assert done.returncode == 1
    assert "none of earliest, latest, PARTITION:OFFSET" in done.stderr


def test_a_watch_remembers_the_last_rates_and_lags():
    history = FlowHistory()
    before = look(source(), destination(), ledger(progress(0)), NOW - 1_000)
    for position in range(10, 310, 10):
        now = look(source(end=500), destination(500), ledger(progress(position)))
        (flow,) = join(asked(), now, before).flows
        history.put(flow)
    assert len(history.rates) == 20
    assert (history.rates[-1], history.lags[-1]) == (300, 200)


def test_a_flow_that_is_not_there_names_those_that_are() -> None:
    for command in (("offsets", "nope", "g"), ("locate", "nope", "orders:0:1")):
        said = repl(*command, "--path", "plans/examples/active-active.yaml")
        assert said.returncode == 1
        assert "there is no flow nope in this topology — its flows: dc1-to-dc2, dc2-to-dc1" in said.stderr


def test_locate_names_flows_into_files_too(tmp_path: Path) -> None:
    topology = tmp_path / "repl.yaml"
    topology.write_text(
        "apiVersion: repl/v1\nname: shop\nclusters: {dc1: {bootstrap: '127.0.0.1:1'}}\n"
        "endpoints: {lake: {file: /data/lake, format: json}}\n"
        "flows: [{name: to-lake, from: dc1, to: lake, topics: {include: orders}}]\n"
    )
    said = repl("locate", "nope", "orders:0:1", "--path", str(topology))
    assert "there is no flow nope in this topology — its flows: to-lake" in said.stderr
