"""This module makes librdkafka's admin client for the runtime, and converts ACL rules for it.

The client runs the operator's token command, logs nothing to stderr, and keeps secrets out of errors.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from runtime.contract.client.secrets import without_quoted_value
from runtime.contract.client.settings import (
    ClientSettingsError,
    TokenCommand,
    confluent_config,
    speaks_bearer,
)
from runtime.contract.spec.acls import AclRule
from runtime.kafka.auth.oauthbearer import fetch_token

# librdkafka writes its log lines to stderr unless a logger takes them.
_SILENT = logging.getLogger("repl.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
# librdkafka calls the resource type CLUSTER "BROKER".
_RESOURCE_TYPES = {"CLUSTER": ResourceType.BROKER}


def client_config(bootstrap: str, resolved: Mapping[str, str], token_command: str | None) -> dict[str, Any]:
    """Returns librdkafka's settings for any client. Raises ClientSettingsError."""
    config: dict[str, Any] = {"client.id": "repl", **confluent_config(bootstrap, resolved), "logger": _SILENT}
    if token_command is not None and speaks_bearer(resolved):
        config["oauth_cb"] = lambda _: _token(token_command)
    return config


def admin_client(bootstrap: str, resolved: Mapping[str, str], token_command: str | None) -> AdminClient:
    """Returns the admin client.

    Raises ClientSettingsError for settings that are not allowed, or that librdkafka rejects.
    """
    config = client_config(bootstrap, resolved, token_command)
    try:
        client = AdminClient(config)
    except KafkaException as failure:
        why = without_quoted_value(failure.args[0].str())
        raise ClientSettingsError("client", f"librdkafka does not take it: {why}") from None
    if "oauth_cb" in config:
        client.poll(0)  # makes librdkafka ask for the first token
    return client


def acl_parts(
    rule: AclRule,
) -> tuple[ResourceType, str, ResourcePatternType, str, str, AclOperation, AclPermissionType]:
    """Returns the parts of a rule in confluent-kafka's types."""
    return (
        _RESOURCE_TYPES.get(rule.resource_type) or ResourceType[rule.resource_type],
        rule.resource,
        ResourcePatternType[rule.pattern],
        rule.principal,
        rule.host,
        AclOperation[rule.operation],
        AclPermissionType[rule.permission],
    )


def _token(command: str) -> tuple[str, float]:
    """Returns a token for librdkafka, and the time when it expires."""
    token = fetch_token(TokenCommand(command))
    return token.text, time.time() + token.lifetime_s
