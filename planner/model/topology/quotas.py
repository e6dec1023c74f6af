"""Client quotas: whom they limit, and how much. Their keys have Kafka's names.

A quota has an entity: a user, a client id, a user with a client id, or an IP address. `<default>` stands for
every one that has no quota of its own. Kafka keeps the numbers as floating point; a whole one is an int here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, ClassVar

from msgspec import Struct

from planner.model.diagnostic import SourceLocation
from planner.model.topology.resources import CLUSTER_REFERENCES
from runtime.contract.spec.shapes import IntegerShape, Key, Rate, RecordName, TextShape, ValueShape

DEFAULT_ENTITY = "<default>"
ENTITY_TYPES = USER, CLIENT_ID, IP = "user", "client-id", "ip"
BYTE_RATES = ("producer_byte_rate", "consumer_byte_rate")  # bytes per second
OF_USERS = (*BYTE_RATES, "request_percentage", "controller_mutation_rate")
OF_ADDRESSES = ("connection_creation_rate",)
QUOTA_KEYS = (*OF_USERS, *OF_ADDRESSES)
FRACTIONS = ("request_percentage", "controller_mutation_rate")  # Kafka takes whole numbers for the others
NO_LIMIT = "no limit"


class QuotaEntity(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Whom a quota limits. None is a part that the entity does not have, `<default>` its default."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def parts(self) -> dict[str, str]:
        """Returns the parts that it has, by Kafka's names of their types."""
        named = dict(zip(ENTITY_TYPES, (self.user, self.client_id, self.ip), strict=True))
        return {kind: name for kind, name in named.items() if name is not None}

    @property
    def name(self) -> str:
        """Returns the part of its address behind the cluster: `user/app/client-id/loader`."""
        # Without slashes in names: two entities never have one address.
        escaped = {kind: name.replace("%", "%25").replace("/", "%2F") for kind, name in self.parts.items()}
        return "/".join(f"{kind}/{name}" for kind, name in escaped.items())

    @staticmethod
    def named(name: str) -> "QuotaEntity":
        """Returns the entity with this name. Raises ValueError for what is no list of types and names."""
        words = [word.replace("%2F", "/").replace("%25", "%") for word in name.split("/")]
        if len(words) % 2:
            raise ValueError(f"{name} names no quota entity")
        parts = dict(zip(words[::2], words[1::2], strict=True))
        return QuotaEntity(parts.get(USER), parts.get(CLIENT_ID), parts.get(IP))

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name}" for kind, name in self.parts.items())


def entity_of(parts: Mapping[str, str]) -> QuotaEntity | None:
    """Returns the entity with these parts; None for parts that the language does not have."""
    if not parts or not parts.keys() <= set(ENTITY_TYPES):
        return None
    return QuotaEntity(parts.get(USER), parts.get(CLIENT_ID), parts.get(IP))


def number(value: float) -> float:
    """Returns a whole number as an int. Raises ValueError for what is no number."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is no number")
    return int(value) if value == int(value) else value


def number_text(value: float) -> str:
    """Returns the digits of a number, without an exponent."""
    return format(Decimal(repr(value)), "f")


@dataclass(frozen=True, slots=True)
class Quota:
    """The client quotas of one entity: a user, a client id, both together, or an IP address.

    It is at one cluster: `cluster: [a, b]` in the YAML becomes two.
    """

    record: ClassVar = RecordName("quota", "a quota")

    cluster: Annotated[
        str,
        Key(
            "The cluster it applies to; a list makes one at each.",
            CLUSTER_REFERENCES,
            example="[dc1, dc2]",
            each=True,
        ),
    ]
    user: Annotated[
        str | None,
        Key(
            "The user, without `User:`; `<default>` is every user without a quota of its own.",
            TextShape("a user's name, or <default>", r"(?!User:).+", "write it without User:"),
            example="app",
        ),
    ] = None
    client_id: Annotated[
        str | None,
        Key(
            "The client id; with `user` it limits this client of this user.",
            TextShape("a client id, or <default>", r".+", "write a client id, or <default>"),
            example="loader",
        ),
    ] = None
    ip: Annotated[
        str | None,
        Key(
            "The address that clients connect from; it has `connection_creation_rate` alone.",
            TextShape("an IP address, or <default>", r".+", "write an IP address, or <default>"),
            example="10.0.0.7",
        ),
    ] = None
    producer_byte_rate: Annotated[
        Rate | None,
        Key("What it may write to each broker.", example="10MB/s"),
    ] = None
    consumer_byte_rate: Annotated[
        Rate | None,
        Key("What it may read from each broker.", example="20MB/s"),
    ] = None
    request_percentage: Annotated[
        int | float | None,
        Key(
            "The share of a broker's request and network threads that it may use; 100 is one whole thread.",
            ValueShape.NUMBER,
            example="50",
        ),
    ] = None
    controller_mutation_rate: Annotated[
        int | float | None,
        Key(
            "How many partitions it may create or delete per second (Kafka 2.7).",
            ValueShape.NUMBER,
            example="10",
        ),
    ] = None
    connection_creation_rate: Annotated[
        int | None,
        Key(
            "How many connections to a broker an IP address may open per second (Kafka 2.7).",
            IntegerShape(1),
            example="20",
        ),
    ] = None
    source: SourceLocation | None = None

    @property
    def entity(self) -> QuotaEntity:
        return QuotaEntity(self.user, self.client_id, self.ip)

    @property
    def values(self) -> dict[str, float]:
        """Returns the limits that it sets, by key."""
        by_key = {key: getattr(self, key) for key in QUOTA_KEYS}
        return {key: value for key, value in by_key.items() if value is not None}


def quota_of(cluster: str, entity: QuotaEntity, values: Mapping[str, float]) -> Quota:
    """Returns the quota with these limits. A key that the language does not have is left out."""
    limits = {key: values[key] for key in QUOTA_KEYS if key in values}
    return Quota(cluster, entity.user, entity.client_id, entity.ip, **limits)  # type: ignore[arg-type]
