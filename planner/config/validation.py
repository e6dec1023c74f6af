"""What must hold between the parts of a topology: names that exist, nothing twice, nothing that can't be."""

import os
import re
from collections.abc import Iterable

from planner.config.hints import did_you_mean, prose
from planner.config.language.build import rename_of
from planner.config.language.defaults import TopologyParts
from planner.config.language.fields import INVALID, NamedReference, ParsedRecord
from planner.model.diagnostic import Diagnostic, SourceLocation, error, warning
from planner.model.topology import SecretRef, looks_secret
from runtime.contract.client.keys import TOKEN_ENDPOINT_URL, token_endpoint_problem
from runtime.contract.spec import rename
from runtime.contract.spec.naming import metric_name

GLOB = re.compile(r"[A-Za-z0-9_\\.-]*[A-Za-z0-9_-]\*")


def check(parts: TopologyParts) -> list[Diagnostic]:
    return [
        *_clusters(parts),
        *_cluster_references(parts),
        *_topics(parts),
        *(found for flow in parts.flows for found in _flow(flow, parts)),
        *_twice("flow", ((flow.get("name"), flow.place("name")) for flow in parts.flows)),
    ]


def _clusters(parts: TopologyParts) -> Iterable[Diagnostic]:
    for name, cluster in parts.clusters.items():
        if not isinstance(cluster, ParsedRecord):
            continue
        for text in cluster.get("bootstrap") or ():
            for address in text.split(","):
                if not 1 <= int(address.rpartition(":")[2]) <= 65_535:
                    what = f'"{address.strip()}" has no port that can exist'
                    yield error(what, "ports go from 1 to 65535", source=cluster.place("bootstrap"))
        for key, value in (cluster.get("client") or {}).items():
            if looks_secret(key) and not isinstance(value, SecretRef):
                yield warning(
                    f'"{key}" of cluster {name} stands in the topology as plain text',
                    f"refer to it: {key}: {{env: VARIABLE}} or {{file: path}}",
                    source=cluster.place("client"),
                    code="literal_secret",
                )
            if key == TOKEN_ENDPOINT_URL and isinstance(value, str):
                yield from _token_endpoint(name, value, cluster.place("client"))


def _token_endpoint(cluster: str, url: str, place: SourceLocation) -> Iterable[Diagnostic]:
    problem = token_endpoint_problem(url, os.environ)
    if problem is not None:
        what = f'"{TOKEN_ENDPOINT_URL}" of cluster {cluster} {problem[0]}'
        yield error(what, problem[1], source=place, code="token_endpoint")


def _cluster_references(parts: TopologyParts) -> Iterable[Diagnostic]:
    references: list[NamedReference] = []
    for one in (*parts.topics, *parts.acls):
        named = one.get("cluster") or ()
        references += named
        for again in (
            reference for at, reference in enumerate(named) if reference.text in _texts(named[:at])
        ):
            yield error(
                f'"{again.text}" stands in the list twice', "name each cluster once", source=again.source
            )
    for flow in parts.flows:
        references += [end for key in ("from", "to") if (end := flow.get(key))]
    for reference in references:
        if reference.text not in parts.clusters:
            yield _unknown("cluster", reference, parts.clusters)


def _texts(references: Iterable[NamedReference]) -> set[str]:
    return {reference.text for reference in references}


def _unknown(kind: str, reference: NamedReference, known: Iterable[str]) -> Diagnostic:
    names = sorted(known)
    mend = did_you_mean(reference.text, names) or (
        f"declare it under {kind}s; there is {prose(names[:10], 'and')}"
        if names
        else f"declare it under {kind}s"
    )
    return error(f'there is no {kind} "{reference.text}"', mend, source=reference.source)


def _twice(kind: str, named: Iterable[tuple[str | None, SourceLocation]]) -> Iterable[Diagnostic]:
    first: dict[str, SourceLocation] = {}
    for name, place in named:
        if name is None:
            continue
        if name in first:
            yield error(
                f'the {kind} "{name}" stands in two places, first at {first[name]}', "keep one", source=place
            )
        else:
            first[name] = place


def _topics(parts: TopologyParts) -> Iterable[Diagnostic]:
    named: dict[tuple[str, str], tuple[str, SourceLocation]] = {}
    for topic in parts.topics:
        name = topic.get("name")
        for cluster in topic.get("cluster") or () if name is not None else ():
            first = named.setdefault((cluster.text, metric_name(name)), (name, topic.place("name")))
            if first[1] is topic.place("name"):
                continue
            if first[0] == name:
                what = f'the topic "{name}" at {cluster.text} stands in two places, first at {first[1]}'
                yield error(what, "keep one", source=topic.place("name"))
            else:
                what = f'"{name}" and "{first[0]}" ({first[1]}) can\'t both be at {cluster.text}'
                yield error(what, "Kafka takes . and _ for the same: rename one", source=topic.place("name"))


def _flow(flow: ParsedRecord, parts: TopologyParts) -> Iterable[Diagnostic]:
    source, destination = flow.get("from"), flow.get("to")
    if source and destination and source.text == destination.text:
        what = f'the flow copies "{source.text}" to itself'
        yield error(what, "name another cluster in from or to", source=destination.source)
    job = flow.get("job")
    if job and job.text not in parts.jobs and not (destination and job.text == destination.text):
        yield _unknown("job", job, parts.jobs)
    if flow.get("reverse_of"):
        yield from _reverse(flow, parts)
    if (
        (renamed := flow.get("rename")) is not None
        and _whole(renamed)
        and (why := rename.problem(rename_of(renamed)))
    ):
        yield error(why, "a rename must have a way back", source=flow.place("rename"))
    for key in ("topics", "groups"):
        selected = flow.get(key)
        for pattern in (selected.get("include") or ()) if isinstance(selected, ParsedRecord) else ():
            if GLOB.fullmatch(pattern):
                what = f'"{pattern}" is a regex: its star repeats the one sign before it'
                mend = f'write "{pattern[:-1]}.*" for every name that begins so'
                yield warning(what, mend, source=selected.place("include"), code="glob")


def _whole(renamed: object) -> bool:
    """Whether a rename could be read to its end."""
    if isinstance(renamed, ParsedRecord):
        return {"match", "to"} <= renamed.values.keys()
    return not (isinstance(renamed, dict) and INVALID in renamed.values())


def _reverse(flow: ParsedRecord, parts: TopologyParts) -> Iterable[Diagnostic]:
    reference: NamedReference = flow["reverse_of"]
    others = {other["name"]: other for other in parts.flows if other.get("name")}
    other = others.get(reference.text)
    if other is None:
        yield _unknown("flow", reference, others)
        return
    there = [end.text if (end := other.get(key)) else None for key in ("from", "to")]
    back = [end.text if (end := flow.get(key)) else None for key in ("to", "from")]
    if None not in there + back and there != back:
        what = f'the flow does not reverse "{reference.text}", which goes from {there[0]} to {there[1]}'
        yield error(what, f"write from: {there[1]} and to: {there[0]}", source=reference.source)
