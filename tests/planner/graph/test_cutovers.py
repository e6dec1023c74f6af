"""Cutovers: which topics a wave moves, what stops its producers at the source, and what is said of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from planner.diff.record import acl_entry
from planner.graph.cutovers import made_by_others, split_transactions, stops_jobs, waves_of
from planner.graph.expansion import expand
from planner.model.address import Address, Kind
from planner.model.desired import Desired
from planner.model.diagnostic import Severity
from planner.model.observed import ObservedCluster, RegistryEntry
from planner.model.topology import AclRule, Cluster, Cutover, Fence, Flow, Quota, Wave
from runtime.contract.spec.flow import GroupsSpec
from tests.fakes.replacing import replace
from tests.planner.graph.build import cluster, codes, flow, observed, rule, topology

READ = rule("dc1 ALLOW User:app READ *")
MOVED = (flow("go=dc1>dc2", state="promoted"),)
FENCE = RegistryEntry(
    Address(Kind.ACL, "dc1", "deny.User:*.WRITE.topic.orders"), "t", origin="cutover to-cloud, wave w"
)


def moving(*waves: Wave, fence: Fence = Fence.ACL, flows: tuple[str, ...] = ("go",)) -> dict[str, Any]:
    return {"cutovers": (Cutover("to-cloud", flows, waves, fence),)}


def shop(
    *waves: Wave,
    fence: Fence = Fence.ACL,
    acls: tuple[AclRule, ...] | None = (READ,),
    flows: tuple[Flow, ...] = (flow("go=dc1>dc2"),),
    dc1: Mapping[str, Any] | None = None,
    dc2: Sequence[str] = (),
    declared: tuple[Quota, ...] = (),
    **live: Any,
) -> Desired:
    clusters = {
        "dc1": Cluster("dc1", bootstrap="dc1:9092", **(dc1 or {})),
        "dc2": Cluster("dc2", bootstrap="dc2:9092"),
    }
    names = tuple(flow.name for flow in flows if flow.source_cluster == "dc1")
    moves = moving(*waves, fence=fence, flows=names)
    whole = topology(*flows, clusters=clusters, quotas=declared, **moves)
    return expand(whole, observed(source(acls, **live), cluster("dc2", *dc2)))


def source(acls: tuple[AclRule, ...] | None, **live: Any) -> ObservedCluster:
    return cluster("dc1", "orders", "refunds", acls=acls, **live)


def rules(desired: Desired) -> list[str]:
    return [acl.rule.name for acl in desired.acls]


@pytest.mark.parametrize(
    ("state", "promoted", "left", "moved"),
    [
        ("active", (), [["orders"], ["refunds"]], [False, False]),
        ("active", ("orders",), [[], ["refunds"]], [True, False]),
        ("active", (".*",), [[], []], [True, True]),
        ("promoted", (), [[], []], [True, True]),
    ],
)
def test_a_topic_belongs_to_the_first_wave_that_matches_it(
    state: Any, promoted: tuple[str, ...], left: list[list[str]], moved: list[bool]
) -> None:
    declared = topology(
        flow("go=dc1>dc2", state=state, promoted=promoted),
        **moving(Wave("first", ("ord.*",)), Wave("rest", (".*",))),
    )
    waves = waves_of(declared.cutovers[0], declared, {"go": ["refunds", "orders"]})
    assert [wave.names for wave in waves] == [["orders"], ["refunds"]]
    assert [list(wave.left.get("go", ())) for wave in waves] == left
    assert [wave.is_moved for wave in waves] == moved


@pytest.mark.parametrize(
    ("wave", "dc1", "acls", "made"),
    [
        (Wave("w", ("orders",)), {}, (READ,), []),
        (Wave("w", ("orders",), fenced=True), {}, (READ,), ["deny.User:*.WRITE.topic.orders"]),
        (
            Wave("w", (".*",), producers=("User:a",), fenced=True),
            {},
            (READ,),
            ["deny.User:a.WRITE.topic.orders", "deny.User:a.WRITE.topic.refunds"],
        ),
        (
            Wave("w", ("orders",), fenced=True),
            {"allow_everyone_if_no_acl_found": True},
            (),
            [
                *(
                    f"allow.User:*.{operation}.topic.orders"
                    for operation in ("ALTER", "ALTER_CONFIGS", "CREATE", "DELETE", "READ")
                ),
                "deny.User:*.WRITE.topic.orders",
            ],
        ),
        (
            Wave("w", ("orders",), producers=("User:a",), fenced=True),
            {"allow_everyone_if_no_acl_found": True},
            (),
            ["allow.User:*.ALL.topic.orders", "deny.User:a.WRITE.topic.orders"],
        ),
    ],
)
def test_a_fence_keeps_producers_off_and_nobody_else(
    wave: Wave, dc1: dict[str, Any], acls: tuple[AclRule, ...], made: list[str]
) -> None:
    desired = shop(wave, dc1=dc1, acls=acls)
    assert sorted(rules(desired)) == made
    assert codes(desired) == []


def test_a_rule_of_a_fence_is_never_mirrored() -> None:
    copied = flow("go=dc1>dc2", acls_sync=True)
    clusters = {name: Cluster(name, bootstrap=f"{name}:9092") for name in ("dc1", "dc2")}
    declared = topology(copied, clusters=clusters, **moving(Wave("w", ("orders",), fenced=True)))
    first = expand(declared, observed(source((READ,)), cluster("dc2", acls=())))
    (fence,) = [acl for acl in first.acls if acl.rule.permission == "DENY"]
    entry = registered(fence)
    second = expand(
        declared, observed(source((READ, fence.rule), owned=(entry,)), cluster("dc2", "orders", acls=()))
    )
    assert [acl.rule for acl in second.acls if acl.rule.permission == "DENY"] == [fence.rule]


def registered(acl: Any, *, created: bool = True) -> RegistryEntry:
    return acl_entry(acl, "t", created=created)


@pytest.mark.parametrize(
    ("fenced", "quotas"),
    [
        (False, []),
        (True, [("client-id/loader", {"producer_byte_rate": 1}), ("user/a", {"producer_byte_rate": 1})]),
    ],
)
def test_a_fence_of_quotas_limits_the_producers(fenced: bool, quotas: list[Any]) -> None:
    wave = Wave("w", (".*",), producers=("User:a", "loader"), fenced=fenced)
    desired = shop(wave, fence=Fence.QUOTA)
    assert [(quota.entity.name, quota.values) for quota in desired.quotas] == quotas


BOTH_WAYS = (flow("go=dc1>dc2"), flow("back=dc2>dc1", "orders"))
REPL = {"principal": "User:repl"}
OF_A = Wave("w", ("orders",), producers=("User:a",))
A_LIMIT = Quota("dc1", user="a", producer_byte_rate=5)


def limited(*entities: str, **more: Any) -> dict[str, Any]:
    """A fence of quotas, where these entities have a limit at the source."""
    return {"fence": Fence.QUOTA, "quotas": {one: {"producer_byte_rate": 5} for one in entities}} | more


@pytest.mark.parametrize(
    ("wave", "more", "lints"),
    [
        (Wave("w", ("nothing",)), {}, ["wave-empty"]),
        (Wave("w", ("orders",)), {"acls": (), "flows": MOVED}, []),  # it has moved
        (Wave("w", ("orders",)), {"acls": None}, ["fence-no-authorizer"]),
        (Wave("w", ("orders",)), {"acls": None, "fence": Fence.NONE}, []),
        (Wave("w", ("orders",)), {"acls": ()}, ["fence-readers"]),
        (Wave("w", ("orders",)), {"acls": (), "dc1": {"allow_everyone_if_no_acl_found": True}}, []),
        (
            Wave("w", ("orders",), groups=("g",)),
            {"flows": (flow("go=dc1>dc2", groups=GroupsSpec(sync=False)),)},
            ["wave-groups"],
        ),
        (Wave("w", ("orders",), producers=("User:repl",)), limited(dc1=REPL), ["fence-stops-flow"]),
        (OF_A, limited("user/a"), ["fence-overwrites"]),
        (OF_A, limited(quotas={"user/a": {"consumer_byte_rate": 5}}), ["fence-overwrites"]),
        (OF_A, limited("user/a", declared=(A_LIMIT,)), []),  # the fence restores what is declared there
        (OF_A, limited("user/a", declared=(replace(A_LIMIT, cluster="dc2"),)), ["fence-overwrites"]),
        (OF_A, limited("user/a/client-id/b"), ["fence-outranked"]),
        (Wave("w", ("orders",), producers=("loader",)), limited("user/<default>"), ["fence-outranked"]),
        (OF_A, limited("client-id/b"), []),
    ],
)
def test_what_is_said_of_a_wave(wave: Wave, more: dict[str, Any], lints: list[str]) -> None:
    assert codes(shop(wave, **more)) == lints


@pytest.mark.parametrize(("producers", "stops"), [(("User:a",), False), (("User:repl",), True)])
def test_a_fence_never_stops_a_flow(producers: tuple[str, ...], stops: bool) -> None:
    desired = shop(Wave("w", ("orders",), producers=producers), flows=BOTH_WAYS, dc1=REPL)
    assert ("fence-stops-flow" in codes(desired)) is stops


def test_a_group_that_reads_topics_of_two_waves_is_named_with_both() -> None:
    waves = Wave("first", ("orders",)), Wave("second", ("refunds",))
    both = frozenset({"orders", "refunds"})
    groups = {"billing": both, "one": frozenset({"orders", "other"}), "repl.go": both, "connect-x": both}
    desired = shop(*waves, group_topics=groups)
    (told,) = [problem.summary for problem in desired.diagnostics if problem.code == "wave-splits-group"]
    assert "the waves first and second are read by the group billing" in told


def test_a_group_that_reads_topics_of_two_cutovers_is_not_named() -> None:
    flows = flow("go=dc1>dc2", "orders"), flow("more=dc1>dc3", "refunds")
    cutovers = tuple(Cutover(one.name, (one.name,), (Wave(one.name, (".*",)),)) for one in flows)
    live = source((READ,), group_topics={"billing": frozenset({"orders", "refunds"})})
    desired = expand(topology(*flows, cutovers=cutovers), observed(live, cluster("dc2"), cluster("dc3")))
    assert "wave-splits-group" not in codes(desired)


def test_a_transactional_producer_of_two_waves_is_named_with_both() -> None:
    declared = topology(flow("go=dc1>dc2"), **moving(Wave("first", ("orders",)), Wave("second", (".*",))))
    waves = waves_of(declared.cutovers[0], declared, {"go": ["orders", "refunds"]})
    written = {"shop-1": {"orders", "refunds"}, "shop-2": {"orders", "other"}, "shop-3": {"other", "more"}}
    (told,) = split_transactions(waves, written)
    assert "the waves first and second are written by the transactional id shop-1" in told.summary


def test_a_wave_that_is_fenced_and_moved_in_one_plan_is_checked() -> None:
    wave = Wave("w", ("orders",), fenced=True)
    assert codes(shop(wave, acls=None, flows=MOVED)) == ["fence-no-authorizer"]
    desired = shop(wave, acls=(), flows=MOVED, owned=(FENCE,))
    assert (codes(desired), rules(desired)) == ([], ["deny.User:*.WRITE.topic.orders"])  # it stays


@pytest.mark.parametrize(("second", "split"), [("User:a", True), ("User:b", False)])
def test_a_producer_of_two_waves_is_named_where_a_quota_stops_it(second: str, split: bool) -> None:
    waves = (
        Wave("first", ("orders",), producers=("User:a",)),
        Wave("second", (".*",), producers=(second,)),
    )
    assert codes(shop(*waves, fence=Fence.QUOTA)) == ["wave-splits-producer"] * split


@pytest.mark.parametrize(("fenced", "severity"), [(False, Severity.WARNING), (True, Severity.ERROR)])
def test_only_a_fenced_wave_keeps_other_plans_off(fenced: bool, severity: Severity) -> None:
    desired = shop(Wave("w", ("orders",), fenced=fenced), acls=None)
    assert [problem.severity for problem in desired.diagnostics if problem.code == "fence-no-authorizer"] == [
        severity
    ]


@pytest.mark.parametrize("fenced", [False, True])
def test_the_fence_of_a_moved_wave_would_stop_its_failback(fenced: bool) -> None:
    flows = (*MOVED, flow("back=dc2>dc1", "orders"))
    desired = shop(Wave("w", ("orders",), fenced=fenced), flows=flows, owned=(FENCE,), dc2=["orders"])
    problems = [problem for problem in desired.diagnostics if problem.code == "fence-stops-flow"]
    assert [problem.severity for problem in problems] == [Severity.ERROR] * fenced
    assert all("take its key fenced out" in problem.hint for problem in problems)


@pytest.mark.parametrize(("created", "stays"), [(False, True), (True, False)])
def test_a_rule_that_was_there_before_the_fence_is_named(created: bool, stays: bool) -> None:
    fenced = Wave("w", ("orders",), fenced=True)
    (denied,) = shop(fenced).acls
    entry = registered(denied, created=created)
    declared = topology(flow("go=dc1>dc2"), **moving(fenced))
    (wave,) = waves_of(declared.cutovers[0], declared, {"go": ["orders"]})
    live = source((READ, denied.rule), owned=(entry,))
    assert made_by_others(wave, live) == [entry] * stays
    assert made_by_others(wave, source((READ,), owned=(entry,))) == []  # somebody removed it


@pytest.mark.parametrize(
    ("fence", "producers", "principal", "stops"),
    [
        (Fence.ACL, (), "User:repl", True),
        (Fence.ACL, ("User:app",), "User:repl", False),
        (Fence.ACL, ("User:app", "User:repl"), "User:repl", True),
        (Fence.ACL, ("User:app",), None, True),  # it may be the job's
        (Fence.QUOTA, ("User:app",), None, False),
    ],
)
def test_a_fence_that_would_stop_the_way_back_goes_before_it(
    fence: Fence, producers: tuple[str, ...], principal: str | None, stops: bool
) -> None:
    wave = Wave("w", ("orders",), producers=producers, fenced=True)
    clusters = {name: Cluster(name, bootstrap="a:1", principal=principal) for name in ("dc1", "dc2")}
    declared = topology(flow("go=dc1>dc2"), clusters=clusters, **moving(wave, fence=fence))
    (moved,) = waves_of(declared.cutovers[0], declared, {"go": ["orders"]})
    assert stops_jobs(moved, declared) is stops


@pytest.mark.parametrize(
    ("limits", "forecast"),
    [
        ((None, None), (4_000, 50_000_000)),
        ((1_000_000, None), (4_000, 50_000_000)),  # refunds are small: that flow is done before
        ((None, 10_000_000), (20_000, 10_000_000)),
        ((None, 90_000_000), (4_000, 50_000_000)),
    ],
)
def test_a_wave_is_copied_when_its_slowest_flow_is(
    limits: tuple[int | None, int | None], forecast: tuple[int, int]
) -> None:
    small, large = limits
    flows = (flow("a=dc1>dc2", "refunds", rate_limit=small), flow("b=dc1>dc2", "orders", rate_limit=large))
    sizes = {"orders": 200_000_000, "refunds": 1_000_000}
    (wave,) = shop(Wave("w", (".*",)), flows=flows, sizes=sizes).waves
    assert (wave.copy_ms, wave.rate) == forecast
