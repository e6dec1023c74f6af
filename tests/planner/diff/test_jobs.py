"""Jobs and flows: wanted × running → what is started, told, started over, stopped, or left alone."""

from pathlib import PurePath

import pytest
from msgspec import structs

from planner.diff.differ import diff, drift
from planner.diff.fields import displayed
from planner.diff.record import flow_entry, job_entry
from planner.graph.expansion import expand
from planner.model.change import Action, Change
from planner.model.observed import LiveJob, Observed, Unreachable
from planner.model.topology import Cluster, Job, Selection, Topology
from planner.plan.make import plan_from
from planner.plan.steps.jobs import LaunchJob, ReconfigureJob
from runtime.contract.client.stores import Setting
from runtime.contract.spec.flow import AtOffsets, Earliest, GroupsSpec
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.launch import MetricsSpec
from runtime.contract.spec.rename import Match, Table, Template
from tests.fakes.replacing import replace
from tests.fakes.simulated import running, simulate
from tests.fakes.states import SHOP, cluster, flow, inputs, live, observed, topology
from tests.fakes.tables import cases
from tests.planner.diff.said import moves
from tests.planner.graph import build

ORDERS, PAYMENTS = flow("orders"), flow("payments")
PAUSED = structs.replace(ORDERS, state="paused")
OVER = structs.replace(ORDERS, state="failed_over")
PROMOTED = structs.replace(ORDERS, state="promoted")
NOTHING = observed(cluster(live("a")), cluster(name="dc2"))
DC1, DC2, DC3 = (Cluster(name, bootstrap=f"{name}:9092") for name in ("dc1", "dc2", "dc3"))


def spec(shop: Topology) -> JobSpec:
    (job,) = expand(shop, NOTHING).jobs
    assert job.spec is not None
    return job.spec


def world(*jobs: LiveJob, registered: JobSpec | None = None, forgotten: int = 0) -> Observed:
    runs = registered
    entries = (
        [job_entry(runs, SHOP), *(flow_entry(one, runs.job, SHOP) for one in runs.flows)] if runs else []
    )
    return observed(cluster(live("a")), replace(cluster(name="dc2", owned=entries[forgotten:]), jobs=jobs))


def applied(shop: Topology, **more: object) -> Observed:
    """As an apply left it."""
    return world(running(spec(shop), **more), registered=spec(shop))  # type: ignore[arg-type]


def with_job(**more: object) -> Topology:
    return replace(topology(ORDERS), jobs={"dc2": Job("dc2", **more)})  # type: ignore[arg-type]


def with_clusters(dc1: Cluster = DC1, dc2: Cluster = DC2, *more: Cluster) -> Topology:
    return topology(ORDERS, clusters=(dc1, dc2, *more))


def client(at: Cluster, **keys: Setting) -> Cluster:
    return structs.replace(at, client={key.replace("_", "."): value for key, value in keys.items()})


def changes(shop: Topology, seen: Observed) -> dict[str, Change]:
    found = diff(expand(shop, seen), seen)
    return {str(one.address): one for one in found if one.address.cluster is None}


ONE, TWO = topology(ORDERS), topology(ORDERS, PAYMENTS)
SLOWER = topology(structs.replace(ORDERS, rate_limit=50_000_000), PAYMENTS)
THEIRS = world(replace(running(spec(ONE)), topology="billing"))
BLIND = observed(cluster(live("a")), cluster(name="dc2", unreadable={"jobs": "not authorized"}))
SILENT = observed(cluster(live("a")), Unreachable("dc2", "gone"))
SAME = "flow.orders:NO_OP job.dc2:NO_OP"
TOLD = "flow.orders:UPDATE job.dc2:UPDATE"
STARTED = "flow.orders:NO_OP job.dc2:CREATE"
PATTERNS, TURNED = (
    structs.replace(
        ORDERS,
        topics=Selection(tuple(topics)),
        promoted=tuple(topics),
        groups=GroupsSpec(tuple(topics)),
    )
    for topics in ("ab", "ba")
)
KILLED = world(running(spec(ONE), live=False, state="dead"), registered=spec(ONE))
UNKNOWN = "flow.orders:UNKNOWN job.dc2:UNKNOWN"


