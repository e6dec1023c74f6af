"""Two schema registries over HTTP: what is read, planned and applied, until nothing is left to do."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Literal

import pytest

from planner.graph.expansion import expand, read_requests
from planner.model.change import Action
from planner.model.diagnostic import Severity
from planner.model.observed import SCHEMAS, Observed, ObservedCluster
from planner.model.plan import Mode, Plan, PlanInputs
from planner.model.step import DONE, Result
from planner.model.topology import Registry, Topology
from planner.observe.schemas import imports_schemas, read_subjects
from planner.plan.make import plan_from
from planner.plan.staleness import compared_keys, no_longer_done, read_request, stale
from planner.plan.steps.schemas import ConfigureSubject, RegisterSchemas
from planner.render.plan.documents import html, markdown
from planner.render.plan.json import json_text
from planner.render.plan.text import steps_text, text
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.spec.rename import Template
from runtime.contract.spec.schemas import RegistrySpec, SchemaSync
from runtime.schemas.client import RegistryUnavailable, SchemaRegistry
from runtime.schemas.copier import SchemaCopier, SchemaNotCopied
from tests.fakes.registry import RegistryServer, registry_server
from tests.fakes.replacing import replace
from tests.planner.apply.handling import carried_out, context
from tests.planner.graph.build import cluster, flow, mirror_entry, observed, topology


def record(*fields: str, name: str = "Order") -> dict[str, Any]:
    types = [{"name": field, "type": "string", "default": ""} for field in fields]
    return {"type": "record", "name": name, "fields": types}


LINE = {"name": "Line", "subject": "line", "version": 1}


class Pair:
    """The registries of dc1 and dc2, with a flow between the clusters."""

    def __init__(self, source: RegistryServer, destination: RegistryServer) -> None:
        self.source, self.destination = source, destination
        self.owned: tuple[Any, ...] = ()

    def topology(self, ids: Literal["keep", "translate"], **more: Any) -> Topology:
        registries = {
            name: Registry(name=name, url=server.url)
            for name, server in (("dc1", self.source), ("dc2", self.destination))
        }
        sync = SchemaSync(sync=True, ids=ids, subjects=more.pop("subjects", "topic_name"))
        return topology(flow("go=dc1>dc2", "orders", schemas=sync, **more), registries=registries)

    def both_ways(self, ids: Literal["keep", "translate"]) -> Topology:
        sync = SchemaSync(sync=True, ids=ids)
        flows = (flow(ends, "orders", schemas=sync) for ends in ("go=dc1>dc2", "back=dc2>dc1"))
        return topology(*flows, registries=self.topology(ids).registries)

    def add_orders_of_lines(self, version: int = 1) -> None:
        """The source has `line`, and a schema of orders that refers to a version of it."""
        self.source.add(1, record("a", name="Line"), "line", 1)
        self.source.add(3, record("a"), "orders-value", 1, references=[LINE | {"version": version}])

    def settle(self, shop: Topology) -> None:
        """Applies the topology. A further plan has nothing to do."""
        assert self.apply(self.plan(shop)) == {}
        assert changes(self.plan(shop)) == {}

    def observed(self, shop: Topology) -> Observed:
        clusters = {"dc1": cluster("dc1", "orders"), "dc2": cluster("dc2", "orders", owned=self.owned)}
        requests = read_requests(shop, Observed(clusters))
        return Observed({name: self._read(shop, live, requests[name]) for name, live in clusters.items()})

    def _read(self, shop: Topology, live: ObservedCluster, request: Any) -> ObservedCluster:
        try:
            registry = shop.registries[live.name]
            subjects = asyncio.run(read_subjects(registry, request))
            imports = not request.subject_modes or asyncio.run(imports_schemas(registry))
        except RegistryUnavailable as failure:
            return replace(live, unreadable={SCHEMAS: str(failure)})
        return replace(live, subjects=subjects, imports_schemas=imports)

    def plan(self, shop: Topology) -> Plan:
        return plan_from(
            PlanInputs(release="1", mode=Mode.APPLY, topology=shop, observed=self.observed(shop))
        )

    def apply(self, plan: Plan) -> dict[str, str]:
        """Carries out the steps about schemas, in the order of the plan. Returns why steps failed."""
        failures = {}
        for step in plan.steps:
            if isinstance(step, ConfigureSubject | RegisterSchemas):
                registries = plan.topology.registries
                made = context(ClusterEndpoint("dc2", "127.0.0.1:1"), registries=registries)
                (result,) = carried_out(made, step).values()
                if result != DONE:
                    assert result.result is Result.FAILED
                    failures[step.id] = result.why
        return failures


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as open_:
        yield Pair(*(open_.enter_context(registry_server()) for _ in range(2)))


def changes(plan: Plan) -> dict[str, tuple[str, dict[str, object]]]:
    return {
        change.address: (change.action.value, {field.key: field.new for field in change.fields})
        for change in plan.changes
        if change.address.kind == "schema" and change.action is not Action.NO_OP
    }


def errors(plan: Plan) -> list[str]:
    return [found.summary for found in plan.diagnostics if found.severity is Severity.ERROR]


@pytest.mark.parametrize(
    "lists", [True, False, "texts"], ids=["a list of all", "each version by itself", "a list of texts alone"]
)
def test_ids_are_kept_and_a_second_plan_has_nothing_to_do(pair: Pair, lists: bool | Literal["texts"]) -> None:
    pair.source.lists = pair.destination.lists = lists
    pair.source.add(7, record("a"), "orders-value", 1)
    pair.source.add(9, record("a", "b"), "orders-value", 3)
    pair.source.add(8, record("z"), "payments-value", 1)
    pair.source.levels["orders-value"] = "FULL"
    shop = pair.topology("keep")
    first = pair.plan(shop)
    assert changes(first) == {
        "schema.dc2.orders-value": ("create", {"versions": 2, "compatibility": "FULL", "mode": "IMPORT"})
    }
    assert pair.apply(first) == {}
    assert pair.destination.subjects == {"orders-value": {1: 7, 3: 9}}
    assert pair.destination.levels["orders-value"] == "FULL"
    assert changes(pair.plan(shop)) == {}
    done = {step.id for step in first.steps if step.address.kind == "schema"}
    assert no_longer_done(first.steps, done, pair.observed(shop)) == ()

    pair.source.add(12, record("a", "c"), "orders-value", 4)
    again = pair.plan(shop)
    assert changes(again) == {"schema.dc2.orders-value": ("update", {"versions": 3})}
    assert pair.apply(again) == {}
    assert pair.destination.subjects == {"orders-value": {1: 7, 3: 9, 4: 12}}


def test_a_registry_without_modes_can_not_keep_ids(pair: Pair) -> None:
    pair.source.add(1, record("a"), "orders-value", 1)
    pair.destination.modes.clear()
    why = "the schema registry of dc2 has no mode for importing: it can't keep ids"
    assert errors(pair.plan(pair.topology("keep"))) == [why]
    assert errors(pair.plan(pair.topology("translate"))) == []


def test_ids_are_those_of_the_destination_and_subjects_follow_a_rename(pair: Pair) -> None:
    pair.source.add(70, record("a"), "orders-key", 1)
    pair.source.add(71, record("b"), "orders-value", 1)
    pair.destination.add(3, record("other"), "other-value", 1)
    shop = pair.topology("translate", rename=Template("copy.{topic}"))
    pair.settle(shop)
    assert pair.destination.subjects == {
        "other-value": {1: 3},
        "copy.orders-key": {1: 4},
        "copy.orders-value": {1: 5},
    }


def test_referenced_schemas_are_registered_first_and_shown(pair: Pair) -> None:
    pair.add_orders_of_lines()
    pair.source.add(2, record("b", name="Line"), "line", 2)
    for ids in ("translate", "keep"):
        pair.settle(pair.topology(ids))
        assert pair.destination.subjects == {
            "line": {1: 1},
            "orders-value": {1: 2 if ids == "translate" else 3},
        }
        pair.destination.subjects.clear()
        pair.destination.schemas.clear()


def test_the_compatibility_of_referenced_subjects_follows_too(pair: Pair) -> None:
    pair.add_orders_of_lines()
    pair.source.levels["line"] = "FULL"
    shop = pair.topology("translate")
    planned = pair.plan(shop)
    assert changes(planned)["schema.dc2.line"] == ("create", {"versions": 1, "compatibility": "FULL"})
    assert pair.apply(planned) == {}
    assert pair.destination.levels["line"] == "FULL"
    assert changes(pair.plan(shop)) == {}
    pair.source.levels["line"] = "NONE"
    assert changes(pair.plan(shop)) == {"schema.dc2.line": ("update", {"compatibility": "NONE"})}


def test_no_compatibility_follows_where_flows_copy_in_both_directions(pair: Pair) -> None:
    """Neither to a subject that is there, nor with a new one, nor to what these refer to."""
    pair.add_orders_of_lines()
    pair.source.levels |= {"line": "FULL", "orders-value": "FULL"}
    both = pair.both_ways("translate")
    line, orders = (f"schema.dc2.{subject}" for subject in ("line", "orders-value"))
    created = ("create", {"versions": 1})
    assert changes(pair.plan(both)) == {line: created, orders: created}
    pair.destination.add(1, record("a", name="Line"), "line", 1)
    pair.destination.levels["line"] = "NONE"
    assert changes(pair.plan(both)) == {orders: created}


def test_a_circle_of_references_fails_its_step_and_is_named(pair: Pair) -> None:
    pair.source.add(1, record("a"), "a", 1, references=[{"name": "B", "subject": "b", "version": 1}])
    pair.source.add(2, record("b"), "b", 1, references=[{"name": "A", "subject": "a", "version": 1}])
    pair.source.add(
        3, record("c"), "orders-value", 1, references=[{"name": "A", "subject": "a", "version": 1}]
    )
    failures = pair.apply(pair.plan(pair.topology("translate")))
    assert "a version 1 → b version 1 → a version 1" in failures["register:schema.dc2.orders-value"]


def test_an_id_that_means_another_schema_is_an_error_that_names_both(pair: Pair) -> None:
    """Another text, or the same one with other references."""
    pair.source.add(7, record("a"), "orders-value", 1)
    pair.destination.add(7, record("b"), "payments-value", 2)
    other = (
        "schema id 7 is orders-value version 1 at dc1, and another schema at dc2: payments-value version 2"
    )
    assert errors(pair.plan(pair.topology("keep"))) == [other]
    assert errors(pair.plan(pair.topology("translate"))) == []
    for registry, version in ((pair.source, 1), (pair.destination, 2)):
        registry.schemas.clear()
        registry.subjects.clear()
        registry.add(1, record("a", name="Line"), "line", 1)
        registry.add(2, record("b", name="Line"), "line", 2)
        registry.add(3, record("a"), "orders-value", 1, references=[LINE | {"version": version}])
    (error,) = errors(pair.plan(pair.topology("keep")))
    assert "schema id 3 is orders-value version 1 at dc1, and another schema at dc2" in error


def test_an_incompatible_schema_fails_with_the_registrys_words(pair: Pair) -> None:
    pair.source.add(
        1, {"type": "record", "name": "O", "fields": [{"name": "new", "type": "int"}]}, "orders-value"
    )
    pair.destination.add(5, record("old"), "orders-value", 1)
    failures = pair.apply(pair.plan(pair.topology("translate")))
    assert "incompatible with an earlier schema" in failures["register:schema.dc2.orders-value"]


@pytest.mark.parametrize("down", ["dc1", "dc2"])
def test_a_registry_that_is_down_is_said_and_its_part_is_unknown(pair: Pair, down: str) -> None:
    pair.source.add(1, record("a"), "orders-value", 1)
    (pair.source if down == "dc1" else pair.destination).down = True
    plan = pair.plan(pair.topology("keep"))
    assert not plan.complete
    assert f"the schema registry of {down} could not be read" in plan.unknown["flow.go"]
    assert changes(plan) == {}


@pytest.mark.parametrize(
    "ends",
    [{"state": "promoted"}, {"promoted": ("orders",)}],
    ids=["the flow is promoted", "its topic is promoted on its own"],
)
@pytest.mark.parametrize("origin", ["flow.go", "declared"])
def test_subjects_and_those_that_they_refer_to_take_producers_schemas_again_once_the_flow_has_ended(
    pair: Pair, origin: str, ends: dict[str, Any]
) -> None:
    pair.add_orders_of_lines()
    pair.apply(pair.plan(pair.topology("keep")))
    assert pair.destination.modes == {None: "READWRITE", "line": "IMPORT", "orders-value": "IMPORT"}
    pair.owned = (replace(mirror_entry("go", "dc2/orders"), origin=origin),)
    shop = pair.topology("keep", **ends)
    plan = pair.plan(shop)
    assert changes(plan)["schema.dc2.orders-value"] == ("update", {"mode": "READWRITE"})
    assert pair.apply(plan) == {}
    assert pair.destination.modes == dict.fromkeys((None, "line", "orders-value"), "READWRITE")
    assert changes(pair.plan(shop)) == {}


def test_a_flow_ends_although_the_registry_of_its_destination_is_down(pair: Pair) -> None:
    pair.owned = (mirror_entry("go", "dc2/orders"),)
    pair.source.down = pair.destination.down = True
    plan = pair.plan(pair.topology("keep", state="failed_over"))
    assert plan.complete
    (warned,) = [found for found in plan.diagnostics if found.code == "schemas-not-released"]
    assert "its subjects may still be in mode IMPORT" in warned.summary


def test_a_setting_that_was_not_read_is_not_stale(pair: Pair) -> None:
    """Before the plan nothing at dc2 refers to `line`, so its settings are read when the plan is applied."""
    pair.destination.add(1, record("a", name="Line"), "line", 1)
    pair.destination.levels["line"] = "FULL"
    pair.add_orders_of_lines()
    shop = pair.topology("keep")
    plan = pair.plan(shop)
    steps = [step for step in plan.steps if step.address.kind == "schema"]
    keys = compared_keys(steps, plan.changes)
    request = read_request(["dc1", "dc2"], keys, frozenset())["dc2"]
    seen = asyncio.run(read_subjects(shop.registries["dc2"], request))
    assert seen["line"].compatibility == "FULL"
    clusters = plan.inputs.observed.clusters
    now = Observed({**clusters, "dc2": replace(clusters["dc2"], subjects=seen)})
    assert stale(plan, now) == ()


def test_what_the_job_brought_since_is_not_stale_and_what_another_registered_is(pair: Pair) -> None:
    pair.source.add(7, record("a"), "orders-value", 1)
    pair.source.add(8, record("a", "b"), "orders-value", 2)
    pair.source.levels["orders-value"] = "FULL"
    pair.destination.add(7, record("a"), "orders-value", 1)
    pair.destination.levels["orders-value"] = "NONE"
    shop = pair.topology("keep")
    plan = pair.plan(shop)
    pair.destination.add(8, record("a", "b"), "orders-value", 2)
    pair.destination.levels["orders-value"] = "FULL"
    assert stale(plan, pair.observed(shop)) == ()
    assert pair.apply(plan) == {}
    pair.destination.add(9, record("other"), "orders-value", 3)
    (found,) = stale(plan, pair.observed(shop))
    assert (found.address, found.summary) == (
        "schema.dc2.orders-value",
        "got or lost versions since the plan was made",
    )


@pytest.mark.parametrize("ids", ["keep", "translate"])
def test_data_contracts_come_with_their_schemas(pair: Pair, ids: Literal["keep", "translate"]) -> None:
    contract = {
        "metadata": {"properties": {"owner": "orders"}},
        "ruleSet": {
            "domainRules": [{"name": "positive", "kind": "CONDITION", "type": "CEL", "expr": "a > 0"}]
        },
    }
    pair.source.add(7, record("a"), "orders-value", 1)
    pair.source.add(8, record("a"), "orders-value", 2, **contract)
    pair.settle(pair.topology(ids))
    there = pair.destination.schemas[pair.destination.subjects["orders-value"][2]]
    assert {key: there[key] for key in contract} == contract


def test_schemas_that_refer_to_the_same_ones_are_read_once(pair: Pair) -> None:
    """Each level refers twice to the one below: as a tree they would be a million."""
    pair.source.add(1, record("a", name="R0"), "r0")
    for level in range(1, 20):
        refers = [{"name": f"{name}{level - 1}", "subject": f"r{level - 1}", "version": 1} for name in "RS"]
        pair.source.add(level + 1, record("a", name=f"R{level}"), f"r{level}", references=refers)
    pair.source.add(
        30, record("b"), "orders-value", references=[{"name": "R19", "subject": "r19", "version": 1}]
    )
    assert pair.apply(pair.plan(pair.topology("translate"))) == {}
    assert len(pair.destination.subjects) == 21
    assert len(pair.source.asked) < 2_000


def test_the_same_text_with_another_reference_is_another_version(pair: Pair) -> None:
    """The registries number `line` differently: what a schema refers to is compared, not its number."""
    pair.source.levels[None] = pair.destination.levels[None] = "NONE"
    for server, first in ((pair.source, 1), (pair.destination, 4)):
        server.add(51, record("a", name="Line"), "line", first)
    pair.source.add(52, record("b", name="Line"), "line", 2)
    pair.source.add(60, record("o"), "orders-value", 1, references=[LINE])
    pair.source.add(61, record("o"), "orders-value", 2, references=[{**LINE, "version": 2}])
    pair.destination.add(70, record("o"), "orders-value", 1, references=[{**LINE, "version": 4}])
    shop = pair.topology("translate")
    plan = pair.plan(shop)
    assert changes(plan)["schema.dc2.orders-value"] == ("update", {"versions": 2})
    pair.settle(shop)


def test_a_version_of_the_destination_is_never_exchanged(pair: Pair) -> None:
    pair.source.add(7, record("a"), "orders-value", 1)
    plan = pair.plan(pair.topology("keep"))
    pair.destination.add(12, record("b"), "orders-value", 1)
    pair.destination.modes["orders-value"] = "IMPORT"
    (why,) = pair.apply(plan).values()
    assert (
        "version 1 of orders-value is schema id 7 at the source, and schema id 12 at the destination" in why
    )
    assert pair.destination.subjects == {"orders-value": {1: 12}}


def test_a_version_that_was_made_again_since_the_plan_is_not_registered(pair: Pair) -> None:
    pair.source.add(7, record("a"), "orders-value", 1)
    plan = pair.plan(pair.topology("translate"))
    pair.source.subjects.clear()
    pair.source.add(8, record("b"), "orders-value", 1)
    (why,) = pair.apply(plan).values()
    assert why == (
        f"version 1 of orders-value at {pair.source.url} is another schema now than when it was listed"
    )
    assert pair.destination.subjects == {}


def test_versions_of_a_referenced_subject_keep_their_order(pair: Pair) -> None:
    pair.add_orders_of_lines(version=2)
    pair.source.add(2, record("a", "b", name="Line"), "line", 2)
    assert pair.apply(pair.plan(pair.topology("translate"))) == {}
    assert pair.destination.subjects["line"] == {1: 1, 2: 2}
    assert '"b"' not in pair.destination.schemas[1]["schema"]


@pytest.mark.parametrize(
    ("mode", "why"), [("READONLY", "Subject orders-value is in read-only mode"), ("READWRITE", "")]
)
def test_only_a_subject_that_anyone_may_write_is_put_into_import(pair: Pair, mode: str, why: str) -> None:
    pair.source.add(7, record("a"), "orders-value", 1)
    pair.destination.modes["orders-value"] = mode

    async def ensured() -> int | None:
        source, destination = (
            SchemaRegistry(RegistrySpec(url=server.url)) for server in (pair.source, pair.destination)
        )
        return await SchemaCopier(source, destination, SchemaSync(sync=True)).ensure(7, "orders", "orders")

    if why:
        with pytest.raises(SchemaNotCopied, match=why):
            asyncio.run(ensured())
    else:
        assert asyncio.run(ensured()) == 7
    assert pair.destination.modes["orders-value"] == ("READONLY" if why else "IMPORT")


def test_a_registry_that_gives_other_ids_cannot_keep_them(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.source.add(7, record("a"), "orders-value", 1)
    answer = pair.destination.answer

    def ignoring(method: str, path: str, *more: Any) -> tuple[int, Any]:
        return (200, {"id": 1}) if method == "POST" else answer(method, path, *more)

    monkeypatch.setattr(pair.destination, "answer", ignoring)
    (why,) = pair.apply(pair.plan(pair.topology("keep"))).values()
    assert "gives id 1 to schema id 7: it can't keep ids — set schemas.ids to translate" in why


def test_record_names_tell_no_topic_so_a_plan_registers_nothing_in_advance(pair: Pair) -> None:
    pair.source.add(1, record("a"), "Order", 1)
    assert changes(pair.plan(pair.topology("translate", subjects="record_name"))) == {}


def test_a_plan_holds_no_text_of_a_schema(pair: Pair) -> None:
    pair.source.add(1, record("secret_field"), "orders-value", 1)
    plan = pair.plan(pair.topology("keep"))
    assert "secret_field" not in json_text(plan)
    assert expand(plan.topology, plan.inputs.observed).subjects[0].name == "orders-value"


def test_names_of_subjects_are_shown_without_control_characters(pair: Pair) -> None:
    pair.source.add(8, record("b"), "orders-x\x1b[31mred\n\u202e<script>", 1)
    plan = pair.plan(pair.topology("keep", subjects="topic_record_name"))
    terminal = "\n".join((*text(plan), *steps_text(plan)))
    assert "register schema.dc2.orders-x\\u001b[31mred\\n\\u202e<script>: version 1 of" in terminal
    assert not set(terminal) & {"\x1b", "\u202e"}
    assert "orders-x" in html(plan)
    assert not {"\x1b", "\u202e"} & set(html(plan) + markdown(plan))
    assert "<script>: " not in html(plan)


@pytest.mark.parametrize(("ids", "warned"), [("keep", ["flow.back", "flow.go"]), ("translate", [])])
def test_ids_cannot_be_kept_in_both_directions(ids: Literal["keep", "translate"], warned: list[str]) -> None:
    sync = SchemaSync(sync=True, ids=ids)
    flows = [flow(ends, "orders", schemas=sync) for ends in ("go=dc1>dc2", "back=dc2>dc1")]
    found = expand(topology(*flows), observed(cluster("dc1", "orders"), cluster("dc2", "orders"))).diagnostics
    assert [problem.address for problem in found if problem.code == "schemas-both-ways"] == warned


def test_the_registrys_own_topic_is_not_copied_beside_its_schemas() -> None:
    sync = SchemaSync(sync=True)
    shop = topology(flow("go=dc1>dc2", ("orders", "_schemas"), schemas=sync))
    found = expand(shop, observed(cluster("dc1", "orders"), cluster("dc2"))).diagnostics
    assert [problem.address for problem in found if problem.code == "schemas-twice"] == ["flow.go"]
