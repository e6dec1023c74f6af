"""Prepares spark-submit: its command line and settings, and the zip of sources for workers.

Settings go into a file that only its owner can read, not on the command line, which every user of the machine
can read. A Spark application that is no job runs to its end in the foreground, and its output is passed on
for the user.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

import runtime
from runtime.class_archive import ClassArchive
from runtime.contract.extras import Extra, is_missing, missing_extra, spark_package
from runtime.contract.launching import LaunchError, safe_path
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.launch import LaunchSpec
from runtime.contract.whole_file import write_private
from runtime.java import find_java
from runtime.launch.folder import JobFolder
from runtime.launch.launcher import without_operator_keys
from runtime.launch.processes import ending_with_this_process
from runtime.machine import cache_folder

MARK = "REPL_JOB_LIFE"  # the variable that every process of one start of a job has in its environment

ROOT = Path(runtime.__file__).resolve().parent.parent
MAIN = ROOT / "runtime" / "driver" / "main.py"
TRAINING = ROOT / "runtime" / "driver" / "class_training.py"
LOGGING = Path(__file__).with_name("log4j2.properties")

# Heap of the driver's JVM: it schedules a few tasks and handles no records.
HEAP = "512m"
_SMALL = (
    "-XX:+UseSerialGC",
    "-Xss512k",
    "-XX:MinHeapFreeRatio=10",
    "-XX:MaxHeapFreeRatio=20",
    "-XX:-UsePerfData",
)
# The JVM is small and starts fast, because the work is done in Python. Java would begin with a heap of 1/64
# of the machine's memory, and fill it before it collects garbage once. This one grows up to HEAP if it must.
JVM = (*_SMALL, "-XX:TieredStopAtLevel=1", "-XX:InitialHeapSize=16m", "-XX:NewSize=8m")
# Of the JVM that only prints the command of the job's JVM.
_PRINTER = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# Each connection to the ports of driver and executors must authenticate with the application's secret. Spark
# generates it on local and YARN, the launcher on Kubernetes; the operator sets it on a standalone cluster.
SECURED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # Spark's default words and those of Kafka clients: the UI and the event log redact matching settings.
    "spark.redaction.regex": "(?i)secret|pass[wp]|token|credential|access[.]?key|sasl|jaas|[.]pem|ssl[.]key",
}
_SECRET = "spark.authenticate.secret"  # noqa: S105 - the name of a setting

# What no JVM of a job or a one-off application does: the SQL of a transform is text of a topology. No `conf`
# changes it. Spark's own substitution would put environment variables into a text, and speculation runs a
# task twice.
CLOSED = {
    "spark.speculation": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.runSQLOnFiles": "false",
}
_CLOSED_XML = (
    "-Djavax.xml.accessExternalDTD=",
    "-Djavax.xml.accessExternalSchema=",
    "-Djavax.xml.accessExternalStylesheet=",
)

# The machine of an executor that is lost closes no connection, so its heartbeats alone tell Spark of it. With
# Spark's defaults its slot would stand still for two to three minutes.
HEARTBEATS = {
    "spark.executor.heartbeatInterval": "5s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "30s",
    "spark.network.timeoutInterval": "5s",
}
_NETWORK_TIMEOUT = "spark.network.timeout"

_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"

LOCAL_OPTIONS = frozenset({"python"})
CLUSTER_OPTIONS = frozenset({"python", "archives", "files", "queue"})


def spark_submit(
    spec: JobSpec,
    folder: JobFolder,
    spark: Path,
    application: Sequence[str] = (),
    *,
    restarted: bool = False,
) -> list[str]:
    """Returns the command of the job, or of another application on the same cluster with the same settings.

    A job that its supervisor starts again is told so: it gives way to a driver that took over meanwhile.
    """
    launch = spec.launch
    cluster = launch.launcher != "local"
    check_options(launch.options, CLUSTER_OPTIONS if cluster else LOCAL_OPTIONS, launch.launcher)
    command = [str(spark / "bin" / "spark-submit"), "--master", launch.master]
    if cluster:
        command += ["--deploy-mode", "client", "--load-spark-defaults", "--py-files", str(folder.package)]
    command += ["--properties-file", str(folder.properties)]
    return [*command, *(application or driver_application(folder, restarted=restarted))]


def write_settings(spec: JobSpec, folder: JobFolder, java: Path, spark: Path) -> None:
    """Writes the files that `spark_submit` names: the settings, and on a cluster the sources for workers."""
    folder.renew_scratch()
    archive = class_archive(java, spark)
    fast = archive.options if archive is not None else ()
    write_private(folder.properties, properties_file(properties(spec, folder, fast)))
    if spec.launch.launcher != "local":
        new = folder.package.with_name(f".{folder.package.name}")
        command = [sys.executable, "-m", "runtime.driver.package", str(new)]
        subprocess.run(command, check=True, cwd=ROOT, timeout=60)
        new.replace(folder.package)


def driver_application(folder: JobFolder, *, restarted: bool) -> tuple[str, ...]:
    """Returns the driver's program with its arguments."""
    return (str(MAIN), "--spec", str(folder.spec), *(("--restarted",) if restarted else ()))


