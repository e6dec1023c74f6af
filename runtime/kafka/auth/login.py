"""This module defines what every login has in common: its exchange of messages, its limits, and its error."""

from __future__ import annotations

from collections.abc import Generator

MAX_BYTES_BEFORE_LOGIN = 64 * 1024
"""The largest answer that a broker may send before the client believes it. Real ones stay below 4 KiB."""

Exchange = Generator[bytes, bytes, None]
"""An exchange yields what to send, receives the broker's answer, and returns when the broker is believed."""

_LONGEST_QUOTE = 200


class LoginError(Exception):
    """A LoginError ends a login. `why` states the reason and `hint` the remedy; neither holds a secret."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint


def advance(exchange: Exchange, answer: bytes | None) -> bytes | None:
    """Returns the next message to send, or None when the exchange is complete. Begin with None."""
    try:
        return next(exchange) if answer is None else exchange.send(answer)
    except StopIteration:
        return None


def quoted(text: str | bytes) -> str:
    """Returns text of the other side as one short printable line."""
    if isinstance(text, bytes):
        text = text[: 4 * _LONGEST_QUOTE].decode(errors="replace")
    shown = "".join(sign if sign.isprintable() else "?" for sign in text[:_LONGEST_QUOTE])
    return shown + "…" if len(text) > _LONGEST_QUOTE else shown
