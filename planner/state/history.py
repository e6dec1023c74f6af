"""The journal of applies in the clusters that they write to, and the history read from it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Producer

from planner.kafka import ClusterEndpoint
from planner.kafka.log import append, read
from planner.model.diagnostic import Diagnostic, warning
from planner.model.outcome import ApplyRecord, StepResult
from planner.model.step import Step
from planner.state import history_log
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec.naming import HISTORY

WRITE_SECONDS = 60.0


class Journal:
    """Writes what an apply does: a step is "sent" before its request, and "ended" after the answer."""

    def __init__(
        self,
        applied: ApplyRecord,
        producers: Mapping[str, Producer],
        encode_step: Callable[[Step], Mapping[str, Any]],
    ) -> None:
        self._applied = applied
        self._producers = producers
        self._encode_step = encode_step

    def begin(self, steps: Sequence[Step]) -> None:
        for cluster in self._producers:
            own = [self._encode_step(step) for step in steps if step.cluster == cluster]
            self._write(cluster, [history_log.started(self._applied), *history_log.planned(own)])

    def sent(self, cluster: str, step_ids: Iterable[str]) -> None:
        self._write(cluster, history_log.sent(step_ids))

    def ended(self, cluster: str, results: Mapping[str, StepResult]) -> None:
        self._write(cluster, history_log.ended(results))

    def finish(self, result: str, at_ms: int) -> None:
        for cluster in self._producers:
            self._write(cluster, [history_log.finished(result, at_ms)])

    def _write(self, cluster: str, values: Iterable[bytes]) -> None:
        key = self._applied.id.encode()
        append(self._producers[cluster], HISTORY, [(key, value) for value in values], WRITE_SECONDS)


def read_history(
    endpoint: ClusterEndpoint, decode_step: history_log.DecodeStep, report: Callable[[Diagnostic], None]
) -> tuple[ApplyRecord, ...]:
    """Returns the applies in this cluster's history. Each cluster has its own part of an apply.

    Records that can't be read are skipped; `report` gets one warning about all of them.
    """
    records = [(record.key, record.value) for record in read(endpoint, HISTORY) if record.value is not None]
    skipped: list[UnreadableValue] = []
    found = history_log.fold(records, decode_step, skipped.append)
    if skipped:
        report(
            warning(
                f"{HISTORY} at {endpoint.cluster}: {len(skipped)} records can't be read and are passed over, "
                f"the last one: {skipped[-1]}",
                "only repl may write there: see which principals have WRITE on it",
                code="history-record",
            )
        )
    return found


def merge(histories: Iterable[Iterable[ApplyRecord]]) -> tuple[ApplyRecord, ...]:
    """Joins the histories of several clusters, oldest first. A lost cluster loses only its own steps."""
    applies: dict[str, ApplyRecord] = {}
    for history in histories:
        for applied in history:
            known = applies.get(applied.id)
            applies[applied.id] = applied if known is None else known.merged(applied)
    return tuple(sorted(applies.values(), key=lambda applied: (applied.started_ms, applied.id)))
