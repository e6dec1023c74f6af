"""What a transform costs for each record: the CPU of the slot's worker, of the feeding worker and of the JVM.

python -m tests.bench.bench_transform [--seconds 8] [--profile FILE] [--only mask sha2]

A standing query evaluates prepared batches again and again, without brokers, fetches and transactions. It
measures CPU time, so that other work on the machine changes it little.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import functools
import gc
import json
import os
import sys
import time
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING

import msgspec
import psutil
import uvloop

from runtime.batch import Codec, OutgoingBatch, RewriteSpec, prepare
from tests.bench.bench_sql import HASH, MASK, Customers
from tests.runtime.batch.forge import HERE, START, batch_bytes, record, sets

if TYPE_CHECKING:
    from runtime.sql.evaluator import Evaluator, MakeEvaluator

RECORDS, BATCHES, CALLERS = 400, 8, 2
WARM, WARM_S = 1_000_000, 60.0
KEEP = msgspec.structs.replace(MASK, set={}, drop=[], where="value.country <> 'DE'")
TRANSFORMS = {"mask": MASK, "sha2": HASH, "filter": KEEP}
SPEC = RewriteSpec(HERE, 1 << 20)


def cpu_s(*processes: psutil.Process) -> float:
    return sum(sum(one.cpu_times()[:2]) for one in processes)


def prepared(first: int) -> list[OutgoingBatch]:
    customers = Customers()
    parts = []
    for batch in range(BATCHES):
        numbers = range(first + batch * RECORDS, first + (batch + 1) * RECORDS)
        made = [(number, *customers.made(number, number + 10**18)) for number in numbers]
        written = [record(number, value, headers=headers, key=None) for number, value, headers in made]
        parts.append(batch_bytes(written, Codec.LZ4))
    return list(prepare(sets(*parts), SPEC, START).outgoing)


def collect(seconds: float, profile: str, make: MakeEvaluator) -> bytes:
    from runtime.sql.columns import keep_freed_memory
    from runtime.sql.evaluator import serving_evaluator

    gc.freeze()
    gc.set_threshold(50_000)
    keep_freed_memory()
    return json.dumps(uvloop.run(measured(serving_evaluator(make), seconds, profile))).encode()


async def measured(
    serving: AbstractAsyncContextManager[Evaluator], seconds: float, profile: str
) -> dict[str, float]:
    from runtime.sql.transformer import Transformer

    async with serving as evaluator:
        transformer = Transformer(evaluator.transform, evaluator)
        batches = [prepared(caller * 10**6) for caller in range(CALLERS)]
        done = 0

        async def load(until: float, one: list[OutgoingBatch]) -> None:
            nonlocal done
            while time.perf_counter() < until:
                await transformer.apply([(one, SPEC)])
                done += RECORDS * BATCHES

        async def all_of(time_s: float) -> None:
            until = time.perf_counter() + time_s
            await asyncio.gather(*(load(until, one) for one in batches))

        warm_until = time.perf_counter() + WARM_S
        while done < WARM and time.perf_counter() < warm_until:  # the JVM compiles
            await all_of(2.0)
        me = psutil.Process()
        daemon = psutil.Process(me.ppid())
        jvm = psutil.Process(daemon.ppid())
        workers = [one for one in daemon.children() if one != me]
        done, began = 0, time.perf_counter()
        before = cpu_s(me), cpu_s(*workers), cpu_s(jvm)
        with cProfile.Profile() if profile else nullcontext() as profiler:
            await all_of(seconds)
        after = cpu_s(me), cpu_s(*workers), cpu_s(jvm)
        took = time.perf_counter() - began
        if profiler is not None:
            profiler.dump_stats(profile)
    slot, feed, java = (1e6 * (b - a) / done for a, b in zip(before, after, strict=True))
    return {"rows/s": done / took, "slot": slot, "feed": feed, "jvm": java, "all": slot + feed + java}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--profile", default="")
    parser.add_argument("--only", nargs="*", default=list(TRANSFORMS))
    options = parser.parse_args()
    java = "-XX:+UseSerialGC -Xss512k -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=20"
    words = f'--master local[1] --driver-memory 512m --driver-java-options "{java}" pyspark-shell'
    os.environ["PYSPARK_SUBMIT_ARGS"] = words
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark import SparkConf, SparkContext

    from runtime.sql.query import STANDING, session_of, standing_query

    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    context = SparkContext(conf=SparkConf().setAll(list(settings.items())))
    context.setLogLevel("ERROR")
    for name in options.only:
        run = functools.partial(collect, options.seconds, options.profile)
        session = session_of(context, STANDING)
        found = json.loads(*standing_query(session, TRANSFORMS[name], run))
        print(f"{name:8}", "  ".join(f"{key} {value:,.2f}" for key, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
