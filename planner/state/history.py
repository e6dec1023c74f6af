"""The history of applies: the journal that an apply writes at its clusters, and what is read from it.

An apply writes `started`, then its steps (`planned`) and the registry entries that they will write again
(`before`) in chunks, `sent` before and `ended` after each batch,
and `finished`: each record has one of these keys. An apply that was killed has no further records.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from planner.kafka.client import ClusterClient
from planner.kafka.failures import ClusterFailure
from planner.kafka.log import LogWriter, read
from planner.model.diagnostic import Diagnostic, warning
from planner.model.observed import Observed, RegistryEntry
from planner.model.plain import NotPlain, plain, value_of
from planner.model.step import ApplyRecord, Result, Step, StepResult
from planner.plan.staleness import entries_by_place
from planner.plan.steps import noted, step_of
from planner.state.internal_topics import decode, encode, shaped
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec.naming import HISTORY

# Well below the 1 MB that a client sends in one record by default.
RECORD_BYTES = 256 * 1024

Unreadable = Callable[[UnreadableValue], None]  # called with each record that is skipped


class _Ended(msgspec.Struct, frozen=True, array_like=True):
    """What became of a step. A later release may add to it, and may know more results."""

    result: str
    why: str
    seconds: float


class _Finished(msgspec.Struct, frozen=True, array_like=True):
    result: str
    at_ms: int


class _Event(msgspec.Struct, frozen=True):
    """A record of the journal, which has one of these: an apply without its steps, or what became of them."""

    started: dict[str, Any] | None = None
    planned: tuple[dict[str, Any], ...] = ()
    before: dict[str, dict[str, Any]] = {}
    sent: tuple[str, ...] = ()
    ended: dict[str, _Ended] = {}
    finished: _Finished | None = None


def started(applied: ApplyRecord) -> bytes:
    return encode({"started": plain(applied)})


def planned(steps: Iterable[Mapping[str, Any]]) -> Iterable[bytes]:
    return (encode({"planned": some}) for some in _pieces(steps))


def before(entries: Mapping[str, RegistryEntry]) -> Iterable[bytes]:
    listed = ((step_id, plain(entry)) for step_id, entry in entries.items())
    return (encode({"before": dict(some)}) for some in _pieces(listed))


def sent(step_ids: Iterable[str]) -> Iterable[bytes]:
    return (encode({"sent": some}) for some in _pieces(step_ids))


def ended(results: Mapping[str, StepResult]) -> Iterable[bytes]:
    listed = (
        (step_id, [result.result, result.why, round(result.seconds, 3)])
        for step_id, result in results.items()
    )
    return (encode({"ended": dict(some)}) for some in _pieces(listed))


def _pieces(items: Iterable[Any]) -> Iterable[list[Any]]:
    """Yields lists of items, each small enough for one record."""
    piece: list[Any] = []
    size = 0
    for item in items:
        weight = len(msgspec.json.encode(item))
        if piece and size + weight > RECORD_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(item)
        size += weight
    if piece:
        yield piece


def finished(result: str, at_ms: int) -> bytes:
    return encode({"finished": [result, at_ms]})


def fold(records: Iterable[tuple[bytes, bytes]], unreadable: Unreadable) -> tuple[ApplyRecord, ...]:
    """Returns every apply in the log, oldest first. Events without their `started` event are skipped."""
    applies: dict[str, ApplyRecord] = {}
    for key, value in records:
        apply_id = key.decode(errors="backslashreplace")
        try:
            event = shaped(decode("the history", value), _Event)
            if event.started is not None:
                applied = value_of(event.started, ApplyRecord)
                applies[apply_id] = replace(applied, id=apply_id, steps=(), outcomes={}, before={})
            elif apply_id in applies:
                applies[apply_id] = _after(applies[apply_id], event)
        except UnreadableValue as wrong:
            unreadable(wrong)
        except (NotPlain, RecursionError) as wrong:
            unreadable(UnreadableValue(f"no apply and no step: {wrong}"))
    return tuple(applies.values())


def _after(applied: ApplyRecord, event: _Event) -> ApplyRecord:
    """Returns the apply after one more event. Raises NotPlain for a step that can't be decoded."""
    unanswered = dict.fromkeys(event.sent, StepResult(Result.SENT, "the answer was not noted"))
    result_values = frozenset(Result)
    results = {
        step_id: StepResult(
            Result(end.result) if end.result in result_values else Result.SENT, end.why, end.seconds
        )
        for step_id, end in event.ended.items()
    }
    finish = event.finished
    return replace(
        applied,
        steps=(*applied.steps, *map(step_of, event.planned)),
        before={
            **applied.before,
            **{step_id: value_of(entry, RegistryEntry) for step_id, entry in event.before.items()},
        },
        outcomes={**applied.outcomes, **unanswered, **results},
        result=finish.result if finish is not None else applied.result,
        finished_ms=finish.at_ms if finish is not None else applied.finished_ms,
    )


