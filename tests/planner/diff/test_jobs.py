"""Jobs and flows: wanted × running → what is started, told, started over, stopped, or left alone."""

from dataclasses import replace
from pathlib import PurePath

import pytest

from planner.diff import diff, diff_destroy, drift
from planner.diff.record import flow_entry, job_entry
from planner.graph import expand
from planner.model.address import Kind, flow_address, job_address
from planner.model.observed import LiveJob, Observed, RegistryEntry, Unreachable
from planner.model.plan import Action, Change, Plan
from planner.model.step import LaunchJob, ReconfigureJob
from planner.model.topology import (
    Cluster,
    Flow,
    FlowState,
    Groups,
    Job,
    SecretRef,
    Selection,
    StartAt,
    StartAtOffsets,
    Topology,
)
from planner.plan import make_plan
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.rename import Match, Table
from tests.fakes.simulated import running, simulate
from tests.fakes.states import SHOP, cluster, flow, live, observed, topology

ORDERS = flow("orders")
PAYMENTS = flow("payments")


def spec(shop: Topology) -> JobSpec:
    seen = observed(cluster(live("a")), cluster(name="dc2"))
    (job,) = expand(shop, seen).jobs
    assert job.spec is not None
    return job.spec


def entries(runs: JobSpec) -> list[RegistryEntry]:
    return [job_entry(runs, SHOP), *(flow_entry(one, runs.job, SHOP) for one in runs.flows)]


def world(*jobs: LiveJob, owned: list[RegistryEntry] | None = None) -> Observed:
    return observed(
        cluster(live("a"), name="dc1"), replace(cluster(name="dc2", owned=owned or []), jobs=jobs)
    )


def applied(shop: Topology, **more: object) -> Observed:
    """As an apply left it."""
    return world(running(spec(shop), **more), owned=entries(spec(shop)))  # type: ignore[arg-type]


def changes(shop: Topology, seen: Observed) -> dict[str, Change]:
    found = diff(expand(shop, seen), seen, shop)
    return {str(one.address): one for one in found if one.address.cluster is None}


def actions(shop: Topology, seen: Observed) -> dict[str, Action]:
    return {address: one.action for address, one in changes(shop, seen).items()}


def moved(change: Change) -> dict[str, tuple[object, object]]:
    return {one.key: (one.old, one.new) for one in change.fields}


def test_new() -> None:
    found = changes(topology(ORDERS, PAYMENTS), world())

    assert {address: one.action for address, one in found.items()} == {
        "flow.orders": Action.CREATE,
        "flow.payments": Action.CREATE,
        "job.dc2": Action.CREATE,
    }
    assert found["job.dc2"].reason == "copies flow.orders, flow.payments"
    assert found["flow.orders"].reason == "copied by job.dc2"
    assert moved(found["flow.orders"])["topics.include"] == (None, (".*",))


def test_as_applied() -> None:
    shop = topology(ORDERS)

    assert actions(shop, applied(shop)) == {"flow.orders": Action.NO_OP, "job.dc2": Action.NO_OP}


def test_one_that_runs_and_that_nobody_wrote_down_is_adopted() -> None:
    shop = topology(ORDERS)

    found = changes(shop, world(running(spec(shop))))

    assert [(one.action, one.adopted) for one in found.values()] == [(Action.NO_OP, True)] * 2


@pytest.mark.parametrize("job", [None, "dead", "stopped"])
def test_one_that_died_is_started_again(job: str | None) -> None:
    shop = topology(ORDERS)
    jobs = () if job is None else (running(spec(shop), live=False, state=job),)

    found = changes(shop, world(*jobs, owned=entries(spec(shop))))

    assert found["job.dc2"].action is Action.CREATE
    assert found["job.dc2"].reason.startswith("not running: ")
    assert ("2026-01-01 00:00:00 UTC" in found["job.dc2"].reason) is (job is not None)
    assert found["flow.orders"].action is Action.NO_OP


