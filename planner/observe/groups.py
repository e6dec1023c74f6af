"""Which topics each consumer group has committed offsets for. Each broker knows those it coordinates."""

from collections.abc import Callable, Iterable

from kafka.protocol.admin import ListGroupsRequest, ListGroupsResponse
from kafka.protocol.consumer import OffsetFetchRequest, OffsetFetchResponse

from planner.observe.asking import NONE, Unreadable, meaning, version_of
from planner.observe.wire import Connection

# From 8 on, one request asks for many groups.
_OFFSETS_OF_MANY, _LIST_NEWEST = 8, 4
_BATCH = 500


def read_groups(
    connections: Iterable[Connection], wanted: Callable[[str], bool]
) -> dict[str, frozenset[str]]:
    """Of the groups that are wanted. One that never committed has no topics."""
    found: dict[str, frozenset[str]] = {}
    for connection in connections:
        groups = [name for name in _listed(connection) if wanted(name)]
        for start in range(0, len(groups), _BATCH):
            found |= _committed(connection, groups[start : start + _BATCH])
    return dict(sorted(found.items()))


def _listed(connection: Connection) -> list[str]:
    version = version_of(connection, ListGroupsRequest, _LIST_NEWEST)
    answer = connection.call(ListGroupsRequest(states_filter=[]), ListGroupsResponse, version)
    if answer.error_code != NONE:
        raise Unreadable(f"{connection.where} does not list its groups ({meaning(answer.error_code)})")
    return [group.group_id for group in answer.groups if group.protocol_type in ("consumer", "")]


def _committed(connection: Connection, groups: list[str]) -> dict[str, frozenset[str]]:
    version = version_of(connection, OffsetFetchRequest, _OFFSETS_OF_MANY, _OFFSETS_OF_MANY)
    asked = OffsetFetchRequest.OffsetFetchRequestGroup
    request = OffsetFetchRequest(
        groups=[asked(group_id=name, topics=None) for name in groups], require_stable=False
    )
    answer = connection.call(request, OffsetFetchResponse, version)
    found = {}
    for group in answer.groups:
        if group.error_code != NONE:
            raise Unreadable(f"group {group.group_id} can't be read ({meaning(group.error_code)})")
        found[group.group_id] = frozenset(
            topic.name
            for topic in group.topics
            if any(partition.committed_offset >= 0 for partition in topic.partitions)
        )
    return found
