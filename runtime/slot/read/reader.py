"""The source side of a flow assigns partitions to the fetch sessions of their leaders."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable

from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import FlowSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.ledger.producer_directory import ProducerDirectory
from runtime.ledger.scan import READ_FAILURES
from runtime.slot.budget import TokenBucket
from runtime.slot.context import SlotContext
from runtime.slot.errors import ErrorAction, ErrorDecision, ErrorPhase, decide
from runtime.slot.partition import PartitionCopy
from runtime.slot.read.flow_filter import FlowFilter
from runtime.slot.read.intake import BrokerIntake, EmitFetchEvent, FetchFailed

Start = Callable[[Coroutine[None, None, None]], None]


class SourceReader:
    """A reader owns the intakes of a flow, one for each leader at the source.

    A partition is fetched from `add` until `remove`. The intakes emit their events to the flow.
    """

    def __init__(
        self,
        spec: FlowSpec,
        source: KafkaCluster,
        directory: ProducerDirectory | None,
        context: SlotContext,
        bucket: TokenBucket,
        emit: EmitFetchEvent,
        start: Start,
    ) -> None:
        self._spec = spec
        self._source = source
        self._context = context
        self._bucket = bucket
        self._emit = emit
        self._start = start
        self._filter = FlowFilter(spec, source.cluster_id, context.destination.cluster_id, directory)
        self._by_leader: dict[int, BrokerIntake] = {}
        self._intakes: dict[PartitionCopy, BrokerIntake] = {}

    def add(self, copy: PartitionCopy) -> None:
        """Fetches a partition from its cursor on, at the leader that the metadata names."""
        self.remove(copy)
        leader = self._source.leader(copy.key.topic, copy.key.partition)
        assert leader is not None, "the supervisor inspected the partition before"
        intake = self._intakes[copy] = self._intake(leader.leader)
        intake.add(copy)

    def remove(self, copy: PartitionCopy) -> None:
        """Stops fetching a partition."""
        intake = self._intakes.pop(copy, None)
        if intake is not None:
            intake.remove(copy)

    def mark_changed(self, copy: PartitionCopy) -> bool:
        """Tells a partition's intake that its cursor moved; returns False where it is not fetched."""
        intake = self._intakes.get(copy)
        if intake is not None:
            intake.mark_changed(copy)
        return intake is not None

    def hold(self, copies: Iterable[PartitionCopy]) -> None:
        """Stops fetching partitions until they are rewound; they hold no memory meanwhile (R8)."""
        for copy in copies:
            self.remove(copy)
            copy.release_queue()

    def batches_sent(self, copies: Iterable[PartitionCopy]) -> None:
        """Handles that batches left the queues of partitions, so that there may be room for more."""
        for copy in copies:
            intake = self._intakes.get(copy)
            if intake is not None:
                intake.batches_sent(copy)

    def _intake(self, node: int) -> BrokerIntake:
        """Returns the intake of a leader, and starts it where there is none."""
        if node not in self._by_leader:
            context = self._context
            intake = BrokerIntake(
                node,
                self._source,
                context.settings,
                context.budget,
                self._bucket,
                self._filter,
                self._emit,
                f"fetch {self._spec.name}",
                context.transformer,
            )
            self._by_leader[node] = intake
            self._start(self._run_intake(intake))
        return self._by_leader[node]

    async def _run_intake(self, intake: BrokerIntake) -> None:
        """Runs an intake until its broker does not answer.

        Its partitions are then retried: after an inspection, they are fetched from their current leaders.
        Without the producer directory, the filter can't decide what to copy, so they are retried as well
        (R5).
        """
        try:
            await intake.run()
        except WireError as error:
            self._fail(intake, decide(ErrorPhase.FETCH, error), str(error))
        except READ_FAILURES as error:
            why = f"{naming.PRODUCERS} of {self._spec.source} can't be read: {error}"
            self._fail(intake, ErrorDecision(ErrorAction.RETRY), why)

    def _fail(self, intake: BrokerIntake, decision: ErrorDecision, why: str) -> None:
        """Removes an intake that has ended, and reports its partitions."""
        if self._by_leader.get(intake.node) is intake:
            del self._by_leader[intake.node]
        for copy in list(intake.copies.values()):
            self._emit(FetchFailed(copy, decision, why))
