"""plans/examples on real clusters, with real jobs: each is planned and applied, copies, and comes to rest."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from planner.cli.app import run
from planner.graph.expansion import expand
from planner.kafka import client
from planner.model.diagnostic import ExitCode
from planner.model.topology import Topology
from planner.workflows.observing import observe
from planner.workflows.topology import checked
from runtime.contract.spec.route import BROKER_TOPICS
from runtime.lab.lab import Lab
from tests.bdd.running import WITHIN_S, eventually
from tests.labs import spec
from tests.records import read, wait_for, write

Place = tuple[str, str]  # cluster, topic

pytestmark = [pytest.mark.spark, pytest.mark.long]

EXAMPLES = sorted(Path("plans/examples").glob("*.yaml"))
PORTS = {"127.0.0.1:19092": "dc1", "127.0.0.1:29092": "dc2", "127.0.0.1:39092": "dc3"}
PATIENCE_MS = 20_000


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three clusters for one example after the other; each leaves nothing to the next."""
    made = Lab(tmp_path_factory.mktemp("examples"))
    made.up([spec(name) for name in ("dc1", "dc2", "dc3")])
    yield made
    made.down(purge=True)


def of_the_lab(example: Path, lab: Lab, folder: Path) -> str:
    """On its clusters, and without metrics: two tests on one machine would want the same ports."""
    text = example.read_text()
    for address, name in PORTS.items():
        text = text.replace(address, lab.clusters[name].bootstrap)
    file = folder / example.name
    file.write_text(re.sub(r"metrics: \{port: \d+\}", "metrics: off", text))
    return str(file)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_copies_what_it_says_and_comes_to_rest(
    example: Path,
    three: Lab,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REPL_HOME", str(tmp_path))
    file = of_the_lab(example, three, tmp_path)
    topology = checked(Path(file), ()).topology
    assert run(["plan", "--detailed-exitcode", file]) == ExitCode.DIFFERENT, capsys.readouterr()
    try:
        assert run(["apply", "--auto-approve", file]) == ExitCode.DONE, capsys.readouterr()
        at = {one.name: {"bootstrap.servers": one.bootstrap} for one in topology.clusters.values()}
        expected = written(at, ways(topology))
        for (cluster, topic), values in sorted(expected.items()):
            client, wanted = at[cluster], sorted(values)
            eventually(partial(holds, client, topic, wanted), about=f"{wanted} in {topic} at {cluster}")
        for words, said in ((["plan", "--detailed-exitcode"], "No changes."), (["drift"], "")):
            wait_for(partial(rests, capsys, [*words, file], said), WITHIN_S, about=capsys.readouterr)
    finally:
        ended = run(["destroy", "--auto-approve", file])
        emptied(three)
    assert ended == ExitCode.DONE, capsys.readouterr()


def rests(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> bool:
    """A job that missed some heartbeats is a difference for that long."""
    capsys.readouterr()
    return run(words) == ExitCode.DONE and said in capsys.readouterr().out


def ways(topology: Topology) -> list[tuple[Place, Place]]:
    """From which topic to which: of the flows that copy now."""
    return [
        ((one.flow.source_cluster, here), (one.flow.destination_cluster, there))
        for one in expand(topology, client.run(observe(topology, PATIENCE_MS)), Path.cwd()).flows
        if one.flow.state == "active"
        for here, there in one.topics
    ]


def written(
    at: Mapping[str, Mapping[str, str]], ways: Sequence[tuple[Place, Place]]
) -> dict[Place, set[bytes]]:
    """Two records into every topic that users write to; what every topic holds in the end."""
    made = {there for _, there in ways}
    back = {(there, here) for here, there in ways}
    own = {here for here, there in ways if here not in made or (here, there) in back}
    found: dict[Place, set[bytes]] = {place: set() for way in ways for place in way}
    for cluster, topic in sorted(own):
        values = [f"{cluster}:{topic}:{number}".encode() for number in range(2)]
        write(at[cluster], topic, values, key=b"k")
        found[cluster, topic] |= set(values)
    while missing := [(here, there) for here, there in ways if not found[here] <= found[there]]:
        for here, there in missing:
            found[there] |= found[here]
    return found


def holds(client: Mapping[str, str], topic: str, values: list[bytes]) -> bool:
    """All of them, and what came twice would be there twice."""
    return sorted(record.value or b"" for record in read(client, topic)) == values


def emptied(lab: Lab) -> None:
    """Everything goes, also what the product keeps: the next example knows nothing of this one."""
    for cluster in lab.clusters.values():
        eventually(partial(is_empty, AdminClient(dict(cluster.client))))


def is_empty(admin: AdminClient) -> bool:
    """Else what is left is deleted; some of it may be gone, and not everybody has heard of it."""
    names = sorted(set(admin.list_topics(timeout=60).topics) - BROKER_TOPICS)
    for answer in admin.delete_topics(names).values() if names else ():
        with suppress(KafkaException):
            answer.result(60)
    return not names