@cases(
    "shop seen done job_says",
    {
        "new": (
            TWO,
            world(),
            "flow.orders:CREATE flow.payments:CREATE job.dc2:CREATE",
            "copies flow.orders, flow.payments",
        ),
        "as applied": (ONE, applied(ONE), SAME, ""),
        "not registered, adopted": (ONE, world(running(spec(ONE))), SAME, ""),
        "in another order": (topology(TURNED), applied(topology(PATTERNS)), SAME, ""),
        "never ran": (ONE, world(registered=spec(ONE)), STARTED, "not running: it never sent a heartbeat"),
        "died": (ONE, KILLED, STARTED, "2026-01-01 00:00:00 UTC"),
        "stopped": (ONE, applied(ONE, live=False), STARTED, "2026-01-01 00:00:00 UTC"),
        "edited": (
            SLOWER,
            applied(TWO),
            "flow.orders:UPDATE flow.payments:NO_OP job.dc2:UPDATE",
            "reconfigured without a restart: flow.orders",
        ),
        "paused": (topology(PAUSED), applied(ONE), TOLD, "reconfigured without a restart: flow.orders"),
        "a flow joins": (
            TWO,
            applied(ONE),
            "flow.orders:UPDATE flow.payments:CREATE job.dc2:UPDATE",
            "reconfigured without a restart: ",
        ),
        "a flow leaves": (
            topology(PAYMENTS),
            applied(TWO),
            "flow.orders:DELETE flow.payments:UPDATE job.dc2:UPDATE",
            "",
        ),
        "the last flow leaves": (topology(), applied(ONE), "flow.orders:DELETE job.dc2:DELETE", ""),
        "all flows end": (topology(OVER), applied(ONE), "flow.orders:UPDATE job.dc2:DELETE", ""),
        "all flows ended": (
            topology(OVER),
            world(running(spec(topology(OVER)), live=False), registered=spec(topology(OVER)), forgotten=1),
            "flow.orders:NO_OP",
            "",
        ),
        "an end is not complete": (
            topology(OVER, PAYMENTS),
            applied(topology(OVER, PAYMENTS), ending=("orders",)),
            "flow.orders:NO_OP flow.payments:NO_OP job.dc2:UPDATE",
            "not complete yet: the end of flow.orders",
        ),
        "another topology's": (ONE, THEIRS, "flow.orders:NO_OP job.dc2:NO_OP", "run by topology 'billing'"),
        "silent": (ONE, SILENT, UNKNOWN, "(unknown: dc2 unreachable)"),
        "unreadable": (ONE, BLIND, UNKNOWN, "(unknown: not authorized)"),
    },
)
def test_what_becomes_of_flows_and_their_job(shop, seen, done, job_says) -> None:
    found = changes(shop, seen)
    assert " ".join(f"{address}:{one.action.name}" for address, one in found.items()) == done
    assert not job_says or job_says in found["job.dc2"].reason
    assert all(one.adopted for one in found.values()) is (seen == world(running(spec(ONE))) and shop is ONE)


