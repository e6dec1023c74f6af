"""Which topics each consumer group has committed offsets for. Each broker knows those it coordinates."""

from collections.abc import Callable, Iterable

from planner.kafka.connections import BlockingConnection, Unreadable
from planner.kafka.connections.failure import meaning
from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.groups import CommittedOffset
from runtime.kafka.protocol.many_groups import FetchManyRequest, ListGroupsRequest

_BATCH = 500


def read_groups(
    connections: Iterable[BlockingConnection], wanted: Callable[[str], bool]
) -> dict[str, frozenset[str]]:
    """Of the groups that are wanted. One that never committed has no topics."""
    found: dict[str, frozenset[str]] = {}
    for connection in connections:
        groups = [name for name in _listed(connection) if wanted(name)]
        for start in range(0, len(groups), _BATCH):
            found |= _committed(connection, groups[start : start + _BATCH])
    return dict(sorted(found.items()))


def _listed(connection: BlockingConnection) -> list[str]:
    answer = connection.call(ListGroupsRequest())
    if answer.error:
        raise Unreadable(f"{connection.where} does not list its groups ({meaning(answer.error)})")
    return [group.name for group in answer.groups if group.protocol_type in ("consumer", "")]


def _committed(connection: BlockingConnection, groups: list[str]) -> dict[str, frozenset[str]]:
    found = {}
    for name, offsets in connection.call(FetchManyRequest(groups)).groups.items():
        if isinstance(offsets, ErrorCode):
            raise Unreadable(f"group {name} can't be read ({meaning(offsets)})")
        found[name] = frozenset(
            place.topic
            for place, committed in offsets.items()
            if isinstance(committed, CommittedOffset) and committed.offset >= 0
        )
    return found
