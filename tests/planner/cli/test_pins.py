"""A question to another cluster than the pinned one is refused: its answer would be somebody else's."""

import pytest

from tests.commands import repl
from tests.topologies import Topology, at

pytestmark = pytest.mark.integration


@pytest.fixture
def topology(lab, fresh, tmp_path) -> Topology:
    made = at(lab, fresh("shop"), tmp_path, ("dc1", "dc2"))
    there = {"name": "there", "from": "dc1", "to": "dc2", "topics": {"include": ["orders"]}}
    made.more = {"flows": [there]}
    return made


@pytest.mark.parametrize(
    "question",
    [
        ("offsets", "there", "billing", "--path"),
        ("locate", "there", "orders:0:1", "--path"),
        ("read", "dc2", "--path"),
        ("clients", "dc2", "--path"),
        ("history",),
    ],
    ids=lambda question: question[0],
)
def test_only_the_pinned_cluster_is_asked(topology, question):
    topology.clusters["dc2"]["id"] = "somebody-elses-cluster"

    done = repl(*question, str(topology.write()))

    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert "somebody-elses-cluster" in done.stderr
    assert "correct the bootstrap of dc2, or its id" in done.stderr
