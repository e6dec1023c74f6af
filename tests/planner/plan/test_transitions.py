"""Which state of a flow, and of a topic that is promoted alone, may follow which."""

import dataclasses
from typing import Final, get_args

import pytest
from msgspec.structs import replace

from planner.model.diagnostic import ExitCode, worst
from planner.model.observed import Observed, Unreachable
from planner.model.plan import Plan
from planner.model.topology import Cluster, Cutover, Flow, Policies, Topic, Topology, Wave
from planner.plan.steps.acls import DeleteAcl
from planner.plan.steps.jobs import ReconfigureJob
from planner.plan.steps.topics import AlterConfigs
from planner.plan.transitions import may_follow
from runtime.contract.client.stores import Setting
from runtime.contract.records.failback import restart_request
from runtime.contract.records.ledger import Generation
from runtime.contract.spec.flow import Earliest, FlowState, Latest
from tests.fakes.states import acl, cluster, flow, live, observed, topology
from tests.fakes.tables import cases
from tests.planner.plan.jobs import applied, at, changes, jobs_as, plan, refused, steps_of, there, touched

ACTIVE: Final = "active"
PAUSED: Final = "paused"
PROMOTED: Final = "promoted"
FAILED: Final = "failed_over"
PAY = r"pay\..*"
X = flow("x")
BACK = flow("x-back", source_cluster="dc2", destination_cluster="dc1", job="dc1", reverse_of="x")
WORLD = observed(cluster(live("orders"), live("pay.eu"), live("pay.us")), cluster(name="dc2"))
LATEST, EARLIEST = Latest(), Earliest()


def planned(after: Flow, before: Flow, *more: Flow) -> Plan:
    return plan(topology(after, *more), applied(topology(before), WORLD))


def refusals(made: Plan) -> list[str | None]:
    return [
        address for code, address, exit_ in refused(made) if (code, exit_) == ("transition", ExitCode.REFUSED)
    ]


@pytest.mark.parametrize("after", get_args(FlowState))
@pytest.mark.parametrize("before", get_args(FlowState))
def test_a_flow_ends_once(before: FlowState, after: FlowState) -> None:
    legal = before == after or before in (ACTIVE, PAUSED)
    made = planned(replace(X, state=after), replace(X, state=before))
    assert refusals(made) == ([] if legal else ["flow.x"])
    legal_ones = {
        ACTIVE: "from active a flow becomes paused, promoted or failed_over",
        PAUSED: "from paused a flow becomes active, promoted or failed_over",
        PROMOTED: "from promoted a flow becomes active, over a promoted reverse flow",
        FAILED: "from failed_over a flow becomes active, over a promoted reverse flow",
    }
    assert may_follow(before).startswith(legal_ones[before])


@cases(
    "before after legal",
    {
        "a new start begins a promoted flow again": ({"state": PROMOTED}, {"restart_from": LATEST}, True),
        "or one that failed over": ({"state": FAILED}, {"restart_from": LATEST}, True),
        "it begins active": ({"state": FAILED}, {"state": PAUSED, "restart_from": LATEST}, False),
        "the same start never begins it twice": (
            {"state": FAILED, "restart_from": LATEST},
            {"restart_from": LATEST},
            False,
        ),
    },
)
def test_a_flow_begins_again_over_a_new_start(before, after, legal) -> None:
    assert refusals(planned(replace(X, **after), replace(X, **before))) == ([] if legal else ["flow.x"])


@pytest.mark.parametrize("source", ["answers", "gone"])
@pytest.mark.parametrize(
    ("after", "ending", "legal"), [(FAILED, True, True), (FAILED, False, False), (PAUSED, True, False)]
)
def test_a_promotion_that_is_not_complete_may_fail_over(
    after, ending: bool, legal: bool, source: str
) -> None:
    """Its source may be gone before the last record is copied. Once it has ended, it stays promoted."""
    seen = applied(topology(replace(X, state=PROMOTED), flow("y")), WORLD)
    seen = jobs_as(seen, ending=("x",) if ending else ())
    if source == "gone":
        seen = Observed({**seen.clusters, "dc1": Unreachable("dc1", "silent")})
    made = plan(topology(replace(X, state=after), flow("y")), seen)
    assert refusals(made) == ([] if legal else ["flow.x"])


