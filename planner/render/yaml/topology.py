"""Writes a topology as YAML text that loads as the same topology."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap

from planner.model.diagnostic import Diagnostic, warning
from planner.model.topology import API_VERSION, Cluster, Topic, Topology, looks_secret, secret_variable
from planner.render.yaml.acls import acl_values
from planner.render.yaml.text import WIDTH, Value, item, pair, printable
from planner.render.yaml.topics import defaults_value, topic_defaults, topic_values
from planner.render.yaml.values import values_of


def topology_yaml(topology: Topology, header: Sequence[str] = (), notes: Sequence[str] = ()) -> str:
    """Returns the YAML of a topology, with comments: `header` at the beginning, `notes` at the end.

    A literal secret is never written: it becomes a reference to an environment variable.
    """
    sections = [
        [*_comments(header), f"apiVersion: {API_VERSION}", *pair("name", topology.name)],
        ["clusters:", *_named({name: values_of(one) for name, one in topology.clusters.items()})],
        *_topics(topology.topics),
        _listed("acls", acl_values(acl.rule for acl in topology.acls)),
        _listed("flows", [values_of(flow) for flow in topology.flows.values()]),
        _jobs(topology),
        _section("internal", values_of(topology.internal)),
        _section("policies", values_of(topology.policies)),
        list(_comments(notes)),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def secret_notes(cluster: Cluster) -> list[Diagnostic]:
    """Returns a warning for each literal secret, with the variable that takes its place in the text."""
    return [
        warning(
            f"{key} of {cluster.name} is a secret and not written out",
            f"set the environment variable {secret_variable(cluster.name, key)}",
        )
        for key, value in cluster.client.items()
        if isinstance(value, str) and looks_secret(key)
    ]


def _topics(topics: Sequence[Topic]) -> Iterator[list[str]]:
    defaults = topic_defaults(topics)
    if found := defaults_value(defaults):
        yield ["defaults:", *pair("topic", found, 2)]
    yield _listed("topics", topic_values(topics, defaults))


def _listed(key: str, values: Sequence[Value]) -> list[str]:
    if not values:
        return []
    lines = [f"{key}:"]
    for value in values:
        lines += item(value, 2)
    return lines


def _named(values: Mapping[str, Value]) -> Iterator[str]:
    for key, value in values.items():
        yield from pair(key, value, 2)


def _jobs(topology: Topology) -> list[str]:
    """Returns the jobs that have keys; every other one exists without being declared."""
    declared = {name: found for name, job in topology.jobs.items() if (found := values_of(job))}
    return ["jobs:", *_named(declared)] if declared else []


def _section(key: str, values: Mapping[str, Value]) -> list[str]:
    return list(pair(key, values)) if values else []


def _comments(lines: Iterable[str]) -> Iterator[str]:
    """Yields each text as a comment; a long one continues on indented lines."""
    for line in lines:
        parts = wrap(
            printable(line), WIDTH - 2, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        for part in parts or [""]:
            yield f"# {part}".rstrip()
