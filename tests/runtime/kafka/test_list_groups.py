"""Groups are listed by every broker: one that loads them is waited for, one that fails is named."""

from collections.abc import Iterator
from itertools import repeat

import pytest

from runtime.contract.client.settings import wire_settings
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import AuthenticationFailed, BrokerError, Disconnected, ErrorCode
from runtime.kafka.protocol.groups import ListedGroup
from runtime.kafka.protocol.metadata import Broker
from runtime.kafka.protocol.transactions import CoordinatorKind
from runtime.kafka.queries import list_groups
from tests.fakes.clock import jumping

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class TwoBrokers(KafkaCluster):
    """Each broker lists its groups, after it gave these answers."""

    def __init__(self, answers: dict[int, Iterator[ErrorCode | Exception]] | None = None) -> None:
        super().__init__(wire_settings("localhost:1", {}))
        self.brokers = {node: Broker(node, "localhost", node) for node in (1, 2)}
        self.groups = {1: ["billing", "console-consumer-1"], 2: ["console-consumer-2"]}
        self.answers = answers or {}

    async def call(self, node: int, request: object, purpose: str, within: float | None = None) -> object:  # type: ignore[override]
        answer = next(self.answers.get(node, iter(())), None)
        if isinstance(answer, Exception):
            raise answer
        return answer or [ListedGroup(name, "", "Empty") for name in self.groups[node]]

    def known(self) -> set[str]:
        return {key for _, key in self._coordinators}


EVERY = {"billing", "console-consumer-1", "console-consumer-2"}


@jumping
async def test_a_broker_that_loads_its_groups_is_asked_again() -> None:
    assert (await list_groups(TwoBrokers({1: repeat(LOADING, 5)}))).groups.keys() == EVERY


@jumping
async def test_one_that_loads_them_for_long_is_named() -> None:
    with pytest.raises(BrokerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await list_groups(TwoBrokers({1: repeat(LOADING), 2: repeat(LOADING)}))


async def test_a_broker_that_refuses_the_login_is_missing_and_the_others_are_listed() -> None:
    listed = await list_groups(TwoBrokers({2: iter([AuthenticationFailed("broker 2", "no such user")])}))
    assert listed.groups.keys() == {"billing", "console-consumer-1"}
    assert listed.missing == {2: "broker 2: no such user"}


async def test_coordinators_of_groups_that_are_gone_are_forgotten() -> None:
    """Not those of a broker that lists none: its groups may be there. Nor those of transactional ids (R8)."""
    cluster = TwoBrokers()
    cluster.know_coordinators(CoordinatorKind.TRANSACTION, {"id": 1})
    await list_groups(cluster)
    assert cluster.known() == EVERY | {"id"}
    cluster.groups = {1: ["billing"], 2: []}
    cluster.answers = {2: iter([Disconnected("broker 2", "it is silent", sent=True)])}
    await list_groups(cluster)
    assert cluster.known() == EVERY | {"id"}
    await list_groups(cluster)
    assert cluster.known() == {"id", "billing"}
