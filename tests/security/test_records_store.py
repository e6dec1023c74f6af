"""Hostile records of the registry, the lease and the history, which the planner reads."""

import contextlib
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.model.address import topic_address
from planner.model.diagnostic import Failure
from planner.model.observed import RegistryEntry
from planner.model.plain import plain
from planner.model.step import ApplyRecord, Result, StepResult
from planner.plan.steps.topics import CreateTopic
from planner.state import history
from planner.state.internal_topics import UnknownVersion, decode_owned, encode, encode_owned, registry_key
from planner.state.lease import LeaseHolder, LeaseVerb, decode_lease, encode_lease
from runtime.contract.records.record_values import UnreadableValue

KEY = registry_key(topic_address("dc1", "orders"))
OWNED = RegistryEntry(topic_address("dc1", "orders"), "shop", {"partitions": "3"})
HOLDER = LeaseHolder("id", "me", "here", 1, "shop", "digest")
APPLIED = ApplyRecord(
    id="a1",
    topology="shop",
    mode="apply",
    plan="digest",
    user="me",
    host="here",
    pid=1,
    git=None,
    clusters={"dc1": "id"},
    total=1,
    started_ms=7,
)
HOSTILE = [
    b"",
    b"junk",
    b"[]",
    b"7",
    b"\xff\xfe",
    b"{}",
    b'{"v": "1"}',
    b'{"v": 1}',
    b'{"v": 0}',
    b'{"v": [[]]}',
    b"[" * 100_000,
    b'{"v": 1, "spec": ' + b"[" * 100_000,
    b'{"v": 1' + b"0" * 100_000 + b"}",
    encode({"topology": 7, "spec": [], "protect": "no", "on_remove": "burn", "verb": "take", "ttl": -1}),
    encode_lease(LeaseVerb.CLAIM, HOLDER, 10**15),
    encode({"verb": "claim", "ttl": 1, "holder": {"id": 1}}),
]


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_entry_is_unreadable(value: bytes) -> None:
    with pytest.raises(UnreadableValue) as owned:
        decode_owned(KEY, value)
    with pytest.raises(UnreadableValue) as lease:
        decode_lease(value, 0)
    assert max(len(str(owned.value)), len(str(lease.value))) < 500


@pytest.mark.parametrize("key", [b"", b"\xff", b"topic", b"weather.dc1", b"\x1b]52;c;" + b"x" * 100_000])
def test_a_hostile_key_is_unreadable(key: bytes) -> None:
    with pytest.raises(UnreadableValue) as raised:
        decode_owned(key, encode_owned(OWNED))
    assert len(str(raised.value)) < 500
    assert str(raised.value).isprintable()


def test_a_lease_is_read_and_a_newer_format_is_not_guessed_at() -> None:
    assert decode_lease(encode_lease(LeaseVerb.CLAIM, HOLDER, 30_000), 5).holder == HOLDER
    with pytest.raises(UnknownVersion, match="upgrade repl"):
        decode_lease(b'{"v": 2}', 0)


@given(st.binary(max_size=200))
def test_nothing_else_is_raised(value: bytes) -> None:
    for read in (lambda: decode_owned(KEY, value), lambda: decode_lease(value, 0)):
        with contextlib.suppress(UnreadableValue, Failure):
            read()


def event(**fields: object) -> bytes:
    return msgspec.json.encode({"v": 1, **fields})


def test_a_hostile_record_of_the_history_is_passed_over_and_reported() -> None:
    """The records of applies before and after it are read."""
    step = {"step": "create_topic", "address": 7}
    hostile = [
        *HOSTILE[:-3],
        event(started={}),
        event(started={"topology": 7}),
        event(planned="all"),
        event(planned=[step]),
        event(planned=[{"kind": "dance"}]),
        event(planned=[{}]),
        event(sent=[7]),
        event(ended={"s": ["done"]}),
        event(finished=["done", "now"]),
        event(dances=7),
        event(),
    ]
    made = CreateTopic("create:t", topic_address("dc1", "t"), "dc1", "t", 1, 1, {})
    ignored = 3  # those without an event that is known: of a later release, say
    records = [
        (b"a1", history.started(APPLIED)),
        *((b"a1", value) for value in (*hostile, *history.planned([plain(made)]))),
        (b"\xff", hostile[0]),
        *((b"a1", value) for value in history.ended({"s": StepResult(Result.DONE, "", 1.0)})),
        (b"a1", history.finished("done", 9)),
    ]
    skipped: list[UnreadableValue] = []
    began = time.process_time()

    (found,) = history.fold(records, skipped.append)

    assert (found.result, found.steps) == ("done", (made,))
    assert found.outcomes == {"s": StepResult(Result.DONE, "", 1.0)}
    assert len(skipped) == len(hostile) + 1 - ignored
    assert time.process_time() - began < 5
