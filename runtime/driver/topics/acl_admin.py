"""This module reads, makes and removes ACL rules on topics with confluent-kafka. Its blocking calls run in
threads.

What the job makes is entered into the registry.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from runtime.contract.client.secrets import redacted
from runtime.contract.spec import naming
from runtime.contract.spec.acls import AclRule
from runtime.driver.slots.channel import post
from runtime.driver.topics import registry
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.confluent import acl_parts
from runtime.kafka.errors import WireError
from runtime.ledger.records import InternalRecord

_TIMEOUT_S = 20.0
_EVERY_TOPIC_RULE: tuple[Any, ...] = (
    ResourceType.TOPIC,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


class AclAdmin:
    """An AclAdmin reads and changes the rules on topics of one cluster."""

    def __init__(self, name: str, client: AdminClient) -> None:
        self._name = name
        self._client = client

    async def rules(self) -> set[AclRule] | None:
        """Returns all rules on topics, or None where the cluster has no authorizer. Raises WireError."""
        return await asyncio.to_thread(self._describe)

    async def create(self, rules: Iterable[AclRule]) -> dict[AclRule, str]:
        """Makes rules. Returns refusals as texts by rule."""
        wanted = {AclBinding(*acl_parts(rule)): rule for rule in rules}
        return await asyncio.to_thread(self._create, wanted)

    async def delete(self, rules: Iterable[AclRule]) -> dict[AclRule, str]:
        """Removes rules. Returns refusals as texts by rule."""
        wanted = {AclBindingFilter(*acl_parts(rule)): rule for rule in rules}
        return await asyncio.to_thread(self._delete, wanted)

    def _describe(self) -> set[AclRule] | None:
        answer = self._client.describe_acls(AclBindingFilter(*_EVERY_TOPIC_RULE), request_timeout=_TIMEOUT_S)
        try:
            found = answer.result(_TIMEOUT_S + 5)
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() == KafkaError.SECURITY_DISABLED:
                return None
            raise WireError(f"the ACLs of {self._name} can't be read: {redacted(error.str())}") from failure
        except TimeoutError as late:
            raise WireError(f"the ACLs of {self._name} can't be read: no answer in time") from late
        return {_rule(self._name, one) for one in found}

    def _create(self, wanted: Mapping[AclBinding, AclRule]) -> dict[AclRule, str]:
        futures = self._client.create_acls(list(wanted), request_timeout=_TIMEOUT_S)
        return {wanted[one]: why for one, why in _failures(futures).items()}

    def _delete(self, wanted: Mapping[AclBindingFilter, AclRule]) -> dict[AclRule, str]:
        futures = self._client.delete_acls(list(wanted), request_timeout=_TIMEOUT_S)
        return {wanted[one]: why for one, why in _failures(futures).items()}


def _rule(cluster: str, one: AclBinding) -> AclRule:
    return AclRule(
        cluster,
        ResourceType(one.restype).name,
        one.name,
        "PREFIXED" if one.resource_pattern_type is ResourcePatternType.PREFIXED else "LITERAL",
        one.principal,
        one.host,
        AclOperation(one.operation).name,
        "DENY" if one.permission_type is AclPermissionType.DENY else "ALLOW",
    )


def _failures(futures: Mapping[Any, Any]) -> dict[Any, str]:
    failed: dict[Any, str] = {}
    for one, future in futures.items():
        try:
            future.result(_TIMEOUT_S + 5)
        except KafkaException as failure:
            failed[one] = redacted(failure.args[0].str())
        except TimeoutError:
            failed[one] = "no answer in time"
    return failed


async def make(
    admin: AclAdmin, cluster: KafkaCluster, topology: str, rules: Mapping[AclRule, str]
) -> dict[AclRule, str]:
    """Makes rules, each with its origin, and registers them, so that the planner owns them.

    Returns refusals as texts by rule. Raises WireError.
    """
    await _post(cluster, {rule: _entry(rule, topology, rules[rule], announced=True) for rule in rules})
    refused = await admin.create(rules)
    made = {
        rule: None if rule in refused else _entry(rule, topology, rules[rule], announced=False)
        for rule in rules
    }
    await _post(cluster, made)
    return refused


async def remove(admin: AclAdmin, cluster: KafkaCluster, rules: Collection[AclRule]) -> dict[AclRule, str]:
    """Removes rules and their registry entries. Returns refusals as texts by rule. Raises WireError."""
    refused = await admin.delete(rules)
    await _post(cluster, {rule: None for rule in rules if rule not in refused})
    return refused


def _entry(rule: AclRule, topology: str, origin: str, *, announced: bool) -> bytes:
    return registry.acl_entry(rule, topology, origin, int(time.time() * 1000), announced=announced)


async def _post(cluster: KafkaCluster, entries: Mapping[AclRule, bytes | None]) -> None:
    records = [InternalRecord(registry.acl_key(rule), entries[rule]) for rule in sorted(entries)]
    if records:
        await post(cluster, naming.REGISTRY, records)
