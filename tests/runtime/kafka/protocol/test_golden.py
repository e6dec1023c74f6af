"""What is written is, byte for byte, what Kafka's own classes write, and what they write is read."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.contract.spec.naming import NO_TOPIC_ID, TopicPartition, name_id
from runtime.kafka.errors import ErrorCode as E
from runtime.kafka.errors import Refusal
from runtime.kafka.protocol.administration import (
    AclBinding,
    AlterClientQuotasRequest,
    AlterReassignmentsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeLogDirsRequest,
    DescribeScramRequest,
    LogDir,
    QuotaAlteration,
    QuotaEntry,
    ScramCredentials,
)
from runtime.kafka.protocol.changes import (
    AlterConfigsRequest,
    ConfigAlteration,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteTopicsRequest,
    NewTopic,
)
from runtime.kafka.protocol.configs import BROKER, TOPIC, ConfigEntry, DescribeConfigsRequest, Described
from runtime.kafka.protocol.fetch import (
    EpochEnd,
    FetchedPartition,
    FetchedTopic,
    FetchFrom,
    FetchRequest,
    FetchResponse,
    Isolation,
    LeaderHint,
)
from runtime.kafka.protocol.groups import (
    CommittedOffset,
    DescribeConsumerGroupsRequest,
    DescribeGroupsRequest,
    GroupState,
    ListedGroup,
    ListGroupsRequest,
    MemberState,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from runtime.kafka.protocol.handshake import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from runtime.kafka.protocol.layout import Truncated
from runtime.kafka.protocol.metadata import (
    AnyMetadataRequest,
    Broker,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    MetadataRequest,
    MetadataResponse,
    Partition,
    QuorumReplica,
    TopicMetadata,
)
from runtime.kafka.protocol.offsets import LATEST, EpochEndsRequest, ListedOffset, ListOffsetsRequest
from runtime.kafka.protocol.produce import (
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)
from runtime.kafka.protocol.request import Request
from runtime.kafka.protocol.share_groups import AlterShareOffsetsRequest, DescribeShareOffsetsRequest
from runtime.kafka.protocol.transactions import (
    ActiveProducer,
    AddPartitionsRequest,
    CoordinatorKind,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTransactionRequest,
    FindCoordinatorRequest,
    FoundCoordinator,
    InitProducerIdRequest,
    ListedTransaction,
    ListTransactionsRequest,
    ProducerIdentity,
    TransactionState,
)
from tests.runtime.kafka.protocol.golden import BATCH, GOLDEN, ONE, TWO, answered, read, written

ORDERS = [TopicPartition("orders", index) for index in range(4)]


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
ADDED = [*ORDERS[::3], TopicPartition("ledger", 1)]
BINDING = AclBinding(2, "orders", 4, "User:app", "*", 3, 3)
DELETE = DeleteTopicsRequest({"orders": ONE, "päy": NO_TOPIC_ID}, 10_000)


REQUESTS: list[tuple[str, Request[Any]]] = [
    ("ApiVersionsRequest", ApiVersionsRequest("repl", "1")),
    ("OldApiVersionsRequest", ApiVersionsRequest()),
    ("SaslHandshakeRequest", SaslHandshakeRequest("SCRAM-SHA-512")),
    ("SaslAuthenticateRequest", SaslAuthenticateRequest(b"secret")),
    ("MetadataRequest.names", MetadataRequest(["orders", "päy"])),
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
    ("RenewProducerIdRequest", InitProducerIdRequest("tx", 15_000, IDENTITY)),
    ("AddPartitionsRequest", AddPartitionsRequest("tx", IDENTITY, ADDED)),
    ("EndTransactionRequest", EndTransactionRequest("tx", IDENTITY, commit=True)),
    (
        "ListOffsetsRequest",
        ListOffsetsRequest(Isolation.READ_COMMITTED, {ORDERS[0]: LATEST, ORDERS[1]: 1_700_000_000_000}),
    ),
    ("EpochEndsRequest", EpochEndsRequest({ORDERS[0]: 4})),
    ("OffsetCommitRequest", OffsetCommitRequest("g", {ORDERS[2]: CommittedOffset(55)})),
    ("OffsetFetchRequest.some", OffsetFetchRequest(["g"], ORDERS[2:])),
    ("OffsetFetchRequest.all", OffsetFetchRequest(["g"])),
    ("FetchManyRequest.one", OffsetFetchRequest(["g"])),
    ("FetchManyRequest", OffsetFetchRequest(["g", "h"])),
    ("ListGroupsRequest", ListGroupsRequest()),
    ("DescribeQuorumRequest", DescribeQuorumRequest()),
    (
        "DescribeConfigsRequest.keys",
        DescribeConfigsRequest(TOPIC, ["orders", "päy"], ["retention.ms", "flush.ms"]),
    ),
    ("DescribeConfigsRequest.all", DescribeConfigsRequest(BROKER, ["1"], None)),
    ("DescribeAclsRequest", DescribeAclsRequest()),
    ("DescribeClientQuotasRequest", DescribeClientQuotasRequest()),
    (
        "AlterClientQuotasRequest",
        AlterClientQuotasRequest(
            [
                QuotaAlteration(
                    {"user": "app", "client-id": None},
                    {"producer_byte_rate": (1048576.5, False), "request_percentage": (0.0, True)},
                ),
                QuotaAlteration({"ip": "10.0.0.7"}, {"connection_creation_rate": (20, False)}),
            ],
            validate_only=True,
        ),
    ),
    ("DescribeShareOffsetsRequest", DescribeShareOffsetsRequest(["g"])),
    ("AlterShareOffsetsRequest", AlterShareOffsetsRequest("g", {ORDERS[2]: 55})),
    ("DescribeScramRequest", DescribeScramRequest()),
    ("DescribeLogDirsRequest", DescribeLogDirsRequest(ORDERS[:2])),
    ("AlterReassignmentsRequest", AlterReassignmentsRequest({ORDERS[0]: [2, 1], ORDERS[1]: [3]}, 10_000)),
    ("DescribeProducersRequest", DescribeProducersRequest(ORDERS[:2])),
    ("DescribeTransactionsRequest", DescribeTransactionsRequest(["tx"])),
    ("ListTransactionsRequest", ListTransactionsRequest(["Ongoing"], [9])),
    (
        "CreateTopicsRequest",
        CreateTopicsRequest(
            [NewTopic("orders", 3, 2, {"retention.ms": "1000"}), NewTopic("päy")], 10_000, validate_only=True
        ),
    ),
    ("DeleteTopicsRequest", DELETE),
    ("CreatePartitionsRequest", CreatePartitionsRequest({"orders": 6}, 10_000, validate_only=True)),
    (
        "AlterConfigsRequest",
        AlterConfigsRequest(
            [ConfigAlteration.of("orders", {"retention.ms": "1000"}, ["flush.ms"])],
            validate_only=True,
        ),
    ),
    ("CreateAclsRequest", CreateAclsRequest([BINDING])),
    ("DeleteAclsRequest", DeleteAclsRequest([BINDING])),
    ("GroupRightsRequest", DescribeGroupsRequest(["g", "h"])),
    ("DescribeConsumerGroupsRequest", DescribeConsumerGroupsRequest(["g", "h"])),
    ("RightsRequest", AnyMetadataRequest(["orders"], rights=True)),
    ("ClusterRightsRequest", AnyMetadataRequest(rights=True)),
]


@pytest.mark.parametrize(("name", "request_"), REQUESTS, ids=[name for name, _ in REQUESTS])
def test_bytes_are_those_of_kafkas_own_classes(name: str, request_: Request[Any]) -> None:
    versions = [version for known, version in GOLDEN if known == name]
    assert versions
    for version in versions:
        assert written(request_, version).hex() == GOLDEN[name, version].hex()


def test_all_golden_bytes_are_compared() -> None:
    assert {name for name, _ in GOLDEN} == {name for name, _ in REQUESTS} | ANSWERS.keys()


def test_an_id_from_before_an_upgrade_is_sent_as_kafkas_id() -> None:
    """The ledger has the name id, and the broker took the topic's first id when it was upgraded."""
    names = {ONE: "orders", TWO: "päy"}
    upgraded = replace(
        FETCH,
        partitions={(name_id(names[one]), at): start for (one, at), start in FETCH.partitions.items()},
        forgotten=[(name_id(names[one]), partition) for one, partition in FETCH.forgotten],
        topics={name_id(name): FetchedTopic(name, one) for one, name in names.items()},
    )
    assert written(upgraded, 17) == written(FETCH, 17)


