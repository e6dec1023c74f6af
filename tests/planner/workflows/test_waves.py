"""How far the waves of cutovers are: write pause, stragglers, the gate, the drain, and what is edited."""

from contextlib import nullcontext
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
from planner.model.observed import ObservedCluster, RegistryEntry
from planner.model.plan import Mode, Plan, PlanInputs
from planner.model.step import ApplyRecord, Result, StepResult
from planner.model.topology import Cluster, Cutover, Fence, Topology, Wave
from planner.plan.steps.acls import CreateAcl
from planner.plan.steps.registry import Own
from planner.workflows.audit.waves import (
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
from planner.workflows.flows.edits import TopologyEdits
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
    check_promotes_only,
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
from runtime.contract.results.status import ReplicationStatus
from runtime.contract.results.waves import WaveState
from runtime.contract.spec.acls import denial
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.selection import SelectionSpec
from tests.fakes.blank import blank
from tests.fakes.health import flow_health, partition_health, status_of, topic_health
from tests.fakes.replacing import replace as changed
from tests.fakes.tables import cases
from tests.planner.graph.build import cluster, flow, observed, topology


def wave(
    *topics: str, patterns: tuple[str, ...] = ("orders.*",), fence: Fence = Fence.ACL, **declared: Any
) -> WaveTopics:
    """The wave billing, which is fenced unless a test says otherwise; its flow go copies these topics."""
    billing = Wave("billing", patterns, **{"fenced": True, **declared})
    cutover = Cutover("to-cloud", ("go",), (billing,), fence)
    return WaveTopics(cutover, billing, {"go": topics or ("orders",)}, {"go": frozenset()}, {"go": ()})


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
    done = {step.id: StepResult(result) for step in steps}
    record = ApplyRecord(str(at_ms), "t", "apply", "", "", "", 1, None, {}, len(steps), at_ms)
    return changed(record, finished_ms=at_ms + 500, steps=steps, outcomes=done)


def fenced(at_ms: int) -> ApplyRecord:
    return applied(at_ms, FENCE_STEP)


PROMOTED, ONE_PROMOTED = applied(2_000, flow_step("promoted")), applied(6_000, flow_step("active", "orders"))


@cases(
    "history pause",
    {
        "nothing was applied": ([], (None, None)),
        "it is fenced": ([fenced(1_000)], (None, None)),
        "its fence failed": ([applied(1_000, FENCE_STEP, result=Result.FAILED), PROMOTED], (None, 2_500)),
        "its topic is promoted": ([fenced(1_000), ONE_PROMOTED], (1_000, 6_500)),
        "its flow is promoted": ([fenced(1_000), PROMOTED], (1_000, 2_500)),
        "another topic is": ([fenced(1_000), applied(2_000, flow_step("active", "refunds"))], (None, None)),
        "a topic was created behind the promotion, and fenced": (
            [fenced(1_000), PROMOTED, fenced(8_000)],
            (1_000, 2_500),
        ),
        "it was taken back and fenced again, and the flow recorded for another wave": (
            [fenced(1_000), fenced(5_000), ONE_PROMOTED, applied(9_000, flow_step("promoted"))],
            (5_000, 6_500),
        ),
    },
)
def test_the_history_says_when_a_wave_was_fenced_and_promoted(history, pause) -> None:
    assert pause_of(wave(), fenced_at(wave(), shop(), history), history) == pause


def producer(at_ms: int, flow: str | None = None) -> TopicProducer:
    return blank(TopicProducer, transactional_id="shop", flow=flow, last_timestamp_ms=at_ms)


def group(name: str, *positions: tuple[int | None, int], members: int = 1) -> ConsumerGroup:
    """A group with what it committed in each partition, and the ends of these."""
    partitions = [
        blank(ConsumerPosition, offset=offset, end=end, lag=None if offset is None else end - offset)
        for offset, end in positions
    ]
    return blank(ConsumerGroup, group=name, members=[blank(GroupMember)] * members, partitions=partitions)


@cases(
    "end producers groups left",
    {
        "nothing": (10, [producer(2_000)], [group("billing", members=0)], []),
        "a producer writes": (13, [producer(2_000)], [group("billing", members=0)], [(3, ("shop",), ())]),
        "its newest record is older than the promotion": (13, [producer(500)], [], [(3, (), ())]),
        "a flow of ours writes": (13, [producer(2_000, "back")], [], [(3, (), ())]),
        "a group reads": (10, [], [group("billing")], [(0, (), ("billing",))]),
    },
)
def test_what_clients_still_do_at_the_source_is_told(end, producers, groups, left) -> None:
    at_source = blank(TopicClients, topic="orders", producers=producers, consumers=groups)
    found = stragglers([topic_health(partition_health(end=end))], [at_source], since_ms=1_000)
    assert [(straggler.records, straggler.producers, straggler.groups) for straggler in found] == left


@cases(
    "topic group left",
    {
        "it is behind in one partition": ("orders", group("billing", (7, 10), (5, 5)), {"billing": 3}),
        "it never committed": ("orders", group("billing", (None, 10)), {"billing": 10}),
        "it has read all": ("orders", group("billing", (10, 10)), {}),
        "it has no member": ("orders", group("billing", (7, 10), members=0), {}),
        "it is no group of the wave": ("orders", group("audit", (7, 10)), {}),
        "it is no topic of the wave": ("refunds", group("billing", (7, 10)), {}),
    },
)
def test_groups_of_the_wave_that_still_read_at_the_source_are_waited_for(topic, group, left) -> None:
    clients = blank(TopicClients, topic=topic, consumers=[group])
    assert readers_left(wave(groups=("billing",)), [clients]) == left


def seen(end: int, position: int, high: int | None = None) -> SeenWave:
    high = end if high is None else high
    return SeenWave(
        [topic_health(partition_health(end=end, position=position, source_high_watermark=high))], ""
    )


def unseen(why: str) -> SeenWave:
    return SeenWave([], why)


@cases(
    "lag for_s looks",
    {
        "what counts is what the source held a look before": (
            *(0, 2),
            [
                (1, seen(10, 5), "5 records behind, the gate allows 0"),
                (1, seen(15, 10), "must hold for 2 s"),  # producers go on
                (1, seen(20, 16), "must hold for 2 s"),
                (0, seen(25, 20), ""),
            ],
        ),
        "one that was lost begins again": (
            *(2, 1),
            [
                (1, seen(10, 8), "must hold for 1 s"),
                (1, seen(20, 5), "5 records behind"),
                (1, seen(20, 20), "must hold for 1 s"),
                (0, seen(20, 20), ""),
            ],
        ),
        "time in which nothing was seen does not count": (
            *(0, 30),
            [
                (10, seen(10, 10), "must hold for 30 s"),
                (20, unseen("job.dc2 does not run"), "job.dc2 does not run"),
                (1, seen(100_000, 10), "99,990 records behind"),
                (29, seen(100_000, 100_000), "must hold for 30 s"),
                (1, unseen("flow.go: a lag is not known"), "flow.go: a lag is not known"),
                (0, seen(100_000, 100_000), "must hold for 30 s"),
            ],
        ),
    },
)
def test_the_gate_opens_once_copies_have_kept_up_for_a_while(lag, for_s, looks) -> None:
    now = 100.0
    gate = CopiesKeepUp(lag, for_s, lambda: now)
    for seconds, look, left in looks:
        told = gate.left(look)
        assert left in told
        assert bool(told) is bool(left)
        now += seconds


@pytest.mark.parametrize(
    ("looks", "quiet_s", "left"),
    [
        ([(10, 10, 10), (10, 10, 10)], 0, ""),
        ([(10, 10, 10)], 0, "all is copied; looking once more"),
        ([(10, 10, 10), (10, 10, 12)], 0, "transactions are open in orders-0"),
        ([(0, 0, 1), (0, 0, 1)], 0, "transactions are open in orders-0"),
        ([(0, 0, 0), (0, 0, 0)], 0, ""),
        ([(10, 7, 10), (10, 7, 10)], 0, "3 records are left to copy"),
        ([(10, 10, 10), (11, 11, 11)], 0, "records come in: orders"),
        # A look a second. Without rules a producer that connects again gets a request through.
        ([(10, 10, 10)] * 2, 2, "all is copied; no record may come in for 2 s"),
        ([(10, 10, 10)] * 3, 2, ""),
        ([(10, 10, 10), (10, 10, 10), (11, 11, 11), (11, 11, 11)], 2, "all is copied; no record may come in"),
    ],
)
def test_a_wave_is_drained_when_nothing_is_left_and_nothing_comes(looks, quiet_s, left) -> None:
    now = 100.0
    left_of = not_drained(quiet_s, lambda: now)
    for end, position, high in looks:
        last = left_of(seen(end, position, high))
        now += 1
    assert last.startswith(left)
    assert bool(last) is bool(left)


FENCED_TOPIC = Address(Kind.ACL, "dc1", FENCE.name)
NEW_RULE = denial("dc1", "orders.new", "User:*")
NEW_TOPIC = Address(Kind.ACL, "dc1", NEW_RULE.name)


def recorded(address: Address, wave: str = "billing", *, created: bool = True) -> RegistryEntry:
    rule = FENCE if address == FENCED_TOPIC else NEW_RULE
    return RegistryEntry(
        address, "t", spec=rule.spec, origin=f"cutover to-cloud, wave {wave}", created=created
    )


OWNED = (recorded(FENCED_TOPIC),)


def planned(
    source: ObservedCluster | None, changes: dict[Address, Action], *steps: Any, of: Topology | None = None
) -> Plan:
    """A plan with these changes; without a `source` it does not answer."""
    live = observed(source or "dc1", cluster("dc2", "orders"))
    inputs = PlanInputs(release="", mode=Mode.APPLY, topology=of or shop(), observed=live)
    return Plan(inputs, tuple(Change(address, action, "") for address, action in changes.items()), steps)


def source(acls: Any = (FENCE,), owned: Any = OWNED, **more: Any) -> ObservedCluster:
    return cluster("dc1", "orders", acls=acls, owned=owned, **more)


def owned_by_wave(address: Address, wave: str = "billing") -> Own:
    return Own(f"own:{address}", address, "dc1", entry=recorded(address, wave))


UNCHANGED, NEW = {FENCED_TOPIC: Action.NO_OP}, {FENCED_TOPIC: Action.NO_OP, NEW_TOPIC: Action.CREATE}
MADE = {FENCED_TOPIC: Action.CREATE}


@cases(
    "plan begun missing",
    {
        "it is fenced": (planned(source(), UNCHANGED), True, set()),
        "killed behind the edit: the YAML says fenced, the source does not": (
            *(planned(source((), ()), MADE), False),
            {FENCED_TOPIC},
        ),
        "removed by hand": (planned(source(()), MADE), False, {FENCED_TOPIC}),
        "not known": (planned(source(()), {FENCED_TOPIC: Action.UNKNOWN}), False, {FENCED_TOPIC}),
        "without an authorizer no rule can be made": (
            *(planned(source(None), UNCHANGED), False),
            {FENCED_TOPIC},
        ),
        "a rule of last year stops the producers, and no apply has fenced the wave": (
            *(planned(source(owned=()), UNCHANGED), False),
            set(),
        ),
        "the same, and a topic that was created since": (
            *(planned(source(owned=()), NEW, owned_by_wave(NEW_TOPIC)), False),
            {NEW_TOPIC},
        ),
        "a topic that was created since belongs to the wave too": (
            *(planned(source(), NEW, owned_by_wave(NEW_TOPIC)), True),
            {NEW_TOPIC},
        ),
        "a topic of another wave": (planned(source(), NEW, owned_by_wave(NEW_TOPIC, "rest")), True, set()),
    },
)
def test_the_source_says_whether_a_wave_is_fenced(plan, begun, missing) -> None:
    fence = fence_in(plan, wave())
    assert (fence.begun, fence.missing) == (begun, missing)
    assert fence.is_complete(wave()) is not bool(missing)
    assert not fence.is_complete(wave(fenced=False))
    assert LiveFence().is_complete(wave(fenced=False, fence=Fence.NONE))
    with pytest.raises(Failure, match="not at the source any more") if missing else nullcontext():
        check_still_fenced(wave(), plan)


def test_nothing_is_known_of_a_fence_while_its_source_does_not_answer() -> None:
    with pytest.raises(Failure, match="dc1 could not be read, so the fence of the wave billing is not known"):
        check_still_fenced(wave(), planned(None, {}))


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
    made = source(None, (entry,), quotas={entry.address.name: entry.limits})
    moving = wave(producers=("shop",), fenced=fenced, fence=Fence.QUOTA)
    assert is_live(moving, planned(made, {})) is live


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
    rule = denial("dc1", "orders", principal)
    address = Address(Kind.ACL, "dc1", rule.name)
    entry = replace(recorded(FENCED_TOPIC, created=created), address=address, spec=rule.spec)
    plan = planned(source((rule,), (entry,)), {}, of=topology(flow("go=dc1>dc2"), clusters=clusters))
    moving = [wave(producers=producers)]
    warned: list[Any] = []
    warn_of_rules_that_stay(moving, warned.append, plan)
    assert [str(address) in told.summary for told in warned] == [True] * stays
    why = "there before it was fenced, so not removed, and denying WRITE"
    with pytest.raises(Failure, match=why) if refused else nullcontext():
        check_jobs_may_write(moving, plan)


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
    cutover = Cutover("to-cloud", ("go",), (Wave("billing", ("orders",)),))
    (moving,) = waves_of(cutover, topology(*flows), {"go": ["orders"]})
    assert state_of(moving, topology(*flows), flow_status(ledger), fenced=fenced) is state


def flow_status(state: str, *topics: str, **more: Any) -> ReplicationStatus:
    held = [topic_health(partition_health(), topic=name, state=state) for name in topics or ("orders",)]
    return status_of(flow_health(*held, **more))


def request_of(path: Path = Path("t.yaml"), **more: Any) -> CutoverRequest:
    return CutoverRequest(path=path, cutover="to-cloud", **more)


@pytest.mark.parametrize("named", [None, "billing"])
def test_no_wave_returns_while_the_ledgers_do_not_say_whether_it_has_moved(named: str | None) -> None:
    request = request_of(wave=named, back=True)
    check_ledgers_read([wave()], flow_status("promoted"), request)
    away = flow_status("unknown", destination_answers=False, why="destination dc2 is away")
    with pytest.raises(Failure, match=r"is not known: flow\.go: destination dc2 is away"):
        check_ledgers_read([wave()], away, request)


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
def test_the_status_shows_the_fence_that_is_at_the_source(fenced, fence, shown, stops, text) -> None:
    producers = ("shop", "desk") if fence is Fence.QUOTA else ()
    made = (recorded(FENCED_TOPIC), limited("shop", "cutover to-cloud, wave billing"))
    owned = None if shown is None else () if "of others" in shown else made
    moving = wave(producers=producers, fenced=fenced, fence=fence)
    assert fence_at_source(moving, shop(), owned, shown or ()) == (stops, text)


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
    assert wave_to_return(waves, moved, live, request_of(back=True)).wave.name == chosen


def test_no_wave_returns_where_none_has_begun() -> None:
    unfenced = [wave(fenced=False)]
    with pytest.raises(Failure, match="has begun"):
        wave_to_return(unfenced, [], [], request_of(back=True))
    with pytest.raises(Failure, match="moved to the destination"):
        wave_to_return(unfenced, ["billing"], ["billing"], request_of(back=True))


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
def test_the_promotion_of_a_wave_takes_only_its_topics(tmp_path, moving, written) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(TEXT)
    edits = TopologyEdits()
    promote_edit(edits, load(file), moving)
    assert edits.texts[file] == TEXT.replace("  - name: go\n", f"  - name: go\n    {written}\n")


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
def test_only_topics_of_returning_waves_leave_promoted(tmp_path, promoted, waves, stays) -> None:
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
    edits = TopologyEdits()
    return_edit(edits, declared, after)
    for edited, text in edits.texts.items():
        edited.write_text(text)
    edits.check(load(file))
    if after:
        with pytest.raises(Failure, match="what is promoted of flow go is set elsewhere"):
            edits.check(declared)


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
    with pytest.raises(Failure, match=refused) if refused else nullcontext():
        check_returns_alone(declared, moving, status, request_of(back=True, switch=switch))


@pytest.mark.parametrize("fenced", [False, True])
def test_the_yaml_says_whether_an_apply_of_the_fence_may_have_begun(tmp_path: Path, fenced: bool) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(
        f"{TEXT}cutovers:\n  - name: to-cloud\n    flows: [go]\n"
        f"    waves: [{{name: billing, topics: [orders], fenced: {str(fenced).lower()}}}]\n"
    )
    assert is_fence_written(wave(), request_of(file)) is fenced
    file.write_text("no topology")
    assert is_fence_written(wave(), request_of(file))


def test_the_flows_of_a_cutover_end_with_its_last_wave(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(f"{TEXT}  - {{name: too, from: dc1, to: dc2, topics: {{include: [refunds]}}}}\n")
    waves = Wave("first", ("orders",)), Wave("rest", (".*",))
    cutover = Cutover("to-cloud", ("go", "too"), waves)
    taken = {"go": ["orders"], "too": ["refunds"]}
    texts = []
    for wave_at in (0, 1):
        before, edits = load(file), TopologyEdits()
        promote_edit(edits, before, waves_of(cutover, before, taken)[wave_at])
        file.write_text(edits.texts[file])
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
    plan = planned(cluster("dc1", *at_source), {}, of=edited)
    why = r"the topic orders\.new would be promoted with the wave billing"
    with pytest.raises(Failure, match=why) if refused else nullcontext():
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
    edits = TopologyEdits()
    fence_edit(edits, [of_first], fenced=True)
    file.write_text(edits.texts[file])
    after = load(file)
    with pytest.raises(Failure, match="shares its text with the cutover second") if shared else nullcontext():
        edits.check(after)
    if not shared:
        assert [wave.fenced for cutover in after.cutovers for wave in cutover.waves] == [True, False]
        for other in (before, changed(after, cutovers=after.cutovers[1:])):
            with pytest.raises(Failure, match="the key fenced of the wave billing is set elsewhere"):
                edits.check(other)
