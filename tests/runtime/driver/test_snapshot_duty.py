"""What the snapshot of a backup holds of consumer groups, and what it names as left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.driver.clusters import DriverClusters
from runtime.driver.duties.snapshots import SnapshotDuty
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.groups import MANY_GROUPS, ListedGroup, ListGroupsRequest
from runtime.kafka.protocol.share_groups import DescribeShareOffsetsRequest
from runtime.kafka.queries import SHARE
from tests.fakes.groups import GroupCluster
from tests.runtime.slot.world import flow_spec

ORDERS, OTHER = TopicPartition("orders", 0), TopicPartition("other", 0)


class ShareGroups(GroupCluster):
    """The groups whose names begin with `share` are share groups."""

    async def connection(self, node: int, purpose: str, within: float) -> Any:
        async def call(request: Any, within: float) -> dict[str, Any]:
            share = isinstance(request, DescribeShareOffsetsRequest)
            return {
                group: self._offsets_of(group) for group in request.groups if group.startswith(SHARE) == share
            }

        return SimpleNamespace(version_of=lambda _: MANY_GROUPS, call=call)

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        if isinstance(request, ListGroupsRequest):
            kinds = {name: SHARE if name.startswith(SHARE) else "" for name in self.committed}
            return [ListedGroup(name, "", "Empty", kind) for name, kind in kinds.items()]
        return await super().call(node, request, purpose, within)


async def test_a_snapshot_names_the_share_groups_of_its_topics_that_it_leaves_out() -> None:
    """Also one whose topics can't be read. Those of other topics lose nothing."""
    groups = {
        "billing": {ORDERS: 3},
        "share-a": {ORDERS: 5},
        "share-b": {OTHER: 5},
        "share-c": {OTHER: 5},
    }
    source = ShareGroups({}, groups)
    source.unreadable["share-c"] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    files = FilesSpec(endpoint="lake", folder="/lake", format="raw")
    duty = SnapshotDuty(flow_spec("f"), files, cast(DriverClusters, None), ())
    unread: dict[str, str] = {}
    offsets = await duty._offsets(cast(KafkaCluster, source), ["orders"], unread)
    assert [(one.group, one.offset) for one in offsets] == [("billing", 3)]
    assert unread == {"share groups": "share-a, share-c (their start offsets are not backed up)"}