def test_an_edited_flow_is_told_without_a_restart() -> None:
    shop = topology(replace(ORDERS, rate_limit=50_000_000), PAYMENTS)

    found = changes(shop, applied(topology(ORDERS, PAYMENTS)))

    assert {address: one.action for address, one in found.items()} == {
        "flow.orders": Action.UPDATE,
        "flow.payments": Action.NO_OP,
        "job.dc2": Action.UPDATE,
    }
    assert moved(found["flow.orders"]) == {"rate_limit": (None, 50_000_000)}
    assert found["job.dc2"].reason == "reconfigured without a restart: flow.orders"


STAY = "mirror topics that it no longer fills stay as they are"


@pytest.mark.parametrize(
    ("before", "after", "notes"),
    [
        (Selection(("orders",)), Selection(("orders", "payments")), ()),
        (Selection(("orders", "payments")), Selection(("orders",)), (STAY,)),
        (Selection((".*",)), Selection((".*",), ("tmp",)), (STAY,)),
        (Selection((".*",), ("tmp",)), Selection((".*",)), ()),
        (Selection((".*",), default_exclude=False), Selection((".*",)), (STAY,)),
        (Selection((".*",)), Selection((".*",), default_exclude=False), ()),
    ],
)
def test_a_flow_that_may_copy_fewer_topics_says_that_their_mirrors_stay(
    before: Selection, after: Selection, notes: tuple[str, ...]
) -> None:
    shop = topology(replace(ORDERS, topics=after))

    found = changes(shop, applied(topology(replace(ORDERS, topics=before))))

    assert found["flow.orders"].notes == notes


def test_another_provenance_says_why() -> None:
    over = replace(ORDERS, state=FlowState.FAILED_OVER)
    back = Flow("back", "dc2", "dc1", Selection((".*",)), job="dc1", reverse_of="orders")
    shop = topology(over, back)

    (field,) = [
        one for one in changes(shop, applied(topology(over)))["flow.orders"].fields if one.key == "provenance"
    ]

    assert (field.old, field.new) == ("off", "batch")
    assert field.note.startswith("auto: ")


def test_a_pause() -> None:
    found = changes(topology(replace(ORDERS, state=FlowState.PAUSED)), applied(topology(ORDERS)))

    assert moved(found["flow.orders"]) == {"state": ("active", "paused")}
    assert found["job.dc2"].action is Action.UPDATE


@pytest.mark.parametrize(
    ("job", "what"),
    [
        (Job("dc2", memory="2g"), {"memory": ("1g", "2g")}),
        (Job("dc2", slots=3), {"slots": (None, 3)}),
        (Job("dc2", conf={"spark.x": "y"}), {"conf": ({}, {"spark.x": "y"})}),
        (Job("dc2", master="local[4]"), {"master": ("local[2]", "local[4]")}),
    ],
)
def test_what_spark_was_started_with_needs_a_new_start(
    job: Job, what: dict[str, tuple[object, object]]
) -> None:
    shop = replace(topology(ORDERS), jobs={"dc2": job})

    found = changes(shop, applied(topology(ORDERS), lag={"orders": 12}))["job.dc2"]

    assert (found.action, moved(found)) == (Action.REPLACE, what)
    assert found.reason == f"will be restarted: {next(iter(what))}: a running job can't take that over"
    assert found.notes[0].startswith("all its flows pause for seconds while it restarts")
    assert "12 records are waiting" in found.notes[0]
    assert "resumes exactly" in found.notes[0]


DC1, DC2 = Cluster("dc1", "dc1:9092"), Cluster("dc2", "dc2:9092")


