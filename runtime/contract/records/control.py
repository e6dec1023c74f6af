"""What a job is told, in the control topic: commands from outside, and the driver's words to its slots.

Words to slots carry the driver's name: a slot listens to the one that started it and to nobody else. Values
begin with a version byte; large ones are compressed.
"""

from typing import Annotated

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import BadJobSpec, JobSpec

_VERSION = b"\x01"
_KEEP_PLAIN = 1_000


# The job says in every heartbeat which command it carried out last.
CommandId = Annotated[str, msgspec.Meta(max_length=200)]


class StopJob(msgspec.Struct, frozen=True, tag="stop"):
    """Transactions end, slots end, the job says goodbye."""

    id: CommandId


class Reconfigure(msgspec.Struct, frozen=True, tag="reconfigure"):
    """From now on the job has these flows: they come, go and change without a restart.

    It takes over no cluster that it was not started with, and no other address, pin or client setting of one
    that it was. `slots` and what Spark is started with need a new start, too.
    """

    id: CommandId
    spec: JobSpec


class AcceptLoss(msgspec.Struct, frozen=True, tag="accept_loss"):
    """An operator said: these partitions of the flow, which stand still over lost records, go on (R4)."""

    id: CommandId
    flow: str
    partitions: list[tuple[str, int]]


Command = StopJob | Reconfigure | AcceptLoss


class Assign(msgspec.Struct, frozen=True, tag="assign"):
    """`assignment` is encoded: the room that copies knows its shape."""

    driver: str
    assignment: msgspec.Raw


class StopSlot(msgspec.Struct, frozen=True, tag="stop_slot"):
    driver: str


Word = Assign | StopSlot


class UnreadableControl(UnreadableValue):
    """A control record that this version can't read: the job's status says so."""


def command_key(job: str) -> bytes:
    return msgspec.json.encode(["job", job])


def slot_key(job: str, slot: int) -> bytes:
    return msgspec.json.encode(["slot", job, slot])


def encode(message: Command | Word) -> bytes:
    text = msgspec.json.encode(message)
    return _VERSION + (text if len(text) < _KEEP_PLAIN else record_values.compress(text))


_command = msgspec.json.Decoder(Command)
_word = msgspec.json.Decoder(Word)


def decode_command(value: bytes) -> Command:
    """Raises UnreadableControl. A spec in a command is held to all that a spec in a file is."""
    try:
        command: Command = record_values.decode(_command, _text(value))
        if isinstance(command, Reconfigure):
            jobspec.check(command.spec)
    except (UnreadableValue, BadJobSpec) as error:
        raise UnreadableControl(f"control: {error}") from error
    return command


def decode_word(value: bytes) -> Word:
    """Raises UnreadableControl."""
    try:
        word: Word = record_values.decode(_word, _text(value))
    except UnreadableValue as error:
        raise UnreadableControl(f"control: {error}") from error
    return word


def _text(value: bytes) -> bytes:
    if value[:1] != _VERSION:
        raise UnreadableValue(f"version {value[:1].hex() or 'none'}, this runtime reads 01")
    return value[1:] if value[1:2] == b"{" else record_values.decompress(value[1:])
