"""Reads every ACL rule of a cluster as values of the model."""

from planner.kafka.connections import BlockingConnection
from planner.kafka.errors import Unreadable, meaning
from planner.model.topology import AclRule
from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.acls import DescribeAclsRequest

_TYPES = {
    2: "TOPIC",
    3: "GROUP",
    4: "CLUSTER",
    5: "TRANSACTIONAL_ID",
    6: "DELEGATION_TOKEN",
    7: "USER",
}
_OPERATIONS = {
    2: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
_PREFIXED, _DENY = 4, 2


def read_acls(connection: BlockingConnection, cluster: str) -> tuple[AclRule, ...] | None:
    """Returns the rules, sorted; None if the cluster has no authorizer. Rules of unknown kinds
    are left out.
    """
    answer = connection.call(DescribeAclsRequest())
    if answer.error is ErrorCode.SECURITY_DISABLED:
        return None
    if answer.error:
        raise Unreadable(
            f"not authorized to describe the ACLs of {cluster} ({meaning(answer.error)})",
            "it needs DESCRIBE on the cluster",
        )
    return tuple(
        sorted(
            AclRule(
                cluster,
                _TYPES[one.resource_type],
                one.resource,
                "PREFIXED" if one.pattern == _PREFIXED else "LITERAL",
                one.principal,
                one.host,
                _OPERATIONS[one.operation],
                "DENY" if one.permission == _DENY else "ALLOW",
            )
            for one in answer.bindings
            if one.resource_type in _TYPES and one.operation in _OPERATIONS
        )
    )
