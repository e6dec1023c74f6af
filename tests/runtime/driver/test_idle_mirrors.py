"""What a flow does of which neither topics nor settings change: it reads them, and compares nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    LedgerKey,
    LedgerValue,
    PartitionKey,
    ProgressKey,
)
from runtime.contract.spec import naming
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.flow import ConfigsSpec
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.route import router_of
from runtime.contract.spec.selected_topics import SelectedTopics
from runtime.contract.spec.selection import SelectionSpec
from runtime.contract.spec.topic_settings import BOUNDS, TopicSettings
from runtime.driver.clusters import LISTING_MAX_S, CountedTopics, DriverClusters
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.flows.mirroring import MirrorCopier
from runtime.driver.flows.start import selection
from runtime.driver.topics.admin import WATCHED_S, TopicAdmin
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.configs import DYNAMIC_TOPIC, ConfigEntry, DescribeConfigsRequest, Described
from runtime.kafka.protocol.request import layouts
from runtime.ledger.ledger import Ledger
from tests.fakes.internal_topics import InternalTopics, stored
from tests.fakes.progress import progress
from tests.runtime.slot.world import flow_spec

VERSION = 4
DEFAULTS = [ConfigEntry("retention.ms", "1", False, 5, False), ConfigEntry("secret", None, False, 5, True)]


class Broker:
    """It describes topics, some with a retention of their own, and keeps the names of each request."""

    def __init__(self, **retention: str) -> None:
        self.retention = retention
        self.refused: set[str] = set()
        self.asked: list[Sequence[str]] = []
        self.slow: dict[str, asyncio.Event] = {}  # topics whose answers wait

    async def ask_any(self, request: DescribeConfigsRequest) -> Sequence[Described]:
        self.asked.append(request.names)
        for name in self.slow.keys() & set(request.names):
            await self.slow[name].wait()
        described = [self._described(name) for name in request.names]
        body = layouts(DescribeConfigsRequest)[1].encode(VERSION, (0, described))
        return request.answer(VERSION, memoryview(b"\0" * 5 + b"".join(bytes(part) for part in body)))[1]

    def _described(self, name: str) -> Described:
        if name in self.refused:
            return Described(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, name, [])
        own = [
            ConfigEntry("retention.ms", value, False, DYNAMIC_TOPIC, False)
            for value in (self.retention.get(name),)
            if value is not None
        ]
        return Described(ErrorCode.NONE, None, name, own or DEFAULTS)


def admin_of(broker: Broker) -> TopicAdmin:
    return TopicAdmin(cast(KafkaCluster, broker))


async def test_flows_that_look_again_share_a_read_of_all_their_topics() -> None:
    broker = Broker()
    admin = admin_of(broker)
    for names in (["a", "b"], ["c"]):
        await admin.recent_settings(names, 60.0)
    assert broker.asked == [["a", "b"], ["c"]], "a flow that starts reads its own"
    for _ in range(2):
        first, second = await asyncio.gather(
            admin.recent_settings(["b", "a"], 60.0), admin.recent_settings(["c"], 60.0)
        )
    assert broker.asked[2:] == [["a", "b", "c"]]
    assert (list(first), list(second)) == (["b", "a"], ["c"])


def test_settings_are_watched_for_longer_than_a_listing_is_used() -> None:
    """Flows of a large cluster would read them as new ones each time otherwise."""
    assert WATCHED_S > 2 * LISTING_MAX_S


async def test_only_settings_that_changed_are_other_objects() -> None:
    broker = Broker(b="5")
    admin = admin_of(broker)
    names = ["a", "b", "c"]
    await admin.recent_settings(names, 0.0)
    first = await admin.recent_settings(names, 0.0)
    assert first["b"] == TopicSettings({"retention.ms": "5"}, {})
    assert first["a"] == TopicSettings({}, {"retention.ms": "1"})
    assert first["a"].inherited is first["c"].inherited
    second = await admin.recent_settings(names, 0.0)
    broker.retention["c"] = "7"
    third = await admin.recent_settings(names, 0.0)
    assert all(second[name] is first[name] for name in names)
    assert [name for name in names if third[name] is not first[name]] == ["c"]
    assert third["c"].explicit == {"retention.ms": "7"}


async def test_a_flow_that_starts_brings_no_older_settings_of_others_back() -> None:
    broker = Broker()
    admin = admin_of(broker)
    await admin.recent_settings(["a"], 0.0)
    broker.slow["new"] = asyncio.Event()
    starting = asyncio.create_task(admin.recent_settings(["new"], 0.0))
    await asyncio.sleep(0)
    broker.retention["a"] = "9"
    changed = await admin.recent_settings(["a"], 0.0)
    broker.slow["new"].set()
    assert (await starting).keys() == {"new"}
    assert await admin.recent_settings(["a"], 60.0) == changed
    assert changed["a"].explicit == {"retention.ms": "9"}


async def test_settings_that_may_not_be_read_any_more_are_not_known() -> None:
    broker = Broker()
    admin = admin_of(broker)
    await admin.recent_settings(["a", "b"], 0.0)
    broker.refused.add("a")
    assert (await admin.recent_settings(["a", "b"], 0.0)).keys() == {"b"}


class CountedSettings(dict[str, str]):
    """It counts how often it is looked at."""

    looks = 0

    def get(self, key: str, default: Any = None) -> Any:
        type(self).looks += 1
        return super().get(key, default)


class Following:
    """A flow of one topic of two partitions, at both sides and begun, and what it reads of its clusters."""

    def __init__(self) -> None:
        self.counts = {"dc1": {"orders": 2, "later": 1}, "dc2": {"orders": 2}}
        self.settings = {"orders": TopicSettings(CountedSettings(BOUNDS))}
        self.spec = replace(
            flow_spec("flow", configs=ConfigsSpec(sync="off"), protect="off"),
            heartbeats_every_ms=None,
            topics=SelectionSpec(include=("orders",)),
        )
        clusters = {name: ClusterSpec(bootstrap="b:1") for name in ("dc1", "dc2")}
        self.job = JobSpec(job="job", topology="t", destination="dc2", clusters=clusters, flows=[self.spec])
        generation = Generation(1, "job", "active", "driver", [], "dc1", "dc2", 0, begun=selection(self.spec))
        ledger: dict[LedgerKey, LedgerValue] = {GenerationKey("flow"): generation}
        for number in range(2):
            ledger[ProgressKey(PartitionKey("flow", "orders", number))] = progress(0, 0)
        self.cluster_there = cast(KafkaCluster, InternalTopics({naming.LEDGER: stored(ledger)}))
        shared = SimpleNamespace(
            clusters=self,
            leadership=self,
            destination=self.cluster_there,
            ledger=Ledger(self.cluster_there, 1),
            selected=SelectedTopics(),
            changed=lambda: None,
        )
        self.flow = SimpleNamespace(
            spec=self.spec,
            job=self.job,
            name="flow",
            shared=shared,
            partitions={},
            accepted=frozenset(),
            draining=SimpleNamespace(topics=frozenset()),
            ledger_lost=False,
            generation=1,
            own_generation=lambda: generation,
            source=self.ensure,
        )
        self.discovered = 0
        self.copier = CountedCopier(self, cast(DriverFlow, self.flow))

    async def ensure(self) -> None: ...

    async def cluster(self, name: str) -> KafkaCluster:
        return self.cluster_there

    async def counted(self, name: str) -> CountedTopics:
        return CountedTopics(self.counts[name])

    async def admin(self, name: str) -> Any:
        async def settings(topics: Iterable[str], *_: float) -> dict[str, TopicSettings]:
            return {topic: self.settings[topic] for topic in topics if topic in self.settings}

        return SimpleNamespace(settings=settings, recent_settings=settings)

    async def passes(self, number: int) -> tuple[int, int]:
        """Returns how often topics, and settings, were compared in some passes."""
        before = self.discovered, CountedSettings.looks
        for _ in range(number):
            await self.copier.copy_once()
        return self.discovered - before[0], CountedSettings.looks - before[1]


class CountedCopier(MirrorCopier):
    """It counts how often it compares the topics of both sides."""

    def __init__(self, following: Following, flow: DriverFlow) -> None:
        super().__init__(flow, router_of(flow.job))
        self._following = following

    def _discover(self, *sides: Any) -> Any:
        self._following.discovered += 1
        return super()._discover(*sides)


async def test_neither_topics_nor_settings_are_compared_again_while_they_stay_the_same() -> None:
    following = Following()
    topics, settings = await following.passes(1)
    assert topics == 1
    assert settings > 0
    assert following.flow.partitions.keys() == {PartitionKey("flow", "orders", number) for number in range(2)}
    assert await following.passes(3) == (0, 0)


async def test_other_counts_or_settings_are_compared_at_once() -> None:
    following = Following()
    await following.passes(2)
    following.settings["orders"] = TopicSettings(CountedSettings(BOUNDS))
    topics, settings = await following.passes(1)
    assert (topics, settings > 0) == (0, True)
    following.counts["dc1"] = {"orders": 2}
    assert (await following.passes(1))[0] == 1
    assert await following.passes(2) == (0, 0)


async def test_a_mirror_whose_settings_could_not_be_read_is_copied_once_they_are() -> None:
    following = Following()
    settings, following.settings = following.settings, {}
    await following.passes(2)
    assert not following.flow.partitions
    following.settings = settings
    await following.passes(1)
    assert len(following.flow.partitions) == 2


async def test_a_look_that_a_command_asks_for_compares_everything() -> None:
    following = Following()
    await following.passes(2)
    following.copier.look_again()
    assert (await following.passes(1))[0] == 1


async def test_partitions_that_were_taken_from_the_slots_are_given_back_by_the_next_pass() -> None:
    """A promotion of topics takes them away, and copies on where records came meanwhile."""
    following = Following()
    await following.passes(2)
    copied = following.flow.partitions
    following.flow.partitions = {}
    await following.passes(1)
    assert following.flow.partitions == copied


async def test_an_accepted_loss_and_its_withdrawal_reach_the_slots_by_the_next_pass() -> None:
    following = Following()
    await following.passes(2)
    key = PartitionKey("flow", "orders", 1)
    for accepted in (frozenset({key}), frozenset()):
        following.flow.accepted = accepted
        await following.passes(1)
        assert following.flow.partitions[key].accept_loss is bool(accepted)


async def test_listings_with_the_same_topics_have_the_same_counts() -> None:
    topics = {"a": InternalTopics({}).topic("a"), "b": InternalTopics({}).topic("b")}
    clusters = DriverClusters("job", {"dc1": ClusterSpec(bootstrap="b:1")}, {})
    clusters._entries["dc1"].cluster = cast(KafkaCluster, SimpleNamespace(all_topics=lambda: listed()))

    async def listed() -> dict[str, Any]:
        return dict(topics)

    first = await clusters.counted("dc1")
    assert await clusters.counted("dc1") is first
    clusters.invalidate("dc1")
    second = await clusters.counted("dc1")
    assert (second is first, second.partitions is first.partitions) == (False, True)
    del topics["b"]
    clusters.invalidate("dc1")
    assert (await clusters.counted("dc1")).partitions == {"a": 1}
