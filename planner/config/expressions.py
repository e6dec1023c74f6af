"""Computes Jinja2 expressions in a sandbox: they call nothing and read nothing but variables.

Imported only when a topology holds an expression that is more than a variable's name.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jinja2 import StrictUndefined, Undefined, meta, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError, UndefinedError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from planner.config.bounds import (
    LONGEST_RESULT,
    MOST_SOURCE,
    MOST_WORK,
    SOURCE_OF_ONE,
    BoundExceeded,
    RemainingBound,
    TopologyBoundExceeded,
    refuse_longer,
    size,
)
from planner.config.language.scalars import text_of

MOST_DIGITS = 20  # that round() may keep
FILTERS = (
    "abs",
    "capitalize",
    "default",
    "first",
    "float",
    "int",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "max",
    "min",
    "replace",
    "reverse",
    "round",
    "sort",
    "string",
    "sum",
    "title",
    "trim",
    "unique",
    "upper",
)


class NotComputable(ValueError):
    """An expression has no value. `unknown` is the undefined name, if that is the reason."""

    def __init__(self, what: str, unknown: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.unknown = unknown


class _Generator(CodeGenerator):
    """Passes `~` through the sandbox, like other operators."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802  Jinja2's name
        self.write("environment.concatenated((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class _Sandbox(ImmutableSandboxedEnvironment):
    """Allows no calls, a few filters, and no operation whose result could fill the memory.

    An expression is a tree: each value is made once and used once. So it is enough to count each value when
    it is made, and each variable as often as it is named.
    """

    code_generator_class = _Generator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined, autoescape=False, finalize=self.output, keep_trailing_newline=True
        )
        self.work = RemainingBound(MOST_WORK, "all expressions together read and make")
        self.written = 0
        self.filters = {name: self._counted(name, self.filters[name]) for name in FILTERS}
        self.globals.clear()

    def output(self, value: Any) -> Any:
        """Returns booleans and null as YAML writes them. Raises BoundExceeded for a text that is too long."""
        if isinstance(value, Undefined):
            return value
        text = text_of(value)
        self.written += len(text)
        refuse_longer(self.written)
        return text

    def made(self, value: Any) -> Any:
        """Counts an intermediate value."""
        amount = size(value)
        refuse_longer(amount)
        self.work.take(amount)
        return value

    def concatenated(self, parts: Iterable[Any]) -> str:
        texts = [str(part) for part in parts]
        refuse_longer(sum(map(len, texts)))
        return str(self.made("".join(texts)))

    def _counted(self, name: str, jinjas: Callable[..., Any]) -> Callable[..., Any]:
        check = _BEFORE.get(name)

        @functools.wraps(jinjas)
        def run(*arguments: Any, **named: Any) -> Any:
            if check is not None:
                check(*arguments, **named)
            result = jinjas(*arguments, **named)
            return self.made(list(result) if isinstance(result, Iterator) else result)

        return run

    def is_safe_callable(self, obj: Any) -> bool:
        return False

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        numbers = all(isinstance(operand, int | float) for operand in (left, right))
        if operator == "+" and not numbers:
            refuse_longer(size(left) + size(right))
            return self.made(left + right)
        if not numbers:
            raise SecurityError(f"{operator} is for numbers only")
        if operator == "**" and (abs(left) > 1_000 or abs(right) > 20):
            raise SecurityError("a power too large")
        return super().call_binop(context, operator, left, right)


def _before_replace(_: Any, text: Any, old: Any, new: Any, count: Any = None) -> None:
    whole, part, other = str(text), str(old), str(new)
    times = whole.count(part)
    if count is not None and int(count) >= 0:
        times = min(times, int(count))
    refuse_longer(len(whole) + times * (len(other) - len(part)))


def _before_join(_: Any, values: Any, between: Any = "", attribute: Any = None) -> None:
    how_many = len(values) if hasattr(values, "__len__") else 0
    refuse_longer(size(values) + how_many * len(str(between)))


