"""Edge: one client of a cluster for the control plane, its failures in words for users, and logs in topics.

`client` asks a cluster, `changes` has the requests that change it, `failures` the one set of errors. Only
`librdkafka` makes confluent-kafka clients: for records that people, drills and tests write and read.
"""

from planner.kafka.client import ClusterClient, run, run_at
from planner.kafka.failures import ClusterFailure
from runtime.contract.client.endpoint import ClusterEndpoint

__all__ = ["ClusterClient", "ClusterEndpoint", "ClusterFailure", "run", "run_at"]
