"""A hostile broker costs one clear error, little time and little memory, on both connections."""

from __future__ import annotations

import asyncio
import functools
import re
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from planner.kafka import ClusterClient, ClusterEndpoint, ClusterFailure, run_at
from planner.model.observed import ObservedCluster, Unreachable
from planner.observe.cluster import ReadOptions
from runtime.contract.client.settings import wire_settings
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.metadata import AnyMetadataRequest
from tests.endpoints import observed
from tests.fakes.hostile_broker import (
    API_VERSIONS,
    AUTHENTICATE,
    HANDSHAKE,
    METADATA,
    PASSWORD,
    USER,
    Asked,
    Fault,
    HostileBroker,
    Scram,
    api_versions,
    authenticated,
    frame_of,
    framed,
    metadata,
    old_text,
    topic,
    uvarint,
)

pytestmark = pytest.mark.slow

SHORT_S, LONG_S = 1.5, 20.0
DEADLINE_S = 40.0  # the machine may be busy; a trickle would go on for minutes
MOST_BYTES = 8 << 20
NO_VERSION = struct.pack(">h", 0) + uvarint(1) + struct.pack(">i", 0) + b"\0"
BACKWARD_VERSIONS = (
    struct.pack(">h", 0)
    + uvarint(3)
    + b"".join(struct.pack(">hhh", api, 9, -9) + b"\0" for api in (HANDSHAKE, AUTHENTICATE))
    + struct.pack(">i", 0)
    + b"\0"
)
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": USER,
    "sasl.password": PASSWORD,
}


@dataclass(frozen=True, slots=True)
class Case:
    """`why` stands in the error of either connection."""

    name: str
    fault: Fault
    why: str
    login: bool = True
    timeout_s: float = LONG_S


def on(api: int, answer: Callable[[Asked], bytes]) -> Fault:
    return Fault(reply=lambda asked: (answer(asked),) if asked.api == api else None)


@functools.cache
def million_brokers() -> bytes:
    return metadata((node, f"b{node}", 9092) for node in range(1_000_000))


def lists_a_million(asked: Asked) -> Sequence[bytes] | None:
    return frame_of(asked, million_brokers()) if asked.api == METADATA else None


def size(announced: int) -> Callable[[Asked], bytes]:
    return lambda asked: struct.pack(">ii", announced, asked.correlation_id)


def cut(asked: Asked) -> bytes:
    """A whole frame around half an answer."""
    body = {
        API_VERSIONS: lambda: api_versions(asked.version)[:-7],
        HANDSHAKE: lambda: struct.pack(">hi", 0, 2**31 - 1) + old_text("SCRAM-SHA-256"),
        AUTHENTICATE: lambda: struct.pack(">h", 0) + b"\x01" + uvarint(2**28) + b"r=",
        METADATA: lambda: struct.pack(">i", 0) + uvarint(2**28),
    }[asked.api]()
    return framed(asked, body, flexible=asked.api in (AUTHENTICATE, METADATA))


def named(host: str, port: int = 9092) -> Fault:
    return on(METADATA, lambda asked: framed(asked, metadata([(1, host, port)])))