def _before_round(_: Any, precision: Any = 0, method: Any = "common") -> None:
    if not isinstance(precision, int) or abs(precision) > MOST_DIGITS:
        raise SecurityError(f"round keeps at most {MOST_DIGITS} digits")


def _before_sum(_: Any, values: Any, attribute: Any = None, start: Any = 0) -> None:
    if not isinstance(start, int | float):
        raise SecurityError("sum is for numbers only")


# Checks that run before those of Jinja2's filters whose result may be far larger than their input.
_BEFORE: Mapping[str, Callable[..., None]] = {
    "replace": _before_replace,
    "join": _before_join,
    "round": _before_round,
    "sum": _before_sum,
}


class Expressions:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)
        self._environment = _Sandbox()
        self._source = RemainingBound(MOST_SOURCE, "all different expressions together have characters:")
        self._sizes: dict[str, int] = {}
        self._last: tuple[str, nodes.Template] | None = None

    def names(self, template: str) -> set[str]:
        """Returns the variables that a template names; none if it can't be parsed."""
        try:
            return set(meta.find_undeclared_variables(self._parsed(template)))
        except (TemplateError, RecursionError):
            return set()

    def value(self, expression: str) -> Any:
        """Returns the value of one expression, with its type."""
        return self._guarded(expression, f"{{{{{expression}}}}}", typed=True)

    def text(self, template: str) -> str:
        """Returns text with every expression in it replaced."""
        return str(self._guarded(template, template, typed=False))

    def _parsed(self, template: str) -> nodes.Template:
        """Returns the parsed template. Only the last one is kept."""
        if self._last is None or self._last[0] != template:
            self._last = template, self._environment.parse(template)
        return self._last[1]

    def _values_of(self, template: str) -> dict[str, Any]:
        """Returns the variables that a template names, and counts each as often as it is named.

        Jinja2 copies all variables that it is given, for each template.
        """
        self._source.take(len(template) + SOURCE_OF_ONE)
        values: dict[str, Any] = {}
        try:
            parsed = self._parsed(template)
        except TemplateSyntaxError:
            return values  # compiling it says what is wrong
        for name in parsed.find_all(nodes.Name):
            if name.name not in self._values:
                continue
            values[name.name] = self._values[name.name]
            if name.name not in self._sizes:
                self._sizes[name.name] = size(self._values[name.name])
            if self._sizes[name.name] > LONGEST_RESULT:
                raise BoundExceeded(
                    f'the variable "{name.name}" holds more than {LONGEST_RESULT:,} characters or values'
                )
            self._environment.work.take(self._sizes[name.name])
        return values

    def _guarded(self, source: str, template: str, *, typed: bool) -> Any:
        self._environment.written = 0
        try:
            values = self._values_of(template)
            if typed:
                result = self._environment.compile_expression(source, undefined_to_none=False)(**values)
                if isinstance(result, Undefined):
                    str(result)
            else:
                result = self._environment.from_string(source).render(values)
        except TemplateSyntaxError as wrong:
            raise NotComputable(f"not an expression: {str(wrong.message).rstrip('.')}") from None
        except UndefinedError as wrong:
            unknown = sorted(name for name in self.names(template) if name not in self._values)
            raise NotComputable(str(wrong), unknown[0] if unknown else None) from None
        except TopologyBoundExceeded:
            raise
        except BoundExceeded as wrong:
            raise NotComputable(str(wrong)) from None
        except SecurityError as wrong:
            calls = "not safely callable" in str(wrong)
            raise NotComputable("nothing can be called in an expression" if calls else str(wrong)) from None
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError):
            # The words of these may hold a value, and a value may be a secret.
            raise NotComputable("it can't be computed from the values of its variables") from None
        except (RecursionError, SyntaxError, MemoryError):
            raise NotComputable("it is too deep") from None
        return result