class Journal:
    """Writes what an apply does: a step is "sent" before its request, and "ended" after the answer.

    `logs` are those of the clusters that the apply changes. Every method may raise ClusterFailure.
    """

    def __init__(self, applied: ApplyRecord, logs: Mapping[str, LogWriter]) -> None:
        self._applied = applied
        self._logs = logs

    async def begin(self, steps: Sequence[Step], observed: Observed) -> None:
        """Writes the steps at every cluster.

        If one cluster does not accept them, the apply is recorded as failed at all of them that can be
        written.
        """
        try:
            await self._write_steps(steps, observed)
        except ClusterFailure:
            with suppress(ClusterFailure):
                await self.finish("failed", self._applied.started_ms)
            raise

    async def _write_steps(self, steps: Sequence[Step], observed: Observed) -> None:
        entries = entries_by_place(observed)
        for cluster in self._logs:
            cluster_steps = [step for step in steps if step.cluster == cluster]
            old = {
                step.id: entry
                for step in cluster_steps
                if step.registers and (entry := entries.get((cluster, step.address))) is not None
            }
            events = (started(self._applied), *planned(map(noted, cluster_steps)), *before(old))
            await self._write(cluster, events)

    async def sent(self, cluster: str, step_ids: Iterable[str]) -> None:
        await self._write(cluster, sent(step_ids))

    async def ended(self, cluster: str, results: Mapping[str, StepResult]) -> None:
        await self._write(cluster, ended(results))

    async def finish(self, result: str, at_ms: int) -> None:
        """Writes the end at every cluster that takes it, then raises the first failure."""
        writes = (self._write(cluster, [finished(result, at_ms)]) for cluster in self._logs)
        for outcome in await asyncio.gather(*writes, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _write(self, cluster: str, values: Iterable[bytes]) -> None:
        key = self._applied.id.encode()
        await self._logs[cluster].append(HISTORY, [(key, value) for value in values])


async def read_history(
    client: ClusterClient, report: Callable[[Diagnostic], None]
) -> tuple[ApplyRecord, ...]:
    """Returns the applies in this cluster's history. Each cluster has its own part of an apply.

    Records that can't be read are skipped; `report` gets one warning about all of them.
    """
    log = await read(client, HISTORY)
    records = [(record.key or b"", record.value) for record in log if record.value is not None]
    skipped: list[UnreadableValue] = []
    applies = fold(records, skipped.append)
    if skipped:
        report(
            warning(
                f"{HISTORY} at {client.name}: {len(skipped)} records can't be read and are skipped, "
                f"the last one: {skipped[-1]}",
                "only repl may write there: see which principals have WRITE on it",
                code="history-record",
            )
        )
    return applies


def merge(histories: Iterable[Iterable[ApplyRecord]]) -> tuple[ApplyRecord, ...]:
    """Joins the histories of several clusters, oldest first. A lost cluster loses only its own steps."""
    applies: dict[str, ApplyRecord] = {}
    for history in histories:
        for applied in history:
            earlier = applies.get(applied.id)
            applies[applied.id] = applied if earlier is None else earlier.merged(applied)
    return tuple(sorted(applies.values(), key=lambda applied: (applied.started_ms, applied.id)))
