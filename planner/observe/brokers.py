"""A connection to each broker of a cluster, for what only the broker itself can be asked."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from planner.kafka.connections import BlockingConnection, WireFailure
from planner.kafka.connections.session import Session
from planner.model.observed import ObservedBroker
from planner.observe.parallel import for_each


@dataclass(slots=True)
class BrokerConnections:
    """`silent` says of each broker that could not be reached why; the cluster itself lists it as alive."""

    connections: dict[int, BlockingConnection] = field(default_factory=dict)
    unreachable: dict[int, WireFailure] = field(default_factory=dict)

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()


def reach_each(session: Session, brokers: Iterable[ObservedBroker], timeout_s: float) -> BrokerConnections:
    """Dial all of them at once."""

    def dialling(broker: ObservedBroker) -> Callable[[], BlockingConnection | WireFailure]:
        def dial() -> BlockingConnection | WireFailure:
            try:
                return session.dial((broker.host, broker.port), timeout_s)
            except WireFailure as failure:
                return failure

        return dial

    reached = BrokerConnections()
    for key, outcome in for_each({str(broker.id): dialling(broker) for broker in brokers}).items():
        if isinstance(outcome, BlockingConnection):
            reached.connections[int(key)] = outcome
        else:
            reached.unreachable[int(key)] = outcome
    return reached
