"""The source's side of a flow: which leader's session reads a partition, and what is done with its
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable

from runtime.batch import RewriteSpec, TooLarge
from runtime.contract.records.provenance import Home
from runtime.contract.records.status import PartitionState as State
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import FlowSpec
from runtime.kafka.cluster import Cluster
from runtime.kafka.errors import WireError
from runtime.ledger.producer_directory import ProducerDirectory
from runtime.ledger.scan import READ_FAILURES
from runtime.slot.context import Surroundings
from runtime.slot.health.supervisor import Care
from runtime.slot.partition import PartitionCopy
from runtime.slot.read.batch_filter import Kept, rewrite_spec
from runtime.slot.read.budget import TokenBucket
from runtime.slot.read.intake import BrokerIntake
from runtime.slot.write.errors import Decision, Do, Phase, decide

Start = Callable[[Coroutine[None, None, None]], None]


class Reading:
    """A partition is read while it is here; one that can't be read is given to the care."""

    def __init__(
        self,
        spec: FlowSpec,
        source: Cluster,
        directory: ProducerDirectory | None,
        around: Surroundings,
        bucket: TokenBucket,
        care: Care,
        start: Start,
    ) -> None:
        self._spec = spec
        self._source = source
        self._directory = directory
        self._around = around
        self._bucket = bucket
        self._care = care
        self._start = start
        self._intakes: dict[int, BrokerIntake] = {}

    def add(self, copy: PartitionCopy) -> None:
        """Reads it from its cursor on, at the leader that metadata names."""
        self.remove(copy)
        leader = self._source.leader(copy.key.topic, copy.key.partition)
        assert leader is not None, "the care looked"
        copy.intake = self._intake(leader.leader)
        copy.intake.add(copy)

    def remove(self, copy: PartitionCopy) -> None:
        if copy.intake is not None:
            copy.intake.remove(copy)
            copy.intake = None

    def touch(self, copy: PartitionCopy) -> None:
        """Its cursor moved. One that was held is read again."""
        if copy.intake is not None:
            copy.intake.touch(copy)
        elif copy.fetchable:
            self._care.admit([copy])

    def hold(self, copies: Iterable[PartitionCopy]) -> None:
        """They are not read until they are rewound, and take no memory meanwhile (R8)."""
        for copy in copies:
            self.remove(copy)
            copy.shed()

    def drained(self, copy: PartitionCopy) -> None:
        """A batch left its queue."""
        if copy.intake is not None:
            copy.intake.drained(copy)

    # The intakes' reader

    def fetched(self, copy: PartitionCopy) -> None:
        if copy.lane is not None:
            copy.lane.offer(copy)

    def unreadable(self, copy: PartitionCopy, decision: Decision, why: str) -> None:
        why = f"{copy.key.topic}-{copy.key.partition} at the source: {why}"
        if decision.do is Do.LOOK:
            self._care.look(copy, why)
        else:
            self._care.retry(copy, why)

    def corrupt(self, copy: PartitionCopy, kept: Kept) -> None:
        failure = kept.failure
        state = State.RECORD_TOO_LARGE if isinstance(failure, TooLarge) else State.RECORD_CORRUPT
        self._care.stop(copy, state, str(failure))

    def home_of(self, copy: PartitionCopy, producer_ids: set[int]) -> set[int]:
        assert self._directory is not None
        home = Home(self._around.destination.cluster_id, copy.at.topic)
        return self._directory.going_home(producer_ids, copy.key.topic, home, self._spec.native_only)

    def rewrite(self, copy: PartitionCopy) -> RewriteSpec:
        if copy.rewrite is None:
            ids = self._source.cluster_id, self._around.destination.cluster_id
            copy.rewrite = rewrite_spec(copy.assigned, self._spec, *ids)
        return copy.rewrite

    # Inside

    def _intake(self, node: int) -> BrokerIntake:
        if node not in self._intakes:
            around = self._around
            made = BrokerIntake(
                node,
                self._source,
                around.settings,
                around.budget,
                self._bucket,
                self._directory,
                self,
                f"fetch {self._spec.name}",
            )
            self._intakes[node] = made
            self._start(self._read(made))
        return self._intakes[node]

    async def _read(self, intake: BrokerIntake) -> None:
        """Until the broker can't be asked any more; then its partitions are looked at, and may have moved."""
        try:
            await intake.run()
        except WireError as error:
            self._leave(intake)
            decision = decide(Phase.FETCH, error)
            for copy in list(intake.copies.values()):
                self.unreadable(copy, decision, str(error))
        except READ_FAILURES as error:  # of the producers: without them nothing is known to be copied (R5)
            self._leave(intake)
            for copy in list(intake.copies.values()):
                self._care.retry(copy, f"{naming.PRODUCERS} of {self._spec.source} can't be read: {error}")

    def _leave(self, intake: BrokerIntake) -> None:
        if self._intakes.get(intake.node) is intake:
            del self._intakes[intake.node]