@cases(
    "before after fields",
    {
        "memory": (ONE, with_job(memory="2g"), {"memory": ("1g", "2g")}),
        "slots": (ONE, with_job(slots=3), {"slots": (None, 3)}),
        "conf": (ONE, with_job(conf={"spark.x": "y"}), {"conf": ({}, {"spark.x": "y"})}),
        "master": (ONE, with_job(master="local[4]"), {"master": ("local[2]", "local[4]")}),
        # A running job trusts no record that says how a cluster is reached.
        "the source": (
            with_clusters(),
            with_clusters(structs.replace(DC1, bootstrap="moved:9092")),
            {"clusters.dc1.bootstrap": ("dc1:9092", "moved:9092")},
        ),
        "the destination": (
            with_clusters(),
            with_clusters(dc2=structs.replace(DC2, bootstrap="moved:9092")),
            {"clusters.dc2.bootstrap": ("dc2:9092", "moved:9092")},
        ),
        "a reference": (
            with_clusters(client(DC1, sasl_password={"env": "A"})),
            with_clusters(client(DC1, sasl_password={"env": "B"})),
            {"clusters.dc1.client.sasl.password": ({"env": "A"}, {"env": "B"})},
        ),
        "a client key": (
            with_clusters(),
            with_clusters(dc2=client(DC2, sasl_username="other")),
            {"clusters.dc2.client.sasl.username": (None, "other")},
        ),
    },
)
def test_what_a_running_job_can_not_take_over_starts_it_again(before, after, fields) -> None:
    found = changes(after, applied(before, lag={"orders": 12}))["job.dc2"]
    assert (found.action, {one.key: (one.old, one.new) for one in found.fields}) == (Action.REPLACE, fields)
    assert found.reason == f"will be restarted: {next(iter(fields))}: a running job can't take that over"
    assert found.notes[0].startswith("all its flows pause for seconds while it restarts")
    assert "12 records are waiting" in found.notes[0]
    assert "resumes exactly" in found.notes[0]


def test_a_flow_from_a_cluster_that_the_job_does_not_know_starts_it_again() -> None:
    clusters = (DC1, DC2, client(DC3, sasl_password={"env": "DC3"}))
    third = flow("third", source_cluster="dc3", topics=Selection(("b",)))
    both = topology(ORDERS, third, clusters=clusters)
    comes = changes(both, applied(ONE))["job.dc2"]
    assert comes.action is Action.REPLACE
    assert comes.reason == "will be restarted: clusters.dc3: a running job can't take that over"
    assert "clusters.dc3.bootstrap: None -> dc3:9092" in moves(comes)
    leaves = changes(topology(ORDERS, clusters=clusters), applied(both))["job.dc2"]
    assert (leaves.action, {one.key for one in leaves.fields}) == (Action.UPDATE, {"flows"})
    assert leaves.reason == "reconfigured without a restart: flow.third"


HOST = {"host": "127.0.0.1", "port": 0}
STAY = "mirror topics that it no longer fills stay as they are"
LEFT = (
    "leaves 1,200 records uncopied at the source",
    "offsets of the consumer groups .* are no longer translated",
    "if it comes back it resumes from its ledger: nothing is lost or copied twice",
)
REGEX, TABLE = {"match": "orders", "to": "sales"}, {"table": {"orders": "sales"}}
MANY = {"offsets": {"a": {"0": 42}}}


def orders(**more: object) -> Topology:
    return topology(structs.replace(ORDERS, **more))


def selecting(*include: str, exclude: tuple[str, ...] = (), default: bool = True) -> Topology:
    return orders(topics=Selection(include, exclude, default_exclude=default))


ELSEWHERE = MetricsSpec(host="::", port=9)


@cases(
    "before after field",
    {
        "metrics off": (ONE, with_job(metrics=None), f"job.dc2 metrics: {HOST} -> None"),
        "metrics elsewhere": (
            ONE,
            with_job(metrics=ELSEWHERE),
            f"job.dc2 metrics: {HOST} -> { ({'host': '::', 'port': 9}) }",
        ),
        "metrics of partitions": (
            ONE,
            with_job(metrics=MetricsSpec(partitions=0)),
            "job.dc2 metrics.partitions: 2000 -> 0",
        ),
        "a limit": (TWO, SLOWER, "flow.orders rate_limit: None -> 50000000"),
        "a state": (ONE, topology(PAUSED), "flow.orders state: active -> paused"),
        "another job": (
            TWO,
            topology(ORDERS, structs.replace(PAYMENTS, job="own")),
            "flow.payments job: dc2 -> own",
        ),
        # Both are shown as `orders -> sales`.
        "a regex that reads like a table": (
            orders(rename=Match("orders", "sales")),
            orders(rename=Table({"orders": "sales"})),
            f"flow.orders rename: {REGEX} -> {TABLE}",
        ),
    },
)
def test_what_is_told_to_a_running_job(before, after, field) -> None:
    found = changes(after, applied(before))
    address = field.partition(" ")[0]
    assert [f"{address} {move}" for move in moves(found[address])] == [field]
    assert all(one.action is not Action.REPLACE for one in found.values())


