"""Why a key has no counterpart, where MirrorMaker 2 and Confluent Replicator have the same keys."""

import re
from collections.abc import Iterable

from runtime.contract.spec.regex import UnreadableRegex, regex
from runtime.contract.spec.selection import written_out

# A regex for whole keys, the reason, and whether something that was wanted is not done.
Reason = tuple[str, str, bool]

REPLICATION = (
    "mirror topics have the replication that is the destination's default; declare a topic to choose it"
)
CLIENT_REASONS: tuple[Reason, ...] = (
    (r"(.*\.)?sasl\.kerberos\..*", "Kerberos is not supported: PLAIN, SCRAM and OAUTHBEARER are", True),
    (r"config\.providers.*", "a secret is {env: VARIABLE} or {file: path}", False),
    (r"metric.*|metrics\..*|auto\.include\.jmx.*", "jobs.<name>.metrics is the Prometheus endpoint", False),
    (
        r"ssl\.(protocol|provider|enabled\.protocols|cipher\.suites|.*manager.*|secure.*|engine.*)",
        "what OpenSSL chooses is used; ssl.cipher.suites takes OpenSSL's names",
        True,
    ),
    (r"sasl\..*", "it has no counterpart among librdkafka's settings that are used here", True),
)


def first_reason(key: str, reasons: Iterable[Reason]) -> tuple[str, bool]:
    """Returns the reason of the first regex that matches the whole key, and whether something is lost."""
    for pattern, reason, loss in reasons:
        if re.fullmatch(pattern, key):
            return reason, loss
    return "it has no counterpart", True


def java_regex_problem(pattern: str) -> str | None:
    """Returns why a regex of Java can't be used as it is, or None where it can."""
    if written_out(pattern) is not None:
        return None
    try:
        regex(pattern)
    except UnreadableRegex as wrong:
        return f"the regex of Java {pattern} {wrong.what}: {wrong.hint}; repl validate shows where"
    return None
