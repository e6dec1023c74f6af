"""What a job is told, in the control topic: commands from outside, and the driver's words to its slots.

Words to slots carry the driver's name: a slot listens to the one that started it and to nobody else. Values
begin with a version byte; large ones are compressed.
"""

import zlib

import msgspec

from runtime.contract import jobspec
from runtime.contract.jobspec import BadJobSpec, JobSpec

_VERSION = b"\x01"
_KEEP_PLAIN = 1_000


class StopJob(msgspec.Struct, frozen=True, tag="stop"):
    """Transactions end, slots end, the job says goodbye."""

    id: str


class Reconfigure(msgspec.Struct, frozen=True, tag="reconfigure"):
    """From now on the job is this: flows come, go and change without a restart. `slots` needs one."""

    id: str
    spec: JobSpec


class AcceptLoss(msgspec.Struct, frozen=True, tag="accept_loss"):
    """An operator said: these partitions of the flow, which stand still over lost records, go on (R4)."""

    id: str
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


class UnreadableControl(ValueError):
    """A control record that this version can't read: whoever wrote it is told in the job's status."""


def command_key(job: str) -> bytes:
    return msgspec.json.encode(["job", job])


def slot_key(job: str, slot: int) -> bytes:
    return msgspec.json.encode(["slot", job, slot])


def encode(message: Command | Word) -> bytes:
    text = msgspec.json.encode(message)
    return _VERSION + (text if len(text) < _KEEP_PLAIN else zlib.compress(text, 1))


_command = msgspec.json.Decoder(Command)
_word = msgspec.json.Decoder(Word)


def decode_command(value: bytes) -> Command:
    try:
        command: Command = _command.decode(_text(value))
        if isinstance(command, Reconfigure):
            jobspec.check(command.spec)
    except (msgspec.DecodeError, BadJobSpec) as error:
        raise UnreadableControl(f"control: {error}") from error
    return command


def decode_word(value: bytes) -> Word:
    try:
        word: Word = _word.decode(_text(value))
    except msgspec.DecodeError as error:
        raise UnreadableControl(f"control: {error}") from error
    return word


def _text(value: bytes) -> bytes:
    if value[:1] != _VERSION:
        raise UnreadableControl(f"control: version {value[:1].hex() or 'none'}, this runtime reads 01")
    if value[1:2] == b"{":
        return value[1:]
    try:
        return zlib.decompress(value[1:])
    except zlib.error as error:
        raise UnreadableControl(f"control: {error}") from error