@pytest.mark.parametrize(
    ("ids", "versions"), [((ONE, TWO), (11, 17)), ((ONE, name_id("päy")), (11, 12)), ((), (11, 17))]
)
def test_topics_without_an_id_of_kafka_are_fetched_by_name(
    ids: tuple[bytes, ...], versions: tuple[int, int]
) -> None:
    """A broker offers versions by id before its inter-broker protocol gives the topics ids."""
    topics = {one: FetchedTopic(name, one) for one, name in zip(ids, ("orders", "päy"), strict=False)}
    assert replace(FETCH, topics=topics).versions == versions


def test_a_topic_whose_name_is_not_known_is_not_asked_for_by_name() -> None:
    unnamed = replace(OLD_FETCH, topics={ONE: FetchedTopic("orders", ONE)})
    assert "päy".encode() not in written(unnamed, 12)


def test_a_frame_is_size_header_and_body_and_record_batches_are_not_copied() -> None:
    view = memoryview(bytearray(BATCH))
    parts = ProduceRequest("tx", 1, [ProducePartition("orders", 0, [view])]).frame(11, 0x01020304, "me")
    frame = b"".join(parts)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert frame[4:].startswith(bytes.fromhex("0000000b010203040002") + b"me\0")
    assert any(part is view for part in parts)
    assert "hush" not in repr(SaslAuthenticateRequest(b"hush"))


