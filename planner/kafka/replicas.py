"""Moves replicas in a session of the Kafka client, because librdkafka has no request for it."""

from collections.abc import Mapping, Sequence

from planner.kafka.clients import ClusterEndpoint
from planner.kafka.connections import Session
from planner.kafka.errors import Closed, NoAnswer, NoConnection, WireFailure, meaning
from runtime.contract.client.secrets import redacted
from runtime.contract.client.settings import ClientSettingsError, wire_settings
from runtime.kafka.protocol.administration import AlterReassignmentsRequest, Refusal
from runtime.kafka.protocol.metadata import AnyMetadataRequest
from runtime.kafka.protocol.offsets import TopicPartition

TIMEOUT_S = 10.0


class ReassignmentFailure(Exception):
    """Says why replicas are not moved. `transient`: the same request may succeed later."""

    def __init__(self, why: str, *, transient: bool = False) -> None:
        super().__init__(redacted(why))
        self.transient = transient


def move_replicas(
    endpoint: ClusterEndpoint, replicas: Mapping[tuple[str, int], Sequence[int]], timeout_s: float = TIMEOUT_S
) -> None:
    """Sends the reassignment and returns when the controller took it; the brokers then copy.

    `replicas` are by topic and partition, the preferred leader first. Raises ReassignmentFailure. If the
    controller refuses one partition, the request fails, and the others may have been taken.
    """
    try:
        settings = wire_settings(endpoint.bootstrap, endpoint.settings, endpoint.token_command)
        session = Session(settings, timeout_s)
    except ClientSettingsError as wrong:
        raise ReassignmentFailure(str(wrong)) from None
    except WireFailure as failure:
        raise _failure(failure) from None
    try:
        cluster = session.ask(lambda connection: connection.call(AnyMetadataRequest(())))
        addresses = {one.node_id: (one.host, one.port) for one in cluster.brokers}
        if cluster.controller not in addresses:
            raise ReassignmentFailure(f"{endpoint.cluster} has no controller at present", transient=True)
        controller = session.dial(addresses[cluster.controller], timeout_s)
        wanted = {TopicPartition(*place): brokers for place, brokers in replicas.items()}
        answer = controller.call(AlterReassignmentsRequest(wanted, int(timeout_s * 1000)))
    except WireFailure as failure:
        raise _failure(failure) from None
    finally:
        session.close()
    if answer.refusal is not None:
        raise ReassignmentFailure(_describe(answer.refusal), transient=answer.refusal.error.retriable)
    for place, refusal in answer.refused.items():
        why = f"partition {place.partition} of {place.topic}: {_describe(refusal)}"
        raise ReassignmentFailure(why, transient=refusal.error.retriable)


def _describe(refusal: Refusal) -> str:
    return meaning(refusal.error, refusal.message)


def _failure(failure: WireFailure) -> ReassignmentFailure:
    """Maps a failure. A refused login or setting stays refused; a broker that does not answer may recover."""
    why = f"{failure.why}; {failure.way_out}" if failure.way_out else failure.why
    return ReassignmentFailure(why, transient=isinstance(failure, Closed | NoAnswer | NoConnection))
