"""A topology that was read, its defaults inherited, before it is checked and built."""

from dataclasses import dataclass
from typing import Any

from planner.config.inherit import completed, inherited
from planner.config.language.fields import ParsedRecord


@dataclass(frozen=True, slots=True)
class TopologyParts:
    """Entries that were wrong stay as names (their value is INVALID), so that references find them."""

    root: ParsedRecord
    clusters: dict[str, Any]
    topics: list[ParsedRecord]
    acls: list[ParsedRecord]
    flows: list[ParsedRecord]
    jobs: dict[str, Any]


def parts_of(root: ParsedRecord) -> TopologyParts:
    defaults = root.get("defaults")
    for_topics, for_flows = (defaults.get("topic"), defaults.get("flow")) if defaults else (None, None)
    return TopologyParts(
        root=completed(root),
        clusters={name: _completed(one) for name, one in (root.get("clusters") or {}).items()},
        topics=[completed(inherited(topic, for_topics)) for topic in root.get("topics") or ()],
        acls=[completed(acl) for acl in root.get("acls") or ()],
        flows=[completed(inherited(flow, for_flows)) for flow in root.get("flows") or ()],
        jobs={name: _completed(one) for name, one in (root.get("jobs") or {}).items()},
    )


def _completed(one: Any) -> Any:
    return completed(one) if isinstance(one, ParsedRecord) else one
