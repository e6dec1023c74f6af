"""What the driver gives a slot: which partitions of which flows, under which generation."""

import msgspec

from runtime.contract.jobspec import ClusterSpec, CopySettings, FlowSpec
from runtime.contract.ledger import PartitionKey


class AssignedPartition(msgspec.Struct, frozen=True):
    """One partition to copy. Topic ids are what the driver saw: the slot checks them against the ledger (R4).

    `min_in_sync`, `max_message_bytes`: the destination topic's min.insync.replicas and max.message.bytes.
    `accept_loss` lets it go on over what R4 found: the operator said so.
    """

    flow: str
    topic: str
    partition: int
    destination_topic: str
    max_message_bytes: int = 1_048_588
    min_in_sync: int = 1
    accept_loss: bool = False

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.flow, self.topic, self.partition)


class AssignedFlow(msgspec.Struct, frozen=True):
    """A flow as this slot copies it: its generation (R3), its share of the rate limit in bytes a second.

    `source` is how its source is reached. It comes with each assignment, because it may be edited while the
    slot runs; secrets are still references here.
    """

    spec: FlowSpec
    generation: int
    source: ClusterSpec
    rate_limit: int | None = None


class Assignment(msgspec.Struct, frozen=True):
    """All that a slot copies from now on; what is not in it any more is released. `version` only grows."""

    version: int
    flows: dict[str, AssignedFlow] = {}
    partitions: list[AssignedPartition] = []


class SlotSpec(msgspec.Struct, frozen=True):
    """Who a slot is. `cluster` is how its destination is reached, as long as it lives; secrets are still
    references here.
    """

    job: str
    slot: int
    destination: str
    cluster: ClusterSpec
    copy: CopySettings = CopySettings()


def transactional_ids(job: str, slot: int, flow: str, settings: CopySettings) -> list[str]:
    """Every transactional id that a slot may use for a flow, in the order in which its lanes take them.

    The driver writes those of all its slots into the generation record before a slot starts. They are the
    same for every generation, so that a new slot of the same number fences the old one by itself.
    """
    lanes = settings.lanes + settings.spare_lanes
    return [f"repl.{job}.{slot}.{flow}.{lane}" for lane in range(lanes)]


def client_id(job: str, slot: int) -> str:
    """What brokers call the slot, at both sides."""
    return f"repl.{job}.slot-{slot}"


def driver_transactional_id(job: str) -> str:
    return f"repl.{job}.driver"


def encode(assignment: Assignment) -> bytes:
    return msgspec.json.encode(assignment)


def decode(text: bytes) -> Assignment:
    return msgspec.json.decode(text, type=Assignment)
