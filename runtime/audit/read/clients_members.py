"""Reads groups with their members through librdkafka, which supports every group protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException

from runtime.audit.ledger import ClusterAccess, as_audit_failure
from runtime.contract.client.redaction import redacted
from runtime.kafka.confluent import admin_client

_GROUPS_PER_REQUEST = 100


@dataclass(frozen=True, slots=True)
class GroupMember:
    """Describes a member of a group and its assigned partitions, by topic."""

    client_id: str
    host: str
    member_id: str
    partitions: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """Describes a group. `state` is Kafka's name: Stable, Empty, PreparingRebalance, …"""

    state: str
    members: tuple[GroupMember, ...] = ()


@dataclass(slots=True)
class GroupDescriptions:
    """Holds the groups that could be described; `failed` says why, by group, for the others."""

    found: dict[str, GroupDescription] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


async def describe_groups(reach: ClusterAccess, names: Iterable[str], within_s: float) -> GroupDescriptions:
    """Describes the groups with these names, in a thread of its own because librdkafka blocks."""
    return await asyncio.to_thread(_describe, reach, sorted(names), within_s)


def _describe(reach: ClusterAccess, names: list[str], within_s: float) -> GroupDescriptions:
    groups = GroupDescriptions()
    if not names:
        return groups
    with as_audit_failure(reach.name):
        client = admin_client(reach.bootstrap, reach.settings, reach.token_command)
    for start in range(0, len(names), _GROUPS_PER_REQUEST):
        some = names[start : start + _GROUPS_PER_REQUEST]
        futures = client.describe_consumer_groups(some, request_timeout=within_s)
        for name, future in futures.items():
            try:
                groups.found[name] = _described(future.result(within_s + 5))
            except (KafkaException, TimeoutError) as failure:
                groups.failed[name] = redacted(str(failure.args[0])) if failure.args else "no answer in time"
    return groups


def _described(description: Any) -> GroupDescription:
    state = "".join(part.capitalize() for part in description.state.name.split("_"))
    return GroupDescription(state, tuple(_member(one) for one in description.members))


def _member(member: Any) -> GroupMember:
    partitions: dict[str, tuple[int, ...]] = {}
    for one in member.assignment.topic_partitions if member.assignment is not None else ():
        partitions[one.topic] = (*partitions.get(one.topic, ()), one.partition)
    return GroupMember(member.client_id, member.host, member.member_id, partitions)
