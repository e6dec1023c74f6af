"""When a commit is looked up again whose record was not found at the source."""

import pytest

from runtime.contract.records.group_records import TimesKey
from runtime.ledger.consumer_times import LookupRetries

KEY = TimesKey("flow", "billing", "orders", 0)
MINUTE = 60_000


@pytest.mark.parametrize(
    ("expiry_ms", "failures", "now_ms", "due"),
    [
        (None, [], 0, True),
        (None, [0], 5 * MINUTE - 1, False),
        (None, [0], 5 * MINUTE, True),
        (None, [0, 6 * MINUTE], 10 * MINUTE, False),
        (None, [0, 6 * MINUTE], 1_000 * MINUTE, True),
        (8 * MINUTE, [0], 5 * MINUTE, True),
        (8 * MINUTE, [0, 6 * MINUTE], 12 * MINUTE, False),  # 8 minutes after the first time
    ],
)
def test_it_is_due_after_the_retry_until_it_expires(
    expiry_ms: int | None, failures: list[int], now_ms: int, due: bool
) -> None:
    retries = LookupRetries(5 * MINUTE, expiry_ms)
    for at_ms in failures:
        retries.note_failure(KEY, 7, at_ms)
    assert retries.is_due(KEY, 7, now_ms) is due


def test_a_new_commit_starts_anew() -> None:
    retries = LookupRetries(MINUTE, MINUTE)
    retries.note_failure(KEY, 7, 0)
    assert retries.is_due(KEY, 8, 1)
    assert retries.is_due(KEY._replace(group="other"), 7, 1)
    retries.note_failure(KEY, 8, 10 * MINUTE)
    assert not retries.is_due(KEY, 8, 10 * MINUTE + 1)
