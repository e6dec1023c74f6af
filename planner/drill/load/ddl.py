"""Reads schemas in Spark's DDL, such as `id BIGINT, home STRUCT<city: STRING>`, without Spark. It is pure."""

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|`(?P<quoted>(?:[^`]|``)+)`|(?P<number>\d+)"
    r"|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<mark>[<>(),:]))",
    re.DOTALL,
)
_INSIDE = {"array": 1, "map": 2}  # types that these have between < and >


class UnknownType(ValueError):
    """The text is no schema, or has a type that is not known here. The error names it."""


@dataclass(frozen=True, slots=True)
class DdlField:
    """A field: its name, its type in lower case, the numbers of a type such as DECIMAL(10, 2), and its parts.

    A struct has its fields inside; an array and a map have fields without names for what they hold.
    """

    name: str
    type: str
    numbers: tuple[int, ...] = ()
    inside: tuple["DdlField", ...] = ()


def fields_of_ddl(text: str) -> tuple[DdlField, ...]:
    """Returns the fields of a schema, in their order. Raises UnknownType."""
    reader = _Reader(text)
    fields = reader.fields()
    reader.expect("end")
    return fields


class _Reader:
    """Reads tokens from left to right: pairs of a kind and a text."""

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
        self._tokens.append(("end", ""))
        self._tokens.reverse()  # the next one is the last

    def fields(self) -> tuple[DdlField, ...]:
        """Reads `name TYPE` or `name: TYPE`, with commas between. NOT NULL and COMMENT are passed over."""
        fields = []
        while True:
            kind, name = self._tokens[-1]
            self.expect("quoted" if kind == "quoted" else "name")
            self._skips(":")
            fields.append(self._type(name.replace("``", "`") if kind == "quoted" else name))
            for word in ("not", "comment"):
                if self._tokens[-1][0] == "name" and self._tokens[-1][1].lower() == word:
                    del self._tokens[-min(2, len(self._tokens) - 1) :]
            if not self._skips(","):
                return tuple(fields)

    def expect(self, kind: str, mark: str = "") -> str:
        """Reads a token of this kind. Raises UnknownType for another one."""
        token, text = self._tokens[-1]
        if token != kind or mark not in ("", text):
            raise UnknownType(f"no schema in Spark's DDL at {text!r}, where {mark or kind} must be")
        if kind != "end":
            self._tokens.pop()
        return text

    def _type(self, name: str) -> DdlField:
        type_ = self.expect("name").lower()
        if (type_ == "struct" or type_ in _INSIDE) and self._skips("<"):
            if type_ == "struct":
                inside = self.fields()
            else:
                types = [self._type("")]
                while len(types) < _INSIDE[type_]:
                    self.expect("mark", ",")
                    types.append(self._type(""))
                inside = tuple(types)
            self.expect("mark", ">")
            return DdlField(name, type_, inside=inside)
        numbers: list[int] = []
        if self._skips("("):
            numbers.append(int(self.expect("number")))
            while self._skips(","):
                numbers.append(int(self.expect("number")))
            self.expect("mark", ")")
        return DdlField(name, type_, tuple(numbers))

    def _skips(self, mark: str) -> bool:
        if self._tokens[-1] != ("mark", mark):
            return False
        self._tokens.pop()
        return True
