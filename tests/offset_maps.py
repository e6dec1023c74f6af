"""Offset maps as the ledger of a cluster has them now."""

from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.offset_map import OffsetMap
from runtime.kafka.cluster import KafkaCluster
from runtime.ledger.ledger import Ledger
from runtime.ledger.offset_maps import OffsetMaps


async def read_map(cluster: KafkaCluster, flow: str) -> dict[PartitionKey, OffsetMap]:
    """Reads the maps of all partitions that a flow ever copied, once."""
    maps = await map_reader(cluster)
    await maps.decided(flow)
    return maps.all(flow)


async def map_reader(cluster: KafkaCluster) -> OffsetMaps:
    """Returns a reader that has read nothing yet."""
    return OffsetMaps(cluster, await Ledger.open(cluster))
