"""File endpoints: folders and object stores that flows write to or read from, in place of a cluster."""

from typing import Final

from msgspec import structs

from planner.model.diagnostic import SourceLocation
from planner.model.topology.flows import Flow
from runtime.contract.spec.files import EndpointSpec
from runtime.contract.spec.flow import ConfigsSpec, GroupsSpec

# The keys of a flow into an endpoint. The others are about topics and groups at a destination cluster.
FILE_FLOW_KEYS: Final = frozenset(
    {
        "name",
        "from",
        "to",
        "topics",
        "every",
        "start",
        "state",
        "rate_limit",
        "rpo",
        "on_data_loss",
        "schemas",
        "transform",
        "job",
    }
)
# The keys of a flow from an endpoint.
LINES_FLOW_KEYS: Final = frozenset(
    {"name", "from", "to", "topics", "every", "state", "rate_limit", "on_data_loss", "job"}
)


class FileEndpoint(EndpointSpec, frozen=True):
    """A folder that every machine of a job sees under the same path, or a prefix of a bucket.

    Flows write files below it, or one flow reads the lines or rows of the files in it.
    """

    name: str
    source: SourceLocation | None = None

    def __repr__(self) -> str:
        return f"FileEndpoint({self.name!r}, folder={self.folder!r})"  # the settings may hold a password


def at_home(flow: Flow) -> Flow:
    """Returns a flow into or from an endpoint as its job has it.

    Both ends are the cluster of the job's internal topics, and the duties of a flow between clusters are off.
    """
    home = flow.destination_cluster if flow.from_files else flow.source_cluster
    return structs.replace(
        flow,
        source_cluster=home,
        destination_cluster=home,
        groups=GroupsSpec(sync=False),
        configs=ConfigsSpec(sync="off"),
        follow_every_ms=None,
        heartbeats_every_ms=None,
        checkpoints_every_ms=None,
        origin_commits=None,
    )
