"""Jinja2 expressions, computed in a sandbox: values in, a value out; nothing is called, nothing is read.

Imported only when a topology holds an expression that is more than a variable's name.
"""

from collections.abc import Mapping
from typing import Any

from jinja2 import StrictUndefined, Undefined, meta
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError, UndefinedError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

LONGEST_RESULT = 100_000
LARGEST_NUMBER = 2**63
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
    """Why an expression has no value. `unknown` is the name that nothing defines."""

    def __init__(self, what: str, unknown: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.unknown = unknown


class _Sandbox(ImmutableSandboxedEnvironment):
    """No calls at all, a few filters, and no operation whose result could fill the memory."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def is_safe_callable(self, obj: Any) -> bool:
        return False

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        numbers = all(isinstance(one, int | float) for one in (left, right))
        if not numbers:
            raise SecurityError(f"{operator} is for numbers only")
        if operator == "**" and (abs(left) > 1_000 or abs(right) > 20):
            raise SecurityError("a power too large")
        return super().call_binop(context, operator, left, right)


def _environment() -> _Sandbox:
    made = _Sandbox(undefined=StrictUndefined, autoescape=False, finalize=as_text, keep_trailing_newline=True)
    made.filters = {name: made.filters[name] for name in FILTERS}
    made.globals.clear()
    return made


def as_text(value: Any) -> Any:
    """Booleans and nothing as YAML writes them."""
    if value is True or value is False:
        return "true" if value else "false"
    return "" if value is None else value


class Expressions:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)
        self._environment = _environment()

    def names(self, template: str) -> set[str]:
        """The variables that a template speaks of; none where it can't be read."""
        try:
            return set(meta.find_undeclared_variables(self._environment.parse(template)))
        except (TemplateError, RecursionError):
            return set()

    def value(self, expression: str) -> Any:
        """What one expression comes to, with its type."""
        return self._guarded(expression, f"{{{{{expression}}}}}", typed=True)

    def text(self, template: str) -> str:
        """Text with every expression in it replaced."""
        return str(self._guarded(template, template, typed=False))

    def _guarded(self, source: str, template: str, *, typed: bool) -> Any:
        try:
            if typed:
                result = self._environment.compile_expression(source, undefined_to_none=False)(**self._values)
                if isinstance(result, Undefined):
                    str(result)
            else:
                result = self._environment.from_string(source).render(self._values)
        except TemplateSyntaxError as wrong:
            raise NotComputable(f"not an expression: {str(wrong.message).rstrip('.')}") from None
        except UndefinedError as wrong:
            unknown = sorted(self.names(template) - set(self._values))
            raise NotComputable(str(wrong), unknown[0] if unknown else None) from None
        except SecurityError as wrong:
            calls = "not safely callable" in str(wrong)
            raise NotComputable("nothing can be called in an expression" if calls else str(wrong)) from None
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError):
            # The words of these may hold a value, and a value may be a secret.
            raise NotComputable("it can't be computed from the values of its variables") from None
        except (RecursionError, SyntaxError, MemoryError):
            raise NotComputable("it is too deep") from None
        if isinstance(result, str) and len(result) > LONGEST_RESULT:
            raise NotComputable(f"it comes to more than {LONGEST_RESULT:,} characters")
        return result
