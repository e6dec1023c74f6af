"""What `status`, `read` and `clients` say before they reach a cluster, and where none answers."""

import json
from pathlib import Path

import pytest

from planner.cli.app import run
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


INTO_FILES = {
    "endpoints": {"lake": {"file": "/data/lake", "format": "json"}},
    "flows": [{"name": "to-lake", "from": "dc1", "to": "lake", "topics": {"include": ["orders"]}}],
}
NO_CLUSTER = "there is no cluster dc3 in this topology — did you mean dc"
NO_ANSWER = "is its bootstrap right?"


@pytest.mark.parametrize(
    ("words", "more", "why"),
    [
        ("read dc3", {}, NO_CLUSTER),
        ("clients dc3", {}, NO_CLUSTER),
        ("read dc1 orders --from yesterday", {}, "none of earliest, latest, PARTITION:OFFSET"),
        ("offsets nope g", {}, "there is no flow nope in this topology — its flows: one"),
        ("locate nope orders:0:1", INTO_FILES, "there is no flow nope in this topology — its flows: to-lake"),
        ("read dc1", {}, NO_ANSWER),
        ("clients dc1", {}, NO_ANSWER),
        ("offsets one g --timeout 2s", {}, NO_ANSWER),
    ],
)
def test_a_question_that_has_no_answer_says_why(words, more, why, tmp_path, capsys) -> None:
    assert run([*words.split(), "--path", str(without_answer(tmp_path, **more))]) == 1
    said = capsys.readouterr().err
    assert why in said
    assert "Traceback" not in said


def test_a_watch_remembers_the_last_rates_and_lags():
    history = FlowHistory()
    before = look(source(), destination(), ledger(progress(0)), NOW - 1_000)
    for position in range(10, 310, 10):
        now = look(source(end=500), destination(500), ledger(progress(position)))
        (flow,) = join(asked(), now, before).flows
        history.put(flow)
    assert len(history.rates) == 20
    assert (history.rates[-1], history.lags[-1]) == (300, 200)
