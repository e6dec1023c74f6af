"""Lets through the expressions that a transform may have, and makes Spark's columns of them.

An expression is text of a topology, so it is judged before Spark analyzes it. It is parsed alone: without the
substitution of variables, a catalog, or the evaluation of constants. The tree may only hold what is listed
here: kinds of nodes, the functions of `functions`, columns of a record, types and literals. Then Spark
analyzes exactly the tree that was judged, and the result is judged again where it depends on the moment.

Regexes are matched by RE2 (`regexes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

from runtime.contract.spec.selection import regex
from runtime.sql.functions import (
    DEEPEST,
    LONGEST_QUADRATIC,
    LONGEST_TEXT,
    MOST_CHARACTERS,
    MOST_NODES,
    MOST_TIMES,
    SMALL,
    RefusedExpression,
    Size,
    functions,
    like_regex,
    replacement_problem,
    replaces_in_linear_time,
)
from runtime.sql.query_input import ITEM_BYTES
from runtime.sql.regexes import RegexNodes

COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestamp_type")
CORRUPT = "__corrupt"  # the field that takes what does not match a schema: no expression reads it
_DOCS = "docs/transform.md lists what an expression may have"

_LONGEST_SCHEMA, _DEEPEST_SCHEMA = 1 << 20, 150
_PART_BYTES = 32  # of a text in an array, without its characters

_CATALYST = "org.apache.spark.sql.catalyst"
# Nodes whose results are numbers, times or booleans, and those whose results hold what they are made of.
_SMALL_RESULTS = frozenset(
    (
        *("And", "Or", "Not", "In", "IsNull", "IsNotNull", "EqualTo", "EqualNullSafe"),
        *("LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"),
        *("Add", "Subtract", "Multiply", "Divide", "IntegralDivide", "Remainder"),
        *("UnaryMinus", "UnaryPositive", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"),
        *("ShiftLeft", "ShiftRight", "ShiftRightUnsigned"),
        *("StringLocate", "TimestampAdd", "TimestampDiff"),
    )
)
_BUILDERS = frozenset(
    (
        *("CaseWhen", "Concat", "CreateNamedStruct", "Overlay"),
        *("StringTrim", "StringTrimLeft", "StringTrimRight", "Substring"),
    )
)
_LAMBDAS = frozenset({"exists", "filter", "forall", "transform"})
_TYPES = re.compile(
    r'"(boolean|byte|short|integer|long|float|double|decimal\(\d+,\d+\)|string|binary|date|timestamp|timestamp_ntz)"'
)
_LITERAL_TYPES = re.compile(
    r'"(void|boolean|byte|short|integer|long|float|double|decimal\(\d+,\d+\)|string|binary|interval [a-z ]+)"'
)
_DAY = r"\d{4}-\d\d-\d\d"
_MOMENT = rf"{_DAY}([ T]\d\d:\d\d(:\d\d(\.\d{{1,6}})?)?(Z|[+-]\d\d:\d\d)?)?"
_TYPED_LITERAL = re.compile(rf"(?i:DATE)\s*'{_DAY}'|(?i:TIMESTAMP(_NTZ|_LTZ)?)\s*'{_MOMENT}'")
_WRITTEN_DAY, _WRITTEN_MOMENT = re.compile(_DAY), re.compile(_MOMENT)
# Patterns of LIKE that Spark evaluates without a regex.
_SIMPLE_LIKE = re.compile(r"%?[^%_\\]*%?|[^%_\\]+%[^%_\\]+")

_LIKES = ("Like", "ILike", "RLike")
_PACKAGES = (f"{_CATALYST}.expressions", f"{_CATALYST}.analysis")
_TREES = f"{_CATALYST}.trees.TreePattern"
# What an analyzed expression may not contain, by the names of Spark's tree patterns.
_REFUSED_PATTERNS = {
    "CURRENT_LIKE": "depends on the time or the session: two evaluations of a record could differ",
    "PLAN_EXPRESSION": "is a subquery: a record is evaluated by itself",
    "PYTHON_UDF": "calls a Python function",
}
_RANDOM = "is not deterministic: two evaluations of a record could differ"


def expression(rows: DataFrame, text: str) -> Column:
    """Returns the column of an expression over the rows.

    This is the only place where text of a transform becomes a part of a query. Raises RefusedExpression, and
    PySparkException where Spark's analyzer refuses it.
    """
    session = rows.sparkSession
    made = _Walk(session, text).tree()
    jvm: Any = session._jvm
    column = ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(made))
    _judge_analyzed(session, rows.select(column)._jdf.queryExecution().analyzed(), text)
    return column


def made_times(session: SparkSession, texts: Iterable[str]) -> float:
    """Returns how many times as large as a record that is which these expressions make of it, at least 1.

    The JVM of a job is small. What expressions make of a large record may not fit into it, and a JVM without
    memory ends the whole job. Raises RefusedExpression and PySparkException.
    """
    return max(sum(_Walk(session, text).times() for text in texts), 1.0)


@dataclass(slots=True)
class _Judged:
    """A node that was let through, as Spark will analyze it, and the value of a literal."""

    node: Any
    size: Size
    literal: Any = None
    is_literal: bool = False


class _Walk:
    """Parses a text and judges its tree, from the root to the leaves."""

    def __init__(self, session: SparkSession, text: str) -> None:
        self._session = session
        self._jvm: Any = session._jvm
        self._regexes = RegexNodes(self._jvm)
        self._text = text
        self._nodes = 0
        self._memory = 0.0  # of arrays on the way to the result, in times of the record

    def tree(self) -> Any:
        """Returns the tree of an expression. Raises RefusedExpression and PySparkException."""
        return self._judged().node

    def times(self) -> float:
        """Returns how many times as large as the record what is made of it may be. Raises as `tree` does."""
        return self._judged().size.times + self._memory

    def _judged(self) -> _Judged:
        made = self._node(self._parsed(), 1, None)
        _check_size(made.size)
        return made

    def _parsed(self) -> Any:
        text = self._text
        if len(text) > LONGEST_TEXT:
            raise RefusedExpression(f"is longer than {LONGEST_TEXT:,} characters")
        if (at := _brackets(text, DEEPEST)) is not None:
            raise RefusedExpression(f"has more than {DEEPEST} brackets within one another", 1, at + 1)
        # SparkSqlParser would put the values of variables into the text first; this parser does not.
        classic = self._jvm.org.apache.spark.sql.classic.SparkSession
        classic.setActiveSession(self._session._jsparkSession)  # the parser reads its settings
        try:
            return self._jvm.org.apache.spark.sql.catalyst.parser.CatalystSqlParser().parseExpression(text)
        except PySparkException:
            raise
        except Py4JError as error:
            if "StackOverflowError" in str(error):
                raise RefusedExpression(f"has more than {DEEPEST} parts within one another") from None
            raise RefusedExpression("can't be parsed: a number in it is too large") from None

    def _node(self, node: Any, depth: int, variables: frozenset[str] | None) -> _Judged:
        """Judges a node. `variables` are those of the lambda that it stands in."""
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise RefusedExpression(f"has more than {MOST_NODES:,} parts")
        if depth > DEEPEST:
            raise self._refused(node, f"more than {DEEPEST} parts stand within one another")
        kind = _kind(node)
        match kind:
            case "Literal":
                return self._literal(node)
            case "UnresolvedAttribute":
                return self._column(node, variables)
            case "UnresolvedNamedLambdaVariable":
                return self._variable(node, variables)
            case "UnresolvedFunction":
                return self._function(node, depth, variables)
            case "Like" | "ILike" | "RLike":
                return self._matched(node, kind, depth, variables)
            case "Cast" if not _TYPES.fullmatch(node.dataType().json()):
                raise self._refused(node, "a cast to this type is not supported")
        judged = self._children(node, depth, variables)
        made = self._rebuilt(node, judged)
        if kind in _SMALL_RESULTS:
            return _Judged(made, SMALL)
        if kind == "UnresolvedExtractValue":
            if isinstance(judged[1].literal, str) and judged[1].literal.lower() == CORRUPT:
                raise self._refused(node, f"there is no field {CORRUPT}")
            return _Judged(made, judged[0].size)
        size = sum((child.size for child in judged), SMALL if kind == "Cast" else Size())
        _check_size(size)
        return _Judged(made, size)

    def _children(self, node: Any, depth: int, variables: frozenset[str] | None) -> list[_Judged]:
        """Judges the children of a node of a kind that is let through. Raises RefusedExpression."""
        kind = _kind(node)
        if kind not in _SMALL_RESULTS | _BUILDERS | {"Cast", "UnresolvedExtractValue", *_LIKES}:
            what = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.rpartition(".")[2]).lower()
            raise self._refused(node, f"{what} is not supported")
        judged: list[_Judged] = []
        for child in _items(node.children()):
            if kind == "CreateNamedStruct" and _kind(child) == "Alias":  # struct(x AS name)
                inner = self._node(child.children().apply(0), depth + 1, variables)
                judged.append(_Judged(self._rebuilt(child, [inner]), inner.size))
            else:
                judged.append(self._node(child, depth + 1, variables))
        return judged

    def _rebuilt(self, node: Any, children: list[_Judged]) -> Any:
        """Returns the node with these children, which are its own unless one of them was replaced."""
        if not self._regexes.made:  # most expressions have none, and each call to the JVM costs
            return node
        old = list(_items(node.children()))
        if all(mine.equals(new.node) for mine, new in zip(old, children, strict=True)):
            return node
        return node.withNewChildren(self._jvm.PythonUtils.toSeq([child.node for child in children]))

    def _literal(self, node: Any) -> _Judged:
        kind = node.dataType().json()
        if kind in ('"date"', '"timestamp"', '"timestamp_ntz"'):
            # Spark's parser has replaced 'today' by the day, so its text tells.
            begin, end = node.origin().startIndex(), node.origin().stopIndex()
            written = self._text[begin.get() : end.get() + 1] if begin.isDefined() else ""
            if not _TYPED_LITERAL.fullmatch(written):
                raise self._refused(
                    node,
                    "a DATE or TIMESTAMP is written as DATE '2026-01-31' or TIMESTAMP '2026-01-31 10:00:00'",
                )
            return _Judged(node, SMALL)
        if not _LITERAL_TYPES.fullmatch(kind):
            raise self._refused(node, "a literal of this type is not supported")
        value = node.value()
        if kind == '"string"':
            value = str(value)
        size = len(value) if isinstance(value, str | bytes | bytearray) else 40
        value = bytes(value) if isinstance(value, bytearray) else value
        return _Judged(node, Size(0, size), value, is_literal=True)

    def _column(self, node: Any, variables: frozenset[str] | None) -> _Judged:
        names = [str(part) for part in _items(node.nameParts())]
        if variables is not None:
            raise self._refused(node, f"{names[0]} is no variable of its lambda, which may read those alone")
        if names[0].lower() not in COLUMNS:
            raise self._refused(node, f"{names[0]} is no column: they are {', '.join(COLUMNS)}")
        if CORRUPT in map(str.lower, names):
            raise self._refused(node, f"{names[0]} has no field {CORRUPT}")
        return _Judged(node, Size(1))

    def _variable(self, node: Any, variables: frozenset[str] | None) -> _Judged:
        names = [str(part) for part in _items(node.nameParts())]
        if variables is None or names[0].lower() not in variables:
            raise self._refused(node, f"{names[0]} is no variable of its lambda, which may read those alone")
        return _Judged(node, Size(1))

    def _function(self, node: Any, depth: int, variables: frozenset[str] | None) -> _Judged:
        names = [str(part) for part in _items(node.nameParts())]
        name = names[-1].lower()
        function = functions().get(name) if len(names) == 1 else None
        if function is None:
            raise self._refused(node, f"the function {'.'.join(names)} is not supported ({_DOCS})")
        plain = not node.isDistinct() and node.filter().isEmpty() and node.orderingWithinGroup().isEmpty()
        if not plain or str(node.ignoreNulls()) not in ("None", "False", "false"):
            raise self._refused(node, f"{name} takes arguments alone")
        arguments = list(_items(node.children()))
        if problem := function.problem(len(arguments)):
            raise self._refused(node, problem)
        judged: list[_Judged] = []
        for at, argument in enumerate(arguments):
            if name in _LAMBDAS and at == 1:
                judged.append(self._lambda(argument, depth + 1, variables))
                continue
            judged_argument = self._node(argument, depth + 1, variables)
            if (rule := function.rule(at)) is not None:
                wanted = rule[1](judged_argument.literal) if judged_argument.is_literal else "a literal"
                if wanted:
                    raise self._refused(argument, f"{rule[0]} of {function.signature} must be {wanted}")
            judged.append(judged_argument)
        self._check_function(node, name, judged)
        size = function.size(
            [argument.size for argument in judged], [argument.literal for argument in judged]
        )
        _check_size(size)
        return _Judged(self._matching(name, judged) or self._rebuilt(node, judged), size)

    def _check_function(self, node: Any, name: str, arguments: list[_Judged]) -> None:
        """Raises RefusedExpression for literals that do not go together."""
        literals = [argument.literal for argument in arguments]
        if name == "regexp_replace" and (why := replacement_problem(literals[1], literals[2])):
            raise self._refused(node, why)
        if name == "regexp_extract" and (group := (*literals, 1)[2]) > (groups := regex(literals[1]).groups):
            raise self._refused(node, f"regexp_extract takes the group {group}, and the regex has {groups}")
        if name == "aes_encrypt" and len(literals[4]) != (16 if literals[2].upper() == "CBC" else 12):
            raise self._refused(node, "iv is 12 bytes for GCM, and 16 bytes for CBC")
        if name == "from_json":
            try:
                schema = read_schema(literals[1], texts_of_time=False)
            except PySparkException:
                schema = StructType([])
            if isinstance(schema, StructType) and not schema.fields:
                raise self._refused(node, "schema of from_json must be fields, as id BIGINT, name STRING")
            if widest := widest_item(schema):
                self._memory += arguments[0].size.times * ITEM_BYTES * (1 + widest / 3)
        if name == "split":
            self._memory += arguments[0].size.times * _PART_BYTES / len(literals[1])

    def _lambda(self, node: Any, depth: int, variables: frozenset[str] | None) -> _Judged:
        if _kind(node) != "LambdaFunction" or variables is not None:
            raise self._refused(
                node, "a lambda such as item -> item > 1 stands here, and none within another"
            )
        body, *declared = _items(node.children())
        names = frozenset(str(variable.nameParts().apply(0)).lower() for variable in declared)
        judged = self._node(body, depth + 1, names)
        unchanged = [_Judged(variable, Size()) for variable in declared]
        return _Judged(self._rebuilt(node, [judged, *unchanged]), judged.size)

    def _matched(self, node: Any, kind: str, depth: int, variables: frozenset[str] | None) -> _Judged:
        """Judges LIKE, ILIKE and RLIKE."""
        judged = self._children(node, depth, variables)
        text, pattern = judged
        if not pattern.is_literal or not isinstance(pattern.literal, str):
            raise self._refused(node, f"the pattern of {kind.upper()} must be a literal text")
        if kind == "RLike":
            (_, rule) = functions()["rlike"].rule(1) or ("", str)
            if why := rule(pattern.literal):
                raise self._refused(node, f"the pattern of RLIKE must be {why}")
            return _Judged(self._matching("rlike", judged), SMALL)
        escape = str(node.escapeChar())
        if kind == "Like" and escape == "\\" and _SIMPLE_LIKE.fullmatch(pattern.literal):
            return _Judged(self._rebuilt(node, judged), SMALL)
        pattern_regex = like_regex(pattern.literal, escape)
        if pattern_regex is None or len(pattern.literal) > 1_000:
            raise self._refused(
                node, f"the pattern of {kind.upper()} has {escape} before another sign than %, _ or {escape}"
            )
        flags = "(?i)" if kind == "ILike" else ""
        return _Judged(self._regexes.found(text.node, rf"{flags}\A(?:{pattern_regex})\z"), SMALL)

    def _matching(self, name: str, judged: list[_Judged]) -> Any:
        """Returns the node that RE2 evaluates in place of a function; None where it takes no regex."""
        if name in ("rlike", "regexp", "regexp_like"):
            return self._regexes.found(judged[0].node, judged[1].literal)
        if name == "regexp_replace":
            made = self._regexes.replaced(judged[0].node, judged[1].literal, "replaceAll", judged[2].literal)
            is_linear = replaces_in_linear_time(judged[1].literal)
            return made if is_linear else self._regexes.of_short(judged[0].node, made, LONGEST_QUADRATIC)
        if name == "regexp_extract":
            group = judged[2].literal if len(judged) > 2 else 1
            inner = judged[1].literal
            whole = rf"\A(?s:.*?)(?:({inner})(?s:.*)|\z)"
            return self._regexes.replaced(judged[0].node, whole, "replaceFirst", f"${group + 1}")
        return None

    def _refused(self, node: Any, why: str) -> RefusedExpression:
        line, column = node.origin().line(), node.origin().startPosition()
        if not line.isDefined() or not column.isDefined():
            return RefusedExpression(why)
        return RefusedExpression(why, line.get(), column.get() + 1)


def _kind(node: Any) -> str:
    """Returns the class of a node of Spark's parser: its own name, or the full name of a class elsewhere."""
    name: str = node.getClass().getName()
    package, _, simple_name = name.rpartition(".")
    return simple_name if package in _PACKAGES else name


