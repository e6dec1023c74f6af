"""The topology and its language: every key of the YAML is declared once, as an annotated field.

What a job needs unchanged is declared in `runtime.contract.spec`, and the classes here extend it. The reader,
the defaults, the JSON Schema, docs/topology.md and the export of YAML follow from the annotations
(`runtime.contract.spec.shapes`); docs/internals/adding-a-key.md shows how a key is added.

A loaded topology is complete: defaults are filled in and variables are expanded, but nothing is resolved yet.
Everything is frozen; mappings are plain dicts that do not change after the loader built them.
Durations are milliseconds, sizes are bytes, rates are bytes per second.
"""

from planner.model.topology.cutovers import GATEWAYS, Cutover, Fence, HandOut, Wave, WaveGate
from planner.model.topology.endpoints import (
    FILE_FLOW_KEYS,
    LINES_FLOW_KEYS,
    FileEndpoint,
    at_home,
)
from planner.model.topology.flows import Flow, Provenance, Selection
from planner.model.topology.jobs import (
    Job,
)
from planner.model.topology.quotas import (
    BYTE_RATES,
    QUOTA_KEYS,
    Quota,
    QuotaEntity,
)
from planner.model.topology.resources import (
    RESOURCES,
    Acl,
    AclEntry,
    Cluster,
    OnRemove,
    Registry,
    Topic,
    secret_variable,
)
from planner.model.topology.root import (
    API_VERSION,
    Drill,
    DrillSample,
    JobRightsMode,
    OperatorPolicy,
    Policies,
    Requirement,
    Rule,
    Topology,
)
from runtime.contract.client.secrets import looks_secret
from runtime.contract.spec.acls import AclRule

__all__ = [
    "API_VERSION",
    "BYTE_RATES",
    "FILE_FLOW_KEYS",
    "GATEWAYS",
    "LINES_FLOW_KEYS",
    "QUOTA_KEYS",
    "RESOURCES",
    "Acl",
    "AclEntry",
    "AclRule",
    "Cluster",
    "Cutover",
    "Drill",
    "DrillSample",
    "Fence",
    "FileEndpoint",
    "Flow",
    "HandOut",
    "Job",
    "JobRightsMode",
    "OnRemove",
    "OperatorPolicy",
    "Policies",
    "Provenance",
    "Quota",
    "QuotaEntity",
    "Registry",
    "Requirement",
    "Rule",
    "Selection",
    "Topic",
    "Topology",
    "Wave",
    "WaveGate",
    "at_home",
    "looks_secret",
    "secret_variable",
]
