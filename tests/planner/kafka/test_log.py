"""Readers of internal topics, where brokers do not agree yet: librdkafka's consumer is a stand-in."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from planner.kafka import ClusterEndpoint, log
from planner.model.diagnostic import Failure


class Reader:
    """A consumer whose leader answers with these errors first, and then with an empty partition.

    `metadata` are errors that come first when topics are listed.
    """

    def __init__(self, *errors: int, metadata: Sequence[int] = ()) -> None:
        self._errors = list(errors)
        self._metadata = list(metadata)
        self.assigned = False

    def list_topics(self, topic: str, timeout: float) -> Any:
        if self._metadata:
            raise KafkaException(KafkaError(self._metadata.pop(0)))
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None)})

    def get_watermark_offsets(self, _place: object, timeout: float) -> tuple[int, int]:
        if self._errors:
            raise KafkaException(KafkaError(self._errors.pop(0)))
        return 0, 0

    def assign(self, _places: object) -> None:
        self.assigned = True

    def poll(self, _seconds: float) -> Any:
        ended = SimpleNamespace(code=lambda: KafkaError._PARTITION_EOF)
        return SimpleNamespace(error=lambda: ended)

    def consume(self, _count: int, timeout: float) -> list[Any]:
        return []

    def close(self) -> None:
        pass


def read_by(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> list[log.TopicRecord]:
    monkeypatch.setattr(log, "consumer", lambda _endpoint: reader)
    monkeypatch.setattr(log, "_AGAIN_SECONDS", 0.0)
    return log.read(ClusterEndpoint("dc1", "127.0.0.1:1", {}), "__repl.status")


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE])
def test_a_leader_that_does_not_know_a_new_topic_yet_is_asked_again(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(code, code)
    assert read_by(reader, monkeypatch) == []
    assert reader.assigned


def test_a_connection_that_is_closed_while_topics_are_listed_is_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = Reader(metadata=[KafkaError._TRANSPORT] * 2)
    assert read_by(reader, monkeypatch) == []
    assert reader.assigned


def test_brokers_that_list_no_topics_are_an_error_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "FIRST_ANSWER_SECONDS", 0.0)
    with pytest.raises(Failure, match=r"__repl\.status at dc1 cannot be used: "):
        read_by(Reader(metadata=[KafkaError._TRANSPORT] * 1_000), monkeypatch)


def test_a_topic_that_no_leader_knows_is_an_error_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "READ_SECONDS", 0.0)
    with pytest.raises(Failure, match=r"__repl\.status at dc1 cannot be used: "):
        read_by(Reader(*[KafkaError.UNKNOWN_TOPIC_OR_PART] * 1_000), monkeypatch)


def test_a_reader_without_rights_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(Failure, match="needs CREATE, DESCRIBE, READ and WRITE"):
        read_by(reader, monkeypatch)
    assert not reader.assigned
