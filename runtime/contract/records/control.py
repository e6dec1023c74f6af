"""The control topic carries commands to jobs, and messages from a driver to its slots.

Messages to slots carry the driver's name: a slot accepts only those of the driver that started it. Values
begin with a version byte; large ones are compressed.
"""

from typing import Annotated

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import BadJobSpec, JobSpec

_VERSION = b"\x01"
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
    """Sends a slot its assignment.

    `assignment` stays encoded: `runtime.contract.spec.assignment` decodes it.
    """

    driver: str
    assignment: msgspec.Raw


class StopSlot(msgspec.Struct, frozen=True, tag="stop_slot"):
    """Stops the slot if this driver started it."""

    driver: str


SlotMessage = Assign | StopSlot


class UnreadableControl(UnreadableValue):
    """A control record that this version can't read: the job's status reports it."""


def command_key(job: str) -> bytes:
    """Returns the key of commands to a job."""
    return msgspec.json.encode(["job", job])


def slot_key(job: str, slot: int) -> bytes:
    """Returns the key of a driver's messages to one of its slots."""
    return msgspec.json.encode(["slot", job, slot])


def encode(message: Command | SlotMessage) -> bytes:
    text = msgspec.json.encode(message)
    return _VERSION + (text if len(text) < _COMPRESS_FROM_BYTES else record_values.compress(text))


_command = msgspec.json.Decoder(Command)
_slot_message = msgspec.json.Decoder(SlotMessage)


def decode_command(value: bytes) -> Command:
    """Decodes a command.

    Raises UnreadableControl. A spec in a command must pass the same checks as one in a file.
    """
    try:
        command: Command = record_values.decode(_command, _text(value))
        if isinstance(command, Reconfigure):
            jobspec.check(command.spec)
    except (UnreadableValue, BadJobSpec) as error:
        raise UnreadableControl(f"control: {error}") from error
    return command


def decode_slot_message(value: bytes) -> SlotMessage:
    """Decodes a message to a slot. Raises UnreadableControl."""
    try:
        message: SlotMessage = record_values.decode(_slot_message, _text(value))
    except UnreadableValue as error:
        raise UnreadableControl(f"control: {error}") from error
    return message


def _text(value: bytes) -> bytes:
    if value[:1] != _VERSION:
        raise UnreadableValue(f"version {value[:1].hex() or 'none'}, this runtime reads 01")
    return value[1:] if value[1:2] == b"{" else record_values.decompress(value[1:])