def _items(sequence: Any) -> Iterator[Any]:
    """Yields the items of a Seq of Scala."""
    for at in range(sequence.size()):
        yield sequence.apply(at)


def _check_size(size: Size) -> None:
    if not size.bounded:
        raise RefusedExpression(
            f"can make a text that is more than {MOST_TIMES} times as long as the record, or of more than"
            f" {MOST_CHARACTERS:,} characters beside it"
        )


def _judge_analyzed(session: SparkSession, plan: Any, text: str) -> None:
    """Raises RefusedExpression where the analyzed expression depends on more than the record."""
    patterns = getattr(session._jvm, _TREES)
    for root in _items(plan.expressions()):  # of the last step alone: the rows may come from Python
        for name, why in _REFUSED_PATTERNS.items():
            if root.containsPattern(getattr(patterns, name)()):
                raise RefusedExpression(f"{text[:200]} {why}")
        if not root.deterministic():
            raise RefusedExpression(f"{text[:200]} {_RANDOM}")
        _judge_casts(root)


def _judge_casts(node: Any) -> None:
    """Raises RefusedExpression where a text is read as a time, as far as that may mean the present day.

    Spark reads 'now' and 'today' in constants, and a time without a date in any text.
    """
    children = list(_items(node.children()))
    if _kind(node) == "Cast":
        child, target = children[0], node.dataType().typeName()
        if child.dataType().typeName().startswith("string") and target.startswith(
            ("date", "timestamp", "time")
        ):
            literal = _kind(child) == "Literal"
            shape = _WRITTEN_DAY if target == "date" else _WRITTEN_MOMENT
            written = literal and shape.fullmatch(str(child.value())) is not None
            if not written and (target != "date" or child.foldable()):
                raise RefusedExpression(
                    f"reads a text as a {target.upper()}, which can mean the present day: use"
                    " to_timestamp(text, 'yyyy-MM-dd HH:mm:ss') or to_date(text, 'yyyy-MM-dd')"
                )
    for child in children:
        _judge_casts(child)