def test_a_way_back_that_never_ran_begins_none() -> None:
    assert refusals(planned(X, replace(X, state=FAILED), replace(BACK, state=PROMOTED))) == ["flow.x"]


SECOND = ((1, 0), (0, 0))


@cases(
    "before after lives found",
    {
        "promoted with its way back": ((PROMOTED, ACTIVE), (ACTIVE, PROMOTED), None, []),
        "failed over, and back": ((FAILED, ACTIVE), (ACTIVE, PROMOTED), None, []),
        "the way back was promoted before": ((FAILED, PROMOTED), (ACTIVE, PROMOTED), None, []),
        "it failed over again since": ((FAILED, PROMOTED), (ACTIVE, PROMOTED), SECOND, ["flow.x"]),
        "it goes back a second time": ((FAILED, PROMOTED), (FAILED, ACTIVE), SECOND, []),
        "a file from before the switch": ((ACTIVE, PROMOTED), (FAILED, ACTIVE), SECOND, ["flow.x-back"]),
        "the way back ended": ((FAILED, PROMOTED), (FAILED, ACTIVE), None, ["flow.x-back"]),
        "the other side is lost on the way back": ((FAILED, ACTIVE), (FAILED, FAILED), None, []),
        "x is the way back of its way back": ((FAILED, FAILED), (ACTIVE, FAILED), None, []),
    },
)
def test_a_flow_begins_again_over_its_way_back(before, after, lives, found) -> None:
    """`lives` are the life of each flow, and by which life of the other it began."""
    seen = applied(topology(replace(X, state=before[0]), replace(BACK, state=before[1])))
    for one, name, state, (life, began) in zip(
        ("x", "x-back"), ("dc2", "dc1"), before, lives or ((0, -1), (0, 0)), strict=True
    ):
        generation = Generation(1, "j", state, "d", [], "", "", 0, life=life, after=began)
        seen = at(seen, name, generations={one: generation})
    shop = topology(replace(X, state=after[0]), replace(BACK, state=after[1]))
    assert refusals(plan(shop, seen)) == found


RESTART = replace(X, restart_from=LATEST)
ENDED = Generation(3, "dc2", FAILED, "d", [], "", "", 0)


@cases(
    "after generation found",
    {
        "it ended": (X, ENDED, ["flow.x"]),
        "paused": (replace(X, state=PAUSED), ENDED, ["flow.x"]),
        "another end": (replace(X, state=PROMOTED), ENDED, ["flow.x"]),
        "the same end": (replace(X, state=FAILED), ENDED, []),
        "stopped": (X, replace(ENDED, state="stopped"), []),
        "never there": (X, None, []),
        "a new start": (RESTART, ENDED, []),
        "the start of before": (
            RESTART,
            replace(ENDED, restarted=restart_request(RESTART)),
            ["flow.x"],
        ),
    },
)
def test_a_flow_that_ended_and_left_the_topology_comes_back_as_its_ledger_allows(
    after: Flow, generation: Generation | None, found: list[str]
) -> None:
    """The registry has forgotten it: only the ledger tells."""
    seen = WORLD if generation is None else at(WORLD, "dc2", generations={"x": generation})
    made = plan(topology(after), seen)
    assert refusals(made) == found
    if found:
        (refusal,) = (str(one) for one in made.diagnostics if one.code == "transition")
        assert f"was failed_over by its ledger at dc2, and can't become {after.state}" in refusal
        assert "a new restart_from" in refusal


def test_a_flow_that_moves_to_where_it_ended_before_is_refused() -> None:
    named = tuple(Cluster(name, bootstrap=f"{name}:9092") for name in ("dc1", "dc2", "dc3"))
    world = observed(cluster(live("orders")), cluster(name="dc2"), cluster(name="dc3"))
    there_before = replace(X, destination_cluster="dc3")
    seen = applied(topology(there_before, clusters=named), world)
    ended = at(seen, "dc2", generations={"x": ENDED})
    assert refusals(plan(topology(X, clusters=named), seen)) == []
    assert refusals(plan(topology(X, clusters=named), ended)) == ["flow.x"]


# Topics that a flow promotes on their own.


