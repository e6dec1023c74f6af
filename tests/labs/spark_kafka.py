"""A Spark Structured Streaming query that reads Kafka by Spark's own source, in a process of its own.

    python tests/labs/spark_kafka.py BOOTSTRAP TOPICS CHECKPOINT OUTPUT SETTINGS [FAILING_BATCH]

It reads what is there, in batches of 40 records, and writes each into a file OUTPUT/BATCH.json: lines of
topic, partition, offset and value. The failing batch ends the query after its file was written. SETTINGS are
those of the Kafka client, as JSON.
"""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from runtime.java import find_java
from runtime.lab import kit
from runtime.lab.kit import IvyDependency, IvyRequest

VERSION = "4.2.0"  # 4.3.0 is not published yet
JARS = IvyRequest(
    f"spark-sql-kafka-{VERSION}",
    (
        IvyDependency("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
        IvyDependency("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", VERSION),
        IvyDependency("org.apache.kafka", "kafka-clients", "3.9.2"),
        IvyDependency("org.apache.commons", "commons-pool2", "2.13.1"),
    ),
    count=4,
    pins=Path(__file__).with_name("jars.sha256"),
)


NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


def run(
    bootstrap: str,
    topics: str,
    checkpoint: Path,
    output: Path,
    failing_batch: int | None = None,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> subprocess.CompletedProcess[str]:
    """Runs the query to its end."""
    output.mkdir(exist_ok=True)
    more = [json.dumps(dict(settings)), *([] if failing_batch is None else [str(failing_batch)])]
    return subprocess.run(
        [sys.executable, "-m", "tests.labs.spark_kafka", bootstrap, topics, checkpoint, output, *more],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        cwd=Path(__file__).parents[2],
    )


def records(output: Path) -> dict[int, list[dict[str, Any]]]:
    """Returns the records of each batch."""
    return {
        int(file.stem): [json.loads(line) for line in file.read_text().splitlines()]
        for file in output.glob("*.json")
    }


def _query(
    bootstrap: str, topics: str, checkpoint: str, output: str, settings: str, failing_batch: str = "-1"
) -> None:
    from pyspark.sql import SparkSession

    folder = kit.classpath(str(find_java(os.environ)), JARS).removesuffix("/*")
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(jar) for jar in sorted(Path(folder).glob("*.jar"))))
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )

    def write(batch: Any, number: int) -> None:
        rows = batch.selectExpr("topic", "partition", "offset", "value").collect()
        lines = [
            json.dumps(
                {**row.asDict(), "value": base64.b64encode(row["value"]).decode() if row["value"] else None}
            )
            for row in rows
        ]
        (Path(output) / f"{number}.json").write_text("".join(f"{line}\n" for line in lines))
        if number == int(failing_batch):
            raise RuntimeError("the query fails in this batch")

    read = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", "40")
        .options(**{f"kafka.{key}": value for key, value in json.loads(settings).items()})
    )
    query = read.load().writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    _query(*sys.argv[1:])
