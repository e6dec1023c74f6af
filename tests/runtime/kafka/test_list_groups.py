"""A broker that has just started loads its groups first: the list waits a few seconds for it."""

import pytest

from runtime.contract.client.settings import wire_settings
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import AuthenticationFailed, BrokerError, Disconnected, ErrorCode
from runtime.kafka.protocol.groups import ListedGroup, ListGroupsRequest
from runtime.kafka.protocol.metadata import Broker
from runtime.kafka.protocol.transactions import CoordinatorKind
from runtime.kafka.queries import list_groups
from tests.fakes.clock import jumping

_GROUP = ListedGroup("billing", "", "Empty")


class Loading(KafkaCluster):
    """A cluster of one broker that loads its groups for the first requests."""

    def __init__(self, requests: int) -> None:
        self.brokers = {1: Broker(1, "localhost", 1)}
        self._left = requests

    async def call(self, node: int, request: object, purpose: str, within: float | None = None) -> object:  # type: ignore[override]
        assert isinstance(request, ListGroupsRequest)
        self._left -= 1
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._left >= 0 else [_GROUP]

    def know_coordinators(self, *_: object, **__: object) -> None: ...


@jumping
async def test_a_broker_that_loads_its_groups_is_asked_again() -> None:
    assert (await list_groups(Loading(5))).groups == {"billing": _GROUP}


@jumping
async def test_one_that_loads_them_for_long_is_named() -> None:
    with pytest.raises(BrokerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await list_groups(Loading(10**6))


class Refusing(Loading):
    """Its broker 2 refuses the login."""

    def __init__(self) -> None:
        super().__init__(0)
        self.brokers[2] = Broker(2, "localhost", 2)

    async def call(self, node: int, request: object, purpose: str, within: float | None = None) -> object:  # type: ignore[override]
        if node == 2:
            raise AuthenticationFailed("broker 2", "no such user")
        return await super().call(node, request, purpose, within)


async def test_a_broker_that_refuses_the_login_is_missing_and_the_others_are_listed() -> None:
    listed = await list_groups(Refusing())
    assert (listed.groups, listed.missing) == ({"billing": _GROUP}, {2: "broker 2: no such user"})


class Short(KafkaCluster):
    """A cluster of two brokers that lists these groups. Its broker 2 may be silent."""

    def __init__(self) -> None:
        super().__init__(wire_settings("localhost:1", {}))
        self.brokers = {node: Broker(node, "localhost", node) for node in (1, 2)}
        self.groups = {1: ["billing", "console-consumer-1"], 2: ["console-consumer-2"]}
        self.silent = False

    async def call(self, node: int, request: object, purpose: str, within: float | None = None) -> object:  # type: ignore[override]
        if node == 2 and self.silent:
            raise Disconnected("broker 2", "it is silent", sent=True)
        return [ListedGroup(name, "", "Empty") for name in self.groups[node]]

    def known(self) -> set[str]:
        return {key for _, key in self._coordinators}


async def test_coordinators_of_groups_that_are_gone_are_forgotten() -> None:
    """Not those of a broker that lists none: its groups may be there. Nor those of transactional ids (R8)."""
    cluster = Short()
    cluster.know_coordinators(CoordinatorKind.TRANSACTION, {"id": 1})
    await list_groups(cluster)
    every = {"id", "billing", "console-consumer-1", "console-consumer-2"}
    assert cluster.known() == every
    cluster.groups, cluster.silent = {1: ["billing"], 2: []}, True
    await list_groups(cluster)
    assert cluster.known() == every
    cluster.silent = False
    await list_groups(cluster)
    assert cluster.known() == {"id", "billing"}