@cases(
    "before after notes",
    {
        "a limit": (TWO, SLOWER, ()),
        "more topics": (selecting("a"), selecting("a", "b"), ()),
        "fewer topics": (selecting("a", "b"), selecting("a"), (STAY,)),
        "more excluded": (selecting(".*"), selecting(".*", exclude=("tmp",)), (STAY,)),
        "fewer excluded": (selecting(".*", exclude=("tmp",)), selecting(".*"), ()),
        "default excluded": (selecting(".*", default=False), selecting(".*"), (STAY,)),
        "default included": (selecting(".*"), selecting(".*", default=False), ()),
        "left": (TWO, topology(PAYMENTS), LEFT),
        "left after its end": (
            topology(PROMOTED, PAYMENTS),
            topology(PAYMENTS),
            ("it ended before: promoted",),
        ),
    },
)
def test_what_follows_from_a_change_of_a_flow(before, after, notes) -> None:
    found = changes(after, applied(before, lag={"orders": 1_200}))
    assert found["flow.orders"].notes == notes
    assert all(one.action is not Action.REPLACE for one in found.values())


@cases(
    "start field says",
    {
        "all": (Earliest(), "restart_from: None -> earliest", ["a second time"]),
        "by offsets": (
            AtOffsets({"a": {0: 42}}),
            f"restart_from: None -> {MANY}",
            ["", "partitions that restart_from does not name stay where they are"],
        ),
    },
)
def test_starting_over_says_what_comes_twice_and_what_stays(start, field, says) -> None:
    found = changes(orders(restart_from=start), applied(ONE))["flow.orders"]
    assert moves(found) == [field]
    assert all(part in note for part, note in zip(says, found.notes, strict=True))


DIED = "last heartbeat 2026-01-01 00:00:00 UTC, when it said that it stopped"


@cases(
    "seen drifted",
    {
        "as applied": (applied(ONE), {}),
        "an end is not complete": (applied(ONE, ending=("orders",)), {}),
        "a dead job": (applied(ONE, live=False), {"job.dc2": [f"state: running -> not running ({DIED})"]}),
        "told otherwise": (
            world(running(spec(topology(PAUSED))), registered=spec(ONE)),
            {"flow.orders": ["state: active -> paused"]},
        ),
    },
)
def test_drift_of_a_job(seen, drifted) -> None:
    found = drift(expand(ONE, seen), seen)
    assert {str(one.address): moves(one) for one in found if one.action is Action.UPDATE} == drifted


# Two checkouts of one topology, whose clusters name a CA by a reference.


def checkout(ca: str = "ca.pem", folder: str = "/home/ada", *, rate_limit: int | None = None, **job: object):
    clusters = [client(one, ssl_ca_location={"file": ca}) for one in (DC1, DC2)]
    shop = topology(structs.replace(ORDERS, rate_limit=rate_limit), clusters=clusters)
    return replace(shop, jobs={"dc2": Job("dc2", **job)}), PurePath(folder)  # type: ignore[arg-type]


def plan_of(shop: Topology, folder: PurePath, seen: Observed = NOTHING):
    return plan_from(inputs(shop, seen, folder=str(folder)))


SEVENTH = "/builds/7"
ADAS = {"file": "/home/ada/./ca.pem"}


