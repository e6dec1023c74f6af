"""Registry and history on a real cluster."""

import pytest

from planner.kafka import ClusterClient
from planner.kafka.log import LogWriter
from planner.model.address import Address, Kind, topic_address
from planner.model.observed import Observed, RegistryEntry
from planner.model.step import ApplyRecord, Result, StepResult
from planner.model.topology import OnRemove
from planner.state import history, internal_topics
from planner.state.history import Journal, merge, read_history
from planner.state.internal_topics import (
    UnknownVersion,
    decode_owned,
    encode_owned,
    read_registry,
    registry_key,
    write_registry,
)
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec.naming import HISTORY, REGISTRY
from runtime.contract.spec.topic_settings import InternalSpec
from tests.endpoints import endpoint


def owned(name: str, **more) -> RegistryEntry:
    return RegistryEntry(topic_address("dc1", name), "shop", {"config.retention.ms": "1"}, at_ms=5, **more)


def test_an_entry_survives_its_bytes():
    entry = owned("a.b", protect=True, on_remove=OnRemove.DELETE, origin="flow.f", created=True, plan="d")
    assert decode_owned(registry_key(entry.address), encode_owned(entry)) == entry


def test_an_entry_of_a_newer_repl_is_not_guessed_at():
    with pytest.raises(UnknownVersion, match="upgrade repl"):
        decode_owned(b"topic.dc1.a", b'{"v": 99}')


@pytest.mark.parametrize("name", ["weird", "user/a/b"])
def test_an_entry_of_a_quota_without_an_entity_is_unreadable(name: str) -> None:
    entry = RegistryEntry(Address(Kind.QUOTA, "dc1", "user/a"), "shop")
    with pytest.raises(UnreadableValue, match="names no quota entity"):
        decode_owned(f"quota.dc1.{name}".encode(), encode_owned(entry))


def test_an_apply_of_a_newer_repl_is_read_as_far_as_it_is_known():
    """Fields are only added at the end. With a result that is new, a step is not known to be done."""
    applied = ApplyRecord("a", "shop", "apply", "sha256:0", "ada", "ops1", 7, None, {}, 2, 1)
    ended = {"ended": {"s1": ["done", "", 1.5, "new"], "s2": ["postponed", "why", 1.0]}}
    records = [
        history.started(applied),
        internal_topics.encode(ended),
        internal_topics.encode({"finished": ["done", 9, "new"]}),
    ]

    (read,) = history.fold([(b"a", record) for record in records], lambda wrong: pytest.fail(str(wrong)))

    assert (read.result, read.finished_ms) == ("done", 9)
    assert read.outcomes == {
        "s1": StepResult(Result.DONE, "", 1.5),
        "s2": StepResult(Result.SENT, "why", 1.0),
    }


@pytest.mark.integration
async def test_written_overwritten_and_removed(lab, fresh):
    first, second = owned(fresh("first")), owned(fresh("second"))
    changed = owned(first.address.name, protect=True)
    async with ClusterClient(endpoint(lab, "dc1")) as client:
        await internal_topics.ensure(client, [REGISTRY], InternalSpec())
        log = LogWriter(client)
        await write_registry(log, own=[first, second])
        await write_registry(log, own=[changed], disown=[second.address])
        log.close()
        entries = {entry.address: entry for entry in await read_registry(client)}
    assert entries[first.address] == changed
    assert second.address not in entries


@pytest.mark.integration
async def test_a_journal_is_read_back_with_what_was_never_answered(lab, fresh):
    applied = ApplyRecord(
        fresh("apply"), "shop", "apply", "d1", "ada", "ops1", 7, "abc123", {"dc1": "x"}, 2, 1_000
    )
    async with ClusterClient(endpoint(lab, "dc1")) as dc1, ClusterClient(endpoint(lab, "dc2")) as dc2:
        for client in (dc1, dc2):
            await internal_topics.ensure(client, [HISTORY], InternalSpec())
        logs = {client.name: LogWriter(client) for client in (dc1, dc2)}
        journal = Journal(applied, logs)
        await journal.begin([], Observed({}))
        await journal.sent("dc1", ["one"])
        await journal.ended("dc1", {"one": StepResult(Result.DONE, "", 0.5)})
        await journal.sent("dc2", ["two"])
        histories = [await read_history(client, print) for client in (dc1, dc2)]
        found = {one.id: one for one in merge(histories)}[applied.id]
        assert found.result is None
        assert found.outcomes == {
            "one": StepResult(Result.DONE, "", 0.5),
            "two": StepResult(Result.SENT, "the answer was not noted"),
        }
        await journal.finish("failed", 9_000)
        again = {one.id: one for one in await read_history(dc1, print)}
        for log in logs.values():
            log.close()
    assert (again[applied.id].result, again[applied.id].finished_ms) == ("failed", 9_000)
