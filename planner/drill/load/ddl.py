"""Reads schemas in Spark's DDL, such as `id BIGINT, home STRUCT<city: STRING>`, without Spark. It is pure."""

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|`(?P<quoted>(?:[^`]|``)+)`|(?P<number>\d+)"
    r"|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<mark>[<>(),:]))",
    re.DOTALL,
)
_END = ("end", "")


class UnknownType(ValueError):
    """The text is no schema, or has a type that is not known here. The error names it."""


@dataclass(frozen=True, slots=True)
class DdlType:
    """A type: its name in lower case, its numbers such as those of DECIMAL(10, 2), and the types inside.

    The inner types of a struct are its fields; those of an array and a map have no names.
    """

    name: str
    numbers: tuple[int, ...] = ()
    inside: tuple["DdlField", ...] = ()


@dataclass(frozen=True, slots=True)
class DdlField:
    name: str
    type: DdlType


def fields_of_ddl(text: str) -> tuple[DdlField, ...]:
    """Returns the fields of a schema, in their order. Raises UnknownType."""
    reader = _Reader(text)
    found = reader.fields()
    reader.expect("end", "")
    return found


class _Reader:
    """Reads tokens from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                raise UnknownType(f"no schema in Spark's DDL at {text[at : at + 20].strip()!r}")
            kind = str(token.lastgroup)
            self._tokens.append((kind, token[kind]))
            at = token.end()
        self._at = 0

    def fields(self) -> tuple[DdlField, ...]:
        """Reads `name TYPE` or `name: TYPE`, with commas between them."""
        found = []
        while True:
            name = self._name()
            self._skip("mark", ":")
            found.append(DdlField(name, self._type()))
            self._skip_notes()
            if not self._skip("mark", ","):
                return tuple(found)

    def expect(self, kind: str, text: str) -> None:
        """Reads this token. Raises UnknownType for another one."""
        if not self._skip(kind, text):
            raise UnknownType(f"no schema in Spark's DDL at {self._next()[1]!r}")

    def _type(self) -> DdlType:
        kind, text = self._next()
        if kind != "name":
            raise UnknownType(f"no type in Spark's DDL at {text!r}")
        self._at += 1
        name = text.lower()
        if name in ("struct", "array", "map") and self._skip("mark", "<"):
            inside = self.fields() if name == "struct" else self._inner(2 if name == "map" else 1)
            self.expect("mark", ">")
            return DdlType(name, inside=inside)
        return DdlType(name, self._numbers())

    def _inner(self, count: int) -> tuple[DdlField, ...]:
        found = [DdlField("", self._type())]
        while len(found) < count:
            self.expect("mark", ",")
            found.append(DdlField("", self._type()))
        return tuple(found)

    def _numbers(self) -> tuple[int, ...]:
        if not self._skip("mark", "("):
            return ()
        found = []
        while True:
            kind, text = self._next()
            if kind != "number":
                raise UnknownType(f"no number in Spark's DDL at {text!r}")
            self._at += 1
            found.append(int(text))
            if not self._skip("mark", ","):
                self.expect("mark", ")")
                return tuple(found)

    def _name(self) -> str:
        kind, text = self._next()
        if kind not in ("name", "quoted"):
            raise UnknownType(f"no name of a field in Spark's DDL at {text!r}")
        self._at += 1
        return text.replace("``", "`") if kind == "quoted" else text

    def _skip_notes(self) -> None:
        """Passes over NOT NULL and COMMENT 'text'."""
        kind, text = self._next()
        if kind == "name" and text.lower() == "not":
            self._at += 2
            kind, text = self._next()
        if kind == "name" and text.lower() == "comment":
            self._at += 2

    def _skip(self, kind: str, text: str) -> bool:
        if self._next() != (kind, text):
            return False
        self._at += 1
        return True

    def _next(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END