def variables_of(spec: JobSpec, folder: JobFolder, spark: Path) -> dict[str, str]:
    """Returns the environment variables that Spark and the driver need."""
    python = spec.launch.options.get("python", sys.executable)
    environment = {
        "SPARK_HOME": str(spark),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": python,
        "PYTHONUNBUFFERED": "1",
        **safe_path(os.environ),
        "SPARK_LOCAL_DIRS": str(folder.scratch),
        "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", _PRINTER),
    }
    if spec.launch.master.startswith("local"):
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "127.0.0.1"}
    return environment


def java_options(spec: JobSpec) -> tuple[str, ...]:
    """Returns the options of the job's JVMs.

    A transform is evaluated in the JVM, which takes half of the time with the second compiler.
    """
    return JVM if all(flow.transform is None for flow in spec.flows) else _SMALL


def class_archive(java: Path, spark: Path) -> ClassArchive | None:
    """Returns the archive of the classes of this Spark for this Java; None where there can't be one."""
    try:
        return ClassArchive(cache_folder(), "spark", java, (spark / "jars").iterdir())
    except (OSError, RuntimeError):  # there are no jars, or the user has no home folder
        return None


def properties(spec: JobSpec, folder: JobFolder, fast: Sequence[str] = ()) -> dict[str, str]:
    """Returns the default settings, overridden by the launcher's, overridden by the topology's.

    Java options are concatenated, and the last one takes effect; `fast` are more of them for a JVM on this
    machine.
    """
    launch = spec.launch
    ours = {
        **QUIET,
        **SECURED,
        "spark.driver.memory": HEAP,
    }
    if launch.launcher != "local":
        ours |= _cluster_properties(spec)
    given = {**ours, **launch.conf, **CLOSED}
    java = (*java_options(spec), *_CLOSED_XML)
    if launch.launcher != "local":
        given[_EXECUTOR_OPTIONS] = " ".join((*java, launch.conf.get(_EXECUTOR_OPTIONS, ""))).strip()
    options = [
        *java,
        *(f'"{option}"' for option in fast),
        f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
        f'"-Djava.io.tmpdir={folder.scratch}"',
        launch.conf.get("spark.driver.extraJavaOptions", ""),
    ]
    return {**given, "spark.driver.extraJavaOptions": " ".join(options).strip()}


def _cluster_properties(spec: JobSpec) -> dict[str, str]:
    """Returns settings for one slot per executor, so that a lost executor costs one slot.

    The executor's memory is used by Python, beside a small JVM.
    """
    options = spec.launch.options
    conf = {"spark.executor.cores": "1", "spark.executor.memory": HEAP, **heartbeats(spec.launch.conf)}
    if slots := spec.executors:
        conf |= {"spark.cores.max": str(slots), "spark.executor.instances": str(slots)}
    if spec.launch.launcher in ("yarn", "kubernetes"):
        conf["spark.executor.memoryOverhead"] = spec.launch.memory
        # Spark would count failed executors for as long as the driver runs, and end it after a few.
        conf["spark.executor.maxNumFailures"] = str(2**31 - 1)
    # YARN copies an archive once to each node. By Spark's general setting, the driver would send it again.
    shipped = "spark.yarn.dist" if spec.launch.launcher == "yarn" else "spark"
    names = {"queue": "spark.yarn.queue", "archives": f"{shipped}.archives", "files": f"{shipped}.files"}
    return conf | {key: options[option] for option, key in names.items() if option in options}


