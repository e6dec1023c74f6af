"""Steps of features/quotas: the real command, and the limits as Kafka's own tool sets and shows them."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml
from pytest_bdd import given, parsers, scenarios, then, when

from runtime.lab.lab import Lab
from tests.commands import repl
from tests.records import create_topic, wait_for
from tests.topologies import Topology, at

pytestmark = [pytest.mark.integration, pytest.mark.long]

scenarios("quotas")

_LIMIT = re.compile(r"([a-z_]+)=([0-9.E-]+)")


@dataclass
class Limited:
    """What a scenario has to remember. Users have short names in the text and fresh ones at the clusters."""

    lab: Lab
    topology: Topology
    fresh: Callable[[str], str]
    names: dict[str, str] = field(default_factory=dict)
    done: CompletedProcess[str] | None = None

    def name(self, word: str) -> str:
        return self.names.setdefault(word, self.fresh(word))

    def run(self, *arguments: str) -> None:
        self.topology.write()
        self.done = repl(*arguments)

    def last(self) -> CompletedProcess[str]:
        done = self.done
        assert done is not None
        return CompletedProcess(done.args, done.returncode, self.said(done.stdout), self.said(done.stderr))

    def said(self, text: str) -> str:
        """The output in the words of the scenario."""
        for word, name in self.names.items():
            text = text.replace(name, word)
        return text

    @property
    def plan(self) -> str:
        return str(self.topology.file.with_suffix(".plan"))

    def declare(self, key: str, name: str, cluster: str, limits: dict[str, Any]) -> None:
        quotas = self.topology.more.setdefault("quotas", [])
        quotas[:] = [one for one in quotas if one[key] != name]
        quotas.append({"cluster": cluster, key: name, **limits})

    def tool(self, cluster: str, word: str, *arguments: str) -> str:
        of_user = ("--entity-type", "users", "--entity-name", self.name(word))
        return self.lab.tool(
            cluster, "kafka.admin.ConfigCommand", "--command-config", "{client}", *of_user, *arguments
        )

    def limits(self, cluster: str, word: str) -> dict[str, float]:
        return {key: float(value) for key, value in _LIMIT.findall(self.tool(cluster, word, "--describe"))}


@pytest.fixture
def limited(lab: Lab, fresh: Callable[[str], str], tmp_path: Path) -> Limited:
    topology = at(lab, fresh("shop"), tmp_path, ("dc1", "dc2"))
    topology.topic(fresh("stays"), partitions=1)
    return Limited(lab, topology, fresh)


@pytest.fixture
def drill(limited: Limited) -> Limited:
    """What the steps of `repl drill` look at."""
    return limited


@given(parsers.parse('the topology limits the user {word} at {cluster}: "{text}"'))
@when(parsers.parse('the topology limits the user {word} at {cluster}: "{text}"'))
def _(limited: Limited, word: str, cluster: str, text: str) -> None:
    limited.declare("user", limited.name(word), cluster, yaml.safe_load("{" + text + "}"))


@given(parsers.parse('the topology limits the address {name} at {cluster}: "{text}"'))
def _(limited: Limited, name: str, cluster: str, text: str) -> None:
    limited.declare("ip", name, cluster, yaml.safe_load("{" + text + "}"))


@given("the topology was applied")
def _(limited: Limited) -> None:
    limited.run("apply", str(limited.topology.file), "--auto-approve")
    assert limited.last().returncode == 0, limited.last().stderr


@given("the flow dc1-to-dc2 mirrors the quotas of dc1")
def _(limited: Limited) -> None:
    topic = limited.fresh("orders")
    create_topic(limited.lab.clusters["dc1"].client, topic, 1)
    flow = {"name": "dc1-to-dc2", "from": "dc1", "to": "dc2", "topics": {"include": topic}}
    limited.topology.more["flows"] = [{**flow, "quotas": {"sync": True}}]


@given(parsers.re(r"an operator sets (?P<limit>\S+) for (?P<word>\w+) at (?P<cluster>\w+)"))
@when(parsers.re(r"an operator sets (?P<limit>\S+) for (?P<word>\w+) at (?P<cluster>\w+)"))
def _(limited: Limited, limit: str, word: str, cluster: str) -> None:
    limited.tool(cluster, word, "--alter", "--add-config", limit)
    key, value = limit.split("=")
    wait_for(lambda: limited.limits(cluster, word).get(key) == float(value))


@when(parsers.parse("an operator removes {key} of {word} at {cluster}"))
def _(limited: Limited, key: str, word: str, cluster: str) -> None:
    limited.tool(cluster, word, "--alter", "--delete-config", key)
    wait_for(lambda: key not in limited.limits(cluster, word))


@when(parsers.parse("the quota of {word} is taken out of the topology"))
def _(limited: Limited, word: str) -> None:
    quotas = limited.topology.more["quotas"]
    limited.topology.more["quotas"] = [one for one in quotas if one["user"] != limited.name(word)]


@when("the topology is planned")
def _(limited: Limited) -> None:
    limited.run("plan", str(limited.topology.file))


@when("the topology is applied")
def _(limited: Limited) -> None:
    limited.run("apply", str(limited.topology.file), "--auto-approve")


@when("the mirrored quotas of loader and auditor are applied")
def _(limited: Limited) -> None:
    """Applies them without the job of the flow, which has no part in it."""
    target = f"quota.dc2.user/{limited.name('loader')}"
    limited.run("apply", str(limited.topology.file), "--auto-approve", "--target", target)
    assert limited.last().returncode == 0, limited.last().stderr


@then(parsers.parse('the limits of {word} at {cluster} are "{text}"'))
def _(limited: Limited, word: str, cluster: str, text: str) -> None:
    wanted = {key: float(value) for key, value in _LIMIT.findall(text)}
    assert limited.limits(cluster, word) == wanted


@then(parsers.parse("{word} has no limits at {cluster}"))
def _(limited: Limited, word: str, cluster: str) -> None:
    assert limited.limits(cluster, word) == {}
