"""Pure: which steps can start now, and in which batches. The order comes from `needs` alone."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from planner.model.outcome import Result, StepOutcome
from planner.model.step import CreateTopic, Own, Step, describe

# Brokers refuse more than 10,000 partitions in one request; small batches show progress and share the work.
MAX_STEPS = 250
MAX_PARTITIONS = 5_000


class Schedule:
    """The state of an apply's steps: waiting, ready, or handed out."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps: Mapping[str, Step] = {step.id: step for step in steps}
        self._open = {step.id: {need for need in step.needs if need in self._steps} for step in steps}
        self._dependants: dict[str, list[str]] = defaultdict(list)
        for step in steps:
            for need in step.needs:
                self._dependants[need].append(step.id)
        self._ready = [step.id for step in steps if not self._open[step.id]]
        self._waiting = {step.id for step in steps if self._open[step.id]}

    def next_batches(self) -> list[list[Step]]:
        """Returns the steps that can start now, in batches of one cluster and one kind, each step once."""
        taken = [self._steps[step_id] for step_id in self._ready]
        self._ready = []
        return batches(taken)

    def finish(self, outcomes: Iterable[StepOutcome]) -> list[StepOutcome]:
        """Records ended steps and returns the steps that are skipped because of them, with the reason."""
        skipped: list[StepOutcome] = []
        for outcome in outcomes:
            if outcome.result is Result.DONE:
                self._release_dependants(outcome.step.id)
            else:
                skipped += self._skip_dependants(outcome.step)
        return skipped

    def _release_dependants(self, step_id: str) -> None:
        for dependant in self._dependants[step_id]:
            needs = self._open[dependant]
            needs.discard(step_id)
            if not needs and dependant in self._waiting:
                self._waiting.discard(dependant)
                self._ready.append(dependant)

    def _skip_dependants(self, cause: Step) -> list[StepOutcome]:
        skipped = []
        pending = list(self._dependants[cause.id])
        while pending:
            step_id = pending.pop()
            if step_id in self._waiting:
                self._waiting.discard(step_id)
                why = f"because {describe(cause)} was not done"
                skipped.append(StepOutcome(self._steps[step_id], Result.SKIPPED, why))
                pending += self._dependants[step_id]
        return skipped

    def not_started(self) -> list[Step]:
        """Returns the steps that were never handed out."""
        left = self._waiting | set(self._ready)
        return [step for step_id, step in self._steps.items() if step_id in left]


def batches(steps: Iterable[Step]) -> list[list[Step]]:
    """Groups steps by cluster and kind, and splits large groups."""
    grouped: dict[tuple[str, type[Step]], list[Step]] = defaultdict(list)
    for step in steps:
        grouped[(step.cluster, type(step))].append(step)
    return [batch for group in grouped.values() for batch in _split(group)]


def _split(group: list[Step]) -> Iterable[list[Step]]:
    limit = len(group) if isinstance(group[0], Own) else MAX_STEPS
    batch: list[Step] = []
    partitions = 0
    for step in group:
        weight = (step.partitions or 1) if isinstance(step, CreateTopic) else 1
        if batch and (len(batch) >= limit or partitions + weight > MAX_PARTITIONS):
            yield batch
            batch, partitions = [], 0
        batch.append(step)
        partitions += weight
    if batch:
        yield batch
