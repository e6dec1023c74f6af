"""How far the waves of cutovers are: write pause, stragglers, the gate, the drain, and what is edited."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from planner.config import load
from planner.diff.record import flow_entry
from planner.graph.cutovers import WaveTopics, waves_of
from planner.model.address import Address, Kind, flow_address
from planner.model.change import Action, Change
from planner.model.diagnostic import Failure
from planner.model.observed import RegistryEntry, acl_spec
from planner.model.plan import Mode, Plan, PlanInputs
from planner.model.step import ApplyRecord, Result, StepResult
from planner.model.topology import Cluster, Cutover, Fence, Topology, Wave
from planner.plan.steps.acls import CreateAcl
from planner.plan.steps.registry import Own
from planner.workflows.audit.waves import (
    SourceFences,
    fence_at_source,
    fenced_at,
    pause_of,
    readers_left,
    state_of,
    stragglers,
    waves_seen,
)
from planner.workflows.flows.cutover import (
    check_ledgers_read,
    check_returns_alone,
    is_fence_written,
    wave_to_return,
)
from planner.workflows.flows.fence import (
    LiveFence,
    check_jobs_may_write,
    check_still_fenced,
    fence_in,
    is_live,
    warn_of_rules_that_stay,
)
from planner.workflows.flows.handing_out import leaves
from planner.workflows.flows.wave_edits import (
    check_fenced,
    check_promotes_only,
    check_returned,
    fence_edit,
    promote_edit,
    promoted_after_return,
    return_edit,
)
from planner.workflows.flows.wave_waits import CopiesKeepUp, SeenWave, not_drained
from planner.workflows.requests import CutoverRequest
from runtime.contract.results.records import (
    ConsumerGroup,
    ConsumerPosition,
    GroupMember,
    TopicClients,
    TopicProducer,
)
from runtime.contract.results.status import FlowHealth, PartitionHealth, ReplicationStatus, TopicHealth
from runtime.contract.results.waves import WaveState
from runtime.contract.spec.acls import denial
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.selection import SelectionSpec
from tests.planner.graph.build import cluster, flow, observed, topology


def wave(
    *topics: str, others: tuple[str, ...] = (), patterns: tuple[str, ...] = ("orders.*",), **more: Any
) -> WaveTopics:
    declared = Wave("billing", patterns, fenced=True)
    cutover = Cutover("to-cloud", ("go",), (declared,), Fence.ACL)
    names = {"go": topics or ("orders",)}
    return WaveTopics(cutover, declared, names, {"go": frozenset()}, {"go": others}, **more)


def shop() -> Topology:
    return topology(flow("go=dc1>dc2"))


FENCE = denial("dc1", "orders", "User:*")
FENCE_STEP = CreateAcl(
    f"create:acl.dc1.{FENCE.name}", Address(Kind.ACL, "dc1", FENCE.name), "dc1", rule=FENCE
)


def flow_step(state: Any = "active", *promoted: str) -> Own:
    spec = FlowSpec(
        name="go",
        source="dc1",
        destination="dc2",
        topics=SelectionSpec(include=(".*",)),
        state=state,
        promoted=promoted,
    )
    return Own("own:flow.go", flow_address("go"), "dc2", entry=flow_entry(spec, "dc2", "t"))


def applied(at_ms: int, *steps: Any, result: Result = Result.DONE) -> ApplyRecord:
    return ApplyRecord(
        id=str(at_ms),
        topology="t",
        mode="apply",
        plan="",
        user="",
        host="",
        pid=1,
        git=None,
        clusters={},
        total=len(steps),
        started_ms=at_ms,
        finished_ms=at_ms + 500,
        steps=steps,
        outcomes={step.id: StepResult(result) for step in steps},
    )


@pytest.mark.parametrize(
    ("history", "fenced", "promoted"),
    [
        ([], None, None),
        ([applied(1_000, FENCE_STEP)], None, None),
        (
            [applied(1_000, FENCE_STEP, result=Result.FAILED), applied(2_000, flow_step("promoted"))],
            None,
            2_500,
        ),
        ([applied(1_000, FENCE_STEP), applied(2_000, flow_step("active", "orders"))], 1_000, 2_500),
        ([applied(1_000, FENCE_STEP), applied(2_000, flow_step("promoted"))], 1_000, 2_500),
        ([applied(1_000, FENCE_STEP), applied(2_000, flow_step("active", "refunds"))], None, None),
        # A topic was created behind the promotion, and fenced.
        (
            [applied(1_000, FENCE_STEP), applied(2_000, flow_step("promoted")), applied(8_000, FENCE_STEP)],
            1_000,
            2_500,
        ),
        # It was taken back and fenced again; the flow is recorded again for another wave.
        (
            [
                applied(1_000, FENCE_STEP),
                applied(5_000, FENCE_STEP),
                applied(6_000, flow_step("active", "orders")),
                applied(9_000, flow_step("promoted")),
            ],
            5_000,
            6_500,
        ),
    ],
)
def test_the_history_says_when_a_wave_was_fenced_and_promoted(
    history: list[ApplyRecord], fenced: int | None, promoted: int | None
) -> None:
    assert pause_of(wave(), fenced_at(wave(), shop(), history), history) == (fenced, promoted)


def partition(
    number: int = 0, *, end: int = 10, position: int = 10, high: int | None = None
) -> PartitionHealth:
    values: dict[str, Any] = dict.fromkeys(PartitionHealth.__struct_fields__)
    values |= {"topic": "orders", "partition": number, "state": "caught_up", "why": "", "next": ""}
    values |= {"needs_someone": False, "foreign_writes": False, "records": 0, "bytes": 0, "dropped": 0}
    values |= {"given_up": 0, "quarantined": 0, "tombstones": 0, "source_end": end, "position": position}
    values |= {"source_high_watermark": end if high is None else high, "lag_records": max(end - position, 0)}
    return PartitionHealth(**values)


def health(*partitions: PartitionHealth) -> TopicHealth:
    return TopicHealth(
        topic="orders",
        destination_topic="orders",
        state="caught_up",
        lag_records=sum(part.lag_records or 0 for part in partitions),
        lag_ms=0,
        records_per_s=None,
        bytes_per_s=None,
        partitions=list(partitions),
    )


def producer(at_ms: int, flow: str | None = None) -> TopicProducer:
    return TopicProducer(
        producer_id=7,
        epoch=0,
        transactional_id="shop",
        flow=flow,
        last_timestamp_ms=at_ms,
        partitions=[0],
        open_since={},
    )


def group(*members: str) -> ConsumerGroup:
    there = [GroupMember(client_id=name, host="h", member_id=name, partitions=[0]) for name in members]
    return ConsumerGroup(
        group="billing", state="Stable", members=there, lag=0, records_per_s=None, partitions=[]
    )


@pytest.mark.parametrize(
    ("end", "producers", "groups", "left"),
    [
        (10, [producer(2_000)], [group()], []),
        (13, [producer(2_000)], [group()], [(3, ("shop",), ())]),
        (13, [producer(500)], [], [(3, (), ())]),  # its newest record is older than the promotion
        (13, [producer(2_000, "back")], [], [(3, (), ())]),  # a flow of ours
        (10, [], [group("one")], [(0, (), ("billing",))]),
    ],
)
def test_what_clients_still_do_at_the_source_is_told(
    end: int, producers: list[TopicProducer], groups: list[ConsumerGroup], left: list[Any]
) -> None:
    at_source = TopicClients(topic="orders", partitions=1, producers=producers, consumers=groups)
    found = stragglers([health(partition(end=end))], [at_source], since_ms=1_000)
    assert [(one.records, one.producers, one.groups) for one in found] == left


def reading(name: str, *positions: tuple[int | None, int], members: int = 1) -> ConsumerGroup:
    """A group with what it committed in each partition, and the ends of these."""
    partitions = [
        ConsumerPosition(
            partition=number,
            offset=offset,
            end=end,
            lag=end - offset if offset is not None else None,
            records_per_s=None,
        )
        for number, (offset, end) in enumerate(positions)
    ]
    there = [GroupMember(client_id=name, host="h", member_id=name, partitions=[0])] * members
    return ConsumerGroup(
        group=name, state="Stable", members=there, lag=None, records_per_s=None, partitions=partitions
    )


@pytest.mark.parametrize(
    ("topic", "group", "left"),
    [
        ("orders", reading("billing", (7, 10), (5, 5)), {"billing": 3}),
        ("orders", reading("billing", (None, 10)), {"billing": 10}),  # it never committed
        ("orders", reading("billing", (10, 10)), {}),
        ("orders", reading("billing", (7, 10), members=0), {}),
        ("orders", reading("audit", (7, 10)), {}),
        ("refunds", reading("billing", (7, 10)), {}),
    ],
)
def test_groups_of_the_wave_that_still_read_at_the_source_are_waited_for(
    topic: str, group: ConsumerGroup, left: dict[str, int]
) -> None:
    declared = Wave("billing", ("orders",), groups=("billing",))
    (of_orders,) = waves_of(Cutover("to-cloud", ("go",), (declared,)), shop(), {"go": ["orders"]})
    clients = TopicClients(topic=topic, partitions=2, producers=[], consumers=[group])
    assert readers_left(of_orders, [clients]) == left


def seen(*partitions: PartitionHealth) -> SeenWave:
    return SeenWave([health(*partitions)], "")


def test_the_gate_compares_with_what_the_source_held_a_look_before() -> None:
    now = 100.0
    gate = CopiesKeepUp(0, 2.0, lambda: now)
    assert gate.left(seen(partition(end=10, position=5))) == "5 records behind, the gate allows 0"
    now += 1
    assert "must hold for 2 s" in gate.left(seen(partition(end=15, position=10)))  # producers go on
    now += 1
    assert "must hold for 2 s" in gate.left(seen(partition(end=20, position=16)))
    now += 1
    assert gate.left(seen(partition(end=25, position=20))) == ""


def test_a_gate_that_was_lost_begins_again() -> None:
    now = 100.0
    gate = CopiesKeepUp(2, 1.0, lambda: now)
    assert gate.left(seen(partition(end=10, position=8)))
    now += 1
    assert gate.left(seen(partition(end=20, position=5))).startswith("5 records behind")
    now += 1
    assert gate.left(seen(partition(end=20, position=20)))
    now += 1
    assert gate.left(seen(partition(end=20, position=20))) == ""


def test_time_in_which_nothing_was_seen_does_not_reach_the_gate() -> None:
    now = 100.0
    gate = CopiesKeepUp(0, 30.0, lambda: now)
    assert gate.left(seen(partition(end=10, position=10)))
    now += 10
    assert gate.left(SeenWave([], "job.dc2 does not run")) == "job.dc2 does not run"
    now += 20
    assert gate.left(seen(partition(end=100_000, position=10))).startswith("99,990 records behind")
    now += 1
    assert gate.left(seen(partition(end=100_000, position=100_000)))
    now += 29
    assert gate.left(SeenWave([], "flow.go: a lag is not known"))
    now += 1
    assert "must hold for 30 s" in gate.left(seen(partition(end=100_000, position=100_000)))


@pytest.mark.parametrize(
    ("looks", "quiet_s", "left"),
    [
        ([(10, 10, 10), (10, 10, 10)], 0, ""),
        ([(10, 10, 10)], 0, "all is copied; looking once more"),
        ([(10, 10, 10), (10, 10, 12)], 0, "transactions are open in orders-0"),
        ([(10, 7, 10), (10, 7, 10)], 0, "3 records are left to copy"),
        ([(10, 10, 10), (11, 11, 11)], 0, "records come in: orders"),
        # A look a second. Without rules a producer that connects again gets a request through.
        ([(10, 10, 10)] * 2, 2, "all is copied; no record may come in for 2 s"),
        ([(10, 10, 10)] * 3, 2, ""),
        ([(10, 10, 10), (10, 10, 10), (11, 11, 11), (11, 11, 11)], 2, "all is copied; no record may come in"),
    ],
)
def test_a_wave_is_drained_when_nothing_is_left_and_nothing_comes(
    looks: list[tuple[int, int, int]], quiet_s: float, left: str
) -> None:
    now = 100.0
    left_of = not_drained(quiet_s, lambda: now)
    for end, position, high in looks:
        last = left_of(seen(partition(end=end, position=position, high=high)))
        now += 1
    assert last.startswith(left)
    assert bool(last) is bool(left)


FENCED_TOPIC = Address(Kind.ACL, "dc1", FENCE.name)
NEW_RULE = denial("dc1", "orders.new", "User:*")
NEW_TOPIC = Address(Kind.ACL, "dc1", NEW_RULE.name)


def recorded(address: Address, wave: str = "billing", *, created: bool = True) -> RegistryEntry:
    rule = FENCE if address == FENCED_TOPIC else NEW_RULE
    return RegistryEntry(
        address, "t", spec=acl_spec(rule), origin=f"cutover to-cloud, wave {wave}", created=created
    )


OWNED = (recorded(FENCED_TOPIC),)


def planned(
    actions: dict[Address, Action],
    *steps: Any,
    answers: bool = True,
    acls: Any = (FENCE,),
    owned: tuple[RegistryEntry, ...] = OWNED,
) -> Plan:
    source = [cluster("dc1", "orders", acls=acls, owned=owned)] if answers else []
    live = observed(*source, cluster("dc2"))
    changes = tuple(Change(address, action, "") for address, action in actions.items())
    return Plan(PlanInputs(release="", mode=Mode.APPLY, topology=shop(), observed=live), changes, steps)


def owned_by_wave(address: Address, wave: str = "billing") -> Own:
    return Own(f"own:{address}", address, "dc1", entry=recorded(address, wave))


@pytest.mark.parametrize(
    ("plan", "begun", "missing"),
    [
        (planned({FENCED_TOPIC: Action.NO_OP}), True, set()),
        # Killed behind the edit: the YAML says fenced, the source does not.
        (planned({FENCED_TOPIC: Action.CREATE}, acls=(), owned=()), False, {FENCED_TOPIC}),
        (planned({FENCED_TOPIC: Action.CREATE}, acls=()), False, {FENCED_TOPIC}),  # removed by hand
        (planned({FENCED_TOPIC: Action.UNKNOWN}, acls=()), False, {FENCED_TOPIC}),
        (planned({}, answers=False), False, {FENCED_TOPIC}),
        # Without an authorizer no rule can be made.
        (planned({FENCED_TOPIC: Action.NO_OP}, acls=None), False, {FENCED_TOPIC}),
        # Somebody else's rule of last year stops the producers of one topic: nobody has fenced the wave.
        (planned({FENCED_TOPIC: Action.NO_OP}, owned=()), False, set()),
        (
            planned(
                {FENCED_TOPIC: Action.NO_OP, NEW_TOPIC: Action.CREATE}, owned_by_wave(NEW_TOPIC), owned=()
            ),
            False,
            {NEW_TOPIC},
        ),
        # A topic that was created since belongs to the wave too.
        (
            planned({FENCED_TOPIC: Action.NO_OP, NEW_TOPIC: Action.CREATE}, owned_by_wave(NEW_TOPIC)),
            True,
            {NEW_TOPIC},
        ),
        (
            planned({FENCED_TOPIC: Action.NO_OP, NEW_TOPIC: Action.CREATE}, owned_by_wave(NEW_TOPIC, "rest")),
            True,
            set(),
        ),
    ],
)
def test_the_source_says_whether_a_wave_is_fenced(plan: Plan, begun: bool, missing: set[Address]) -> None:
    fence = fence_in(plan, wave())
    assert fence.begun is begun
    assert fence.missing == missing
    assert fence.is_complete(wave()) is not bool(missing)
    not_fenced = replace(wave(), wave=replace(wave().wave, fenced=False))
    assert not fence.is_complete(not_fenced)
    assert LiveFence().is_complete(replace(not_fenced, cutover=replace(wave().cutover, fence=Fence.NONE)))
    if missing:
        with pytest.raises(Failure, match="not at the source any more"):
            check_still_fenced(wave(), plan)
    else:
        check_still_fenced(wave(), plan)


def limited(name: str, origin: str, rate: float = 1) -> RegistryEntry:
    address = Address(Kind.QUOTA, "dc1", f"client-id/{name}")
    return RegistryEntry(address, "t", spec={"producer_byte_rate": str(rate)}, origin=origin)


@pytest.mark.parametrize(
    ("entry", "fenced", "live"),
    [
        (limited("shop", "cutover to-cloud, wave billing"), False, True),
        # The limit of a declared quota. Killed behind the edit of --back: the key is gone, the limit is not.
        (limited("shop", "declared"), False, True),
        (limited("shop", "declared", 5_000), False, False),
        # A producer that the wave shares with one that has moved.
        (limited("shop", "cutover to-cloud, wave first"), False, False),
        (limited("shop", "cutover to-cloud, wave first"), True, True),
        (limited("other", "cutover to-cloud, wave first"), True, False),
    ],
)
def test_a_limit_is_of_the_wave_that_it_was_made_for(entry: RegistryEntry, fenced: bool, live: bool) -> None:
    declared = Wave("billing", ("orders",), producers=("shop",), fenced=fenced)
    cutover = Cutover("to-cloud", ("go",), (declared,), Fence.QUOTA)
    (of_orders,) = waves_of(cutover, shop(), {"go": ["orders"]})
    quotas = {entry.address.name: entry.limits}
    source = cluster("dc1", "orders", quotas=quotas, owned=(entry,))
    plan = Plan(PlanInputs(release="", mode=Mode.APPLY, topology=shop(), observed=observed(source)), (), ())
    assert is_live(of_orders, plan) is live


@pytest.mark.parametrize(
    ("created", "principal", "producers", "stays", "refused"),
    [
        (True, "User:*", (), False, False),
        (False, "User:*", (), True, True),
        (False, "User:repl", ("User:app", "User:repl"), True, True),
        (False, "User:app", ("User:app", "User:repl"), True, False),
        (False, "User:app", ("User:app",), True, False),
    ],
)
def test_a_rule_that_was_there_before_the_fence_stops_the_way_back_only_where_it_stops_the_job(
    created: bool, principal: str, producers: tuple[str, ...], stays: bool, refused: bool
) -> None:
    clusters = {name: Cluster(name, bootstrap="a:1", principal="User:repl") for name in ("dc1", "dc2")}
    declared = topology(flow("go=dc1>dc2"), clusters=clusters)
    rule = denial("dc1", "orders", principal)
    address = Address(Kind.ACL, "dc1", rule.name)
    entry = replace(recorded(FENCED_TOPIC, created=created), address=address, spec=acl_spec(rule))
    source = cluster("dc1", "orders", acls=(rule,), owned=(entry,))
    plan = Plan(PlanInputs(release="", mode=Mode.APPLY, topology=declared, observed=observed(source)), (), ())
    of_orders = wave()
    of_orders = replace(of_orders, wave=replace(of_orders.wave, producers=producers))
    warned: list[Any] = []
    warn_of_rules_that_stay([of_orders], warned.append, plan)
    assert [str(address) in told.diagnostic.summary for told in warned] == [True] * stays
    if refused:
        with pytest.raises(Failure, match="there before it was fenced, so not removed, and denying WRITE"):
            check_jobs_may_write([of_orders], plan)
    else:
        check_jobs_may_write([of_orders], plan)


@pytest.mark.parametrize(
    ("ledger", "reverse", "fenced", "state"),
    [
        ("promoted", None, True, WaveState.MOVED),
        ("promoted", "active", True, WaveState.RETURNING),
        ("promoted", "failed_over", False, WaveState.RETURNING),
        ("promoted", "promoted", True, WaveState.MOVED),  # of an earlier return
        ("unknown", None, True, WaveState.UNKNOWN),  # the destination is silent
        ("caught_up", None, True, WaveState.FENCED),
        ("caught_up", None, False, WaveState.WAITING),
    ],
)
def test_the_ledgers_say_whether_a_wave_that_the_topology_promotes_has_moved(
    ledger: str, reverse: Any, fenced: bool, state: WaveState
) -> None:
    flows = [flow("go=dc1>dc2", state="promoted")]
    if reverse is not None:
        flows.append(flow("go-back=dc2>dc1", reverse_of="go", state=reverse))
    declared = topology(*flows, cutovers=(Cutover("to-cloud", ("go",), (Wave("billing", ("orders",)),)),))
    (of_orders,) = waves_of(declared.cutovers[0], declared, {"go": ["orders"]})
    assert state_of(of_orders, declared, flow_status(ledger), fenced=fenced) is state


def flow_status(state: str, *topics: str, answers: bool = True) -> ReplicationStatus:
    values: dict[str, Any] = dict.fromkeys(FlowHealth.__struct_fields__)
    topic = replace(health(partition()), state=state)
    values |= {"name": "go", "topics": [replace(topic, topic=name) for name in topics or ("orders",)]}
    values |= {"source_answers": True, "destination_answers": answers, "why": "destination dc2 is away"}
    return ReplicationStatus(
        topology="t", at_ms=0, over_ms=0, clusters=[], jobs=[], flows=[FlowHealth(**values)]
    )


@pytest.mark.parametrize("named", [None, "billing"])
def test_no_wave_returns_while_the_ledgers_do_not_say_whether_it_has_moved(named: str | None) -> None:
    request = CutoverRequest(path=Path("t.yaml"), cutover="to-cloud", wave=named, back=True)
    check_ledgers_read([wave()], flow_status("promoted"), request)
    with pytest.raises(Failure, match=r"is not known: flow\.go: destination dc2 is away"):
        check_ledgers_read([wave()], flow_status("unknown", answers=False), request)


@pytest.mark.parametrize(
    ("fenced", "fence", "shown", "stops", "text"),
    [
        (True, Fence.ACL, {FENCE.name}, True, "1 of 1 rules at dc1"),
        (True, Fence.ACL, set(), False, "missing at dc1"),
        (False, Fence.ACL, {FENCE.name}, True, "1 of 1 rules at dc1, though the topology has no fence"),
        (False, Fence.ACL, {"another"}, False, "not made"),
        (True, Fence.ACL, None, True, "dc1 could not be read"),
        (True, Fence.QUOTA, {"client-id/shop"}, True, "1 of 2 quotas at dc1"),
        # A rule that was there before: no apply has made it.
        (False, Fence.ACL, {FENCE.name, "of others"}, False, "not made"),
        (True, Fence.NONE, None, True, "none"),
    ],
)
def test_the_status_shows_the_fence_that_is_at_the_source(
    fenced: bool, fence: Fence, shown: set[str] | None, stops: bool, text: str
) -> None:
    producers = ("shop", "desk") if fence is Fence.QUOTA else ()
    declared = Wave("billing", ("orders",), producers=producers, fenced=fenced)
    (of_orders,) = waves_of(Cutover("to-cloud", ("go",), (declared,), fence), shop(), {"go": ["orders"]})
    made = (recorded(FENCED_TOPIC), limited("shop", "cutover to-cloud, wave billing"))
    owned = () if shown is not None and "of others" in shown else made
    source_has = SourceFences(owned, frozenset(shown)) if shown is not None else None
    assert fence_at_source(of_orders, shop(), source_has) == (stops, text)


@pytest.mark.parametrize(
    ("fenced", "live", "moved", "chosen"),
    [
        ("a", [], [], "a"),
        ("ab", ["a", "b"], ["b"], "a"),
        # Cut behind the edit of --back: the rules are there, the key is not.
        ("", ["a"], [], "a"),
        ("a", ["a", "b"], ["a"], "b"),
    ],
)
def test_the_way_back_takes_the_last_wave_that_is_fenced_and_has_not_moved(
    fenced: str, live: list[str], moved: list[str], chosen: str
) -> None:
    declared = tuple(Wave(name, (name,), fenced=name in fenced) for name in "abc")
    waves = waves_of(Cutover("to-cloud", ("go",), declared), shop(), {"go": ["a", "b", "c"]})
    request = CutoverRequest(path=Path("t.yaml"), cutover="to-cloud", back=True)
    assert wave_to_return(waves, moved, live, request).wave.name == chosen


def test_no_wave_returns_where_none_has_begun() -> None:
    waves = waves_of(Cutover("to-cloud", ("go",), (Wave("a", ("a",)),)), shop(), {"go": ["a"]})
    request = CutoverRequest(path=Path("t.yaml"), cutover="to-cloud", back=True)
    with pytest.raises(Failure, match="has begun"):
        wave_to_return(waves, [], [], request)
    with pytest.raises(Failure, match="moved to the destination"):
        wave_to_return(waves, ["a"], ["a"], request)


TEXT = """\
apiVersion: repl/v1
name: t
clusters: {dc1: {bootstrap: a:1}, dc2: {bootstrap: b:1}}
flows:
  - name: go
    from: dc1
    to: dc2
    topics: {include: ['.*']}