def heartbeats(conf: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the settings by which Spark notices that an executor is lost.

    They depend on each other, so a `conf` that sets one of them, or `spark.network.timeout`, sets all.
    """
    return {} if conf.keys() & {*HEARTBEATS, _NETWORK_TIMEOUT} else HEARTBEATS


def spark_home(environ: Mapping[str, str]) -> Path:
    """Returns SPARK_HOME, or else the Spark of the pyspark package. Raises LaunchError.

    The driver runs in this Python, so it needs the packages of the extra in any case.
    """
    given = environ.get("SPARK_HOME")
    if is_missing(Extra.SPARK, environ):
        raise LaunchError(*missing_extra(Extra.SPARK, "a Spark application on this machine"))
    if given:
        home = Path(given)
    else:
        package = spark_package()
        if package is None:
            raise LaunchError("the package pyspark holds no Spark", "install it again, or set SPARK_HOME")
        home = package
    if not (home / "bin" / "spark-submit").is_file():
        raise LaunchError(f"there is no bin/spark-submit in {home}", "correct or unset SPARK_HOME")
    return home


def check_secret(launch: LaunchSpec, spark: Path, environ: Mapping[str, str]) -> None:
    """Raises LaunchError where a standalone cluster's secret is not in spark-defaults.conf.

    Spark reads the secret there itself, on each machine, so that no plan, YAML or command line ever holds it.
    """
    switched_off = launch.conf.get("spark.authenticate", "true").strip().lower() == "false"
    if launch.launcher != "standalone" or switched_off:
        return
    file = Path(environ.get("SPARK_CONF_DIR") or spark / "conf") / "spark-defaults.conf"
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    if not any(re.match(rf"\s*{re.escape(_SECRET)}\s*[\s=:]\s*\S", line) for line in lines):
        raise LaunchError(
            f"a job on a standalone cluster authenticates itself, and {_SECRET} is not in {file}",
            "put the secret of the Master and the Workers there, readable by the user alone that calls repl, "
            "or name another folder with SPARK_CONF_DIR; on a network of its own a job goes without by "
            "conf: {spark.authenticate: false} (docs/launch.md, Between Spark's processes)",
        )


def properties_file(properties: Mapping[str, str]) -> bytes:
    """Returns the settings in the format that java.util.Properties reads."""
    lines = (f"{_escaped(key, key=True)}={_escaped(value)}\n" for key, value in sorted(properties.items()))
    return "".join(lines).encode("latin-1")


def _escaped(text: str, *, key: bool = False) -> str:
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    if key:
        special |= {" ": "\\ ", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"}
    done = "".join(special.get(sign, sign) for sign in text)
    if done.startswith(" "):
        done = "\\" + done
    pairs = done.encode("utf-16-be")
    units = [int.from_bytes(pairs[at : at + 2], "big") for at in range(0, len(pairs), 2)]
    return "".join(chr(unit) if unit < 0x7F else f"\\u{unit:04x}" for unit in units)


def check_options(options: Mapping[str, str], allowed: Collection[str], launcher: str) -> None:
    """Raises LaunchError for an option that the launcher does not have."""
    unknown = sorted(options.keys() - set(allowed))
    if unknown:
        raise LaunchError(
            f"the launcher {launcher} has no option {', '.join(unknown)}",
            f"it knows {', '.join(sorted(allowed))}",
        )


HERE = JobSpec(job="", topology="", destination="", clusters={}, flows=[])  # local[2] is the default
_LAST_LINES = 15
_LONGEST_LINE = 16 << 20  # bytes
_GRACE_S = 10.0
DEADLINE_S = 60.0  # of a one-off application that has no other deadline
_ARCHIVED_WITHIN_S = 900.0  # many times what it takes on a quiet machine
DEADLINE_KEY = "REPL_SPARK_DEADLINE"  # seconds, for slower machines
# What an application gets of the environment that must not see all of it: where Java and libraries are.
_PLAIN = ("PATH", "JAVA_HOME", "LANG", "LD_LIBRARY_PATH", "SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS")


def deadline_of(environ: Mapping[str, str]) -> float:
    """Returns the seconds after which a one-off application is killed. Raises LaunchError."""
    given = environ.get(DEADLINE_KEY, "")
    if given and not (given.isdecimal() and int(given)):
        raise LaunchError(f"{DEADLINE_KEY} is {given}", "set it to a whole number of seconds, or unset it")
    return float(given) if given else DEADLINE_S


async def run_once(
    main: Path,
    arguments: Sequence[str],
    *,
    said: Callable[[str], None],
    prefix: str,
    environ: Mapping[str, str] = os.environ,
    where: JobSpec | None = None,
    deadline_s: float | None = DEADLINE_S,
    grace_s: float = _GRACE_S,
    variables: Collection[str] | None = None,
) -> None:
    """Runs the application on this machine's cores, or on the Spark cluster of the job `where` with that
    job's settings.

    `said` gets the lines that begin with `prefix`, without it. With `variables` it runs in a temporary folder
    and gets these environment variables alone, beside the few that Java needs. Raises LaunchError with the
    last lines when the application can't be started, its exit code is not 0, or it has not ended after
    `deadline_s`; then it is killed. Where the caller is cancelled, it has `grace_s` to end.
    """
    java, spark, spec = find_java(environ), spark_home(environ), where or HERE
    check_secret(spec.launch, spark, environ)
    with tempfile.TemporaryDirectory(prefix="repl-") as scratch:
        folder = JobFolder(Path(scratch), "once")
        folder.make()
        write_settings(spec, folder, java, spark)
        given = without_operator_keys(environ)
        if variables is not None:
            given = {name: value for name, value in given.items() if name in _PLAIN or name in variables}
        process = await asyncio.create_subprocess_exec(
            *spark_submit(spec, folder, spark, (str(main), *arguments)),
            cwd=scratch if variables is not None else None,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            limit=_LONGEST_LINE,
            preexec_fn=ending_with_this_process(),  # driver and workers end with their JVM
            env={
                **given,
                **variables_of(spec, folder, spark),
                "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), environ.get("PYTHONPATH")))),
            },
        )
        last: deque[str] = deque(maxlen=_LAST_LINES)
        try:
            async with asyncio.timeout(deadline_s):
                code = await _follow_output(process, said, prefix, last)
        except TimeoutError:
            _kill(process)
            raise LaunchError(
                f"the Spark application had not ended after {deadline_s:g} s, and was killed",
                f"its last lines tell how far it came; for a slow machine set {DEADLINE_KEY} to more seconds",
                last,
            ) from None
        finally:
            await _end(process, grace_s)
    if code:
        raise LaunchError(f"the Spark application ended with {code}", "its last lines tell why", last)


async def archive_classes(environ: Mapping[str, str]) -> None:
    """Makes the archive of Spark's classes where there is none. Raises LaunchError, OSError."""
    archive = class_archive(find_java(environ), spark_home(environ))
    if archive is None:
        return
    with archive.making() as made:
        if made is None:
            return
        conf = {"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={made}"'}
        await run_once(
            TRAINING,
            (),
            said=lambda _line: None,
            prefix="\0",  # of no line
            environ=environ,
            where=replace(HERE, launch=replace(HERE.launch, conf=conf)),
            deadline_s=_ARCHIVED_WITHIN_S,
            grace_s=0,  # it would write the archive as it ends, which takes long
            variables=(),
        )


async def _follow_output(
    process: asyncio.subprocess.Process, said: Callable[[str], None], prefix: str, last: deque[str]
) -> int:
    """Returns the exit code. `last` receives the lines that are not for the user. Raises LaunchError for a
    line that is too long.

    A thread calls `said`: a terminal that takes no output must not stop the loop, which renews a lease.
    """
    assert process.stdout is not None
    while line := (await _line(process.stdout, last)).decode(errors="replace"):
        if line.startswith(prefix):
            await asyncio.to_thread(said, line.removeprefix(prefix).rstrip())
        else:
            last.append(line.rstrip())
    return await process.wait()


async def _line(output: asyncio.StreamReader, last: deque[str]) -> bytes:
    """Returns the next line of the output; nothing at its end."""
    try:
        return await output.readline()
    except ValueError:
        raise LaunchError(
            f"the Spark application printed a line of more than {_LONGEST_LINE >> 20} MiB, and was ended",
            "let nothing of it print so much: look at the code that its conf adds, and at its log settings",
            last,
        ) from None


async def _end(process: asyncio.subprocess.Process, grace_s: float) -> None:
    """Ends the application in any case, so that no process remains: workers and driver end with their JVM."""
    if process.returncode is None and grace_s > 0:
        process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), grace_s)
    _kill(process)
    await process.wait()
    assert process.stdout is not None
    with contextlib.suppress(TimeoutError):  # a process that left the group may hold the pipe open
        async with asyncio.timeout(_GRACE_S):
            while await process.stdout.read(1 << 16):  # the pipe is closed at its end
                pass


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kills all processes of the application's group, also where the first one, whose id it has, ended.

    The group's id is not given to another process while a member lives. A process that has the id
    nevertheless got it after the last member ended, and is left alone.
    """
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None or not _exists(process.pid):
            os.killpg(process.pid, signal.SIGKILL)


def _exists(pid: int) -> bool:
    """Returns whether there is a process with this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
