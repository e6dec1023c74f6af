"""Builds the nodes by which Spark matches regexes with RE2 for Java, in place of Java's own engine.

Java's engine can need exponential time and overflow the stack of its thread. RE2 needs time linear in the
text, and a stack of constant depth. Its class is in Hadoop's client library, which each Spark has.
"""

from __future__ import annotations

from typing import Any

_PACKAGE = "org.apache.hadoop.shaded.com.google.re2j"
_PATTERN, _MATCHER = f"{_PACKAGE}.Pattern", f"{_PACKAGE}.Matcher"
_TEXT = "java.lang.String"


class RegexNodes:
    """Makes nodes of Spark's trees through py4j. `made` says whether it has made any."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self.made = False

    def found(self, text: Any, pattern: str) -> Any:
        """Returns the node that says whether a pattern matches somewhere in a text."""
        boolean = self._type("boolean")
        return self._invoke(self._matcher(text, pattern), "find", boolean, [])

    def replaced(self, text: Any, pattern: str, method: str, replacement: str) -> Any:
        """Returns the node that replaces matches; `method` is one of RE2's class Matcher."""
        made = self._invoke(
            self._matcher(text, pattern),
            method,
            self._java_type(_TEXT),
            [self._java_text(replacement)],
        )
        utf8 = self._class("org.apache.spark.unsafe.types.UTF8String")
        return self._static(utf8, self._type("string"), "fromString", [made])

    def of_short(self, text: Any, made: Any, most: int) -> Any:
        """Returns the node that fails for a text of more than `most` characters, and is `made` for others."""
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        limit = expressions.Literal(most, self._type("int"))
        is_long = expressions.GreaterThan(expressions.Length(self._as_text(text)), limit)
        parser = self._jvm.org.apache.spark.sql.catalyst.parser.CatalystSqlParser()
        failing = parser.parseExpression("raise_error('the text is too long for this regex')")
        return expressions.If(is_long, failing, made)

    def _as_text(self, text: Any) -> Any:
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        return expressions.Cast(text, self._type("string"), self._none(), expressions.EvalMode.ANSI())

    def _matcher(self, text: Any, pattern: str) -> Any:
        """Returns the node that makes a matcher of RE2 for a text; it is null where the text is null.

        The regex is compiled for each row, because the class does not survive Java's serialization.
        """
        self.made = True
        compiled = self._static(
            self._class(_PATTERN), self._java_type(_PATTERN), "compile", [self._java_text(pattern)]
        )
        java = self._invoke(self._as_text(text), "toString", self._java_type(_TEXT), [])
        return self._invoke(compiled, "matcher", self._java_type(_MATCHER), [java])

    def _invoke(self, target: Any, method: str, kind: Any, arguments: list[Any]) -> Any:
        objects = self._jvm.org.apache.spark.sql.catalyst.expressions.objects
        nothing = self._sequence([])
        return objects.Invoke(target, method, kind, self._sequence(arguments), nothing, True, True, True)

    def _static(self, owner: Any, kind: Any, method: str, arguments: list[Any]) -> Any:
        objects = self._jvm.org.apache.spark.sql.catalyst.expressions.objects
        nothing = self._sequence([])
        given = self._sequence(arguments)
        return objects.StaticInvoke(owner, kind, method, given, nothing, True, True, True, self._none())

    def _java_text(self, text: str) -> Any:
        literal = self._jvm.org.apache.spark.sql.catalyst.expressions.Literal
        return literal(text, self._java_type(_TEXT))

    def _java_type(self, name: str) -> Any:
        return self._jvm.org.apache.spark.sql.types.ObjectType(self._class(name))

    def _class(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(name)

    def _type(self, name: str) -> Any:
        return self._jvm.org.apache.spark.sql.types.DataType.fromDDL(name)

    def _sequence(self, items: list[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(items)

    def _none(self) -> Any:
        return self._jvm.scala.Option.empty()
