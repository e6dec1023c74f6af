"""The proxy understands the product's requests, and the product understands the proxy's answers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from runtime.batch import stamp
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.produce import ProducePartition, ProduceRequest
from runtime.kafka.protocol.transactions import (
    AddPartitionsRequest,
    EndTransactionRequest,
    InitProducerIdRequest,
    ProducerIdentity,
)
from runtime.kafka.records import InternalRecord, build
from tests.hostile.faults import CODES, Blow, Dice, Fault, Named
from tests.hostile.wire import Api, Request, error_answer, transactional

IDENTITY = ProducerIdentity(7, 3)
BATCH = stamp(build([InternalRecord(b"k", b"v")], 50), 7, 3, 0)
PARTS = [ProducePartition("orders", 0, BATCH), ProducePartition("orders", 2, BATCH)]
AT = [TopicPartition("orders", 0), TopicPartition("ledger", 4)]
REQUESTS: dict[Api, Any] = {
    Api.PRODUCE: ProduceRequest("tx", 1_000, PARTS),
    Api.INIT_PRODUCER_ID: InitProducerIdRequest("tx", 1_000),
    Api.ADD_PARTITIONS_TO_TXN: AddPartitionsRequest("tx", IDENTITY, AT),
    Api.END_TXN: EndTransactionRequest("tx", IDENTITY, commit=True),
}
VERSIONS = [
    (api, version)
    for api, request in REQUESTS.items()
    for version in range(request.VERSIONS[0], request.VERSIONS[1] + 1)
]


def sent(request: Any, version: int) -> bytes:
    """The bytes of a request without its size."""
    return b"".join(bytes(piece) for piece in request.frame(version, 42, "client"))[4:]


def codes_of(api: Api, answer: Any) -> list[ErrorCode]:
    match api:
        case Api.PRODUCE:
            return [one.error for one in answer.partitions]
        case Api.ADD_PARTITIONS_TO_TXN:
            return list(answer.values())
        case _:
            return [answer]


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_a_request_is_recognised_and_its_answer_has_the_error_for_all_that_it_names(
    api: Api, version: int
) -> None:
    request = REQUESTS[api]
    found = transactional(sent(request, version))
    assert found is not None
    assert found[:4] == (api, version, 42, "tx")
    data = error_answer(found, ErrorCode.NOT_COORDINATOR)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert int.from_bytes(data[4:8], "big") == 42
    many = 2 if api in (Api.PRODUCE, Api.ADD_PARTITIONS_TO_TXN) else 1
    assert (
        codes_of(api, request.answer(version, memoryview(data)[4:])[1]) == [ErrorCode.NOT_COORDINATOR] * many
    )


def test_a_produce_request_without_a_transaction_passes() -> None:
    assert transactional(sent(ProduceRequest(None, 1_000, PARTS), 9)) is None


def test_dice_of_the_same_seed_choose_the_same_and_deal_as_many_blows_as_they_should() -> None:
    def dealt() -> list[Blow]:
        dice = Dice(random.Random(7), 50)
        blows = []
        while not dice.spent:
            for api in Api:
                if (blow := dice.choose(Request(api, 3, 1, "tx", b""))) is not None:
                    assert blow.code in CODES[api]
                    blows.append(blow)
        return blows

    first = dealt()
    assert first == dealt()
    assert len(first) == 50
    assert {blow.fault for blow in first} == set(Fault)


def test_named_blows_fall_on_their_requests_in_turn() -> None:
    blow, other = Blow(Fault.CUT), Blow(Fault.LOST)
    named = Named((Api.END_TXN, blow), (Api.PRODUCE, other), after=1)
    order = [Api.END_TXN, Api.PRODUCE, Api.END_TXN, Api.PRODUCE, Api.PRODUCE]
    assert [named.choose(Request(api, 3, 1, "tx", b"")) for api in order] == [None, None, blow, None, other]
    assert named.spent
