"""The least rights as docs/operations.md tells them, and principals that have exactly those."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from runtime.lab.cluster import LabKafkaCluster
from tests.records import wait_for

PAGE = Path(__file__).parent.parent / "docs" / "operations.md"
_TYPES = {"CLUSTER": "BROKER", "TRANSACTIONAL_ID": "TRANSACTIONAL_ID", "TOPIC": "TOPIC", "GROUP": "GROUP"}


@dataclass(frozen=True, slots=True)
class Right:
    """`condition`: what the row says it is needed for alone, empty where it is always needed."""

    resource: str
    name: str
    prefixed: bool
    operations: tuple[str, ...]
    condition: str = ""


def rights(heading: str, topics: str) -> list[Right]:
    """The rows below a heading; "your topics" are all that begin with `topics`."""
    section = PAGE.read_text().split(f"\n### {heading}\n")[1].split("\n#")[0]
    return list(_rows(section, topics))


def _rows(section: str, topics: str) -> Iterator[Right]:
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 4 or not re.fullmatch("`[A-Z_]+`", cells[0]):
            continue
        told, _, condition = cells[1].partition(", where ")
        literal = re.match("`([^`]+)`", told)
        yield Right(
            cells[0].strip("`"),
            literal[1] if literal else topics,
            literal is None or told.endswith("prefixed"),
            tuple(re.findall("`([A-Z_]+)`", cells[2])),
            condition,
        )


def principal(cluster: LabKafkaCluster, user: str, granted: list[Right], folder: Path) -> dict[str, Any]:
    """A new user that may do this and nothing else: what stands below `client:`, its password in a file."""
    password = secrets.token_hex(12)
    admin = AdminClient(cluster.client)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted = UserScramCredentialUpsertion(user, info, password.encode())
    for made in admin.alter_user_scram_credentials([wanted]).values():
        made.result(timeout=60)
    grant(cluster, user, *granted)
    file = folder / f"{cluster.spec.name}-{user}.password"
    file.write_text(password)
    client = {key: value for key, value in cluster.client.items() if key != "bootstrap.servers"}
    client |= {"sasl.username": user, "sasl.password": {"file": str(file)}}
    own = {**cluster.client, "sasl.username": user, "sasl.password": password}
    wait_for(lambda: _logs_in(own))
    return client


def grant(cluster: LabKafkaCluster, user: str, *rights: Right) -> None:
    """The user gets these rights besides those that it has. Brokers learn of them a moment later."""
    bindings = [_binding(right, operation, user) for right in rights for operation in right.operations]
    admin = AdminClient(cluster.client)  # the answers come only while it lives
    for made in admin.create_acls(bindings).values():
        made.result(timeout=60)


def _binding(right: Right, operation: str, user: str) -> AclBinding:
    return AclBinding(
        ResourceType[_TYPES[right.resource]],
        right.name,
        ResourcePatternType.PREFIXED if right.prefixed else ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )


def _logs_in(client: dict[str, Any]) -> bool:
    try:
        return bool(AdminClient({**client, "log_level": 0}).list_topics(timeout=10).brokers)
    except Exception:  # noqa: BLE001 - a user that was just made is not known at once
        return False