_FIELD_TYPES = (
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)


def read_schema(text: str, *, texts_of_time: bool = True) -> DataType:
    """Returns the schema that a text in DDL declares. Raises RefusedExpression and PySparkException."""
    if len(text) > _LONGEST_SCHEMA:
        raise RefusedExpression(f"a schema has more than {_LONGEST_SCHEMA:,} characters")
    if _brackets(text, _DEEPEST_SCHEMA) is not None:
        raise RefusedExpression(f"a schema has more than {_DEEPEST_SCHEMA} brackets within one another")
    schema = StructType.fromDDL(text)
    _check_type(schema, texts_of_time=texts_of_time)
    return schema


def widest_item(kind: DataType, *, many: bool = False) -> int:
    """Returns how many fields an item of the arrays and maps in a schema has at most.

    It is 1 where such items are no structs, and 0 where there are no arrays and maps.
    """
    match kind:
        case StructType():
            width = len(kind.fields) if many else 0
            return max([width, *(widest_item(field.dataType, many=many) for field in kind.fields)])
        case ArrayType():
            return max(1, widest_item(kind.elementType, many=True))
        case MapType():
            return max(1, widest_item(kind.keyType, many=True), widest_item(kind.valueType, many=True))
        case _:
            return 0


def _brackets(text: str, most: int) -> int | None:
    """Returns where more than so many brackets are open; None where there are never so many."""
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign in "([{<") - (sign in ")]}>")
        if depth > most:
            return at
    return None


def _check_type(kind: DataType, *, texts_of_time: bool) -> None:
    """Raises RefusedExpression for a type that no value has."""
    match kind:
        case StructType():
            for field in kind.fields:
                if field.metadata.keys() - {"comment", "__COLLATIONS"}:
                    raise RefusedExpression(f"the field {field.name} may only have a type and a comment")
                _check_type(field.dataType, texts_of_time=texts_of_time)
        case ArrayType():
            _check_type(kind.elementType, texts_of_time=texts_of_time)
        case MapType():
            _check_type(kind.keyType, texts_of_time=texts_of_time)
            _check_type(kind.valueType, texts_of_time=texts_of_time)
        case TimestampType() | TimestampNTZType() if not texts_of_time:
            raise RefusedExpression("from_json reads no TIMESTAMP: read a STRING, and use to_timestamp")
        case _ if not isinstance(kind, _FIELD_TYPES):
            raise RefusedExpression(f"the type {kind.simpleString().upper()} is not supported")