APIS = {"versions": API_VERSIONS, "handshake": HANDSHAKE, "authenticate": AUTHENTICATE, "metadata": METADATA}
PROTOCOL = "keep to Kafka's protocol|can't be read|an answer of"
MALFORMED = f"not Kafka's|{PROTOCOL}"
SLOW = "no login was possible|no connection in"
CASES = [
    *(Case(f"huge-{name}", on(api, size(2**31 - 1)), MALFORMED) for name, api in APIS.items()),
    *(Case(f"20-MB-{name}", on(api, size(20_000_000)), MALFORMED) for name, api in APIS.items()),
    *(Case(f"negative-{name}", on(api, size(-5)), MALFORMED) for name, api in APIS.items()),
    *(Case(f"truncated-{name}", on(api, cut), PROTOCOL) for name, api in APIS.items()),
    *(
        Case(
            f"correlation-{name}",
            on(api, lambda asked: framed(asked, b"", correlation_id=asked.correlation_id + 1)),
            "answers another request|it answers request",
        )
        for name, api in APIS.items()
    ),
    *(
        Case(f"trickle-{name}", Fault(trickle_on=api, trickle_s=1.0), SLOW, timeout_s=SHORT_S)
        for name, api in APIS.items()
        if api != METADATA
    ),
    Case("iterations-1", Fault(scram=Scram(iterations="1")), "'1' iterations; allowed are 4096"),
    Case("same-nonce", Fault(scram=Scram(nonce=lambda ours: ours)), "nonce does not extend"),
    Case("no-signature", Fault(scram=Scram(final=lambda signature: b"")), "holds no signature"),
    Case(
        "refusal-with-escapes",
        on(AUTHENTICATE, lambda asked: framed(asked, authenticated(b"", 58, b"\x1b[2Jno"))),
        r"\?\[2Jno",
    ),
    Case(
        "old-versions",
        on(API_VERSIONS, lambda asked: framed(asked, struct.pack(">hi", 35, 0), flexible=False)),
        "refused to tell its API versions|older than",
    ),
    Case(
        "no-common-version",
        on(API_VERSIONS, lambda asked: framed(asked, NO_VERSION, flexible=False)),
        "too old|does not offer it",
    ),
    Case(
        "backward-versions",
        on(API_VERSIONS, lambda asked: framed(asked, BACKWARD_VERSIONS, flexible=False)),
        "too old|speaks versions 9 to -9",
    ),
    Case("million-brokers", Fault(lists_a_million), PROTOCOL, login=False),
    Case("million-brokers-after-login", Fault(lists_a_million), PROTOCOL),
    Case("host-escapes", named("\x1b]52;c;aGk=\x07.example.org"), "which is no host name", login=False),
    Case("host-url", named("https://idp/?x="), "which is no host name", login=False),
    Case("host-long", named("a" * 300), "which is no host name", login=False),
    Case("host-empty", named(""), "which is no host name", login=False),
    Case("port-0", named("broker", 0), "ports go from 1 to 65535", login=False),
    Case("port-negative", named("broker", -1), "ports go from 1 to 65535", login=False),
]


# The planner connects as the data path does; what it makes of a failure, and its buffers, are its own.
OF_THE_PLANNER = (
    "huge-versions",
    "20-MB-metadata",
    "truncated-metadata",
    "trickle-authenticate",
    "iterations-1",
    "refusal-with-escapes",
    "old-versions",
    "no-common-version",
    "million-brokers-after-login",
    "host-escapes",
    "port-0",
)
BY_NAME = {case.name: case for case in CASES}


def seen_by_the_planner(
    bootstrap: str, client: dict[str, str], timeout_s: float = LONG_S
) -> ObservedCluster | Unreachable:
    endpoint = ClusterEndpoint("dc1", bootstrap, client)
    return observed({"dc1": endpoint}, options=ReadOptions(timeout_s)).clusters["dc1"]


async def id_by_the_data_path(bootstrap: str, client: dict[str, str]) -> str:
    async with await KafkaCluster.open(wire_settings(bootstrap, client)) as cluster:
        return cluster.cluster_id


@pytest.fixture(scope="module")
def warm() -> None:
    """Imports, compiles and builds once what would otherwise count as a broker's use of memory and time.

    An honest broker's answers are taken: else the cases could fail for another reason than their fault.
    """
    million_brokers()
    with HostileBroker(Fault()) as broker:
        for login in (LOGIN, {}):
            bootstrap = f"127.0.0.1:{broker.port}"
            assert not isinstance(seen_by_the_planner(bootstrap, login), Unreachable)
            assert asyncio.run(id_by_the_data_path(bootstrap, login)) == "5L6g3nShT-eMCtK--X86sw"


@pytest.fixture
def bounded(warm: None) -> Iterator[None]:
    """The block must not take more memory than this, nor longer than the deadline."""
    tracemalloc.start()
    began = time.monotonic()
    try:
        yield
        took = time.monotonic() - began
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES, f"{peak:,} bytes"
    assert took < DEADLINE_S, f"{took:.1f} s"


