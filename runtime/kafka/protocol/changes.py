"""The requests that change topics and ACL rules.

A broker takes those for topics where it is the controller, or forwards them in KRaft mode. Each answers for
every object by itself: some may be refused and the others done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from msgspec import Struct, field

from runtime.contract.spec.naming import NO_TOPIC_ID
from runtime.kafka.errors import ErrorCode, Refusal
from runtime.kafka.protocol.administration import AclBinding
from runtime.kafka.protocol.configs import TOPIC
from runtime.kafka.protocol.layout import (
    INLINE,
    KEY,
    VALUE,
    EntryOrder,
    Int8,
    Int16,
    Int32,
    Skipped,
    Uuid,
    since,
    until,
)
from runtime.kafka.protocol.request import Api, Request

BROKERS_DEFAULT = -1
"""A number that the brokers choose, since Kafka 2.4."""

SET, REMOVE = 0, 1
RefusedTopics = Mapping[str, Refusal]
"""The topics that were refused; the others are changed."""


class NewTopic(Struct, frozen=True):
    """A topic to create."""

    name: str
    partitions: Int32 = BROKERS_DEFAULT
    replication: Int16 = BROKERS_DEFAULT
    _assignments: ClassVar[Sequence[str]] = ()
    config: Mapping[str, str] = field(default_factory=dict)


class CreateTopicsRequest(Request[RefusedTopics], frozen=True):
    """This request creates topics, or only checks that it could."""

    API = Api.CREATE_TOPICS
    FLEXIBLE = 5
    VERSIONS = (2, 7)
    RESPONSE = Annotated[
        RefusedTopics,
        EntryOrder(
            KEY,
            Annotated[Uuid, since(7)],
            VALUE,
            Annotated[Int32, since(5)],  # the number of partitions
            Annotated[Int16, since(5)],  # the replication factor
            Annotated[Sequence[tuple[str, str, bool, Int8, bool]], since(5)],  # the configs
        ),
    ]

    topics: Sequence[NewTopic]
    timeout_ms: Int32
    validate_only: bool = False


class DeleteTopicsRequest(Request[RefusedTopics], frozen=True):
    """This request deletes topics by id from version 6 on, whatever topic has the name by then.

    Earlier versions, and topics without an id, are deleted by name. `topics` are the ids by name.
    """

    API = Api.DELETE_TOPICS
    FLEXIBLE = 4
    VERSIONS = (1, 6)
    BODY = tuple[
        Annotated[Sequence[tuple[str | None, Uuid]], since(6)], Annotated[Sequence[str], until(5)], Int32
    ]
    RESPONSE = Sequence[
        tuple[str | None, Annotated[Uuid, since(6)], ErrorCode, Annotated[str | None, since(5)]]
    ]

    topics: Mapping[str, bytes]
    timeout_ms: int

    def values(self, version: int) -> Any:
        by_id = [
            (name if topic_id == NO_TOPIC_ID else None, topic_id) for name, topic_id in self.topics.items()
        ]
        return by_id, list(self.topics), self.timeout_ms

    def result(self, value: Any) -> RefusedTopics:
        names = {topic_id: name for name, topic_id in self.topics.items() if topic_id != NO_TOPIC_ID}
        return {
            names.get(topic_id, name): Refusal(error, message)
            for name, topic_id, error, message in value
            if error
        }


class CreatePartitionsRequest(Request[RefusedTopics], frozen=True):
    """This request raises the numbers of partitions, or only checks that it could."""

    API = Api.CREATE_PARTITIONS
    FLEXIBLE = 2
    VERSIONS = (0, 3)
    BODY = tuple[Mapping[str, tuple[Int32, Sequence[str]]], Int32, bool]

    partitions: Mapping[str, int]
    timeout_ms: int
    validate_only: bool = False

    def values(self, version: int) -> Any:
        brokers_choose = {name: (count, None) for name, count in self.partitions.items()}
        return brokers_choose, self.timeout_ms, self.validate_only


class ConfigAlteration(Struct, frozen=True):
    """A ConfigAlteration sets some keys of one topic and removes others; what it does not name stays.

    An operation is `SET` or `REMOVE`, and the value.
    """

    _type: ClassVar[Int8] = TOPIC
    topic: str
    operations: Mapping[str, tuple[Int8, str | None]]

    @classmethod
    def of(cls, topic: str, values: Mapping[str, str], remove: Iterable[str] = ()) -> Self:
        return cls(
            topic,
            {key: (SET, value) for key, value in values.items()} | dict.fromkeys(remove, (REMOVE, None)),
        )


class AlterConfigsRequest(Request[RefusedTopics], frozen=True):
    """This request alters the configs of topics, or only checks that it could. It may be sent again."""

    API = Api.INCREMENTAL_ALTER_CONFIGS
    FLEXIBLE = 1
    VERSIONS = (0, 1)
    RESPONSE = Annotated[RefusedTopics, EntryOrder(VALUE, Int8, KEY)]

    alterations: Sequence[ConfigAlteration]
    validate_only: bool = False


RefusedRules = Sequence[Refusal | None]
"""In the order of the request; None stands for a rule that is done."""


class _ChangesRules(Request[RefusedRules], frozen=True):
    FLEXIBLE = 2
    VERSIONS = (1, 3)

    bindings: Sequence[AclBinding]

    def result(self, value: Any) -> RefusedRules:
        if len(value) != len(self.bindings):
            raise ValueError(f"it has {len(value)} results for {len(self.bindings)} rules")
        refused: RefusedRules = value
        return refused


class CreateAclsRequest(_ChangesRules, frozen=True):
    """This request creates rules. A rule that exists is done."""

    API = Api.CREATE_ACLS


class DeleteAclsRequest(_ChangesRules, frozen=True):
    """This request deletes exactly these rules. A rule that does not exist is done."""

    API = Api.DELETE_ACLS
    RESPONSE = Sequence[
        tuple[
            Refusal | None, Sequence[tuple[Refusal | None, Skipped[Annotated[AclBinding, INLINE]]]]
        ]  # of the matching rules
    ]

    def result(self, value: Any) -> RefusedRules:
        return super().result(
            [
                next((last for (last,) in reversed(matching) if last is not None), refusal)
                for refusal, matching in value
            ]
        )
