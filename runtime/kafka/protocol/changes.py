"""The requests that change topics and ACL rules.

A broker takes those for topics where it is the controller, or forwards them in KRaft mode. Each answers for
every object by itself: some may be refused and the others done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct, field
from msgspec.structs import astuple

from runtime.kafka.protocol.administration import AclBinding, Refusal
from runtime.kafka.protocol.configs import TOPIC
from runtime.kafka.protocol.request import Api, Message, Request, Rows

BROKERS_DEFAULT = -1
"""A number that the brokers choose, since Kafka 2.4."""

_SET, _DELETE = 0, 1
RefusedTopics = Mapping[str, Refusal]
"""The topics that were refused; the others are changed."""


class NewTopic(Struct, frozen=True):
    """A topic to create."""

    name: str
    partitions: int = BROKERS_DEFAULT
    replication: int = BROKERS_DEFAULT
    config: Mapping[str, str] = field(default_factory=dict)


class _ChangesTopics(Request[RefusedTopics], frozen=True):
    def result(self, _throttle_ms: int, topics: Rows) -> RefusedTopics:
        return {name: Refusal(error, message) for name, error, message in topics if error}


class CreateTopicsRequest(_ChangesTopics, frozen=True):
    """This request creates topics, or only checks that it could."""

    MESSAGE: ClassVar[Message] = Message(
        Api.CREATE_TOPICS,
        5,
        """
        topics              []
          name              string
          partitions        int32
          replication       int16
          _assignments      []string  = ()
          config            []
            key             string
            value           string?
        timeout_ms          int32
        validate_only       bool
        """,
        """
        throttle_ms         int32
        topics              []
          name              string
          _id               uuid     7+
          error             error
          message           string?
          _partitions       int32    5+
          _replication      int16    5+
          _config           []       5+
            _key            string
            _value          string
            _read_only      bool
            _source         int8
            _sensitive      bool
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (2, 7)

    topics: Sequence[NewTopic]
    timeout_ms: int
    validate_only: bool = False

    def values(self, version: int) -> Any:
        topics = [
            (topic.name, topic.partitions, topic.replication, topic.config.items()) for topic in self.topics
        ]
        return topics, self.timeout_ms, self.validate_only


class DeleteTopicsRequest(_ChangesTopics, frozen=True):
    """This request deletes topics by name."""

    MESSAGE: ClassVar[Message] = Message(
        Api.DELETE_TOPICS,
        4,
        """
        names               []string
        timeout_ms          int32
        """,
        """
        throttle_ms         int32
        topics              []
          name              string
          error             error
          message           string?  5+
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (1, 5)

    names: Sequence[str]
    timeout_ms: int

    def values(self, version: int) -> Any:
        return self.names, self.timeout_ms


class CreatePartitionsRequest(_ChangesTopics, frozen=True):
    """This request raises the numbers of partitions, or only checks that it could."""

    MESSAGE: ClassVar[Message] = Message(
        Api.CREATE_PARTITIONS,
        2,
        """
        topics              []
          name              string
          count             int32
          _assignments      []string  = None
        timeout_ms          int32
        validate_only       bool
        """,
        """
        throttle_ms         int32
        topics              []
          name              string
          error             error
          message           string?
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (0, 3)

    partitions: Mapping[str, int]
    timeout_ms: int
    validate_only: bool = False

    def values(self, version: int) -> Any:
        return self.partitions.items(), self.timeout_ms, self.validate_only


class ConfigAlteration(Struct, frozen=True):
    """A ConfigAlteration sets some keys of one topic and removes others; what it does not name stays."""

    topic: str
    set: Mapping[str, str]
    remove: Sequence[str] = ()


class AlterConfigsRequest(Request[RefusedTopics], frozen=True):
    """This request alters the configs of topics, or only checks that it could. It may be sent again."""

    MESSAGE: ClassVar[Message] = Message(
        Api.INCREMENTAL_ALTER_CONFIGS,
        1,
        """
        resources           []
          kind              int8
          name              string
          config            []
            key             string
            operation       int8
            value           string?
        validate_only       bool
        """,
        """
        throttle_ms         int32
        resources           []
          error             error
          message           string?
          _kind             int8
          name              string
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (0, 1)

    alterations: Sequence[ConfigAlteration]
    validate_only: bool = False

    def values(self, version: int) -> Any:
        resources = [
            (
                TOPIC,
                altered.topic,
                [
                    *((key, _SET, value) for key, value in altered.set.items()),
                    *((key, _DELETE, None) for key in altered.remove),
                ],
            )
            for altered in self.alterations
        ]
        return resources, self.validate_only

    def result(self, _throttle_ms: int, resources: Rows) -> RefusedTopics:
        return {name: Refusal(error, message) for error, message, name in resources if error}


RefusedRules = Sequence[Refusal | None]
"""In the order of the request; None stands for a rule that is done."""


class _ChangesRules(Request[RefusedRules], frozen=True):
    TABLE: ClassVar[str] = """
        bindings            []
          resource_type     int8
          resource          string
          pattern           int8
          principal         string
          host              string
          operation         int8
          permission        int8
        """
    VERSIONS: ClassVar[tuple[int, int]] = (1, 3)

    bindings: Sequence[AclBinding]

    def values(self, version: int) -> Rows:
        return [astuple(binding) for binding in self.bindings]

    def _complete(self, results: Rows) -> Rows:
        """Returns the results. Raises ValueError unless there is one for each rule."""
        if len(results) != len(self.bindings):
            raise ValueError(f"it has {len(results)} results for {len(self.bindings)} rules")
        return results


class CreateAclsRequest(_ChangesRules, frozen=True):
    """This request creates rules. A rule that exists is done."""

    MESSAGE: ClassVar[Message] = Message(
        Api.CREATE_ACLS,
        2,
        _ChangesRules.TABLE,
        """
        throttle_ms         int32
        results             []
          error             error
          message           string?
        """,
    )

    def result(self, _throttle_ms: int, results: Rows) -> RefusedRules:
        return [Refusal(error, message) if error else None for error, message in self._complete(results)]


class DeleteAclsRequest(_ChangesRules, frozen=True):
    """This request deletes exactly these rules. A rule that does not exist is done."""

    MESSAGE: ClassVar[Message] = Message(
        Api.DELETE_ACLS,
        2,
        _ChangesRules.TABLE,
        """
        throttle_ms         int32
        results             []
          error             error
          message           string?
          matching          []
            error           error
            message         string?
            _resource_type  int8
            _resource       string
            _pattern        int8
            _principal      string
            _host           string
            _operation      int8
            _permission     int8
        """,
    )

    def result(self, _throttle_ms: int, results: Rows) -> RefusedRules:
        refused: list[Refusal | None] = []
        for error, message, matching in self._complete(results):
            failures = [(error, message), *matching]
            last = next((failure for failure in reversed(failures) if failure[0]), None)
            refused.append(None if last is None else Refusal(*last))
        return refused
