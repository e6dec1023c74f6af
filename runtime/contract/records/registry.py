"""The registry of a cluster: which topology owns which object there, as last applied.

The planner writes entries, and so does a job for the topics and rules that it makes. The key of an entry is
the address of its object.
"""

from typing import Final, Literal

import msgspec

from runtime.contract.records import record_values

VERSION: Final = 1
ANNOUNCED: Final = "announced"  # the object is about to be created, and has an owner at any moment


class OwnershipRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An entry without its address, as far as a job writes and reads it: those of the planner have more.

    `spec` is what was applied, `created` says that it was not adopted.
    """

    v: Literal[1] = VERSION
    topology: str
    spec: dict[str, str]
    origin: str
    created: bool
    at_ms: int


encode = msgspec.json.encode
_entry = msgspec.json.Decoder(OwnershipRecord)


def decode(value: bytes) -> OwnershipRecord:
    """Decodes an entry. Raises UnreadableValue, also for one of a newer release."""
    return record_values.decode(_entry, value)