def planner_error(bootstrap: str, client: dict[str, str], timeout_s: float) -> str:
    found = seen_by_the_planner(bootstrap, client, timeout_s)
    assert isinstance(found, Unreachable), found
    return f"{found.why} {found.hint}"


def data_path_error(bootstrap: str, client: dict[str, str]) -> str:
    with pytest.raises(WireError) as failure:
        asyncio.run(id_by_the_data_path(bootstrap, client))
    return str(failure.value)


def one_clear_error(told: str, case: Case) -> None:
    assert PASSWORD not in told
    assert told.isprintable(), repr(told)
    assert len(told) < 600
    assert re.search(case.why, told), told


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("case", [BY_NAME[name] for name in OF_THE_PLANNER], ids=lambda case: case.name)
def test_the_planner_is_not_harmed(case: Case) -> None:
    with HostileBroker(case.fault) as broker:
        told = planner_error(f"127.0.0.1:{broker.port}", LOGIN if case.login else {}, case.timeout_s)
    one_clear_error(told, case)


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_data_path_is_not_harmed(case: Case) -> None:
    limit = str(int(case.timeout_s * 1000))
    limits = {"socket.connection.setup.timeout.ms": limit, "socket.timeout.ms": limit}
    with HostileBroker(case.fault) as broker:
        told = data_path_error(f"127.0.0.1:{broker.port}", limits | (LOGIN if case.login else {}))
    one_clear_error(told, case)


def throttling(asked: Asked) -> bytes:
    """The first answer after the login throttles the client, for as long as there is a number for it."""
    return framed(asked, struct.pack(">i", 2**31 - 1) + metadata([(1, "127.0.0.1", asked.port)])[4:])


def test_no_broker_holds_a_plan_for_days() -> None:
    """The second request would wait for the throttle of the first."""
    with HostileBroker(on(METADATA, throttling)) as broker:
        place = ClusterEndpoint("dc1", f"127.0.0.1:{broker.port}", {})
        began = time.monotonic()
        observed({"dc1": place}, options=ReadOptions(5.0))
        run_at(place, asked_twice, 5.0)
    assert time.monotonic() - began < DEADLINE_S


def test_a_long_throttle_is_said() -> None:
    async def asked_of_the_controller_twice(client: ClusterClient) -> None:
        for _ in range(2):
            await client.ask_controller(AnyMetadataRequest(()))

    with HostileBroker(on(METADATA, throttling)) as broker:
        place = ClusterEndpoint("dc1", f"127.0.0.1:{broker.port}", {})
        with pytest.raises(ClusterFailure, match="for 2,147,484 s, and repl waits for 240 s") as failure:
            run_at(place, asked_of_the_controller_twice, 5.0)
    assert failure.value.transient


async def asked_twice(client: ClusterClient) -> None:
    for _ in range(2):
        await client.ask(AnyMetadataRequest(()))


LISTED = [
    b"orders",
    b"",
    b".",
    b"..",
    b"../../etc",
    b"orders/date=2026-01-01",
    b"a\nb",
    b"a\x1b]52;c;aGk=\x07",
    b"a\0b",
    "\u202eevil".encode(),
    b"x" * 250,
    b"y" * 100_000,
]


def listing(topics: Sequence[bytes]) -> Fault:
    return on(METADATA, lambda asked: framed(asked, metadata([(1, "127.0.0.1", asked.port)], topics)))


async def topics_of(port: int) -> dict[str, int]:
    async with await KafkaCluster.open(wire_settings(f"127.0.0.1:{port}", {})) as cluster:
        return {name: len(one.partitions) for name, one in (await cluster.all_topics()).items()}


def test_topics_that_kafka_can_not_have_are_not_listed() -> None:
    with HostileBroker(listing([topic(name, range(2)) for name in LISTED])) as broker:
        assert asyncio.run(topics_of(broker.port)) == {"orders": 2}


@pytest.mark.parametrize("number", [-1, -(1 << 31)])
def test_a_partition_without_a_number_is_no_answer(number: int) -> None:
    said = f"lists a partition with the number {number}"
    with (
        HostileBroker(listing([topic(b"orders", [0, number])])) as broker,
        pytest.raises(WireError, match=said),
    ):
        asyncio.run(topics_of(broker.port))
