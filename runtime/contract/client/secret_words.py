"""Decides which names stand for secrets: client settings, and Spark settings that a job must not carry.

A job's settings travel in the plan file, in the job spec, and in topics at the destination. Whatever has the
right to read those reads the settings too. So no setting of a job holds a secret.
"""

import re
from collections.abc import Mapping

PLAN_KEY = "REPL_PLAN_KEY"  # the key that plans are signed with; no job inherits it
PLAN_KEY_FILE = "REPL_PLAN_KEY_FILE"
OPERATOR_KEYS = frozenset({PLAN_KEY, PLAN_KEY_FILE})

SECRET_WORDS = re.compile(
    r"pass(word|wd|phrase)|secret|token(?!\.endpoint)|credential|jaas|user\.info|(^|[._])(key|keystore)\.pem$|api[._]?key",
    re.IGNORECASE,
)
# Keys of object stores under Spark's settings for Hadoop: fs.s3a.access.key, fs.azure.account.key.…
_STORE_KEYS = re.compile(
    r"(access|secret|account|private|encryption|sas)[._-]?key(\.|$)|\.sas\.", re.IGNORECASE
)
# Settings with such a name whose value is a path, a name, a class, a number or a switch.
_HARMLESS = re.compile(
    r"(file|path|provider|providers|enabled|bitlength|renewal|ratio|interval|wait|class|\.name|\.type|mapping)$"
    r"|\.secrets\.|secretkeyref\.|tokensecret\.(name|itemkey)$|secretname$|^spark\.redaction\.",
    re.IGNORECASE,
)
_JAVA_OPTION = re.compile(r"-D([^=\s]+)=\S")


def looks_secret(key: str) -> bool:
    """Returns whether the value of this key (`sasl.password`, `ssl.key.pem`, …) must never be shown."""
    return SECRET_WORDS.search(key) is not None


def secret_settings(conf: Mapping[str, str]) -> list[str]:
    """Returns the names of the Spark settings that hold a secret, never with a value."""
    return [key for key, value in sorted(conf.items()) if value and _holds_secret(key, value)]


def _holds_secret(key: str, value: str) -> bool:
    if key.lower().endswith("javaoptions"):
        return any(_names_secret(option) for option in _JAVA_OPTION.findall(value))
    return _names_secret(key)


def _names_secret(key: str) -> bool:
    return _HARMLESS.search(key) is None and (looks_secret(key) or _STORE_KEYS.search(key) is not None)
