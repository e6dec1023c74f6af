"""What the tests of the ledger are given."""

from runtime.contract.records.advance import first_progress
from runtime.contract.records.ledger import Progress


def progress(position: int) -> Progress:
    return first_progress(
        generation=1,
        source_topic_id=b"s" * 16,
        destination_topic="t",
        destination_topic_id=b"d" * 16,
        position=position,
        destination_end=0,
        now_ms=0,
    )
