"""plans/examples: each comes to rest, and the commands in its comments do what the comments say."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from planner.cli.app import root
from planner.config.edit import with_states
from planner.model.address import Kind
from planner.model.change import Action
from planner.model.observed import Observed
from planner.model.plan import Plan
from planner.observe.imported import import_topology
from planner.plan.make import plan_from
from planner.plan.steps.registry import Disown, Own
from planner.render.topology import topology_yaml
from planner.workflows.requests import TopologyRequest
from planner.workflows.topology import load_and_lint
from tests.fakes.simulated import simulate
from tests.fakes.states import inputs
from tests.planner.graph.build import cluster, live, observed, rule
from tests.planner.plan.jobs import there

EXAMPLES = sorted(Path("plans/examples").glob("*.yaml"))
MIGRATION = Path("plans/examples/migration.yaml")
SAID = re.compile(r"\brepl ([a-z].*?)(?=\s{2,}|`|,\s|,$|\s&&|$)")


def said(example: Path) -> list[str]:
    lines = [line for line in example.read_text().splitlines() if line.startswith("#")]
    return [command for line in lines for command in SAID.findall(line)]


SAYINGS = [pytest.param(one, words, id=f"{one.stem}: {words}") for one in EXAMPLES for words in said(one)]


def parsed(words: str) -> Iterator[click.Context]:
    """The command and those above it, as click understands them."""
    command: click.Command = root
    name, rest, context = "repl", shlex.split(words), None
    while True:
        context = command.make_context(name, [*rest], parent=context)
        yield context
        if not isinstance(command, click.Group):
            return
        found, inner, rest = command.resolve_command(context, rest)
        assert inner is not None
        name, command = str(found), inner


@pytest.mark.parametrize(("example", "words"), SAYINGS)
def test_a_command_is_understood_and_says_which_topology_it_means(example: Path, words: str) -> None:
    *_, context = parsed(words)
    if "path_option" in context.params:
        values = [one if isinstance(one, tuple) else (one,) for one in context.params.values()]
        assert {str(word) for words in values for word in words} & {str(example), "new.yaml"}


def planned(file: Path, seen: Observed) -> Plan:
    topology = load_and_lint(TopologyRequest(file)).topology
    plan = plan_from(inputs(topology, seen))
    assert not plan.errored, plan.diagnostics
    return plan


def applied(file: Path, seen: Observed) -> Observed:
    return simulate(planned(file, seen).steps, seen)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_comes_to_rest(example: Path) -> None:
    """A topic that one apply makes at a cluster is copied onward by the next."""
    clusters = load_and_lint(TopologyRequest(example)).topology.clusters
    seen = observed(*(cluster(name, acls=[]) for name in clusters))
    for _ in clusters:
        seen = applied(example, seen)
    assert {one.name for name in clusters for one in there(seen, name).jobs if one.live}
    assert planned(example, seen).steps == ()


def test_a_migration_ends_without_the_old_cluster_and_takes_nothing_from_the_new_one(tmp_path: Path) -> None:
    file, after = tmp_path / "migration.yaml", tmp_path / "new.yaml"
    file.write_text(MIGRATION.read_text())
    reads = rule("old ALLOW User:app READ shop.orders")
    seen = observed(
        cluster("old", live("audit.log", 2, retention_ms="1"), acls=[reads]), cluster("new", acls=[])
    )
    seen = applied(file, seen)
    seen = applied(file, seen)  # what was made at the old cluster by the first is copied by now

    promoted = with_states(file.read_text(), {"old-to-new": "promoted"})
    assert promoted is not None
    file.write_text(promoted)
    seen = applied(file, seen)
    new = seen.reachable("new")
    assert new is not None
    after.write_text(
        topology_yaml(
            import_topology("migration", load_and_lint(TopologyRequest(file)).topology.clusters, [new])[0]
        )
    )
    seen = Observed({"new": new})
    plan = planned(after, seen)

    assert [step for step in plan.steps if not isinstance(step, Own | Disown)] == []
    there = load_and_lint(TopologyRequest(after)).topology
    assert {topic.name for topic in there.topics} == {
        "audit.log",
        "billing.events",
        "billing.invoices",
        "shop.orders",
    }
    assert [acl.rule.principal for acl in there.acls] == ["User:app"]
    seen = simulate(plan.steps, seen)
    again = planned(after, seen)
    assert again.steps == ()
    assert {one.action for one in again.changes if not one.adopted} == {Action.NO_OP}
    new = seen.reachable("new")
    assert new is not None
    assert {entry.address.kind for entry in new.owned} == {Kind.TOPIC, Kind.ACL}
