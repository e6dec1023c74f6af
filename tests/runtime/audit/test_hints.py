"""What can't be read says what to do about that, and about nothing else."""

import pytest

from runtime.audit.ledger import AuditFailure, ClusterAccess, as_audit_failure
from runtime.audit.offsets.locate import LocateRequest, not_copied
from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records.ledger import PartitionKey
from runtime.kafka.errors import AuthenticationFailed, BrokerError, Disconnected, ErrorCode
from tests.runtime.audit.given import progress

REFUSED = BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic orders")


@pytest.mark.parametrize(
    ("error", "way_out"),
    [
        (Disconnected("dc1:9092", "refused", sent=False), "is dc1 up, and is its bootstrap right?"),
        (REFUSED, "its principal needs more rights"),
        (BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "topic orders"), "run this again"),
        (AuthenticationFailed("dc1:9092", "who are you?"), "mend clusters.dc1.client"),
        (ClientSettingsError("sasl.mechanism", "is none"), "mend clusters.dc1.client"),
    ],
)
def test_each_failure_has_its_own(error: Exception, way_out: str) -> None:
    with pytest.raises(AuditFailure) as failure, as_audit_failure("dc1"):
        raise error
    assert str(failure.value) == f"dc1: {error}"
    assert failure.value.hint.startswith(way_out)


@pytest.mark.parametrize(
    ("topic", "partition", "said", "way_out"),
    [
        ("orders", 7, "one copied no orders-7", "orders has other partitions"),
        ("other", 0, "one copied no other-0", "it copied from orders"),
    ],
)
def test_a_record_of_what_was_never_copied(topic: str, partition: int, said: str, way_out: str) -> None:
    sides = ClusterAccess("dc1", ""), ClusterAccess("dc2", "")
    asked = LocateRequest("one", topic, partition, 1, None, False, *sides)
    failure = not_copied(asked, {PartitionKey("one", "orders", 0): progress()})
    assert (failure.cluster, failure.why) == ("dc2", said)
    assert failure.hint.startswith(way_out)


def test_a_flow_that_copied_nothing_yet() -> None:
    failure = not_copied(
        LocateRequest("one", "orders", 0, 1, None, False, ClusterAccess("dc1", ""), ClusterAccess("dc2", "")),
        {},
    )
    assert (failure.why, failure.hint) == ("one copied nothing yet", "repl status shows how far it is")
