"""The operator's command that prints OAUTHBEARER tokens, run where the control plane opens a connection."""

import json
import shlex
import subprocess
from dataclasses import dataclass, field

from runtime.contract.redaction import remember

_UNKNOWN_LIFETIME_S = 60.0


class NoToken(Exception):
    """Why the command gave no token. What it printed is never repeated."""


@dataclass(frozen=True, slots=True)
class Token:
    text: str = field(repr=False)
    lifetime_s: float


def run_token_command(command: str, timeout_s: float) -> Token:
    """The command prints the token itself, or JSON with `access_token` and `expires_in`. Raises NoToken."""
    try:
        words = shlex.split(command)
    except ValueError as wrong:
        raise NoToken(f"the token command can't be split into words ({wrong})") from None
    where = f"the token command {words[0]}"
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=True)
    except subprocess.CalledProcessError as failed:
        raise NoToken(f"{where} failed with exit code {failed.returncode}") from None
    except subprocess.TimeoutExpired:
        raise NoToken(f"{where} printed nothing within {timeout_s:g} s") from None
    except UnicodeDecodeError:
        raise NoToken(f"{where} printed no text") from None
    except OSError as wrong:
        raise NoToken(f"{where} can't be run ({wrong.strerror})") from None
    token = _token_in(done.stdout.strip(), where)
    remember(token.text)
    return token


def _token_in(printed: str, where: str) -> Token:
    if not printed.startswith("{"):
        if not printed:
            raise NoToken(f"{where} gave no token")
        return Token(printed, _UNKNOWN_LIFETIME_S)
    try:
        found = json.loads(printed)
        text, lifetime = found.get("access_token"), float(found.get("expires_in", _UNKNOWN_LIFETIME_S))
    except (ValueError, TypeError):
        text, lifetime = None, 0.0
    if not isinstance(text, str) or not text:
        raise NoToken(f"{where} gave no access_token")
    return Token(text, lifetime)
