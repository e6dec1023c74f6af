"""Finds wrong sentences of a scenario, and wrong names in them, before anything is started. It is pure."""

from collections.abc import Callable, Iterator, Sequence

from planner.drill import topics_by_hand
from planner.drill.routes import routes_of
from planner.drill.scenario_run import ScenarioRun
from planner.drill.steps.language import matching, nearest
from planner.model.topology import Topology
from runtime.contract.spec.transform import quarantine_topic

# Behind a sentence that may make topics of any name, topics are looked for at the clusters alone.
_MAKE_TOPICS = {topics_by_hand.create, ScenarioRun.change_topic, ScenarioRun.change_flow}
_MAKING_COMMANDS = ("restore", "salvage")


def wrong_sentences(
    topology: Topology, sentences: Sequence[str], of_team: Callable[[int], bool]
) -> Iterator[tuple[int, str]]:
    """Yields what is wrong with the sentences of one scenario, each with its index.

    `of_team` returns whether a sentence is a step of the team's own: topics and groups may come from it.
    """
    clusters, flows = list(topology.clusters), [*topology.flows, *topology.file_flows]
    declared = {"cluster": clusters, "other": clusters, "flow": flows}
    topics, quarantines = _topics_of(topology)
    groups: set[str] = set()
    complete = True
    for index, sentence in enumerate(sentences):
        steps = list(matching(sentence))
        if not steps:
            topics, complete = {}, False
            if not of_team(index):
                near = "; ".join(nearest(sentence))
                yield index, f'there is no step "{sentence}"; the nearest are: {near}'
        for step, texts in steps:
            for kind, names in declared.items():
                if kind in texts and texts[kind] not in names:
                    word = kind.replace("other", "cluster")
                    yield index, f"there is no {word} {texts[kind]}; there are: {', '.join(names)}"
            if step.function in _MAKE_TOPICS or texts.get("command", "").startswith(_MAKING_COMMANDS):
                topics = {}
            values = step.values(texts)
            group = texts.get("group", "")
            if step.function is ScenarioRun.read:
                groups.add(group)
            elif group and group not in groups and complete:
                some = ", ".join(sorted(groups)) or "none"
                yield index, f"group {group} has read nothing before; groups that have: {some}"
            at = topics.get(texts.get("cluster", ""))
            if at is None or step.function is topics_by_hand.require_none:
                continue
            names = values["topics"] if "topics" in values else [values.get("topic", "__")]
            some = ", ".join(sorted(at)) or "none"
            yield from (
                (index, f"there is no topic {topic} at {texts['cluster']}; there are: {some}")
                for topic in names
                if topic not in at and topic not in quarantines and not topic.startswith("__")
            )


def _topics_of(topology: Topology) -> tuple[dict[str, set[str]], set[str]]:
    """Returns the topics of each cluster where all are known, and the names of quarantines."""
    topics: dict[str, set[str]] = {name: set() for name in topology.clusters}
    quarantines = set()
    for topic in topology.topics:
        topics[topic.cluster].add(topic.name)
    for route in routes_of(topology):
        topics[route.source].add(route.topic)
        topics[route.destination].add(route.mirror)
        quarantines.add(quarantine_topic(route.mirror))
    for flow in topology.file_flows.values():
        if flow.from_files:  # which topics files make is not known here
            topics.pop(flow.destination_cluster, None)
    return topics, quarantines
