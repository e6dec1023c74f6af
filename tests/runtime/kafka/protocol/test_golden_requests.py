"""What is written is, byte for byte, what Kafka's own classes write."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from runtime.contract.spec.naming import name_id
from runtime.kafka.protocol.administration import (
    AlterClientQuotasRequest,
    AlterReassignmentsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeLogDirsRequest,
    DescribeScramRequest,
    QuotaAlteration,
)
from runtime.kafka.protocol.config_entries import BROKER, TOPIC, Decoder, DescribeConfigsRequest
from runtime.kafka.protocol.fetch import FetchedTopic, FetchFrom, FetchRequest, Isolation
from runtime.kafka.protocol.groups import (
    CommittedOffset,
    FetchManyRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from runtime.kafka.protocol.handshake import (
    ApiVersionsRequest,
    OldApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from runtime.kafka.protocol.metadata import AnyMetadataRequest, DescribeQuorumRequest, MetadataRequest
from runtime.kafka.protocol.offsets import (
    LATEST,
    EpochEndsRequest,
    EpochQuestion,
    ListOffsetsRequest,
    OffsetQuestion,
    TopicPartition,
)
from runtime.kafka.protocol.produce import ProducePartition, ProduceRequest
from runtime.kafka.protocol.request import Api, Request, frame
from runtime.kafka.protocol.transactions import (
    AddPartitionsRequest,
    CoordinatorKind,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTransactionRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    ProducerIdentity,
    RenewProducerIdRequest,
)
from tests.runtime.kafka.protocol.golden import BATCH, GOLDEN, ONE, TWO, written


def at(offset: int) -> FetchFrom:
    return FetchFrom(offset, leader_epoch=7, last_fetched_epoch=6, max_bytes=1 << 20)


FETCH = FetchRequest(
    500,
    1,
    32 << 20,
    Isolation.READ_COMMITTED,
    session_id=77,
    session_epoch=3,
    partitions={(ONE, 0): at(10), (ONE, 1): at(1 << 40), (TWO, 5): at(0)},
    forgotten=[(TWO, 1), (TWO, 2)],
    rack="r1",
)
OLD_FETCH = replace(FETCH, topics={ONE: FetchedTopic("orders", ONE), TWO: FetchedTopic("päy", TWO)})
# The pieces of a batch may lie anywhere, and partitions of a topic come in any order among others'.
PRODUCED = (
    ProducePartition("orders", 0, [BATCH[:8], memoryview(BATCH)[8:]]),
    ProducePartition("päy", 1, [BATCH]),
    ProducePartition("orders", 3, [bytearray(BATCH)]),
)
IDENTITY = ProducerIdentity(9, 2)
ORDERS = [TopicPartition("orders", index) for index in range(4)]


def configs_of(kind: int, names: list[str], keys: list[str] | None) -> Request[Any]:
    return DescribeConfigsRequest(kind, names, keys, lambda name: lambda key, own: True, Decoder(tuple_of))


def tuple_of(*value: object) -> tuple[object, ...]:
    return value


CASES: list[tuple[str, Request[Any]]] = [
    ("ApiVersionsRequest", ApiVersionsRequest("repl", "1")),
    ("OldApiVersionsRequest", OldApiVersionsRequest()),
    ("SaslHandshakeRequest", SaslHandshakeRequest("SCRAM-SHA-512")),
    ("SaslAuthenticateRequest", SaslAuthenticateRequest(b"secret")),
    ("MetadataRequest.names", MetadataRequest(["orders", "päy"])),
    ("MetadataRequest.ids", MetadataRequest(ids=[ONE])),
    ("MetadataRequest.all", MetadataRequest(None)),
    ("AnyMetadataRequest.names", AnyMetadataRequest(["orders"])),
    ("AnyMetadataRequest.all", AnyMetadataRequest(None)),
    ("FetchRequest", FETCH),
    ("OldFetchRequest", OLD_FETCH),
    ("ProduceRequest", ProduceRequest("tx", 30_000, PRODUCED)),
    ("ProduceRequest.plain", ProduceRequest(None, 1, PRODUCED, acks=1)),
    ("FindCoordinatorRequest", FindCoordinatorRequest(CoordinatorKind.TRANSACTION, ["a", "b"])),
    ("FindCoordinatorRequest.one", FindCoordinatorRequest(CoordinatorKind.TRANSACTION, ["a"])),
    ("InitProducerIdRequest", InitProducerIdRequest("tx", 15_000)),
    ("RenewProducerIdRequest", RenewProducerIdRequest("tx", 15_000, IDENTITY)),
    ("AddPartitionsRequest", AddPartitionsRequest("tx", IDENTITY, [*ORDERS[::3], ("ledger", 1)])),
    ("EndTransactionRequest", EndTransactionRequest("tx", IDENTITY, commit=True)),
    (
        "ListOffsetsRequest",
        ListOffsetsRequest(
            Isolation.READ_COMMITTED,
            {ORDERS[0]: OffsetQuestion(LATEST, 5), ORDERS[1]: OffsetQuestion(1_700_000_000_000)},
        ),
    ),
    ("EpochEndsRequest", EpochEndsRequest({ORDERS[0]: EpochQuestion(4, 6)})),
    ("OffsetCommitRequest", OffsetCommitRequest("g", {ORDERS[2]: CommittedOffset(55)})),
    ("OffsetFetchRequest.some", OffsetFetchRequest("g", ORDERS[2:])),
    ("OffsetFetchRequest.all", OffsetFetchRequest("g")),
    ("FetchManyRequest.one", FetchManyRequest(["g"])),
    ("FetchManyRequest", FetchManyRequest(["g", "h"])),
    ("ListGroupsRequest", ListGroupsRequest()),
    ("DescribeQuorumRequest", DescribeQuorumRequest()),
    ("DescribeConfigsRequest.keys", configs_of(TOPIC, ["orders", "päy"], ["retention.ms", "flush.ms"])),
    ("DescribeConfigsRequest.all", configs_of(BROKER, ["1"], None)),
    ("DescribeAclsRequest", DescribeAclsRequest()),
    ("DescribeClientQuotasRequest", DescribeClientQuotasRequest()),
    (
        "AlterClientQuotasRequest",
        AlterClientQuotasRequest(
            [
                QuotaAlteration(
                    {"user": "app", "client-id": None},
                    {"producer_byte_rate": 1048576.5},
                    ["request_percentage"],
                ),
                QuotaAlteration({"ip": "10.0.0.7"}, {"connection_creation_rate": 20}),
            ],
            validate_only=True,
        ),
    ),
    ("DescribeScramRequest", DescribeScramRequest()),
    ("DescribeLogDirsRequest", DescribeLogDirsRequest(ORDERS[:2])),
    ("AlterReassignmentsRequest", AlterReassignmentsRequest({ORDERS[0]: [2, 1], ORDERS[1]: [3]}, 10_000)),
    ("DescribeProducersRequest", DescribeProducersRequest(ORDERS[:2])),
    ("DescribeTransactionsRequest", DescribeTransactionsRequest(["tx"])),
    ("ListTransactionsRequest", ListTransactionsRequest(["Ongoing"], [9])),
]


@pytest.mark.parametrize(("name", "request_"), CASES, ids=[name for name, _ in CASES])
def test_bytes_are_those_of_kafkas_own_classes(name: str, request_: Request[Any]) -> None:
    versions = [version for known, version in GOLDEN if known == name]
    assert versions
    for version in versions:
        assert written(request_, version).hex() == GOLDEN[name, version].hex()


def test_an_id_from_before_an_upgrade_is_sent_as_kafkas_id() -> None:
    """The ledger has the name id, and the broker took the topic's first id when it was upgraded."""
    topics = {name_id("orders"): FetchedTopic("orders", ONE), name_id("päy"): FetchedTopic("päy", TWO)}
    renamed = {
        (name_id("orders" if one == ONE else "päy"), at): start
        for (one, at), start in FETCH.partitions.items()
    }
    forgotten = [(name_id("päy"), partition) for _, partition in FETCH.forgotten]
    upgraded = replace(FETCH, partitions=renamed, forgotten=forgotten, topics=topics)

    assert written(upgraded, 17) == written(FETCH, 17)


def test_a_topic_whose_name_is_not_known_is_not_asked_for_by_name() -> None:
    unnamed = replace(OLD_FETCH, topics={ONE: FetchedTopic("orders", ONE)})

    assert "päy".encode() not in written(unnamed, 12)


def test_every_golden_request_is_compared() -> None:
    assert {name for name, _ in GOLDEN if "Request" in name} == {name for name, _ in CASES}


def test_record_batches_are_not_copied() -> None:
    view = memoryview(bytearray(BATCH))

    body = ProduceRequest("tx", 1, [ProducePartition("orders", 0, [view])]).body(11)

    assert any(part is view for part in body)


def test_a_frame_is_size_header_and_body() -> None:
    parts = frame(Api.FETCH, 17, 0x01020304, "me", True, [b"body", b"more"])

    assert b"".join(parts) == bytes.fromhex("0000001500010011010203040002") + b"me\0bodymore"


def test_secrets_are_not_shown() -> None:
    assert "hush" not in repr(SaslAuthenticateRequest(b"hush"))
