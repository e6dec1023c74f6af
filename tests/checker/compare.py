"""Two logs against each other: nothing missing, nothing twice, in order, all bytes and times the same."""

import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.checker.reader import PATIENCE, Change, Log, Reader, Seen, read
from tests.checker.report import Finding, Kind, Report
from tests.checker.writer import Written

Pair = tuple[int, int]


def compare(
    source: dict[str, Any],
    there: dict[str, Any],
    topic: str,
    there_topic: str | None = None,
    *,
    hops: int = 0,
    start: Mapping[int, int] | None = None,
    written: Written | None = None,
    change: Change | None = None,
    patience: float = PATIENCE,
    settle: float = 1.0,
) -> Report:
    """Read both sides. A copy that brings nothing for `patience` seconds is over, but for `settle` seconds to
    send things twice.

    `hops`: headers provenance added so many headers; what the last says must be true. `start`: the copy began
    at these offsets of the source. `written`: the source's log, too, must be what its writer knows it wrote.
    `change`: what the flow's transform makes of a record.
    """
    whole = read(source, topic)
    left = whole if change is None else read(source, topic, change=change)
    if start:
        left = {at: [one for one in log if one.offset >= start.get(at, 0)] for at, log in left.items()}
    wanted = sum(len(log) for log in left.values())
    with Reader(there, there_topic or topic, hops=hops) as reader:
        limit, end = time.monotonic() + patience, max(patience, PATIENCE)
        reader.drain(patience=end)
        while reader.records < wanted and time.monotonic() < limit:
            before = reader.records
            reader.drain(patience=end)
            if reader.records > before:
                limit = time.monotonic() + patience
        right = reader.drain(settle=settle, patience=end)
    report = compare_logs(left, right, topic, there_topic or topic, hops=hops)
    if written is None:
        return report
    return replace(report, findings=[*report.findings, *_unlike_written(whole, written)])


def compare_logs(left: Log, right: Log, topic: str = "t", there: str = "t", *, hops: int = 0) -> Report:
    findings: list[Finding] = []
    pairs: dict[int, list[Pair]] = {}
    for partition in sorted({*left, *right}):
        here, other = left.get(partition, []), right.get(partition, [])
        paired, found = _partition(partition, here, other)
        findings += found
        if hops:
            findings += _misplaced(partition, topic, paired)
        pairs[partition] = [(one.offset, two.offset) for one, two in paired]
    records, arrived = (sum(len(log) for log in side.values()) for side in (left, right))
    return Report(topic, there, records, arrived, findings, pairs)


def _partition(
    partition: int, left: Sequence[Seen], right: Sequence[Seen]
) -> tuple[list[tuple[Seen, Seen]], list[Finding]]:
    if [one.digest for one in left] == [one.digest for one in right]:
        return list(zip(left, right, strict=True)), []
    waiting: dict[bytes, deque[int]] = defaultdict(deque)
    for index, one in enumerate(left):
        waiting[one.digest].append(index)
    known = set(waiting)
    paired: list[tuple[int, Seen]] = []
    foreign: list[Seen] = []
    findings: list[Finding] = []
    for two in right:
        if waiting[two.digest]:
            paired.append((waiting[two.digest].popleft(), two))
        elif two.digest in known:
            findings.append(_finding(Kind.DOUBLED, partition, None, two))
        else:
            foreign.append(two)
    missing = [left[index] for index in sorted(index for rest in waiting.values() for index in rest)]
    findings += _changed(partition, missing, foreign)
    findings += [_finding(Kind.MISSING, partition, one, None) for one in missing]
    findings += [_finding(Kind.FOREIGN, partition, None, two) for two in foreign]
    findings += _reordered(partition, left, paired)
    return [(left[index], two) for index, two in paired], findings


def _changed(partition: int, missing: list[Seen], foreign: list[Seen]) -> Iterator[Finding]:
    """A missing and a foreign one are the same when they share the time, or all but the time."""
    by_time = {two.timestamp: two for two in foreign}
    by_content = {two.content: two for two in foreign}
    for one in list(missing):
        same_time = by_time.pop(one.timestamp, None)
        two = same_time or by_content.pop(one.content, None)
        if two is not None and two in foreign:
            detail = f"its time is {two.timestamp}" if same_time is None else "key, value or headers differ"
            yield _finding(Kind.CHANGED, partition, one, two, detail)
            missing.remove(one)
            foreign.remove(two)


def _reordered(partition: int, left: Sequence[Seen], paired: Sequence[tuple[int, Seen]]) -> Iterator[Finding]:
    furthest = -1
    for index, two in paired:
        if index < furthest:
            yield _finding(
                Kind.REORDERED, partition, left[index], two, f"behind source {left[furthest].offset}"
            )
        furthest = max(furthest, index)


def _misplaced(partition: int, topic: str, paired: Sequence[tuple[Seen, Seen]]) -> Iterator[Finding]:
    for one, two in paired:
        hop = two.hop
        if hop is None or (hop.topic, hop.partition, hop.offset) != (topic, partition, one.offset):
            yield _finding(Kind.MISPLACED, partition, one, two, f"the header says {hop}")


def _finding(kind: Kind, partition: int, one: Seen | None, two: Seen | None, detail: str = "") -> Finding:
    shown = one or two
    assert shown is not None
    offsets = (None if one is None else one.offset, None if two is None else two.offset)
    return Finding(kind, partition, *offsets, shown.timestamp, shown.key, detail)


def _unlike_written(log: Log, written: Written) -> list[Finding]:
    findings: list[Finding] = []
    for partition in sorted({*log, *written.committed}):
        here = Counter(one.digest for one in log.get(partition, []))
        findings += [
            Finding(Kind.LOST_AT_SOURCE, partition, None, None, one.timestamp, str(one.number))
            for one in written.committed.get(partition, [])
            if not here[one.digest]
        ]
        aborted = {one.digest for one in written.aborted.get(partition, [])}
        findings += [
            _finding(Kind.UNABORTED, partition, one, None)
            for one in log.get(partition, [])
            if one.digest in aborted
        ]
    return findings
