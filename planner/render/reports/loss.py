"""What a failover loses, as text: a line for each flow and group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from planner.graph.messages import few
from planner.render.readable import count, moment, plural, span
from planner.render.table import Cell, Column, table
from runtime.contract.results.failover import FailoverVerdict, SchemaCheck, Verdict
from runtime.contract.results.groups import FlowLoss, GroupLoss, GroupTopics


def flow_lines(losses: Sequence[FlowLoss], now_ms: int) -> Iterator[Text]:
    """Yields a line for each flow: the records and the time that it is behind."""
    longest = max((len(loss.flow) for loss in losses), default=0)
    for loss in losses:
        style = "" if loss.records == 0 else "yellow"
        yield Text.assemble(
            ("  flow.", ""), (f"{loss.flow:<{longest}}", "bold"), ("  ", ""), (_cost(loss, now_ms), style)
        )


def _cost(loss: FlowLoss, now_ms: int) -> str:
    if not loss.destination_answers:
        return f"not known: {loss.destination} does not answer, and nothing can be done there"
    if loss.records is None or loss.as_of_ms is None:
        return f"not known: the end of {loss.source} was never reported"
    behind = f"{plural(loss.records, 'record')}, {span(loss.ms) if loss.ms is not None else 'some time'}"
    if loss.source_answers and not loss.unheard:
        return f"{behind} behind now: {loss.source} answers"
    unheard = ""
    if loss.unheard:
        named = few(
            [
                f"{partition.topic}-{partition.partition} ({partition.why})"
                for partition in loss.unheard_partitions
            ]
        )
        unheard = f"; of {count(loss.unheard)} of {plural(loss.partitions, 'partition')} nothing is known"
        unheard += f": {named}" if named else ""
    since = f" ({span(max(now_ms - loss.as_of_ms, 0))} ago)"
    return f"at least {behind}, as of {moment(loss.as_of_ms)}{since}{unheard}{_older(loss)}"


def _older(loss: FlowLoss) -> str:
    """Returns the partitions that stopped earlier: later records in them are not counted."""
    partitions = [
        f"{partition.topic}-{partition.partition} as of {moment(partition.as_of_ms)} ({partition.why})"
        for partition in loss.older_partitions
        if partition.as_of_ms is not None
    ]
    return f"; {few(partitions)}" if partitions else ""


def verdict_text(verdict: FailoverVerdict, now_ms: int, *, clock: bool = True) -> str:
    """Returns whether a failover of the cluster is safe, to follow `Fail over dc1: `.

    Without `clock` it tells ages alone: a page is read in several zones.
    """
    if verdict.verdict is Verdict.ENDED:
        return f"nothing is left to fail over ({', '.join(verdict.because)})"
    if verdict.records is None:
        return "not known what would be lost"
    if not verdict.records and verdict.answers:
        return _LOSES_NOTHING.get(verdict.verdict, "not known what would be lost")
    least = "" if verdict.answers and verdict.verdict is not Verdict.UNKNOWN else "at least "
    lost = f"would lose {least}{plural(verdict.records, 'record')}"
    lost += f", {span(verdict.ms)}" if verdict.ms else ""
    if verdict.as_of_ms is not None:
        ago = f"{span(max(now_ms - verdict.as_of_ms, 0))} ago"
        lost += f", as of {moment(verdict.as_of_ms)} ({ago})" if clock else f", as of {ago}"
    return lost + _BY_RPO.get(verdict.verdict, "")


_LOSES_NOTHING = {
    Verdict.SAFE: "safe, nothing would be lost",
    Verdict.NOT_COPYING: "nothing would be lost now, but not everything is being copied",
}
_BY_RPO = {
    Verdict.WITHIN_RPO: ": within the RPO",
    Verdict.BEYOND_RPO: ": beyond the RPO",
    Verdict.UNKNOWN: "; how many more is not known",
}


READ_COMMITTED = (
    "They need isolation.level=read_committed: Kafka's default also shows copies that were aborted."
)
_GROUPS = (
    Column("GROUP"),
    Column("FLOW", spare=3),
    Column("CONTINUES", right=True),
    Column("READS AGAIN", right=True, spare=1),
    Column("AHEAD", right=True, spare=2),
    Column("NOT MOVED", right=True),
    Column("WHY", spare=4),
)


def group_lines(groups: Sequence[GroupLoss], width: int | None) -> Iterator[Text]:
    """Yields what happens to each consumer group, in numbers of partitions."""
    if not groups:
        yield Text("  No group committed anything on their topics.")
        return
    yield from table(_GROUPS, [_group(group) for group in groups], width)


def _group(loss: GroupLoss) -> list[Cell | str]:
    further = f"{loss.lost} ({plural(loss.records_lost, 'record')})" if loss.lost else "0"
    return [
        loss.group,
        loss.flow,
        Cell(str(loss.exact), "green"),
        Cell(str(loss.again), "yellow" if loss.again else ""),
        Cell(further, "yellow" if loss.lost else ""),
        Cell(str(loss.kept), "yellow" if loss.kept else ""),
        loss.why,
    ]


def unsent_lines(flows: Mapping[str, Mapping[str, int]]) -> Iterator[Text]:
    """Yields a line for each flow: how many records of which topics never reached its destination."""
    for flow, topics in flows.items():
        most = sorted(topics.items(), key=lambda item: -item[1])
        some = ", ".join(f"{topic} {records:,}" for topic, records in most[:3])
        more = f", and {len(most) - 3} more topics" if len(most) > 3 else ""
        records = f"up to {sum(topics.values()):,} records ({some}{more}); repl salvage {flow} shows them"
        yield Text(f"  flow.{flow}  {records if topics else 'none: all of them had arrived'}")


def subscription_lines(groups: Sequence[GroupTopics]) -> Iterator[Text]:
    """Yields a line for each group and cluster, with its topics over all flows into that cluster.

    A group that was not moved in some partitions has a line more, which says why. The last line is the
    consumers' condition for reading each record once.
    """
    topics: dict[tuple[str, str], set[str]] = {}
    for entry in groups:
        topics.setdefault((entry.cluster, entry.group), set()).update(entry.topics)
    longest = max((len(group) for _, group in topics), default=0)
    for (cluster, group), names in sorted(topics.items()):
        yield Text.assemble(
            ("  ", ""), (f"{group:<{longest}}", "bold"), (f"  at {cluster}: ", ""), ",".join(sorted(names))
        )
    for entry in groups:
        if entry.kept:
            what = f"not moved in {plural(entry.kept, 'partition')} of flow.{entry.flow}: {entry.why}"
            yield Text.assemble(("  ", ""), (entry.group, "bold"), ("  ", ""), (what, "yellow"))
    if topics:
        yield Text(READ_COMMITTED)


def schema_lines(checks: Sequence[SchemaCheck]) -> Iterator[Text]:
    """Yields for each flow whether the destination has the schemas that its consumers will need."""
    for check in checks:
        for text, style in _schemas(check):
            yield Text.assemble("  flow.", (check.flow, "bold"), "  ", (text, style))


def _schemas(check: SchemaCheck) -> Iterator[tuple[str, str]]:
    if check.missing:
        yield f"{check.destination} lacks {few(check.missing)}: consumers can't decode their records", "red"
    if check.unread:
        yield f"not read to the end: {check.unread}", "red"
    if check.uncertain:
        yield f"it is not known whether these are ids of schemas: {few(check.uncertain)}", "yellow"
    if not check.missing and not check.unread:
        checked = [f"{plural(check.schemas, 'schema')} of the last {plural(check.records, 'record')}"]
        if check.versions is not None:
            checked.append(f"all {plural(check.versions, 'version')} of the subjects at {check.source}")
        yield f"{check.destination} has {' and '.join(checked)}", ""
    if check.source_unread:
        what = f"versions that these records do not need are not known: {check.source_unread}"
        yield what, "yellow"


def duration_line(jobs: Sequence[tuple[str, bool]]) -> str:
    """Returns how long the failover takes. `jobs` has whether each job runs; one that does not is started."""
    started = [name for name, up in jobs if not up]
    if not started:
        return "It takes 5 to 15 s: the jobs run, and are reconfigured."
    return f"It takes 10 to 30 s: {', '.join(started)} must be started to end the flows."
