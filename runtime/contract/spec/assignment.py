"""What the driver gives a slot: which partitions of which flows, under which generation."""

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.jobspec import ClusterSpec, CopySettings, FlowSpec


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

    An assignment names the source cluster and never says how it is reached: `SlotSpec.sources` does.
    """

    spec: FlowSpec
    generation: int
    rate_limit: int | None = None


class Assignment(msgspec.Struct, frozen=True):
    """All that a slot copies from now on; what is not in it any more is released. `version` only grows."""

    version: int
    flows: dict[str, AssignedFlow] = {}
    partitions: list[AssignedPartition] = []


class SlotSpec(msgspec.Struct, frozen=True):
    """A slot's identity and the clusters that it may reach, fixed as long as it lives.

    `cluster` is how its destination is reached, `sources` how each source is, by name. They are those of the
    spec that the job was started with; secrets are still references here.
    """

    job: str
    slot: int
    destination: str
    cluster: ClusterSpec
    copy: CopySettings = CopySettings()
    sources: dict[str, ClusterSpec] = {}


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


_decoder = msgspec.json.Decoder(Assignment)


def decode(text: bytes) -> Assignment:
    """Raises UnreadableValue."""
    return record_values.decode(_decoder, text)
