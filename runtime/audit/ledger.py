"""Opens a cluster's ledger for reading, whether a job runs or not.

    async with open_ledger(reach) as opened:
        await opened.decided(flow)
        opened.ledger.generation(flow), opened.all(flow)

It writes nothing, and an undecided record of the ledger counts as not committed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Generic, TypeVar

from msgspec import Struct

from runtime.batch import BatchFailure
from runtime.contract.client import settings as client
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records import provenance
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.records.provenance import FlowProducer
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import naming
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.route import Router, is_reserved
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import AuthenticationFailed, BrokerError, ErrorCode, Unsupported, WireError
from runtime.kafka.timing import in_time
from runtime.ledger.offset_maps import OffsetMaps, offset_maps_at
from runtime.ledger.records import InternalTopicScan, TopicReplaced

OPEN_WITHIN_S = 15.0


class AuditFailure(Exception):
    """The error of an audit: the cluster that could not be read, why, and what to do.

    The texts are for people.
    """

    def __init__(self, cluster: str, why: str, hint: str) -> None:
        super().__init__(f"{cluster}: {why}")
        self.cluster = cluster
        self.why = why
        self.hint = hint


Result = TypeVar("Result")


class SparkOutcome(Struct, Generic[Result], frozen=True, kw_only=True):
    """Reports the result of a command's Spark application, or why there is none.

    `cluster` names the cluster, or Spark, that failed; it is empty where the request is refused.
    """

    result: Result | None = None
    cluster: str = ""
    why: str = ""
    hint: str = ""


class UnexpectedClusterId(AuditFailure):
    """Another cluster answers than the one that the topology names."""

    def __init__(self, cluster: str, actual: str, meant: str) -> None:
        why = f"this is cluster {actual}, the topology means {meant}"
        hint = f"correct the bootstrap of {cluster}, or its id if the cluster was replaced on purpose"
        super().__init__(cluster, why, hint)


class LedgerNotFound(AuditFailure):
    """The cluster has no ledger, because no job ever copied into it."""

    def __init__(self, cluster: str) -> None:
        why = f"there is no {naming.LEDGER}: no job ever copied into this cluster"
        super().__init__(cluster, why, "repl apply starts its jobs, repl status shows how far they are")


class NothingCopied(AuditFailure):
    """The flow has not copied anything into the cluster yet."""

    def __init__(self, cluster: str, flow: str) -> None:
        super().__init__(cluster, f"{flow} copied nothing yet", "repl status shows how far it is")


class FlowAccess(Struct, frozen=True):
    """Says how both clusters of a flow are reached, and which topics and groups it takes.

    `router` knows the flows of the topology, `selects` the groups that the flow syncs. `by_time`: offsets
    below the offset map are translated by record time. `only`: these topics at the source, else all.
    """

    flow: str
    router: Router
    source: ClusterEndpoint
    destination: ClusterEndpoint
    within_s: float = 10.0
    by_time: bool = False
    selects: Callable[[str], bool] = lambda _group: True
    only: frozenset[str] | None = None

    def destination_topic(self, topic: str) -> str | None:
        """Returns the name at the destination of a topic that the flow takes; None for another topic."""
        if self.only is not None and topic not in self.only:
            return None
        return self.router.destination_topic(self.flow, topic)


@contextmanager
def as_audit_failure(cluster: str, damaged: str = "") -> Iterator[None]:
    """Converts errors of the wire, and records that can't be read, into an AuditFailure of the cluster.

    `damaged` is the hint where records of a topic can't be read, for a caller that can do without them.
    """
    try:
        yield
    except BatchFailure as failure:
        hint = damaged or _whole_elsewhere(failure.where)
        raise AuditFailure(cluster, str(failure), hint) from failure
    except UnreadableValue as error:
        hint = damaged or "ask with the version of repl that its jobs run"
        raise AuditFailure(cluster, str(error), hint) from error
    except (WireError, ClientSettingsError, TopicReplaced) as error:
        raise AuditFailure(cluster, str(error), _hint(cluster, error)) from error


def _whole_elsewhere(at: TopicPartition) -> str:
    leader = f"another replica of {at} may be whole: have its broker lead the partition"
    return f"{leader} (docs/troubleshooting.md#a-log-is-damaged)"


def unanswered(cluster: str) -> str:
    return f"is {cluster} up, and is its bootstrap right? repl status shows what answers"


def _hint(cluster: str, error: WireError | ClientSettingsError | TopicReplaced) -> str:
    match error:
        case ClientSettingsError() | AuthenticationFailed():
            return f"mend clusters.{cluster}.client"
        case BrokerError(code=ErrorCode.SASL_AUTHENTICATION_FAILED):
            return f"mend clusters.{cluster}.client, or the logins of the broker that refuses it"
        case BrokerError() if error.code.name.endswith("AUTHORIZATION_FAILED"):
            return "its principal needs more rights: docs/operations.md lists them"
        case BrokerError() | TopicReplaced():
            return "run this again; if that does not help, look at the brokers' logs"
        case Unsupported():
            return f"another version of Kafka at {cluster} may do it"
        case _:
            return unanswered(cluster)


@asynccontextmanager
async def open_cluster(reach: ClusterEndpoint, within: float = OPEN_WITHIN_S) -> AsyncIterator[KafkaCluster]:
    """Opens a cluster.

    Raises AuditFailure, also for errors inside the block, and UnexpectedClusterId for another cluster id.
    """
    cluster = await connect(reach, reach.within(within))
    with as_audit_failure(reach.cluster):
        async with cluster:
            yield cluster


async def open_if_answering(access: FlowAccess, stack: AsyncExitStack) -> tuple[KafkaCluster | None, str]:
    """Opens the source of a flow, to be closed with `stack`. None, and why, where it does not answer.

    Raises UnexpectedClusterId.
    """
    try:
        return await stack.enter_async_context(open_cluster(access.source, access.within_s)), ""
    except UnexpectedClusterId:
        raise
    except AuditFailure as failure:
        return None, failure.why


async def connect(reach: ClusterEndpoint, within: float) -> KafkaCluster:
    """Connects to a cluster. Raises AuditFailure, and UnexpectedClusterId for another cluster id."""
    with as_audit_failure(reach.cluster):
        settings = client.wire_settings(reach.bootstrap, reach.settings, reach.token_command)
        cluster = await in_time(KafkaCluster.open(settings), within, f"opening {reach.cluster}")
    if reach.id is not None and cluster.cluster_id != reach.id:
        await cluster.close()
        raise UnexpectedClusterId(reach.cluster, cluster.cluster_id, reach.id)
    return cluster


@asynccontextmanager
async def open_ledger(reach: ClusterEndpoint, within: float = OPEN_WITHIN_S) -> AsyncIterator[OffsetMaps]:
    """Opens a cluster's ledger, with its offset maps.

    Raises LedgerNotFound where no job ever copied into it, AuditFailure where it can't be read.
    """
    async with open_cluster(reach, within) as cluster:
        yield await existing_ledger(cluster, reach.cluster)


async def existing_ledger(cluster: KafkaCluster, name: str) -> OffsetMaps:
    """Returns the ledger of an open cluster, with its offset maps. Raises LedgerNotFound, WireError."""
    opened = await offset_maps_at(cluster, fresh=True)
    if opened is None:
        raise LedgerNotFound(name)
    return opened


async def copied_progress(opened: OffsetMaps, cluster: str, flow: str) -> dict[PartitionKey, Progress]:
    """Reads what the ledger of a cluster has of a flow now.

    Returns its progress without that of repl's own topics. Raises NothingCopied, UnreadableRecord, WireError.
    """
    await opened.decided(flow)
    progress = {key: made for key, made in opened.progress(flow).items() if not is_reserved(key.topic)}
    if not progress:
        raise NothingCopied(cluster, flow)
    return progress


async def producers_at(cluster: KafkaCluster) -> dict[int, FlowProducer]:
    """Returns the product's own producer ids at a cluster, with their flows. Raises WireError,
    UnreadableRecord.
    """
    topic = (await cluster.topics([naming.PRODUCERS], fresh=True))[naming.PRODUCERS]
    if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return {}
    scan = InternalTopicScan(cluster, naming.PRODUCERS, 0)
    await scan.refresh()
    return {
        provenance.decode_producer_key(key): provenance.decode_producer(value)
        for key, value in scan.fold.items()
    }
