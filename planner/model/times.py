"""Times as text. Clients choose the timestamps of records, so a time may be one that no calendar has."""

from datetime import UTC, datetime

CLOCK = "%Y-%m-%d %H:%M:%SZ"
ISO = "%Y-%m-%dT%H:%M:%SZ"


def utc(ms: int, form: str = CLOCK) -> str:
    """Returns a time in UTC; the number itself where no calendar has it."""
    try:
        return datetime.fromtimestamp(ms // 1000, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
