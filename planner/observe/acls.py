"""Every ACL of a cluster, in the words of the model."""

from kafka.protocol.admin import DescribeAclsRequest, DescribeAclsResponse

from planner.model.topology import AclRule
from planner.observe.asking import NO_AUTHORIZER, NONE, Unreadable, meaning, version_of
from planner.observe.wire import Connection

_ANY = 1
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


def read_acls(connection: Connection, cluster: str) -> tuple[AclRule, ...] | None:
    """Sorted; None where the cluster has no authorizer. Bindings of a kind we don't know are left alone."""
    version = version_of(connection, DescribeAclsRequest, 3, 1)
    request = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    answer = connection.call(request, DescribeAclsResponse, version)
    if answer.error_code == NO_AUTHORIZER:
        return None
    if answer.error_code != NONE:
        raise Unreadable(
            f"not authorized to describe the ACLs of {cluster} ({meaning(answer.error_code)})",
            "it needs DESCRIBE on the cluster",
        )
    return tuple(
        sorted(
            AclRule(
                cluster,
                _TYPES[resource.resource_type],
                resource.resource_name,
                "PREFIXED" if resource.pattern_type == _PREFIXED else "LITERAL",
                acl.principal,
                acl.host,
                _OPERATIONS[acl.operation],
                "DENY" if acl.permission_type == _DENY else "ALLOW",
            )
            for resource in answer.resources
            if resource.resource_type in _TYPES
            for acl in resource.acls
            if acl.operation in _OPERATIONS
        )
    )