def secret(cluster: Cluster, variable: str) -> Cluster:
    return replace(cluster, client={"sasl.password": SecretRef("env", variable)})


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (
            (DC1, DC2),
            (replace(DC1, bootstrap="moved:9092"), DC2),
            {"clusters.dc1.bootstrap": ("dc1:9092", "moved:9092")},
        ),
        (
            (secret(DC1, "A"), secret(DC2, "B")),
            (secret(DC1, "B"), secret(DC2, "B")),
            {"clusters.dc1.client.sasl.password": ({"env": "A"}, {"env": "B"})},
        ),
        (
            (DC1, DC2),
            (replace(DC1, client={"sasl.username": "other"}), DC2),
            {"clusters.dc1.client.sasl.username": (None, "other")},
        ),
        (
            (DC1, DC2),
            (DC1, replace(DC2, bootstrap="moved:9092")),
            {"clusters.dc2.bootstrap": ("dc2:9092", "moved:9092")},
        ),
        (
            (DC1, DC2),
            (DC1, replace(DC2, client={"sasl.username": "other"})),
            {"clusters.dc2.client.sasl.username": (None, "other")},
        ),
    ],
    ids=["source", "reference", "client key", "destination", "client key there"],
)
def test_how_a_cluster_is_reached_needs_a_new_start(
    before: tuple[Cluster, ...], after: tuple[Cluster, ...], what: dict[str, tuple[object, object]]
) -> None:
    """A running job trusts no record that says so."""
    found = changes(topology(ORDERS, clusters=after), applied(topology(ORDERS, clusters=before)))["job.dc2"]

    assert (found.action, moved(found)) == (Action.REPLACE, what)
    assert found.reason == f"will be restarted: {next(iter(what))}: a running job can't take that over"


def test_a_flow_from_a_cluster_that_the_job_does_not_know_needs_a_new_start() -> None:
    dc3 = secret(Cluster("dc3", "dc3:9092"), "DC3")
    clusters, third = (DC1, DC2, dc3), flow("third", source_cluster="dc3")

    found = changes(topology(ORDERS, third, clusters=clusters), applied(topology(ORDERS)))["job.dc2"]
    assert found.action is Action.REPLACE
    assert found.reason == "will be restarted: clusters.dc3: a running job can't take that over"
    assert moved(found)["clusters.dc3.bootstrap"] == (None, "dc3:9092")

    both = topology(ORDERS, third, clusters=clusters)
    leaves = changes(topology(ORDERS, clusters=clusters), applied(both))["job.dc2"]
    assert (leaves.action, set(moved(leaves))) == (Action.UPDATE, {"flows"})
    assert leaves.reason == "reconfigured without a restart: flow.third"


def test_a_flow_between_clusters_that_the_job_knows_joins_without_a_restart() -> None:
    found = changes(topology(ORDERS, PAYMENTS), applied(topology(ORDERS)))["job.dc2"]

    assert found.action is Action.UPDATE
    assert found.reason.startswith("reconfigured without a restart: ")


@pytest.mark.parametrize(
    ("job", "what"),
    [
        (Job("dc2", metrics_port=None), {"metrics": ({"host": "127.0.0.1", "port": 0}, None)}),
        (
            Job("dc2", metrics_host="::", metrics_port=9),
            {"metrics": ({"host": "127.0.0.1", "port": 0}, {"host": "::", "port": 9})},
        ),
        (Job("dc2", metrics_partitions=0), {"metrics.partitions": (2000, 0)}),
    ],
)
def test_metrics_are_told_without_a_restart(job: Job, what: dict[str, tuple[object, object]]) -> None:
    shop = replace(topology(ORDERS), jobs={"dc2": job})

    found = changes(shop, applied(topology(ORDERS)))

    assert (found["job.dc2"].action, moved(found["job.dc2"])) == (Action.UPDATE, what)
    assert found["job.dc2"].reason == "reconfigured without a restart"
    assert found["flow.orders"].action is Action.NO_OP


def test_a_flow_that_leaves_says_what_it_leaves_behind() -> None:
    found = changes(topology(PAYMENTS), applied(topology(ORDERS, PAYMENTS), lag={"orders": 1_200}))

    assert found["flow.orders"].action is Action.DELETE
    assert found["flow.orders"].notes == (
        "leaves 1,200 records uncopied at the source",
        "offsets of the consumer groups .* are no longer translated",
        "if it comes back it resumes from its ledger: nothing is lost or copied twice",
    )
    assert found["job.dc2"].action is Action.UPDATE


def test_a_flow_that_ended_and_leaves_has_nothing_left_to_copy() -> None:
    ended = topology(replace(ORDERS, state=FlowState.PROMOTED), PAYMENTS)

    found = changes(topology(PAYMENTS), applied(ended))

    assert found["flow.orders"].notes == ("it ended before: promoted",)


def test_the_last_flow_takes_its_job_along() -> None:
    assert actions(topology(), applied(topology(ORDERS))) == {
        "flow.orders": Action.DELETE,
        "job.dc2": Action.DELETE,
    }


