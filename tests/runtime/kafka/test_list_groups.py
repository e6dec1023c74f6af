"""A broker that has just started loads its groups first: the list waits a few seconds for it."""

import pytest

from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import AuthenticationFailed, BrokerError, ErrorCode
from runtime.kafka.protocol.groups import ListedGroup, ListGroupsRequest
from runtime.kafka.protocol.metadata import Broker
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

    def know_coordinator(self, *_: object) -> None: ...


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
