"""A cluster of one broker that coordinates consumer groups, without a broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import Disconnected, ErrorCode
from runtime.kafka.protocol.groups import (
    MANY_GROUPS,
    CommittedOffset,
    ListedGroup,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    Offsets,
)
from runtime.kafka.protocol.transactions import CoordinatorKind
from runtime.kafka.records import InternalRecord
from tests.fakes.internal_topics import TransactionalTopics


class GroupCluster(TransactionalTopics):
    """`committed` has the offsets of each group; none has a member.

    `refusals` are the answers to the next commits of a group, `unreadable` those to the next reads of its
    offsets: first an error, and no error once the list is used up. `commits` lists the groups of the commits.
    `silent` brokers list no groups.
    """

    def __init__(
        self,
        topics: Mapping[str, Sequence[InternalRecord]],
        committed: Mapping[str, Mapping[TopicPartition, int]],
        committing: Iterable[str] = (),
    ) -> None:
        super().__init__(topics, committing)
        self.brokers = {1: ("localhost", 1)}
        self.committed = defaultdict(dict, {group: dict(offsets) for group, offsets in committed.items()})
        self.refusals: defaultdict[str, list[ErrorCode]] = defaultdict(list)
        self.unreadable: defaultdict[str, list[ErrorCode]] = defaultdict(list)
        self.commits: list[str] = []
        self.silent: set[int] = set()

    def know_coordinators(self, kind: CoordinatorKind, nodes: object, *, complete: bool) -> None: ...

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None: ...

    async def connection(self, node: int, purpose: str, within: float) -> Any:
        async def call(request: OffsetFetchRequest, within: float) -> dict[str, Offsets | ErrorCode]:
            return {group: self._offsets_of(group) for group in request.groups}

        return SimpleNamespace(version_of=lambda _: MANY_GROUPS, call=call)

    def _offsets_of(self, group: str) -> Offsets | ErrorCode:
        if self.unreadable[group]:
            return self.unreadable[group].pop(0)
        return {at: CommittedOffset(offset) for at, offset in self.committed[group].items()}

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        match request:
            case ListGroupsRequest() if node in self.silent:
                raise Disconnected(f"broker {node}", "it is silent", sent=True)
            case ListGroupsRequest():
                return [ListedGroup(group, "", "Empty") for group in self.committed]
            case OffsetCommitRequest():
                self.commits.append(request.group)
                if self.refusals[request.group]:
                    return dict.fromkeys(request.offsets, self.refusals[request.group].pop(0))
                self.committed[request.group] |= {at: one.offset for at, one in request.offsets.items()}
                return dict.fromkeys(request.offsets, ErrorCode.NONE)
        return await super().call(node, request, purpose, within)
