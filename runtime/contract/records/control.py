"""Defines the assignment of a slot, and the control topic that carries it.

The control topic carries commands to jobs, and messages from a driver to its slots. Messages to slots carry
the driver's name: a slot accepts only those of the driver that started it. Values begin with a version byte;
large ones are compressed.
"""

from typing import Annotated

import msgspec

from runtime.contract.records.job_status import checked
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.record_values import RecordCodec
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import CopySettings, FlowSpec, JobSpec
from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.topic_settings import DEFAULT_MAX_MESSAGE_BYTES
from runtime.contract.spec.transform import TransformSpec


class LimitedTopic(msgspec.Struct, frozen=True):
    """Names a topic at the destination, with its max.message.bytes and its min.insync.replicas."""

    topic: str
    max_message_bytes: int
    min_in_sync: int = 1


class AssignedPartition(msgspec.Struct, frozen=True):
    """Describes one partition that a slot copies.

    The slot checks the topics' ids against the ledger (R4). `min_in_sync` and `max_message_bytes` are the
    destination topic's min.insync.replicas and max.message.bytes. `accept_loss` makes it continue after a
    loss that R4 found, because an operator accepted the loss. `quarantine` takes bad records.
    """

    flow: str
    topic: str
    partition: int
    destination_topic: str
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    min_in_sync: int = 1
    accept_loss: bool = False
    quarantine: LimitedTopic | None = None

    @property
    def key(self) -> PartitionKey:
        """Returns the partition's key in the ledger."""
        return PartitionKey(self.flow, self.topic, self.partition)


class AssignedFlow(msgspec.Struct, frozen=True):
    """Describes a flow as one slot copies it, with its generation (R3).

    The spec has only what slots use, and its rate limit is this slot's share.
    An assignment names the source cluster and never says how it is reached: `SlotSpec.sources` does.
    """

    spec: FlowSpec
    generation: int


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
    `registries` says in the same way how the schema registry of each cluster is reached. `unpacked_bytes`
    bounds the records of a batch that is rewritten (R8).
    """

    job: str
    slot: int
    destination: str
    cluster: ClusterSpec
    unpacked_bytes: int
    copy: CopySettings = CopySettings()
    sources: dict[str, ClusterSpec] = {}
    transform: TransformSpec | None = None
    registries: dict[str, RegistrySpec] = {}


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


_COMPRESS_FROM_BYTES = 1_000


# The job names the command that it carried out last in every heartbeat.
CommandId = Annotated[str, msgspec.Meta(max_length=200)]


class StopJobCommand(msgspec.Struct, frozen=True, tag="stop"):
    """Stops the job: transactions end, slots end, the job reports that it stopped."""

    id: CommandId


class Reconfigure(msgspec.Struct, frozen=True, tag="reconfigure"):
    """Replaces the job's flows: it adds, removes and changes flows without a restart.

    It takes over no cluster that the job was not started with, and no other address, pin or client setting of
    one that it was. `slots` and Spark's start-up settings need a restart, too.
    """

    id: CommandId
    spec: JobSpec


class AcceptLoss(msgspec.Struct, frozen=True, tag="accept_loss"):
    """Lets partitions that stopped over lost records continue, because an operator accepted the loss (R4)."""

    id: CommandId
    flow: str
    partitions: list[tuple[str, int]]


Command = StopJobCommand | Reconfigure | AcceptLoss


class Assign(msgspec.Struct, frozen=True, tag="assign"):
    """Sends an attempt of a slot its assignment. It ends every earlier attempt of the same driver."""

    driver: str
    attempt: int
    assignment: Assignment


class StopSlot(msgspec.Struct, frozen=True, tag="stop_slot"):
    """Stops this attempt of the slot, and every earlier one of the same driver.

    The driver writes it before it fences the attempt's transactional ids. So a process that has initialised
    an id, and then reads the whole topic, knows whether it may still copy (R3).
    """

    driver: str
    attempt: int


SlotMessage = Assign | StopSlot


def command_key(job: str) -> bytes:
    """Returns the key of commands to a job."""
    return msgspec.json.encode(["job", job])


def slot_key(job: str, slot: int) -> bytes:
    """Returns the key of a driver's messages to one of its slots."""
    return msgspec.json.encode(["slot", job, slot])


_command = RecordCodec[Command]("control", Command, packed_from=_COMPRESS_FROM_BYTES)
_slot_message = RecordCodec[SlotMessage]("control", SlotMessage, packed_from=_COMPRESS_FROM_BYTES)
decode_slot_message = _slot_message.decode


def encode(message: Command | SlotMessage) -> bytes:
    if isinstance(message, SlotMessage):
        return _slot_message.encode(message)
    return _command.encode(message)


def decode_command(value: bytes) -> Command:
    """Decodes a command. Raises UnreadableValue, also for a spec that no job could start with."""
    command = _command.decode(value)
    if isinstance(command, Reconfigure):
        checked(command.spec, "control")
    return command
