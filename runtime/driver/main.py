"""This script is the Spark application: `spark-submit --master … runtime/driver/main.py --spec FILE`."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Python puts a script's own folder first in the path; its modules must not be imported as top-level names.
_SCRIPT_FOLDER = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != _SCRIPT_FOLDER]
try:
    import runtime.driver  # noqa: F401 - it comes from the zip, or is installed
except ModuleNotFoundError:
    sys.path.insert(0, str(_SCRIPT_FOLDER.parent.parent))

from runtime.driver.python_path import use_installed_spark  # noqa: E402

use_installed_spark()

import uvloop  # noqa: E402

from runtime.contract.client.settings import ClientSettingsError  # noqa: E402
from runtime.contract.spec.jobspec import (  # noqa: E402
    BadJobSpec,
    JobExit,
    JobSpec,
    decode,
)
from runtime.driver.application import SparkNotStarted, SparkSlotRunner, start_application  # noqa: E402
from runtime.driver.job import JobRunner  # noqa: E402
from runtime.driver.kubernetes import KubernetesExecutors  # noqa: E402
from runtime.driver.process import (  # noqa: E402
    JvmSilent,
    SpecFile,
    collect_rarely,
    die_with_parent,
)
from runtime.driver.yarn import YarnApplications  # noqa: E402
from runtime.slot import log  # noqa: E402
from runtime.slot.log import log_driver_message  # noqa: E402

_STARTS_WITHIN_S = 10.0


def main() -> int:
    """Runs the driver of one job and returns the exit code of the process."""
    log.start(os.environ)
    collect_rarely()
    parser = argparse.ArgumentParser(description="Copies the flows of one job.")
    parser.add_argument("--spec", required=True, type=Path, help="the job spec, a JSON file")
    parser.add_argument(
        "--restarted",
        action="store_true",
        help="set by what restarts it: end if a driver on another machine runs the job now",
    )
    arguments = parser.parse_args()
    return _run_job(arguments.spec, arguments.restarted)


def _run_job(file: Path, restarted: bool) -> JobExit:
    """Reads the spec and runs the job. Returns BAD_SPEC for a spec that can't be read."""
    try:
        spec = decode(file.read_bytes())
    except (OSError, BadJobSpec) as error:
        log_driver_message(f"{file}: {error}")
        return JobExit.BAD_SPEC
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # the JVM of spark-submit started this process
        die_with_parent(forked_by_one_thread=False)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(spec, SpecFile(file), restarted))


async def _run(spec: JobSpec, file: SpecFile, restarted: bool) -> JobExit:
    """Starts Spark and the job at the same time, and returns the job's exit code.

    A failed start of Spark stops the job. On Kubernetes Spark starts once the driver leads: the start deletes
    the executors of the driver before, which may still be the one that runs the job (R10).
    """
    loop = asyncio.get_running_loop()
    job = JobRunner(spec, os.environ, file, restarted=restarted)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, job.stop)
    yarn = YarnApplications(job.driver, spec.executors) if spec.launch.launcher == "yarn" else None
    on_kubernetes = spec.launch.launcher == "kubernetes"
    executors = KubernetesExecutors(spec.executors, os.environ) if on_kubernetes else None

    thread = ThreadPoolExecutor(1, "spark")  # of its own: nothing waits for it where Spark never starts

    async def start() -> SparkSlotRunner:
        if executors is not None:
            await job.leading.wait()
        return await loop.run_in_executor(thread, start_application, spec.job, yarn, executors)

    starting = asyncio.ensure_future(start())
    starting.add_done_callback(lambda done: job.stop() if not done.cancelled() and done.exception() else None)
    try:
        ended = await job.run(starting, yarn or executors)
        if ended is not JobExit.FENCED and starting.done():
            starting.result()
    except ClientSettingsError as error:
        log_driver_message(str(error))
        # A file that a setting names may be away for a moment: the supervisor tries again.
        references = (cluster.client.get(error.key) for cluster in spec.clusters.values())
        by_file = any(isinstance(value, dict) and "file" in value for value in references)
        ended = JobExit.FAILED if by_file else JobExit.BAD_SPEC
    except SparkNotStarted as error:
        log_driver_message(str(error))
        return JobExit.FAILED
    except Exception as error:  # noqa: BLE001 - the outermost edge: a supervisor restarts the job
        traceback.print_exception(error)
        log_driver_message(f"failed: {type(error).__name__}: {error}")
        ended = JobExit.FAILED
    if ended is JobExit.FENCED:
        return ended  # do not wait for Spark: another driver runs the job
    if executors is not None and not job.leading.is_set():
        starting.cancel()
    await _stop(starting)
    return ended


async def _stop(starting: asyncio.Future[SparkSlotRunner]) -> None:
    """Stops Spark if it was started; its remaining processes end with this process.

    A cluster that has no resources for it may let it wait without end.
    """
    done, _ = await asyncio.wait([starting], timeout=_STARTS_WITHIN_S)
    if not done:
        log_driver_message(f"Spark has not started {_STARTS_WITHIN_S:g} s after the stop: not waited for")
        return
    if starting.cancelled() or starting.exception() is not None:
        return
    try:
        await starting.result().stop()
    except JvmSilent as error:
        log_driver_message(str(error))


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # threads that wait for Spark must not delay the exit
