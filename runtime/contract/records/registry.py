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
    """An entry without its address. `spec` is what was applied, `created` says that it was not adopted.

    `plan` is the digest of the plan that wrote it, empty where a job did.
    """

    topology: str
    spec: dict[str, str]
    protect: bool
    on_remove: Literal["keep", "delete"]
    origin: str
    created: bool
    plan: str
    at_ms: int = msgspec.field(name="at")


class _Versioned(OwnershipRecord, frozen=True, kw_only=True):
    v: Literal[1]


_entry = msgspec.json.Decoder(_Versioned)


def of_job(topology: str, spec: dict[str, str], origin: str, at_ms: int) -> OwnershipRecord:
    """Returns the entry of an object that a job makes."""
    return OwnershipRecord(
        topology=topology,
        spec=spec,
        protect=False,
        on_remove="keep",
        origin=origin,
        created=True,
        plan="",
        at_ms=at_ms,
    )


def encode(record: OwnershipRecord) -> bytes:
    return msgspec.json.encode({"v": VERSION, **msgspec.to_builtins(record)})


def decode(value: bytes) -> OwnershipRecord:
    """Decodes an entry. Raises UnreadableValue, also for one of a newer release."""
    return record_values.decode(_entry, value)
