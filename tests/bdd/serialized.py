"""Producers and consumers with Confluent's serializers, and what they wrote and read."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.records import PATIENCE_S

PARTITIONS = 2
_NAMED = {"subject.name.strategy": topic_subject_name_strategy}
_IN_HEADERS = {"schema.id.serializer": header_schema_id_serializer}
Encode = Callable[[int, SerializationContext], bytes]


def fields(version: int) -> list[str]:
    """A version of a schema adds a field to the one before."""
    return [f"text_{number}" for number in range(1, version + 1)]


def value(version: int, number: int) -> dict[str, Any]:
    return {"number": number, **dict.fromkeys(fields(version), f"of version {version}")}


def _avro(version: int) -> str:
    more = [{"name": name, "type": "string", "default": ""} for name in fields(version)]
    record = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "long"}, *more]}
    return json.dumps(record)


def _json(version: int) -> str:
    more = {name: {"type": "string"} for name in fields(version)}
    return json.dumps(
        {"title": "Bill", "type": "object", "properties": {"number": {"type": "integer"}, **more}}
    )


def _protobuf(version: int) -> Any:
    """The class of the message Shipment, with a field more in each version."""
    file = descriptor_pb2.FileDescriptorProto(name="shipment.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Shipment")
    kinds = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="number", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    for at, name in enumerate(fields(version), 2):
        message.field.add(name=name, number=at, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Shipment"))


def _encoder(word: str, version: int, client: SchemaRegistryClient) -> Encode:
    match word:
        case "orders":
            avro = AvroSerializer(client, _avro(version), conf=_NAMED)
            return lambda number, context: bytes(avro(value(version, number), context))
        case "events":
            headed = AvroSerializer(client, _avro(version), conf=_NAMED | _IN_HEADERS)
            return lambda number, context: bytes(headed(value(version, number), context))
        case "bills":
            bills = JSONSerializer(_json(version), client, conf=_NAMED)
            return lambda number, context: bytes(bills(value(version, number), context))
        case _:
            kind = _protobuf(version)
            shipments = ProtobufSerializer(kind, client, conf=_NAMED)
            return lambda number, context: bytes(shipments(kind(**value(version, number)), context))


def _decoder(word: str, newest: int, client: SchemaRegistryClient) -> Callable[..., Any]:
    match word:
        case "orders" | "events":
            return AvroDeserializer(client, conf=_NAMED)  # type: ignore[no-any-return]
        case "bills":
            return JSONDeserializer(None, conf=_NAMED, schema_registry_client=client)  # type: ignore[no-any-return]
        case _:
            return ProtobufDeserializer(_protobuf(newest), _NAMED, client)  # type: ignore[no-any-return]


WORDS = ("orders", "bills", "shipments", "events")


@dataclass
class Serialized:
    """What producers wrote to each topic, by partition: what consumers must read, in this order."""

    clients: Mapping[str, Mapping[str, Any]]
    registries: Mapping[str, str]
    written: dict[str, list[list[dict[str, Any]]]] = field(
        default_factory=lambda: {word: [[] for _ in range(PARTITIONS)] for word in WORDS}
    )
    version: int = 1
    _numbers: Iterator[int] = field(default_factory=count)

    def write(self, cluster: str, records: int) -> None:
        """Writes to each topic with the newest version, and returns when all are acknowledged."""
        with SchemaRegistryClient({"url": self.registries[cluster]}) as registry:
            self._write(cluster, registry, records)

    def _write(self, cluster: str, registry: SchemaRegistryClient, records: int) -> None:
        producer = Producer({**self.clients[cluster], "enable.idempotence": True})
        encoders: dict[tuple[str, int], Encode] = {}
        for _ in range(records):
            number, version = next(self._numbers), self.version
            for word in WORDS:
                if (word, version) not in encoders:
                    encoders[word, version] = _encoder(word, version, registry)
                headers: list[tuple[str, str | bytes | None]] = []
                context = SerializationContext(word, MessageField.VALUE, headers)
                encoded = encoders[word, version](number, context)
                partition = number % PARTITIONS
                producer.produce(word, encoded, partition=partition, headers=headers)
                self.written[word][partition].append(value(version, number))
        assert producer.flush(2 * PATIENCE_S) == 0

    @contextmanager
    def writing(self, cluster: str) -> Iterator[None]:
        """Writes all the time, a few records at once."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(0.05):
                self.write(cluster, 5)

        with ThreadPoolExecutor(1) as threads:
            writing = threads.submit(run)
            try:
                yield
            finally:
                ended.set()
            writing.result()

    def read(self, word: str, cluster: str) -> list[list[dict[str, Any]]]:
        """What a consumer decodes with the registry of its cluster, by partition. Raises what it can't."""
        with SchemaRegistryClient({"url": self.registries[cluster]}) as registry:
            return self._read(word, cluster, _decoder(word, self.version, registry))

    def _read(self, word: str, cluster: str, decode: Callable[..., Any]) -> list[list[dict[str, Any]]]:
        settings = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
        consumer = Consumer({**self.clients[cluster], **settings, "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition(word, number, 0) for number in range(PARTITIONS)])
        found: list[list[dict[str, Any]]] = [[] for _ in range(PARTITIONS)]
        ended = 0
        try:
            while ended < PARTITIONS:
                message = consumer.poll(PATIENCE_S)
                assert message is not None, f"{word} at {cluster} can't be read"
                partition = message.partition()
                if message.error() or partition is None:
                    ended += 1
                    continue
                headers = message.headers() or []
                value_of = decode(message.value(), SerializationContext(word, MessageField.VALUE, headers))
                found[partition].append(_plain(value_of))
        finally:
            consumer.close()
        return found


def _plain(decoded: Any) -> dict[str, Any]:
    """Fields that a writer's schema does not have are left out."""
    known = decoded if isinstance(decoded, dict) else {at.name: text for at, text in decoded.ListFields()}
    return {"number": known.get("number", 0), **{name: text for name, text in known.items() if text}}
