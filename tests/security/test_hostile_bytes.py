"""Whatever bytes a broker answers with, reading them ends in a value or in one known error."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.kafka.auth.login import LoginError, advance
from runtime.kafka.auth.oauthbearer import parse_answer
from runtime.kafka.auth.sasl import scram
from runtime.kafka.protocol.administration import DescribeAclsRequest, DescribeLogDirsRequest
from runtime.kafka.protocol.configs import TOPIC, DescribeConfigsRequest
from runtime.kafka.protocol.groups import ListGroupsRequest
from runtime.kafka.protocol.handshake import ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from runtime.kafka.protocol.metadata import AnyMetadataRequest, MetadataRequest
from runtime.kafka.protocol.request import Request
from runtime.kafka.protocol.transactions import CoordinatorKind, FindCoordinatorRequest
from tests.fakes.hostile_broker import api_versions, authenticated, metadata, old_text

HONEST = [
    api_versions(3),
    struct.pack(">hi", 0, 1) + old_text("SCRAM-SHA-256"),
    authenticated(b"r=x,s=eA==,i=4096"),
    metadata([(1, "broker", 9092), (2, "10.0.0.1", 9092), (3, "fe80::1%eth0", 9092)]),
]


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    """An honest answer with some of its bytes changed, and perhaps cut; or any bytes at all."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=200))
    data = bytearray(draw(st.sampled_from(HONEST)))
    for _ in range(draw(st.integers(0, 4))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFE, 0xFF]))
    return bytes(data[: draw(st.integers(0, len(data)))])


REQUESTS: list[tuple[Request[object], int]] = [
    (ApiVersionsRequest("repl", "1"), 3),
    (SaslHandshakeRequest("PLAIN"), 1),
    (ApiVersionsRequest(), 0),
    (SaslAuthenticateRequest(b""), 0),
    (SaslAuthenticateRequest(b""), 2),
    (AnyMetadataRequest(()), 1),
    (AnyMetadataRequest(()), 9),
    (MetadataRequest(()), 12),
    (ListGroupsRequest(), 0),
    (DescribeAclsRequest(), 1),
    (DescribeAclsRequest(), 3),
    (DescribeLogDirsRequest([]), 1),
    (DescribeLogDirsRequest([]), 4),
    (DescribeConfigsRequest(TOPIC, []), 1),
    (DescribeConfigsRequest(TOPIC, []), 4),
    (FindCoordinatorRequest(CoordinatorKind.GROUP, ["g"]), 4),
]


@pytest.mark.parametrize(("request_", "version"), REQUESTS)
@settings(deadline=None)
@given(data=hostile())
def test_the_client_reads_it_or_calls_it_malformed(
    request_: Request[object], version: int, data: bytes
) -> None:
    with contextlib.suppress(ValueError):  # the connection makes Malformed of it
        request_.answer(version, memoryview(bytes(4) + data))


def logs_in(challenge: bytes, final: bytes) -> None:
    exchange = scram("SCRAM-SHA-256", "user", "password", nonce="nonce")
    advance(exchange, None)
    advance(exchange, challenge)
    advance(exchange, final)


@given(challenge=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)), final=st.binary())
def test_scram_believes_no_bytes_at_random(challenge: bytes, final: bytes) -> None:
    for first in (challenge, b"r=nonce," + challenge, b"r=nonceX,s=eA==,i=4096," + challenge):
        with pytest.raises(LoginError) as failure:
            logs_in(first, final)
        assert failure.value.why.isprintable()


@given(body=st.one_of(st.binary(max_size=200), st.text(max_size=200)))
def test_a_token_answer_at_random_is_refused(body: bytes | str) -> None:
    with pytest.raises(LoginError, match="did not answer with JSON"):
        parse_answer(body, "the endpoint")
