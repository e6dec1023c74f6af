"""Defines the assignment that the driver sends to a slot: partitions, flows and their generations."""

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.jobspec import ClusterSpec, CopySettings, FlowSpec
from runtime.contract.spec.transform import TransformSpec


class AssignedQuarantine(msgspec.Struct, frozen=True):
    """Names the topic at the destination that takes the bad records of a partition, with its limits."""

    topic: str
    max_message_bytes: int
    min_in_sync: int = 1


class AssignedPartition(msgspec.Struct, frozen=True):
    """Describes one partition that a slot copies.

    The slot checks the topics' ids against the ledger (R4). `min_in_sync` and `max_message_bytes` are the
    destination topic's min.insync.replicas and max.message.bytes. `accept_loss` makes it continue after a
    loss that R4 found, because an operator accepted the loss. `quarantine` is set where the flow quarantines.
    """

    flow: str
    topic: str
    partition: int
    destination_topic: str
    max_message_bytes: int = 1_048_588
    min_in_sync: int = 1
    accept_loss: bool = False
    quarantine: AssignedQuarantine | None = None

    @property
    def key(self) -> PartitionKey:
        """Returns the partition's key in the ledger."""
        return PartitionKey(self.flow, self.topic, self.partition)


class AssignedFlow(msgspec.Struct, frozen=True):
    """Describes a flow as one slot copies it: its generation (R3), and its rate limit in bytes a second.

    An assignment names the source cluster and never says how it is reached: `SlotSpec.sources` does.
    """

    spec: FlowSpec
    generation: int
    rate_limit: int | None = None


class Assignment(msgspec.Struct, frozen=True):
    """Lists everything that a slot copies from now on; the slot releases every other partition.

    `version` only grows.
    """

    version: int
    flows: dict[str, AssignedFlow] = {}
    partitions: list[AssignedPartition] = []


class SlotSpec(msgspec.Struct, frozen=True):
    """Identifies a slot and names the clusters that it may reach; it is fixed for the slot's lifetime.

    `cluster` says how its destination is reached, `sources` how each source is, by name. They are those of
    the spec that the job was started with; secrets are still references in it. `transform` is the one that
    the slot evaluates: it copies only flows with exactly this transform, or, where it is None, with none.
    """

    job: str
    slot: int
    destination: str
    cluster: ClusterSpec
    copy: CopySettings = CopySettings()
    sources: dict[str, ClusterSpec] = {}
    transform: TransformSpec | None = None


def transactional_ids(job: str, slot: int, flow: str, settings: CopySettings) -> list[str]:
    """Returns every transactional id that a slot may use for a flow, in the order of its lanes.

    The driver writes those of all its slots into the generation record before a slot starts. They are the
    same for every generation, so that a new slot of the same number fences the old one by itself.
    """
    lanes = settings.lanes + settings.spare_lanes
    return [f"repl.{job}.{slot}.{flow}.{lane}" for lane in range(lanes)]


def client_id(job: str, slot: int) -> str:
    """Returns the client id that a slot presents to brokers, at source and destination."""
    return f"repl.{job}.slot-{slot}"


def driver_transactional_id(job: str) -> str:
    """Returns the transactional id of a job's driver."""
    return f"repl.{job}.driver"


def encode(assignment: Assignment) -> bytes:
    return msgspec.json.encode(assignment)


_decoder = msgspec.json.Decoder(Assignment)


def decode(text: bytes) -> Assignment:
    """Decodes an assignment. Raises UnreadableValue."""
    return record_values.decode(_decoder, text)
