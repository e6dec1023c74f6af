"""Reads how much room brokers have left on their disks. Kafka tells it since version 3.3 (KIP-827)."""

from collections.abc import Iterable

from msgspec import Struct

from planner.kafka.client import BrokerConnection, ClusterClient
from planner.kafka.failures import ClusterFailure
from planner.model.diagnostic import Failure, error
from planner.observe.metadata import identify
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.administration import DescribeLogDirsRequest


class BrokerSpace(Struct, frozen=True):
    """The room on a broker's disks: of the fullest one. `why` says why it is not known."""

    broker: int
    usable_bytes: int | None
    why: str = ""


async def disk_space(client: ClusterClient, timeout_s: float) -> list[BrokerSpace]:
    """Returns the room of each broker, by id. What a broker does not tell this principal is unknown.

    Failure: the cluster does not answer.
    """
    try:
        identity = await identify(client)
    except ClusterFailure as failure:
        raise Failure(error(f"{client.name} does not answer: {failure.why}")) from None
    reached = await client.dial_each(identity.addresses, timeout_s)
    spaces = [BrokerSpace(broker, None, failure.why) for broker, failure in reached.unreachable.items()]
    try:
        spaces += [await _space(broker, connection) for broker, connection in reached.connections.items()]
    finally:
        reached.close()
    return sorted(spaces, key=lambda space: space.broker)


async def _space(broker: int, connection: BrokerConnection) -> BrokerSpace:
    try:
        directories = await connection.call(DescribeLogDirsRequest([]))
    except ClusterFailure as failure:
        return BrokerSpace(broker, None, failure.why)
    if isinstance(directories, ErrorCode):
        return BrokerSpace(broker, None, "no right to DESCRIBE the cluster")
    usable = [directory.usable_bytes for directory in directories if directory.usable_bytes >= 0]
    if not usable:
        return BrokerSpace(broker, None, "Kafka tells it since version 3.3")
    return BrokerSpace(broker, min(usable))


def too_little(cluster: str, brokers: Iterable[BrokerSpace], needed_bytes: int) -> list[str]:
    """Returns a sentence for each broker that has less room than what is needed."""
    return [
        f"broker {broker.broker} of {cluster} has {_mb(broker.usable_bytes)} left on a disk, and the drill"
        f" needs {_mb(needed_bytes)}"
        for broker in brokers
        if broker.usable_bytes is not None and broker.usable_bytes < needed_bytes
    ]


def unknown_space(cluster: str, brokers: Iterable[BrokerSpace]) -> list[str]:
    """Returns a sentence for each reason why the room of brokers is not known."""
    reasons: dict[str, list[str]] = {}
    for broker in brokers:
        if broker.usable_bytes is None:
            reasons.setdefault(broker.why, []).append(str(broker.broker))
    return [
        f"the room on the disks of {cluster} was not checked for broker {', '.join(ids)}: {why}"
        for why, ids in reasons.items()
    ]


def _mb(amount: int) -> str:
    return f"{amount / 1_000_000:,.0f} MB"
