"""This module defines what a slot starts with. Spark passes it to the slot's process."""

from __future__ import annotations

import zlib

import msgspec

from runtime.contract.records.control import Assignment, SlotSpec


class SlotStartRequest(msgspec.Struct, frozen=True):
    """Holds everything that a slot starts with.

    It is made for each submission, so it is never stale (fencing 3). Commands at or after `control_offset` in
    the control topic are newer than `first`.
    """

    driver: str
    attempt: int
    spec: SlotSpec
    first: Assignment
    control_offset: int


def encode(ticket: SlotStartRequest) -> bytes:
    """Encodes a ticket as compressed JSON."""
    return zlib.compress(msgspec.json.encode(ticket), 1)


def decode(text: bytes) -> SlotStartRequest:
    """Decodes a ticket."""
    return msgspec.json.decode(zlib.decompress(text), type=SlotStartRequest)
