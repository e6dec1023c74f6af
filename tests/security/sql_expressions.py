"""A Spark application that has the gate judge expressions, and evaluates those that it lets through.

One start of Spark serves all tests of a module: the request names all expressions, and the outcome has one
answer for each. Hostile expressions are judged first and never evaluated. If the gate lets one of them
through, the application ends there, because Spark might evaluate the others for hours.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runtime.launch.command import run_once

JAVA = "java: "  # in front of an expression that Spark evaluates without the gate, with Java's regexes
TIME = "time: "  # in front of the text of a TIMESTAMP in a JSON value
ALONE = "alone: "  # in front of an expression that fails on the record
ROW = """
    SELECT
      named_struct('id', 7L, 's', 'Ann@example.com', 'n', 300, 'x', 2.5D, 'ok', true, 'b', X'6162',
        'day', DATE '2026-01-31', 'at', TIMESTAMP '2026-01-31 10:20:30', 'tags', array('b', 'a', 'c'),
        'm', map('k', 'v'), 'none', CAST(NULL AS STRING), 'json', '{"a": 1, "b": {"c": "x"}}',
        'amount', 12.50, 'long', repeat('a', 60000), 'text', 'one, two') AS value,
      'key-1' AS key, map('h', 'x') AS headers, 'orders' AS topic, 3 AS partition, 42L AS offset,
      TIMESTAMP '2026-01-31 10:20:30.5' AS timestamp, 0 AS timestamp_type
"""


def judged(folder: Path, texts: list[str], hostile: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns by expression: `refused` with its place, or `value`; and `seconds`."""
    asked, out = folder / "asked.json", folder / "out.json"
    asked.write_text(json.dumps({"hostile": list(hostile), "texts": texts}))
    arguments = [str(asked), str(out)]
    asyncio.run(
        run_once(Path(__file__), arguments, said=print, prefix="gate: ", deadline_s=300, variables=())
    )
    found: dict[str, dict[str, Any]] = json.loads(out.read_text())
    return found


def main(asked: Path, out: Path) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    from runtime.contract.spec.transform import FormatSpec, TransformSpec
    from runtime.sql.functions import RefusedExpression
    from runtime.sql.gate import expression
    from runtime.sql.query import EVERYTHING, SETTINGS, known_columns, session_of
    from runtime.sql.rows import FLUSH, KEY, VALUE

    SparkContext._ensure_initialized()
    context = SparkContext.getOrCreate(SparkConf().setAppName("gate"))
    context.setLogLevel("OFF")
    session = session_of(context, SETTINGS)
    # A row of an RDD is no constant, so that Spark evaluates as it does for records.
    row = session.sql(ROW)
    rows = session.createDataFrame(row.rdd, row.schema).cache()
    rows.count()
    request = json.loads(asked.read_text())
    found: dict[str, dict[str, Any]] = {text: _judged(rows, text) for text in request["hostile"]}
    if not all("refused" in answer for answer in found.values()):
        out.write_text(json.dumps(found))
        return
    kept: list[tuple[str, Any]] = []
    of_times = TransformSpec(value=FormatSpec(format="json", schema="at TIMESTAMP"))
    for text in request["texts"]:
        answer = found[text] = {}
        if text.startswith(TIME):
            record = F.lit(json.dumps({"at": text.removeprefix(TIME)})).cast("binary")
            empty = {KEY: F.lit(None).cast("binary"), FLUSH: F.lit(None).cast("boolean")}
            read = rows.withColumns({VALUE: record, **empty})
            ((value,),) = known_columns(read, of_times, EVERYTHING).select("value.at").collect()
            answer["value"] = _shown(value)
            continue
        try:
            if text.startswith(ALONE):
                answer["value"] = _value(rows, expression(rows, text.removeprefix(ALONE)))
                continue
            own = text.removeprefix(JAVA)
            kept.append((text, expression(rows, own) if own == text else F.expr(own)))
        except (RefusedExpression, PySparkException) as error:
            answer["refused"] = str(error)
    # Together they need one query, unless one of them fails on the record.
    names = [f"c{at}" for at in range(len(kept))]
    try:
        together = rows.select(*(column.alias(name) for name, (_, column) in zip(names, kept, strict=True)))
        values = list(together.collect()[0])
    except PySparkException:
        values = [_value(rows, column) for _, column in kept]
    for (text, _), value in zip(kept, values, strict=True):
        found[text]["value"] = _shown(value)
    out.write_text(json.dumps(found))


def _judged(rows: Any, text: str) -> dict[str, Any]:
    from pyspark.errors import PySparkException

    from runtime.sql.functions import RefusedExpression
    from runtime.sql.gate import expression

    answer: dict[str, Any] = {}
    began = time.monotonic()
    try:
        expression(rows, text)
    except RefusedExpression as error:
        answer = {"refused": str(error), "place": [error.line, error.column]}
    except PySparkException as error:
        answer["refused"] = str(error)
    return answer | {"seconds": time.monotonic() - began}


def _value(rows: Any, column: Any) -> Any:
    from pyspark.errors import PySparkException

    try:
        ((value,),) = rows.select(column).collect()
    except PySparkException as error:
        return f"FAILS {str(error).splitlines()[0]}"
    return value


def _shown(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, datetime):  # Spark gives it in the time zone of this machine
        value = value.astimezone(UTC)
    return value if value is None or isinstance(value, str | int | bool | float) else str(value)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
