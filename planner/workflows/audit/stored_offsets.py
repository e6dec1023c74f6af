"""Translates files of stored offsets over a flow, and the checkpoints of Spark's streaming queries."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from planner.config.spark_checkpoint import read_checkpoint, refuse_existing
from planner.config.stored_offsets import StoredOffset, open_offsets
from planner.workflows.audit.access import answered, flow_accesses
from planner.workflows.edge import Workflow
from planner.workflows.requests import TranslateOffsetsRequest
from planner.workflows.topology import flow_of, load_topology
from runtime.audit.ledger import FlowAccess
from runtime.audit.offsets.translate import (
    OffsetTranslator,
    Problem,
    TranslatedPartition,
    Translations,
    open_translator,
)
from runtime.contract.results.groups import OffsetTranslation, UntranslatableReason, UntranslatedOffset

_CHUNK = 100_000  # entries that are held at once
_EXAMPLES = 3  # of each reason

Untranslated = Callable[[UntranslatedOffset], object]


@Workflow
async def translate_offsets(
    request: TranslateOffsetsRequest, write: Callable[[str], object], untranslated: Untranslated
) -> OffsetTranslation:
    """Translates a file, and passes its text to `write`, in the form of the file.

    An entry without an exact counterpart is passed to `untranslated` instead.
    """
    return await answered(_translate_file(request, write, _Count(untranslated)))


@Workflow
async def translate_checkpoint(
    request: TranslateOffsetsRequest, into: Path, untranslated: Untranslated
) -> OffsetTranslation:
    """Writes a Spark checkpoint with translated offsets, where all of them have an exact counterpart."""
    return await answered(_translate_checkpoint(request, into, _Count(untranslated)))


async def _translate_file(
    request: TranslateOffsetsRequest, write: Callable[[str], object], count: "_Count"
) -> OffsetTranslation:
    access = _access(request)
    with open_offsets(request.file) as file:
        async with open_translator(access, reverse=request.reverse) as translator:
            write(file.head)
            separator = ""
            while entries := list(islice(file.entries, _CHUNK)):
                offsets: dict[tuple[str, int], set[int]] = {}
                for entry in entries:
                    if not entry.no_offset:
                        offsets.setdefault((entry.topic, entry.partition), set()).update(entry.offsets)
                texts = list(_texts(entries, await translator.translate(offsets), count))
                if texts:
                    write(separator + file.separator.join(texts))
                    separator = file.separator
                count.translated += len(texts)
            write(file.tail)
            return count.result(request, access, file.form, translator)


def _texts(entries: Sequence[StoredOffset], answers: Translations, count: "_Count") -> Iterator[str]:
    """Yields the entries that have an exact counterpart, as they are at the other side."""
    for entry in entries:
        place = entry.topic, entry.partition
        without = Problem(UntranslatableReason.NO_KAFKA_OFFSET, entry.no_offset)
        topic, there, missing = _counterpart(without if entry.no_offset else answers[place], entry.offsets)
        if missing is None:
            yield entry.rewritten(topic, there)
        elif not entry.deleted:  # else there is nothing whose counterpart is missing
            count.add(place, *missing, entry.line)


def _counterpart(
    answer: TranslatedPartition | Problem, offsets: Sequence[int]
) -> tuple[str, list[int], tuple[int | None, Problem] | None]:
    """Returns the topic and the offsets at the other side, and the first offset without one, if any."""
    if isinstance(answer, Problem):
        return "", [], (next(iter(offsets), None), answer)
    there = [place for offset in offsets if isinstance(place := answer.offsets[offset], int)]
    problems = ((offset, why) for offset in offsets if isinstance(why := answer.offsets[offset], Problem))
    return answer.topic, there, next(problems, None)


async def _translate_checkpoint(
    request: TranslateOffsetsRequest, into: Path, count: "_Count"
) -> OffsetTranslation:
    refuse_existing(into)
    access = _access(request)
    checkpoint = read_checkpoint(request.file)
    offsets: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for topic, partition, offset in checkpoint.offsets():
        offsets[topic, partition].add(offset)
    async with open_translator(access, reverse=request.reverse) as translator:
        answers = await translator.translate(offsets)
        translated: dict[tuple[str, int, int], tuple[str, int]] = {}
        for (topic, partition), stored in sorted(offsets.items()):
            for offset in sorted(stored):
                name, there, missing = _counterpart(answers[topic, partition], [offset])
                if missing is None:
                    translated[topic, partition, offset] = name, there[0]
                else:
                    count.add((topic, partition), *missing)
        count.translated = len(translated)
        if not count.untranslated:
            checkpoint.write(into, translated)
        return count.result(request, access, "spark", translator)


def _access(request: TranslateOffsetsRequest) -> FlowAccess:
    topology = load_topology(request)
    (access,) = flow_accesses(topology, [flow_of(topology, request.flow)], request.timeout_s)
    return access


class _Count:
    """Counts what was translated, and passes on what was not."""

    def __init__(self, untranslated: Untranslated) -> None:
        self.translated = 0
        self.untranslated: Counter[UntranslatableReason] = Counter()
        self._examples: list[UntranslatedOffset] = []
        self._pass_on = untranslated

    def add(self, place: tuple[str, int], offset: int | None, problem: Problem, line: int = 0) -> None:
        """Counts an entry that has no counterpart, because of its first offset without one."""
        reason, why = problem
        topic, partition = place
        untranslated = UntranslatedOffset(
            line=line, topic=topic, partition=partition, offset=offset, reason=reason, why=why
        )
        if self.untranslated[reason] < _EXAMPLES:
            self._examples.append(untranslated)
        self.untranslated[reason] += 1
        self._pass_on(untranslated)

    def result(
        self, request: TranslateOffsetsRequest, access: FlowAccess, form: str, translator: OffsetTranslator
    ) -> OffsetTranslation:
        clusters = access.source.cluster, access.destination.cluster
        here, there = reversed(clusters) if request.reverse else clusters
        return OffsetTranslation(
            flow=request.flow,
            reverse=request.reverse,
            cluster=here,
            other_cluster=there,
            form=form,
            translated=self.translated,
            untranslated=dict(self.untranslated),
            examples=self._examples,
            source_why=translator.source_why,
        )
