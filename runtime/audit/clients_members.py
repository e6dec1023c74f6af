"""Groups with their members, as the brokers describe them: through librdkafka, which knows every protocol."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from runtime.audit.ledger import Reach
from runtime.contract.client import TOKEN_COMMAND, confluent_config
from runtime.contract.client_values import TokenCommand
from runtime.copy.wire.tokens import fetch_token

_AT_ONCE = 100
_SILENT = logging.getLogger("repl.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@dataclass(frozen=True, slots=True)
class Member:
    client_id: str
    host: str
    member_id: str
    partitions: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Described:
    """`state` in Kafka's words: Stable, Empty, PreparingRebalance, …"""

    state: str
    members: tuple[Member, ...] = ()


@dataclass(slots=True)
class Groups:
    """`failed` says why, by group."""

    found: dict[str, Described] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


async def describe_groups(reach: Reach, names: Iterable[str], within_s: float) -> Groups:
    return await asyncio.to_thread(_describe, reach, sorted(names), within_s)


def _describe(reach: Reach, names: list[str], within_s: float) -> Groups:
    groups = Groups()
    if not names:
        return groups
    client = _client(reach)
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        asked = client.describe_consumer_groups(some, request_timeout=within_s)
        for name, future in asked.items():
            try:
                groups.found[name] = _described(future.result(within_s + 5))
            except (KafkaException, TimeoutError) as failure:
                groups.failed[name] = str(failure.args[0]) if failure.args else "no answer in time"
    return groups


def _client(reach: Reach) -> AdminClient:
    config: dict[str, Any] = {"client.id": "repl", **confluent_config(reach.bootstrap, reach.settings)}
    command = reach.settings.get(TOKEN_COMMAND)
    if command is not None:
        config["oauth_cb"] = lambda _: _token(command)
    config["logger"] = _SILENT
    client = AdminClient(config)
    if command is not None:
        client.poll(0)
    return client


def _token(command: str) -> tuple[str, float]:
    token = fetch_token(TokenCommand(command))
    return token.text, time.time() + token.lifetime_s


def _described(description: Any) -> Described:
    state = "".join(part.capitalize() for part in description.state.name.split("_"))
    return Described(state, tuple(_member(one) for one in description.members))


def _member(member: Any) -> Member:
    partitions: dict[str, tuple[int, ...]] = {}
    for one in member.assignment.topic_partitions if member.assignment is not None else ():
        partitions[one.topic] = (*partitions.get(one.topic, ()), one.partition)
    return Member(member.client_id, member.host, member.member_id, partitions)