# What Kafka's own classes write is read as what it says; an answer that is cut or changed is refused

OK = E.NONE
NO_BYTES = memoryview(b"")
EMPTY = FetchRequest(0, 0, 0, Isolation.READ_COMMITTED, 0, 0, {})
# Responses whose reading depends on more of the request than on its type.
READERS: dict[str, Request[Any]] = {
    "CreateAclsResponse": CreateAclsRequest([BINDING] * 2),
    "DeleteAclsResponse": DeleteAclsRequest([BINDING] * 2),
    "DeleteTopicsByIdResponse": DELETE,
    "OldFetchResponse": replace(
        EMPTY, topics={ONE: FetchedTopic("orders", ONE), TWO: FetchedTopic("päy", TWO)}
    ),
}

ANSWERS: dict[str, object] = {
    "CreateTopicsResponse": {"päy": Refusal(E.TOPIC_ALREADY_EXISTS, "it exists")},
    "OldDeleteTopicsResponse": {"päy": Refusal(E.UNKNOWN_TOPIC_OR_PARTITION, None)},
    "DeleteTopicsResponse": {"päy": Refusal(E.UNKNOWN_TOPIC_OR_PARTITION, "gone")},
    "DeleteTopicsByIdResponse": {
        "orders": Refusal(E.UNKNOWN_TOPIC_ID, "gone"),
        "päy": Refusal(E.UNKNOWN_TOPIC_OR_PARTITION, None),
    },
    "CreatePartitionsResponse": {"päy": Refusal(E.INVALID_PARTITIONS, "it has 6")},
    "AlterConfigsResponse": {"päy": Refusal(E.INVALID_CONFIG, "no")},
    "CreateAclsResponse": [None, Refusal(E.SECURITY_DISABLED, "no")],
    "DeleteAclsResponse": [None, Refusal(E.SECURITY_DISABLED, "no")],
    "GroupRightsResponse": {
        "g": GroupState("Stable", [MemberState("m", "c", "/h", {"o": (7,)})], frozenset({3, 8})),
        "h": E.GROUP_AUTHORIZATION_FAILED,
    },
    "DescribeConsumerGroupsResponse": {
        "g": GroupState("Stable", [MemberState("m", "c", "/h", {"orders": (0, 3)})]),
        "h": E.GROUP_ID_NOT_FOUND,
    },
    "ClusterRightsResponse": MetadataResponse((), "abc", 1, (), frozenset({5, 8})),
    "RightsResponse": MetadataResponse(
        (), "abc", 1, (TopicMetadata("orders", ONE, OK, False, {}, frozenset({3, 8})),)
    ),
    "DescribeShareOffsetsResponse": {
        "g": {
            ORDERS[0]: CommittedOffset(55, of_share_group=True),
            ORDERS[1]: E.TOPIC_AUTHORIZATION_FAILED,
        },
        "h": E.GROUP_ID_NOT_FOUND,
    },
    "AlterShareOffsetsResponse": {ORDERS[2]: E.UNKNOWN_TOPIC_OR_PARTITION},
    "ApiVersionsResponse": ApiVersionsResponse(OK, {0: (3, 13), 1: (4, 18)}, 5, {"transaction.version": 2}),
    "OldApiVersionsResponse": ApiVersionsResponse(OK, {0: (3, 13), 1: (4, 18)}),
    "OldSaslAuthenticateResponse": SaslAuthenticateResponse(E.SASL_AUTHENTICATION_FAILED, "no", b"x", 0),
    "AnyMetadataResponse": MetadataResponse(
        (Broker(1, "one", 9092, "r1"), Broker(2, "two", 9093)),
        "abc",
        1,
        (TopicMetadata("orders", NO_TOPIC_ID, OK, True, {0: Partition(0, 2, -1, (1, 2), (2,))}),),
    ),
    "DescribeQuorumResponse": DescribeQuorumResponse(OK, 2, (QuorumReplica(1, 80), QuorumReplica(2, 100))),
    "OldListGroupsResponse": [ListedGroup("g", "consumer", "")],
    "DescribeConfigsResponse": [
        Described(
            OK,
            None,
            "orders",
            [
                ConfigEntry("retention.ms", "1000", False, 1, False),
                ConfigEntry("secret", None, True, 5, True),
            ],
        ),
        Described(E.TOPIC_AUTHORIZATION_FAILED, "no", "hidden", []),
    ],
    "DescribeAclsResponse": [
        AclBinding(2, "orders", 4, "User:app", "*", 3, 3),
        AclBinding(2, "orders", 4, "User:b", "h", 4, 2),
    ],
    "DescribeClientQuotasResponse": [
        QuotaEntry({"user": "app", "client-id": None}, {"producer_byte_rate": 1048576.5})
    ],
    "DescribeClientQuotasResponse.refused": Refusal(E.CLUSTER_AUTHORIZATION_FAILED, "no"),
    "AlterClientQuotasResponse": {frozenset({("client-id", None)}): Refusal(E.INVALID_REQUEST, "no")},
    "DescribeScramResponse": [
        ScramCredentials("app", OK, {1: 4096, 2: 8192}),
        ScramCredentials("gone", E.RESOURCE_NOT_FOUND),
    ],
    "DescribeLogDirsResponse": [LogDir({ORDERS[0]: 1 << 40, ORDERS[1]: 77})],
    "DescribeLogDirsResponse.refused": E.CLUSTER_AUTHORIZATION_FAILED,
    "AlterReassignmentsResponse": {ORDERS[1]: Refusal(E.INVALID_REPLICA_ASSIGNMENT, "no broker 3")},
    "AlterReassignmentsResponse.refused": Refusal(E.NOT_CONTROLLER, "not me"),
    "SaslHandshakeResponse": SaslHandshakeResponse(E.UNSUPPORTED_SASL_MECHANISM, ("PLAIN", "GSSAPI")),
    "SaslAuthenticateResponse": SaslAuthenticateResponse(E.SASL_AUTHENTICATION_FAILED, "no", b"x", 60_000),
    "MetadataResponse": MetadataResponse(
        (Broker(1, "one", 9092, "r1"), Broker(2, "two", 9093)),
        "abc",
        1,
        (
            TopicMetadata(
                "orders",
                ONE,
                OK,
                False,
                {
                    0: Partition(0, 2, 5, (1, 2), (2,)),
                    1: Partition(1, -1, 4, (1,), (), E.LEADER_NOT_AVAILABLE),
                },
            ),
            TopicMetadata("", TWO, E.UNKNOWN_TOPIC_ID, False, {}),
        ),
    ),
    "FetchResponse": FetchResponse(
        11,
        OK,
        77,
        (
            FetchedPartition(ONE, 0, OK, 100, 90, 5, ((9, 20), (10, 21)), -1, memoryview(BATCH)),
            FetchedPartition(ONE, 1, OK, 50, 50, 0, (), 2, NO_BYTES, diverging=EpochEnd(4, 33)),
            FetchedPartition(
                TWO,
                2,
                E.NOT_LEADER_OR_FOLLOWER,
                -1,
                -1,
                -1,
                (),
                -1,
                NO_BYTES,
                leader=LeaderHint(3, 8),
            ),
        ),
    ),
    "OldFetchResponse": FetchResponse(
        11,
        OK,
        77,
        (
            FetchedPartition(ONE, 0, OK, 100, 90, 5, ((9, 20), (10, 21)), -1, memoryview(BATCH)),
            FetchedPartition(TWO, 2, E.NOT_LEADER_OR_FOLLOWER, -1, -1, -1, (), -1, NO_BYTES),
        ),
        by_name=True,
    ),
    "ProduceResponse": ProduceResponse(
        13,
        (
            ProducedPartition("orders", 0, OK, 1234, -1, 7),
            ProducedPartition("orders", 3, E.INVALID_RECORD, -1, -1, -1, ((2, "null key"), (4, None)), "bad"),
        ),
    ),
    "ProduceResponse.moved": ProduceResponse(
        0,
        (ProducedPartition("orders", 0, E.NOT_LEADER_OR_FOLLOWER, -1, -1, -1, leader=LeaderHint(3, 8)),),
    ),
    "FindCoordinatorResponse": [
        FoundCoordinator("a", 2, "two", 9093, OK, ""),
        FoundCoordinator("b", -1, "", 0, E.COORDINATOR_NOT_AVAILABLE, None),
    ],
    "FindCoordinatorResponse.one": [FoundCoordinator("a", 2, "two", 9093, OK, "")],
    "InitProducerIdResponse": ProducerIdentity(1 << 33, 12),
    "AddPartitionsResponse": {ORDERS[0]: E.OPERATION_NOT_ATTEMPTED, ORDERS[3]: E.UNKNOWN_TOPIC_OR_PARTITION},
    "EndTransactionResponse": E.CONCURRENT_TRANSACTIONS,
    "ListOffsetsResponse": {ORDERS[0]: ListedOffset(99, -1, 5), ORDERS[1]: E.NOT_LEADER_OR_FOLLOWER},
    "EpochEndsResponse": {ORDERS[0]: EpochEnd(4, 71), ORDERS[1]: E.FENCED_LEADER_EPOCH},
    "OffsetCommitResponse": {ORDERS[2]: E.UNKNOWN_MEMBER_ID},
    "OffsetFetchResponse": {
        "g": {ORDERS[2]: CommittedOffset(55, 4, "m"), ORDERS[3]: E.UNSTABLE_OFFSET_COMMIT}
    },
    "FetchManyResponse": {"g": {ORDERS[2]: CommittedOffset(55, 4, "m")}, "h": E.NOT_COORDINATOR},
    "ListGroupsResponse": [ListedGroup("g", "consumer", "Empty", "classic")],
    "DescribeProducersResponse": {
        ORDERS[0]: [ActiveProducer(9, 2, 3, 4, 5, 6)],
        ORDERS[1]: E.NOT_LEADER_OR_FOLLOWER,
    },
    "DescribeTransactionsResponse": {
        "tx": TransactionState("Ongoing", 15_000, 1_700_000_000_000, 9, 2, (ORDERS[0], ORDERS[1]))
    },
    "ListTransactionsResponse": [ListedTransaction("tx", 9, "Ongoing")],
}
RESPONSES = [(name, version) for name, version in GOLDEN if "Response" in name]


