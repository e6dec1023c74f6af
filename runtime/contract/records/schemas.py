"""Defines a schema in the form of Confluent's REST API: registries answer with it, and backups store it."""

import hashlib
import json
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from runtime.contract.records.record_values import UnreadableValue, refuse_long_numbers

SchemaNumber = Annotated[int, msgspec.Meta(ge=0, le=0x7FFFFFFF)]  # an id has four bytes in records
VersionNumber = Annotated[int, msgspec.Meta(ge=1, le=0x7FFFFFFF)]
ReferredVersion = Annotated[int, msgspec.Meta(ge=-1, le=0x7FFFFFFF)]  # a reference may say -1: the latest


class Reference(msgspec.Struct, frozen=True):
    """A schema that another one refers to, by the name that stands in its text."""

    name: str
    subject: str
    version: ReferredVersion


_DEEPEST = 64  # levels of a data contract, which has 5
_RENAMED = {"type": "schemaType", "text": "schema", "rules": "ruleSet"}


class Schema(msgspec.Struct, frozen=True, omit_defaults=True, rename=_RENAMED):
    """A schema, as a registry keeps it. AVRO is the type where an answer has none."""

    text: str
    type: str = "AVRO"
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None  # of a data contract, as `rules`
    rules: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError where the metadata or rules are nested too deeply, or hold too long a number.

        They could not be compared, or not be read from the backup to which they are written.
        """
        try:
            refuse_long_numbers([self.metadata, self.rules])
        except UnreadableValue as error:
            raise ValueError(f"its metadata or rules hold {error}") from None
        level: list[Any] = [self.metadata, self.rules]
        for _ in range(_DEEPEST):
            level = [
                part
                for around in level
                if isinstance(around, dict | list)
                for part in (around.values() if isinstance(around, dict) else around)
            ]
            if not level:
                return
        raise ValueError(f"its metadata or rules have more than {_DEEPEST} levels")

    def fingerprint(self) -> str:
        """Returns a text that two schemas have in common if they are the same.

        White space between words means nothing, nor does the order of keys in JSON.
        """
        normal = " ".join(self.text.split())
        if self.type.upper() in ("AVRO", "JSON"):
            with suppress(ValueError, RecursionError):
                normal = json.dumps(json.loads(self.text), sort_keys=True)
        if self.metadata or self.rules:
            normal += json.dumps([self.metadata, self.rules], sort_keys=True)
        return hashlib.sha256(f"{self.type.upper()}\n{normal}".encode()).hexdigest()

    def is_same(self, other: "Schema") -> bool:
        """Returns whether both schemas have the same fingerprint and references."""
        return self.fingerprint() == other.fingerprint() and self.references == other.references

    def at(self, subject: str, version: int, number: int) -> "RegisteredSchema":
        """Returns the schema as a version of a subject."""
        parts = {name: getattr(self, name) for name in Schema.__struct_fields__}
        return RegisteredSchema(subject=subject, version=version, id=number, **parts)


class RegisteredSchema(Schema, frozen=True, kw_only=True, omit_defaults=True, rename=_RENAMED):
    """A schema as a version of a subject, with its id."""

    subject: str
    version: VersionNumber
    id: SchemaNumber