def promoting(*patterns: str, **more: object) -> Flow:
    return replace(X, promoted=patterns, **more)


@cases(
    "after legal",
    {
        "the same": (promoting(PAY), True),
        "one more": (promoting(PAY, "orders2"), True),
        "another": (promoting("orders"), False),
        "none": (X, False),
        "none, paused": (replace(X, state=PAUSED), False),
        "a new start": (replace(X, restart_from=LATEST), True),
        "the start of before": (replace(X, restart_from=EARLIEST), False),
        "the whole flow": (replace(X, state=PROMOTED), True),
    },
)
def test_what_was_promoted_stays_so(after: Flow, legal: bool) -> None:
    made = planned(after, before=promoting(PAY, restart_from=EARLIEST))
    assert refusals(made) == ([] if legal else ["flow.x"])


@pytest.mark.parametrize(("waves", "refused_"), [(("first", "rest"), False), (("first",), True)])
def test_a_flow_of_a_cutover_may_have_nothing_to_copy_until_its_last_wave(
    waves: tuple[str, ...], refused_: bool
) -> None:
    cutover = Cutover("to-cloud", ("x",), tuple(Wave(name, (name,)) for name in waves))
    after = dataclasses.replace(topology(promoting(".*")), cutovers=(cutover,))
    made = plan(after, applied(topology(X), WORLD))
    assert ("promotes-all" in [code for code, *_ in refused(made)]) is refused_


@cases(
    "before after code says",
    {
        "a stale file": (
            replace(X, state=FAILED),
            X,
            "transition",
            "flow.x: was failed_over, and can't become active — write state: failed_over|restart_from",
        ),
        "a stale file of promoted topics": (
            promoting(PAY),
            X,
            "transition",
            "become active — write pay\\..* under promoted|over a promoted reverse flow (repl failback)",
        ),
        "a name that is nearly right": (X, promoting("pay.e"), "promotes-nothing", "did you mean pay.eu?"),
        "a name of no topic": (X, promoting("zzz"), "promotes-nothing", "it copies orders, pay.eu, pay.us"),
        "all": (X, promoting(".*"), "promotes-all", "promote the flow: repl promote x"),
        "while it pauses": (X, promoting(PAY, state=PAUSED), "transition", "repl resume x"),
    },
)
def test_a_refusal_names_the_way_out(before: Flow, after: Flow, code: str, says: str) -> None:
    made = planned(after, before)
    (one,) = [one for one in made.diagnostics if one.code == code]
    assert all(part in str(one) for part in says.split("|"))
    assert not made.applyable
    assert worst(made.diagnostics) is one.exit


@pytest.mark.parametrize(
    ("before", "after"), [(X, promoting(PAY)), (promoting(PAY), X), (replace(X, state=FAILED), X)]
)
def test_a_source_that_does_not_answer_hides_no_refusal(before: Flow, after: Flow) -> None:
    """The job would be told all the same."""
    seen = applied(topology(before), WORLD)
    silent = Observed({**seen.clusters, "dc1": Unreachable("dc1", "no answer")})
    assert refusals(plan(topology(after), silent)) == ["flow.x"]


def test_the_plan_names_the_topics_and_leaves_their_mirrors() -> None:
    made = planned(promoting(PAY), X)
    change = changes(made)["flow.x"]
    assert change.reason == "promoted topics: pay.eu, pay.us"
    assert [(one.key, one.old, one.new) for one in change.fields] == [("promoted", (), (PAY,))]
    assert any("then their groups are moved a last time" in note for note in change.notes)
    assert [step.job for step in steps_of(made, ReconfigureJob)] == ["dc2"]
    assert touched(made) == {"flow.x", "job.dc2"}
    assert made.applyable
    after = applied(topology(promoting(PAY)), applied(topology(X), WORLD))
    grown = at(after, "dc1", topics={"orders": live("orders"), "pay.eu": live("pay.eu", 12)})
    assert touched(plan(topology(promoting(PAY)), grown)) == set()


def test_what_stays_promoted_when_the_flow_comes_back_is_said() -> None:
    gone = promoting(PAY, state=FAILED)
    stays, hint = changes(planned(promoting(PAY), gone))["flow.x"].notes
    assert stays == "stays promoted, and is not copied to dc2 again: pay.eu, pay.us"
    assert "take it out of promoted with this very change" in hint
    assert changes(planned(X, gone))["flow.x"].notes == ()