def reader_of(name: str) -> Request[Any]:
    """Returns the request of a response: `OldFetchResponse` or `FetchResponse.refused` of `FetchRequest`."""
    wanted = name.replace("Response", "Request")
    plain = wanted.removeprefix("Old").partition(".")[0]
    known = dict(REQUESTS)
    alike = [request for request_name, request in REQUESTS if request_name.partition(".")[0] == plain]
    return READERS.get(name) or known.get(wanted) or alike[-1]


@pytest.mark.parametrize("name", ANSWERS)
def test_the_answer_is_what_kafkas_own_classes_wrote(name: str) -> None:
    for known, version in RESPONSES:
        if known == name:
            assert read(reader_of(name), name, version) == ANSWERS[name]


@pytest.mark.parametrize("kind", [CreateAclsRequest, DeleteAclsRequest])
def test_an_answer_without_a_result_for_each_rule_is_refused(kind: Any) -> None:
    name = kind.__name__.replace("Request", "Response")
    with pytest.raises(ValueError, match="it has 2 results for 3 rules"):
        read(kind([BINDING] * 3), name, 3)


def test_what_could_not_be_asked_for_by_name_is_answered_as_an_unknown_topic() -> None:
    asked = replace(EMPTY, partitions={(ONE, 0): FetchFrom(0)}, topics={TWO: FetchedTopic("päy", TWO)})

    fetched = answered(asked, 12, GOLDEN["OldFetchResponse", 12])

    errors = {(one.topic_id, one.partition): one.error for one in fetched.partitions}
    assert errors[ONE, 0] is E.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [9, 10, 12])