def test_a_job_whose_flows_all_ended_is_stopped_and_not_missed() -> None:
    shop = topology(replace(ORDERS, state=FlowState.FAILED_OVER))

    found = changes(shop, applied(topology(ORDERS)))
    assert (found["flow.orders"].action, found["job.dc2"].action) == (Action.UPDATE, Action.DELETE)

    after = world(running(spec(shop), live=False), owned=entries(spec(shop))[1:])
    assert actions(shop, after) == {"flow.orders": Action.NO_OP}


def test_a_flow_that_changes_its_job() -> None:
    shop = topology(ORDERS, replace(PAYMENTS, job="own"))

    found = changes(shop, applied(topology(ORDERS, PAYMENTS)))

    assert moved(found["flow.payments"]) == {"job": ("dc2", "own")}
    assert found["job.own"].action is Action.CREATE
    assert found["job.dc2"].action is Action.UPDATE


def test_starting_over_says_what_comes_twice() -> None:
    shop = topology(replace(ORDERS, restart_from=StartAt("earliest")))

    found = changes(shop, applied(topology(ORDERS)))["flow.orders"]

    assert moved(found) == {"restart_from": (None, "earliest")}
    assert ["a second time" in note for note in found.notes] == [True]


def test_starting_over_by_offsets_says_that_the_others_stay() -> None:
    shop = topology(replace(ORDERS, restart_from=StartAtOffsets({"a": {0: 42}})))

    found = changes(shop, applied(topology(ORDERS)))["flow.orders"]

    assert moved(found) == {"restart_from": (None, {"offsets": {"a": {"0": 42}}})}
    assert found.notes[1] == "partitions that restart_from does not name stay where they are"


def test_another_topologys_job_is_left_alone() -> None:
    shop = topology(ORDERS)
    theirs = replace(running(spec(shop)), topology="billing")

    assert changes(shop, world(theirs))["job.dc2"].reason == "run by topology 'billing'"


def test_what_can_not_be_read_is_unknown() -> None:
    shop = topology(ORDERS)
    silent = observed(cluster(live("a")), Unreachable("dc2", "gone"))
    blind = observed(cluster(live("a")), cluster(name="dc2", unreadable={"jobs": "not authorized"}))

    for seen, why in ((silent, "dc2 unreachable"), (blind, "not authorized")):
        found = changes(shop, seen)
        assert {one.action for one in found.values()} == {Action.UNKNOWN}
        assert found["job.dc2"].reason == f"(unknown: {why})"


def test_destroy_stops_and_forgets_all() -> None:
    shop = topology(ORDERS)

    found = diff_destroy(applied(shop), shop)

    assert {one.address: one.action for one in found} == {
        flow_address("orders"): Action.DELETE,
        job_address("dc2"): Action.DELETE,
    }


def drifted(shop: Topology, seen: Observed) -> dict[str, dict[str, tuple[object, object]]]:
    return {
        str(one.address): moved(one) for one in drift(expand(shop, seen), seen) if one.action is Action.UPDATE
    }


def test_a_dead_job_is_drift() -> None:
    shop = topology(ORDERS)

    assert drifted(shop, applied(shop)) == {}
    assert drifted(shop, applied(shop, live=False)) == {"job.dc2": {"state": ("running", "not running")}}


def test_a_flow_that_somebody_told_otherwise_is_drift() -> None:
    shop = topology(ORDERS)
    otherwise = spec(topology(replace(ORDERS, state=FlowState.PAUSED)))

    assert drifted(shop, world(running(otherwise), owned=entries(spec(shop)))) == {
        "flow.orders": {"state": ("active", "paused")}
    }


def checked_out(ca: str, folder: str, *flows: Flow, **job: object) -> tuple[Topology, PurePath]:
    """A topology whose clusters name a CA by a reference, and the folder that it is planned in."""
    client = {"ssl.ca.location": SecretRef("file", ca)}
    clusters = [Cluster(name, f"{name}:9092", client=client) for name in ("dc1", "dc2")]
    shop = topology(*flows, clusters=clusters)
    return replace(shop, jobs={"dc2": Job("dc2", **job)}), PurePath(folder)  # type: ignore[arg-type]