@pytest.mark.parametrize("after", [promoting(r"pay\.eu"), replace(X, state=PROMOTED)])
def test_a_declared_topic_keeps_what_the_flow_gave_it(after: Flow) -> None:
    """Its retention would fall back to the broker's, and its bounds before the last record is there."""
    declared = (Topic("pay.eu", "dc2", config={"max.message.bytes": "2000000"}),)
    source = cluster(live("orders"), live("pay.eu", retention_ms="100"))
    seen = applied(dataclasses.replace(topology(X), topics=declared), observed(source, cluster(name="dc2")))
    made = plan(dataclasses.replace(topology(after), topics=declared), seen)
    assert steps_of(made, AlterConfigs) == []
    assert made.applyable


# Rules for mirrors, which end with the flow or with the promotion of their topic.


def secured(one: Flow, **more: object) -> Topology:
    job: dict[str, Setting] = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "job",
        "sasl.password": {"env": "PASSWORD"},
    }
    clusters = (Cluster("dc1", bootstrap="dc1:9092"), Cluster("dc2", bootstrap="dc2:9092", client=job))
    protected = replace(one, **{"protect": "acl", "acls_sync": True, **more})
    return topology(protected, clusters=clusters, policies=Policies(max_deletes=1))


def copied(*readers: object, writers: tuple[object, ...] = ()) -> Observed:
    """x copies three topics with its rules; readers are allowed at the source, writers at the destination."""
    source = cluster(live("orders"), live("pay.eu"), live("pay.us"), acls=readers)  # type: ignore[arg-type]
    return applied(secured(X), observed(source, cluster(name="dc2", acls=writers, owned=())))  # type: ignore[arg-type]


WRITERS = tuple(
    acl("WRITE", cluster="dc2", resource=name, principal="User:shop") for name in ("pay.eu", "pay.us")
)


@pytest.mark.parametrize("after", [promoting(r"pay\.eu"), replace(X, state=PROMOTED)])
def test_writers_are_let_in_once_the_flow_has_ended_and_readers_stay(after: Flow) -> None:
    seen = copied(acl(resource="orders"), acl(resource="pay.eu"), writers=WRITERS[:1])
    assert len(there(seen).acls or ()) == 4
    (lifted,) = steps_of(plan(secured(after), seen), DeleteAcl)
    assert (lifted.rule.permission, lifted.rule.operation, lifted.rule.resource) == (
        "DENY",
        "WRITE",
        "pay.eu",
    )
    assert "own:flow.x" in lifted.needs


@pytest.mark.parametrize("after", [promoting(r"pay\.eu"), replace(X, state=FAILED)])
def test_readers_stay_when_the_topology_declares_what_was_a_mirror(after: Flow) -> None:
    """The team of the topic moved; its readers did not."""
    seen = applied(secured(after), copied(acl(resource="pay.eu")))
    declared = dataclasses.replace(secured(after), topics=(Topic("pay.eu", "dc2"),))
    for _ in range(2):  # as it is declared, and ever after
        assert steps_of(plan(declared, seen), DeleteAcl) == []
        seen = applied(declared, seen)


@cases(
    "after refused",
    {
        "a failover lifts it": (secured(replace(X, state=FAILED)), False),
        "a promotion lifts it": (secured(promoting(PAY)), False),
        "a file takes it back": (secured(X, protect="off"), True),
    },
)
def test_protection_that_ends_with_its_flow_counts_for_no_limit(after: Topology, refused: bool) -> None:
    made = plan(after, copied(writers=WRITERS))
    assert len(steps_of(made, DeleteAcl)) == 2
    assert ("max-deletes" in [one.code for one in made.diagnostics]) is refused


def test_a_rule_on_a_prefix_stays_one_when_a_topic_under_it_is_promoted() -> None:
    made = plan(secured(promoting(r"pay\.eu")), copied(acl(pattern="PREFIXED", resource="pay.")))
    assert touched(made) == {"flow.x", "job.dc2"}
    assert "acl-prefix" not in [one.code for one in made.diagnostics]
