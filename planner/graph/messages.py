"""Texts of diagnostics that name many things at once: one message for a flow, not one for each topic."""

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import partial

from planner.model.address import flow_address
from planner.model.diagnostic import Diagnostic, ExitCode, error
from planner.model.topology import Flow
from runtime.contract.spec.units import DECIMAL, duration, in_whole

SHOWN = 3


def few(names: Sequence[object], most: int = SHOWN) -> str:
    """Returns `a, b, c and 211 more`."""
    more = len(names) - most
    return ", ".join(map(str, names[:most])) + (f" and {more} more" if more > 0 else "")


def listed(names: Iterable[str]) -> str:
    """Returns the names sorted and without duplicates: `a, b, c and 211 more`."""
    return few(sorted(set(names)))


def counted(names: Iterable[str], what: str = "topic") -> str:
    """Returns `the topic a`, or `214 topics (a, b, c and 211 more)`."""
    distinct = sorted(set(names))
    if len(distinct) == 1:
        return f"the {what} {distinct[0]}"
    return f"{len(distinct)} {what}s ({listed(distinct)})"


def readable(key: str, value: int) -> str:
    """Returns `7d` for 604800000 of a key in milliseconds; -1 is `no limit`."""
    if value < 0:
        return "no limit"
    if value == 0:
        return "0"
    return duration(value) if key.endswith(".ms") else in_whole(value, *DECIMAL) or f"{value} bytes"


def nearest(text: str, names: Iterable[str]) -> str | None:
    """Returns the live name that a name or a regex was perhaps meant to be."""
    plain = text.replace("\\", "").replace(".*", "").replace(".+", "")
    matches = get_close_matches(plain, sorted(names), n=1, cutoff=0.6)
    return matches[0] if matches else None


def flow_diagnostic(
    build: Callable[..., Diagnostic], flow: Flow, summary: str, hint: str, code: str
) -> Diagnostic:
    """Builds an error, a warning or a note at the flow's address and place in the file."""
    return build(summary, hint, address=str(flow_address(flow.name)), source=flow.source, code=code)


def flow_refused(flow: Flow, summary: str, hint: str, code: str) -> Diagnostic:
    """Returns an error with exit code 3 about a flow."""
    return flow_diagnostic(partial(error, exit=ExitCode.REFUSED), flow, summary, hint, code)
