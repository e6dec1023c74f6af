"""The source side of a flow assigns partitions to their leaders' fetch sessions and handles the results."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable

from runtime.batch import RewriteSpec, TooLarge
from runtime.contract.records.provenance import ClusterTopic
from runtime.contract.records.status import PartitionState as State
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import FlowSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.ledger.producer_directory import ProducerDirectory
from runtime.ledger.scan import READ_FAILURES
from runtime.slot.context import SlotContext
from runtime.slot.health.supervisor import PartitionSupervisor
from runtime.slot.partition import PartitionCopy
from runtime.slot.read.batch_filter import FilteredBatches, rewrite_spec
from runtime.slot.read.budget import TokenBucket
from runtime.slot.read.intake import BrokerIntake
from runtime.slot.write.errors import ErrorAction, ErrorDecision, ErrorPhase, decide

Start = Callable[[Coroutine[None, None, None]], None]


class SourceReader:
    """A reading owns the intakes of a flow, one for each leader at the source.

    A partition is fetched from `add` until `remove`. One that can't be fetched is passed to the supervisor.
    """

    def __init__(
        self,
        spec: FlowSpec,
        source: KafkaCluster,
        directory: ProducerDirectory | None,
        context: SlotContext,
        bucket: TokenBucket,
        supervisor: PartitionSupervisor,
        start: Start,
    ) -> None:
        self._spec = spec
        self._source = source
        self._directory = directory
        self._context = context
        self._bucket = bucket
        self._supervisor = supervisor
        self._start = start
        self._intakes: dict[int, BrokerIntake] = {}

    def add(self, copy: PartitionCopy) -> None:
        """Fetches a partition from its cursor on, at the leader that the metadata names."""
        self.remove(copy)
        leader = self._source.leader(copy.key.topic, copy.key.partition)
        assert leader is not None, "the supervisor inspected the partition before"
        copy.intake = self._intake(leader.leader)
        copy.intake.add(copy)

    def remove(self, copy: PartitionCopy) -> None:
        """Stops fetching a partition."""
        if copy.intake is not None:
            copy.intake.remove(copy)
            copy.intake = None

    def touch(self, copy: PartitionCopy) -> None:
        """Handles that a partition's cursor moved; one that is not fetched is inspected and fetched again."""
        if copy.intake is not None:
            copy.intake.touch(copy)
        elif copy.fetchable:
            self._supervisor.admit([copy])

    def hold(self, copies: Iterable[PartitionCopy]) -> None:
        """Stops fetching partitions until they are rewound; they hold no memory meanwhile (R8)."""
        for copy in copies:
            self.remove(copy)
            copy.shed()

    def drained(self, copy: PartitionCopy) -> None:
        """Handles that a batch left a partition's queue."""
        if copy.intake is not None:
            copy.intake.drained(copy)

    # The intakes' reader

    def fetched(self, copy: PartitionCopy) -> None:
        """Offers a partition to its lane, because it has batches queued or its idle position moved."""
        if copy.lane is not None:
            copy.lane.offer(copy)

    def unreadable(self, copy: PartitionCopy, decision: ErrorDecision, why: str) -> None:
        """Retries or inspects a partition whose fetch failed."""
        why = f"{copy.key.topic}-{copy.key.partition} at the source: {why}"
        if decision.do is ErrorAction.LOOK:
            self._supervisor.look(copy, why)
        else:
            self._supervisor.retry(copy, why)

    def corrupt(self, copy: PartitionCopy, kept: FilteredBatches) -> None:
        """Stops a partition at a record that is too large or corrupt."""
        failure = kept.failure
        state = State.RECORD_TOO_LARGE if isinstance(failure, TooLarge) else State.RECORD_CORRUPT
        self._supervisor.stop(copy, state, str(failure))

    def home_of(self, copy: PartitionCopy, producer_ids: set[int]) -> set[int]:
        """Returns the producer ids whose batches must not be copied to the destination (R5)."""
        assert self._directory is not None
        home = ClusterTopic(self._context.destination.cluster_id, copy.at.topic)
        return self._directory.returning_producer_ids(
            producer_ids, copy.key.topic, home, self._spec.native_only
        )

    def rewrite(self, copy: PartitionCopy) -> RewriteSpec:
        """Returns how the partition's batches are rewritten, computed once per partition."""
        if copy.rewrite is None:
            ids = self._source.cluster_id, self._context.destination.cluster_id
            copy.rewrite = rewrite_spec(copy.assigned, self._spec, *ids)
        return copy.rewrite

    # Inside

    def _intake(self, node: int) -> BrokerIntake:
        """Returns the intake of a leader, and starts it where there is none."""
        if node not in self._intakes:
            context = self._context
            made = BrokerIntake(
                node,
                self._source,
                context.settings,
                context.budget,
                self._bucket,
                self._directory,
                self,
                f"fetch {self._spec.name}",
            )
            self._intakes[node] = made
            self._start(self._run_intake(made))
        return self._intakes[node]

    async def _run_intake(self, intake: BrokerIntake) -> None:
        """Runs an intake until its broker does not answer.

        Its partitions are then retried: after an inspection, they are fetched from their current leaders.
        """
        try:
            await intake.run()
        except WireError as error:
            self._remove_intake(intake)
            decision = decide(ErrorPhase.FETCH, error)
            for copy in list(intake.copies.values()):
                self.unreadable(copy, decision, str(error))
        except (
            READ_FAILURES
        ) as error:  # Without the producer directory, the filter can't decide what to copy (R5).
            self._remove_intake(intake)
            for copy in list(intake.copies.values()):
                self._supervisor.retry(
                    copy, f"{naming.PRODUCERS} of {self._spec.source} can't be read: {error}"
                )

    def _remove_intake(self, intake: BrokerIntake) -> None:
        """Removes an intake that has ended."""
        if self._intakes.get(intake.node) is intake:
            del self._intakes[intake.node]