def test_a_topic_without_an_id_gets_its_name_id(version: int) -> None:
    metadata = read(MetadataRequest(), "AnyMetadataResponse", version)

    assert [topic.id for topic in metadata.topics] == [name_id("orders")]


def test_fetched_records_lie_in_the_response_and_can_be_stamped_there() -> None:
    response = bytearray(bytes(5) + GOLDEN["FetchResponse", 17])

    _, fetched = EMPTY.answer(17, memoryview(response))
    fetched.partitions[0].records[:7] = b"PRETEND"

    assert b"PRETEND this is a record batch" in response


@pytest.mark.parametrize("version", [1, 4])
def test_a_cut_answer_changes_nothing_of_the_next_one(version: int) -> None:
    name = "DescribeConfigsResponse"
    golden = GOLDEN[name, version]
    for length in range(len(golden)):
        with suppress(Truncated):
            answered(reader_of(name), version, golden[:length])
        assert read(reader_of(name), name, version) == ANSWERS[name]


@given(st.data())
def test_a_cut_answer_is_refused_and_never_half_read(data: st.DataObject) -> None:
    name, version = data.draw(st.sampled_from(RESPONSES))
    golden = GOLDEN[name, version]
    cut = golden[: data.draw(st.integers(0, len(golden) - 1))]

    # What a newer version may add at the end is the one thing that may be missing unseen.
    try:
        answered(reader_of(name), version, cut)
    except Truncated:
        return
    assert len(cut) >= len(golden) - 16


@given(st.data())
def test_twisted_bytes_end_as_value_errors(data: st.DataObject) -> None:
    """Of which the connection makes Malformed: a hostile broker may answer with any bytes."""
    name, version = data.draw(st.sampled_from(RESPONSES))
    twisted = bytearray(GOLDEN[name, version])
    for at in data.draw(st.lists(st.integers(0, len(twisted) - 1), min_size=1, max_size=8)):
        twisted[at] = data.draw(st.integers(0, 255))

    for answer in (bytes(twisted), data.draw(st.binary(max_size=200))):
        with suppress(ValueError):
            answered(reader_of(name), version, answer)


def test_an_unknown_error_code_keeps_its_number() -> None:
    assert E(31_000).name == "ERROR_31000"
    assert int(E(31_000)) == 31_000
    assert not E(31_000).retriable
    assert E.NOT_LEADER_OR_FOLLOWER.retriable