"""


def in_waves(topics: str, *before: str) -> WaveTopics:
    """The wave `last` of the flow go: its topics, behind waves with one pattern each.

    A word with ! is a pattern whose topic does not exist yet.
    """
    names = tuple(f"{name.strip('!')}" for name in before)
    declared = (*(Wave(name, (name,)) for name in names), Wave("last", tuple(topics.split()), fenced=True))
    there = [name for name in before if not name.endswith("!")]
    taken = {"go": [*there, *(topic for topic in ("orders", "b", "c.d") if topic not in names)]}
    return waves_of(Cutover("to-cloud", ("go",), declared), shop(), taken)[-1]


@pytest.mark.parametrize(
    ("moving", "written"),
    [
        (in_waves(".*"), "state: promoted"),
        # The pattern would take a topic of another wave along, or one that is created later.
        (in_waves("b c.*", "a"), "promoted: ['b', 'c\\.d']"),
        (in_waves(".*", "a!"), "promoted: ['b', 'c\\.d', 'orders']"),
    ],
)
def test_the_promotion_of_a_wave_takes_only_its_topics(
    tmp_path: Path, moving: WaveTopics, written: str
) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(TEXT)
    after: dict[Path, str] = {}
    promote_edit(after, load(file), moving)
    assert after[file] == TEXT.replace("  - name: go\n", f"  - name: go\n    {written}\n")


@pytest.mark.parametrize(
    ("promoted", "waves", "stays"),
    [
        (("orders",), (("orders",),), ()),
        (("orders.*",), (("orders.*",),), ()),
        (("gone.*",), (("orders", "gone.*"),), ()),  # the topics of the wave were deleted
        (("legacy", "orders"), (("orders",),), ("legacy",)),
        (("later.*", "orders"), (("orders",),), ("later.*",)),
        ((".*",), (("orders",), (".*",)), ()),
        ((".*",), (("orders",),), None),
        ((), (("orders",),), "untouched"),
        (("legacy",), (("orders",),), "untouched"),
    ],
)
def test_only_topics_of_returning_waves_leave_promoted(
    tmp_path: Path, promoted: tuple[str, ...], waves: tuple[tuple[str, ...], ...], stays: Any
) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(TEXT.replace("    to: dc2\n", f"    to: dc2\n    promoted: {list(promoted)}\n"))
    declared = load(file)
    cutover = Cutover("to-cloud", ("go",), tuple(Wave(f"w{at}", names) for at, names in enumerate(waves)))
    status = flow_status("promoted", "orders", "legacy", "__repl.heartbeats")
    returning = waves_seen(cutover, declared, status)
    if stays is None:
        with pytest.raises(Failure, match="takes in topics of the waves that return, and"):
            promoted_after_return(declared, returning, status)
        return
    after = promoted_after_return(declared, returning, status)
    assert after == ({} if stays == "untouched" else {"go": stays})
    edits: dict[Path, str] = {}
    return_edit(edits, declared, after)
    for edited in edits:
        edited.write_text(edits[edited])
    check_returned(after, load(file))
    if after:
        with pytest.raises(Failure, match="what is promoted of flow go is set elsewhere"):
            check_returned(after, declared)


@pytest.mark.parametrize(
    ("promoted", "topics", "switch", "refused"),
    [
        (("orders",), ("orders", "__repl.heartbeats"), False, ""),
        (("orders",), ("orders", "legacy"), False, "the topic legacy is copied by the flows of the wave"),
        ((), ("orders",), False, "a part of the wave billing is not promoted"),
        ((), ("orders",), True, ""),  # a switch that was cut behind its edit
    ],
)
def test_a_wave_returns_alone_where_its_flows_are_its_own_and_all_of_it_has_moved(
    promoted: tuple[str, ...], topics: tuple[str, ...], switch: bool, refused: str
) -> None:
    declared = topology(flow("go=dc1>dc2", promoted=promoted))
    status = flow_status("promoted", *topics)
    cutover = Cutover("to-cloud", ("go",), (Wave("billing", ("orders",)),))
    (moving,) = waves_seen(cutover, declared, status)
    request = CutoverRequest(path=Path("t.yaml"), cutover="to-cloud", back=True, switch=switch)
    if refused:
        with pytest.raises(Failure, match=refused):
            check_returns_alone(declared, moving, status, request)
    else:
        check_returns_alone(declared, moving, status, request)


@pytest.mark.parametrize("fenced", [False, True])
def test_the_yaml_says_whether_an_apply_of_the_fence_may_have_begun(tmp_path: Path, fenced: bool) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(
        f"{TEXT}cutovers:\n  - name: to-cloud\n    flows: [go]\n"
        f"    waves: [{{name: billing, topics: [orders], fenced: {str(fenced).lower()}}}]\n"
    )
    request = CutoverRequest(path=file, cutover="to-cloud")
    assert is_fence_written(wave(), request) is fenced
    file.write_text("no topology")
    assert is_fence_written(wave(), request)


def test_the_flows_of_a_cutover_end_with_its_last_wave(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(f"{TEXT}  - {{name: too, from: dc1, to: dc2, topics: {{include: [refunds]}}}}\n")
    waves = Wave("first", ("orders",)), Wave("rest", (".*",))
    cutover = Cutover("to-cloud", ("go", "too"), waves)
    taken = {"go": ["orders"], "too": ["refunds"]}
    texts = []
    for wave_at in (0, 1):
        before, after = load(file), dict[Path, str]()
        promote_edit(after, before, waves_of(cutover, before, taken)[wave_at])
        file.write_text(after[file])
        flows = load(file).flows
        texts.append([(flows[name].state, flows[name].promoted) for name in ("go", "too")])
    assert texts == [
        [("active", ("orders",)), ("active", ())],
        [("promoted", ("orders",)), ("promoted", ())],
    ]


@pytest.mark.parametrize(
    ("at_source", "refused"),
    [(("orders",), False), (("orders", "orders.new"), True), (("orders", "__consumer_offsets"), False)],
)
def test_a_topic_that_no_job_copies_yet_is_never_promoted(at_source: tuple[str, ...], refused: bool) -> None:
    before = topology(flow("go=dc1>dc2"))
    edited = topology(flow("go=dc1>dc2", state="promoted"))
    live = observed(cluster("dc1", *at_source), cluster("dc2", "orders"))
    plan = Plan(PlanInputs(release="", mode=Mode.APPLY, topology=edited, observed=live), (), ())
    if refused:
        with pytest.raises(Failure, match=r"the topic orders\.new would be promoted with the wave billing"):
            check_promotes_only(wave(), before, plan)
    else:
        check_promotes_only(wave(), before, plan)


def test_a_symbolic_link_leads_no_file_out_of_the_folder(tmp_path: Path) -> None:
    folder, other = tmp_path / "topology", tmp_path / "other"
    for made in (folder / "clients", other):
        made.mkdir(parents=True)
    (folder / "linked").symlink_to(other)
    assert leaves(folder / "linked" / "billing.properties", folder)
    assert not leaves(folder / "clients" / "billing.properties", folder)


SHARED = """\
apiVersion: repl/v1
name: t
clusters: {dc1: {bootstrap: a:1}, dc2: {bootstrap: b:1}}
flows:
  - {name: go, from: dc1, to: dc2, topics: {include: [orders]}}
  - {name: too, from: dc1, to: dc2, topics: {include: [refunds]}}
cutovers:
  - name: first
    flows: [go]
    waves: &waves
      - {name: billing, topics: ['.*']}
  - name: second
    flows: [too]
    waves: WAVES
"""


@pytest.mark.parametrize(
    ("waves", "shared"), [("*waves", True), ("[{name: billing, topics: ['.*']}]", False)]
)
def test_the_fence_of_one_cutover_never_fences_another(tmp_path: Path, waves: str, shared: bool) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(SHARED.replace("WAVES", waves))
    before = load(file)
    taken = {"go": ["orders"], "too": ["refunds"]}
    of_first = waves_of(before.cutovers[0], before, taken)[0]
    edits: dict[Path, str] = {}
    fence_edit(edits, [of_first], fenced=True)
    file.write_text(edits[file])
    after = load(file)
    if shared:
        with pytest.raises(Failure, match="shares its text with the cutover second"):
            check_fenced([of_first], after, fenced=True)
    else:
        check_fenced([of_first], after, fenced=True)
        assert [wave.fenced for cutover in after.cutovers for wave in cutover.waves] == [True, False]