@cases(
    "first then kinds ca",
    {
        "another folder": (checkout(), checkout(folder=SEVENTH), [], None),
        "above it": (checkout("../ca.pem"), checkout("../ca.pem", SEVENTH), [], None),
        "an absolute path": (checkout("/etc/ca.pem"), checkout("/etc/ca.pem", SEVENTH), [], None),
        "another file": (checkout("old/ca.pem"), checkout(), [LaunchJob], ADAS),
        "an edit keeps the paths of its machine": (
            checkout(),
            checkout(folder=SEVENTH, rate_limit=5),
            [ReconfigureJob],
            ADAS,
        ),
        "a new start takes the paths of this one": (
            checkout(),
            checkout(folder=SEVENTH, memory="2g"),
            [LaunchJob],
            {"file": f"{SEVENTH}/./ca.pem"},
        ),
    },
)
def test_a_plan_from_another_checkout(first, then, kinds, ca) -> None:
    seen = simulate(plan_of(*first).steps, NOTHING)
    shop, folder = then
    made = plan_of(shop, folder, seen)
    told = [step for step in made.steps if isinstance(step, LaunchJob | ReconfigureJob)]
    assert [type(step) for step in told] == kinds
    assert bool(made.steps) is bool(kinds)
    for step in told:
        assert step.spec.clusters["dc1"].client == {"ssl.ca.location": ca}
    if "2g" in str(then):
        assert [moves(one) for one in made.changes if str(one.address) == "job.dc2"] == [["memory: 1g -> 2g"]]


# What a plan shows of a new flow: its groups, why this provenance, and the names that a failback undoes.

PREFIXED = build.flow("there=dc1>dc2", r"shop\..*", rename=Template("{source}.{topic}"))
LOST = structs.replace(PREFIXED, state="failed_over")
HOME = build.flow("back=dc2>dc1", reverse_of="there")
F = build.flow("f=dc1>dc2", "a")


def shown(name: str, seen: Observed, *flows):
    (change,) = [
        one for address, one in changes(build.topology(*flows), seen).items() if address == f"flow.{name}"
    ]
    return {field.key: field for field in change.fields}


@pytest.mark.parametrize("count", [2, 25])
def test_a_failback_shows_the_names_that_come_back_and_why_it_filters(count: int) -> None:
    names = [f"shop.t{number:02}" for number in range(count)]
    seen = observed(
        build.cluster("dc1", *names[1:]), build.cluster("dc2", *(f"dc1.{name}" for name in names))
    )
    fields = shown("back", seen, LOST, HOME)
    assert fields["topics"].new == {f"dc1.{name}": name for name in names}
    assert not {"rename", "topics.include"} & fields.keys()
    assert (fields["provenance"].new, fields["provenance"].note) == (
        "batch",
        "auto: what came from dc1 is not copied back",
    )
    value = displayed(fields["topics"].path, fields["topics"].new)
    assert isinstance(value, tuple)
    assert len(value) == min(count, 21)
    assert (value[-1] == "5 more") is (count == 25)


G, H = build.flow("g=dc2>dc3", "a"), build.flow("h=dc3>dc1", "a")
RETURNS = build.flow("g=dc2>dc1", "a")


@cases(
    "flows mode reason",
    {
        "one way": ([F], "off", "auto: no flow copies these topics back to dc1"),
        "both ways": ([F, RETURNS], "batch", "auto: dc1 and dc2 copy topics to each other under one name"),
        "a ring": ([F, G, H], "headers", "auto: records can loop over more than two clusters"),
        "the other has headers": (
            [F, structs.replace(RETURNS, provenance="headers")],
            "headers",
            "auto: a flow of the same loop needs headers",
        ),
        "declared": ([structs.replace(F, provenance="off")], "off", ""),
    },
)
def test_provenance_says_why(flows, mode: str, reason: str) -> None:
    field = shown("f", observed(*(build.cluster(name, "a") for name in ("dc1", "dc2", "dc3"))), *flows)[
        "provenance"
    ]
    assert (field.new, field.note) == (mode, reason)
