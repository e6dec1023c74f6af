"""Loads the classes that a job loads, in a Spark application that is run for the archive of these classes.

It evaluates a task in Python, and a query with an expression and Python.
"""

from __future__ import annotations

import sys

sys.path.pop(0)  # the script's own folder: its modules must not be imported as top-level names


def main() -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext.getOrCreate()
    context.parallelize([0], 1).mapPartitions(list).collect()
    rows = SparkSession(context).range(3).selectExpr("id", "upper(cast(id as string)) text").filter("id > 0")
    rows.mapInArrow(lambda batches: batches, rows.schema).collect()
    context.stop()


if __name__ == "__main__":
    main()
