"""Reads how much room brokers have left on their disks. Kafka tells it since version 3.3 (KIP-827)."""

from collections.abc import Mapping

from planner.kafka.client import BrokerConnection, ClusterClient
from planner.kafka.failures import ClusterFailure
from planner.model.diagnostic import Failure, error
from planner.observe.metadata import identify
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.administration import DescribeLogDirsRequest

DiskSpace = Mapping[int, int | str]  # by broker: what is left on the fullest disk, or why it is not known


async def disk_space(client: ClusterClient, timeout_s: float) -> DiskSpace:
    """Returns the room of each broker, in bytes. What a broker does not tell this principal is unknown.

    Failure: the cluster does not answer.
    """
    try:
        identity = await identify(client)
    except ClusterFailure as failure:
        raise Failure(error(f"{client.name} does not answer: {failure.why}")) from None
    reached = await client.dial_each(identity.addresses, timeout_s)
    spaces: dict[int, int | str] = {broker: failure.why for broker, failure in reached.unreachable.items()}
    try:
        for broker, connection in reached.connections.items():
            spaces[broker] = await _space(connection)
    finally:
        reached.close()
    return dict(sorted(spaces.items()))


async def _space(connection: BrokerConnection) -> int | str:
    try:
        directories = await connection.call(DescribeLogDirsRequest([]))
    except ClusterFailure as failure:
        return failure.why
    if isinstance(directories, ErrorCode):
        return "no right to DESCRIBE the cluster"
    usable = [directory.usable_bytes for directory in directories if directory.usable_bytes >= 0]
    return min(usable, default="Kafka tells it since version 3.3")


def too_little(cluster: str, spaces: DiskSpace, needed_bytes: int) -> list[str]:
    """Returns a sentence for each broker that has less room than what is needed."""
    return [
        f"broker {broker} of {cluster} has {_mb(space)} left on a disk, and the drill"
        f" needs {_mb(needed_bytes)}"
        for broker, space in spaces.items()
        if isinstance(space, int) and space < needed_bytes
    ]


def unknown_space(cluster: str, spaces: DiskSpace) -> list[str]:
    """Returns a sentence for each reason why the room of brokers is not known."""
    reasons: dict[str, list[str]] = {}
    for broker, space in spaces.items():
        if isinstance(space, str):
            reasons.setdefault(space, []).append(str(broker))
    return [
        f"the room on the disks of {cluster} was not checked for broker {', '.join(ids)}: {why}"
        for why, ids in reasons.items()
    ]


def _mb(amount: int) -> str:
    return f"{amount / 1_000_000:,.0f} MB"
