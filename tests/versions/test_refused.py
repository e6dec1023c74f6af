"""What the versions cannot do ends the plan, and apply, within seconds."""

import time
from pathlib import Path

import pytest

from tests.commands import repl
from tests.conftest import MakeLab
from tests.labs import spec
from tests.records import create_topic
from tests.topologies import at

pytestmark = [pytest.mark.integration, pytest.mark.versions, pytest.mark.long]


def test_a_destination_before_2_5_is_refused_with_the_api_and_the_consequence(
    own_lab: MakeLab, tmp_path: Path
) -> None:
    lab = own_lab(spec("dc1"), spec("dc2", version="2.4.1"))
    create_topic(lab.clusters["dc1"].client, "orders")
    topology = at(lab, "refused", tmp_path, ("dc1", "dc2"))
    flow = {"name": "there", "from": "dc1", "to": "dc2", "topics": {"include": ["orders"]}}
    topology.more["flows"] = [flow]
    began = time.monotonic()
    done = repl("apply", str(topology.write()), "--auto-approve", env={"REPL_HOME": str(tmp_path / "home")})
    assert time.monotonic() - began < 30
    assert done.returncode == 1, done.stdout
    said = done.stdout + done.stderr
    assert "of dc2 lacks copy to, exactly once (Kafka 2.5): no flow can write to it in transactions" in said
    assert "InitProducerId is offered in versions 0 to 2, needed is 3 or higher" in said
    assert "upgrade dc2 to Kafka 2.5 or newer" in said
    # The other way is possible, and the notes say what such a source does not tell.
    topology.more["flows"] = [flow | {"from": "dc2", "to": "dc1"}]
    done = repl("plan", str(topology.write()), "--json", env={"REPL_HOME": str(tmp_path / "home")})
    assert done.returncode == 0, done.stderr
    assert "a recreated topic is recognised by its leader epoch and its end alone" in done.stdout