def planned_after(applied_first: tuple[Topology, PurePath], then: tuple[Topology, PurePath]) -> Plan:
    """The plan of one checkout, beside the job that another one started."""
    shop, folder = applied_first
    nothing = observed(cluster(live("a")), cluster(name="dc2"))
    first = expand(shop, nothing, folder)
    seen = simulate(make_plan(first, nothing, diff(first, nothing, shop), shop).steps, nothing)
    shop, folder = then
    desired = expand(shop, seen, folder)
    return make_plan(desired, seen, diff(desired, seen, shop), shop)


@pytest.mark.parametrize("ca", ["ca.pem", "../certs/ca.pem", "/etc/repl/ca.pem"])
def test_another_checkout_of_the_same_topology_changes_nothing(ca: str) -> None:
    made = planned_after(checked_out(ca, "/home/ada", ORDERS), checked_out(ca, "/builds/7", ORDERS))

    assert made.steps == ()


def test_another_file_in_the_same_folder_is_a_new_start() -> None:
    made = planned_after(
        checked_out("old/ca.pem", "/home/ada", ORDERS), checked_out("ca.pem", "/home/ada", ORDERS)
    )

    assert {"stop:job.dc2", "launch:job.dc2"} <= {step.id for step in made.steps}


def test_an_edit_from_another_checkout_leaves_the_job_the_paths_of_its_machine() -> None:
    slower = replace(ORDERS, rate_limit=5)
    made = planned_after(
        checked_out("ca.pem", "/home/ada", ORDERS), checked_out("ca.pem", "/builds/7", slower)
    )

    (told,) = [step for step in made.steps if isinstance(step, ReconfigureJob)]
    assert jobspec.decode(told.spec).clusters["dc1"].client == {
        "ssl.ca.location": {"file": "/home/ada/./ca.pem"}
    }


def test_a_new_start_from_another_checkout_takes_the_paths_of_that_one() -> None:
    made = planned_after(
        checked_out("ca.pem", "/home/ada", ORDERS), checked_out("ca.pem", "/builds/7", ORDERS, memory="2g")
    )

    (start,) = [step for step in made.steps if isinstance(step, LaunchJob)]
    assert jobspec.decode(start.spec).clusters["dc1"].client == {
        "ssl.ca.location": {"file": "/builds/7/./ca.pem"}
    }
    (change,) = [one for one in made.changes if one.address == job_address("dc2")]
    assert moved(change) == {"memory": ("1g", "2g")}


def test_a_job_of_an_older_release_names_its_files_without_the_mark() -> None:
    shop, folder = checked_out("ca.pem", "/home/ada", ORDERS)
    seen = observed(cluster(live("a")), cluster(name="dc2"))
    (job,) = expand(shop, seen, folder).jobs
    assert job.spec is not None
    old = jobspec.decode(jobspec.encode(job.spec).replace(b"/./", b"/"))
    found = world(running(old), owned=entries(old))

    changed = diff(expand(shop, found, folder), found, shop)

    assert {one.action for one in changed if one.address.kind is Kind.JOB} == {Action.NO_OP}


def test_the_order_of_patterns_in_the_file_changes_nothing() -> None:
    several = replace(
        ORDERS,
        topics=Selection(("a", "b"), ("c", "d")),
        promoted=("x", "y"),
        groups=Groups(Selection(("g", "h"))),
    )
    turned = replace(
        ORDERS,
        topics=Selection(("b", "a"), ("d", "c")),
        promoted=("y", "x"),
        groups=Groups(Selection(("h", "g"))),
    )

    assert actions(topology(turned), applied(topology(several))) == {
        "flow.orders": Action.NO_OP,
        "job.dc2": Action.NO_OP,
    }


def test_a_rename_by_regex_is_not_the_table_that_reads_like_it() -> None:
    """Both are shown as `orders -> sales`."""
    regex, table = (
        replace(ORDERS, rename=Match("orders", "sales")),
        replace(ORDERS, rename=Table((("orders", "sales"),))),
    )

    found = changes(topology(table), applied(topology(regex)))["flow.orders"]

    assert moved(found) == {
        "rename": ({"match": "orders", "to": "sales"}, {"table": {"orders": "sales"}}),
    }
