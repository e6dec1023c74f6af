"""This module provides what runs Kafka: a Java, Kafka's jars and tools, and an archive of loaded classes.

The jars are fetched with the Ivy inside pyspark and cached for the user. A set of jars is complete or absent:
it is made in a folder of its own, listed with sizes and checksums, and only then renamed to its name. A set
that does not match its list is fetched again.

`jars.sha256` pins the SHA-256 of each jar of the versions that were seen to run. A set that differs from its
pins is not used, wherever it came from. Versions without pins are taken only where the operator says so: a
repository that can exchange a jar can exchange the checksum beside it too.

The archive halves a start's work. Java ignores an archive that does not fit. Where none can be made,
everything works without it, only slower.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias
from xml.sax.saxutils import quoteattr

from runtime.class_archive import ClassArchive
from runtime.contract.extras import Extra, missing_extra, spark_package
from runtime.java import find_java
from runtime.lab.cluster import DEFAULT, KAFKA_VERSION, KafkaVersion
from runtime.lab.files import LabError, exclusive, explained, write
from runtime.machine import cache_folder

# It names an Ivy settings file, for a company's own mirror, as for Spark's packages.
SETTINGS = "REPL_IVY_SETTINGS"
UNPINNED = "REPL_LAB_UNPINNED_JARS"  # set to 1, it takes versions without pins
PINS = Path(__file__).with_name("jars.sha256")
_RETRIEVE = "[artifact]-[revision](-[classifier]).[ext]"
_FULL = ("No space left on device", "Disk quota exceeded", "File too large")
_FOUND, _FETCHED = "found ", "[SUCCESSFUL ]"

Report: TypeAlias = Callable[[str, int, int], None]  # activity, steps done, total steps


@dataclass(frozen=True, slots=True)
class IvyDependency:
    """An IvyDependency names one artifact."""

    organisation: str
    name: str
    version: str
    transitive: bool = False


@dataclass(frozen=True, slots=True)
class IvyRequest:
    """An IvyRequest names the artifacts of one set of jars."""

    name: str
    dependencies: tuple[IvyDependency, ...]
    count: int  # approximate number of jars, for the progress only
    pins: Path = PINS  # the file of their checksums


def resolve(java: str, ivy: Path, request: IvyRequest, scratch: Path, into: Path, report: Report) -> None:
    """Fetches the jars. Ivy writes only below `scratch`, its cache included. Raises LabError."""
    module = scratch / "ivy.xml"
    module.write_text(_module(request.dependencies))
    command = [
        *(java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
        f"-Divy.default.ivy.user.dir={scratch / 'ivy'}",
        *("-jar", str(ivy), "-cache", str(scratch / "cache"), "-ivy", str(module)),
        *_settings(),
        *("-retrieve", str(into / _RETRIEVE)),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            output = list(_counted(process.stdout, request, report))
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise ivy_failure(request, output)
    report(f"fetching {request.name}", 2 * request.count, 2 * request.count)  # the number was an estimate


def _settings() -> tuple[str, ...]:
    chosen = os.environ.get(SETTINGS)
    if not chosen:
        return ()
    if not Path(chosen).is_file():
        raise LabError(f"{SETTINGS} names {chosen}, which is no file", f"correct or unset {SETTINGS}")
    return "-settings", chosen


def _counted(lines: Iterable[str], request: IvyRequest, report: Report) -> Iterator[str]:
    """Yields Ivy's lines and reports progress.

    Each module is found first, which is slower, and then fetched.
    """
    located = fetched = 0
    for raw in lines:
        line = raw.strip()
        located += line.startswith(_FOUND)
        fetched += line.startswith(_FETCHED)
        total = 2 * request.count
        report(f"fetching {request.name}", min(located + fetched, total), total)
        yield line


def _module(dependencies: Iterable[IvyDependency]) -> str:
    wanted = "".join(
        f"<dependency org={quoteattr(each.organisation)} name={quoteattr(each.name)}"
        f" rev={quoteattr(each.version)} transitive={quoteattr(str(each.transitive).lower())}"
        f" conf={quoteattr('default->master,compile,runtime' if each.transitive else 'default->master')}/>"
        for each in dependencies
    )
    return (
        '<ivy-module version="2.0"><info organisation="repl" module="lab"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )


def ivy_failure(request: IvyRequest, output: list[str]) -> LabError:
    """Returns the error for Ivy's output."""
    if any(sign in line for line in output for sign in _FULL):
        return LabError(
            f"the disk is full: {request.name} could not be fetched",
            "free some space (about 150 MB), or set XDG_CACHE_HOME to a folder that has it",
        )
    reason = _reason(output)
    return LabError(
        f"{request.name} could not be fetched{f': {reason}' if reason else ''}",
        f"check the network, or name your company's mirror in an Ivy settings file with {SETTINGS}",
    )


def _reason(output: list[str]) -> str:
    """Returns the first line of Ivy's output that states a cause; later errors follow from it."""
    for line in output:
        for sign in (
            "Host ",
            "java.net.",
            "javax.net.ssl.",
            "Server access",
            "unresolved dependency:",
            "Exception",
        ):
            if sign in line:
                return line.lstrip(":\t ").removeprefix("WARN: ")[:160]
    return ""


SCALA_VERSION = "2.13"
MANIFEST = "manifest.json"


def silent(_what: str, _done: int, _total: int) -> None:
    """Ignores progress."""


_LOG4J_2 = (IvyDependency("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),)
_LOG4J_1 = (
    IvyDependency("ch.qos.reload4j", "reload4j", "1.2.25"),
    IvyDependency("org.slf4j", "slf4j-reload4j", "1.7.36"),
)


def broker_jars(version: KafkaVersion) -> IvyRequest:
    """Returns the request for a broker of this version, with Kafka's tools and, for older ones, ZooKeeper."""
    tools = ("kafka-tools", "kafka-shell") if version.shell else ("kafka-tools",)
    return IvyRequest(
        f"kafka-{version}",
        (
            IvyDependency("org.apache.kafka", f"kafka_{SCALA_VERSION}", str(version), transitive=True),
            *(IvyDependency("org.apache.kafka", tool, str(version)) for tool in tools),
            *(_LOG4J_2 if version.log4j2 else _LOG4J_1),
        ),
        count=48 if version.log4j2 else 40,
    )


def classpath(java: str, wanted: IvyRequest, report: Report = silent) -> str:
    """Returns the class path of a set of jars, and fetches the set if it is missing or damaged.

    Raises LabError.
    """
    base = cache_folder()
    with explained(base, "set XDG_CACHE_HOME to a folder with room that you may write to"):
        folder = base / wanted.name
        pins = pinned(wanted)
        if not _usable(folder, pins):
            with exclusive(base / f"{wanted.name}.lock", f"fetching {wanted.name}", wait_s=900):
                # Another process may have fetched it meanwhile.
                if not _usable(folder, pins):
                    _fetch(java, wanted, folder, report, pins)
    return f"{folder}/*"


def pinned(wanted: IvyRequest) -> dict[str, str] | None:
    """Returns the SHA-256 of each jar of a set; None where the operator takes it without pins.

    Raises LabError.
    """
    sets = _pins(wanted.pins)
    pins = sets.get(wanted.name)
    if pins is None and os.environ.get(UNPINNED) != "1":
        raise LabError(
            f"the jars of {wanted.name} have no pinned checksums",
            f"choose one of {', '.join(sorted(sets))}, or set {UNPINNED}=1 to trust the repository for it",
        )
    return pins


@cache
def _pins(file: Path) -> dict[str, dict[str, str]]:
    pins: dict[str, dict[str, str]] = {}
    for line in file.read_text().splitlines():
        digest, _, name = line.partition("  ")
        folder, _, jar = name.partition("/")
        pins.setdefault(folder, {})[jar] = digest
    return pins


def _usable(folder: Path, pins: Mapping[str, str] | None) -> bool:
    if not whole(folder):
        return False
    return pins is None or _differing(json.loads((folder / MANIFEST).read_text()), pins) is None


def _differing(listed: Mapping[str, Sequence[object]], pins: Mapping[str, str]) -> str | None:
    """Returns the first jar that is missing, unknown or another one than its pin says; None if all match."""
    digests = {jar: digest for jar, (_, digest) in listed.items()}
    return next((jar for jar in sorted({*digests, *pins}) if digests.get(jar) != pins.get(jar)), None)


def whole(folder: Path) -> bool:
    """Returns whether the jars are exactly those of the list, by size and checksum."""
    try:
        listed = json.loads((folder / MANIFEST).read_text())
        return bool(listed) and listed == _listing(folder)
    except (OSError, ValueError):
        return False


def _fetch(
    java: str, wanted: IvyRequest, folder: Path, report: Report, pins: Mapping[str, str] | None
) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{wanted.name}.", dir=folder.parent) as scratch:
        made = Path(scratch) / "jars"
        made.mkdir()
        resolve(java, _ivy_jar(), wanted, Path(scratch), made, report)
        listed = _listing(made)
        if pins is not None and (jar := _differing(listed, pins)) is not None:
            raise LabError(
                f"{jar} of {wanted.name} is not the one that was pinned: nothing of it is used",
                f"the repository holds another file: check it, and the settings that {SETTINGS} names",
            )
        write(made / MANIFEST, json.dumps(listed, indent=1))
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)


def _listing(folder: Path) -> dict[str, list[object]]:
    listing: dict[str, list[object]] = {}
    for jar in sorted(folder.glob("*.jar")):
        with jar.open("rb") as file:
            listing[jar.name] = [jar.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()]
    return listing


def _ivy_jar() -> Path:
    package = spark_package()
    if package is None:
        raise LabError(*missing_extra(Extra.SPARK, "the lab, whose Kafka is fetched by the Ivy of pyspark,"))
    jars = package / "jars"
    ivy = sorted(jars.glob("ivy-*.jar"))
    if not ivy:
        raise LabError("pyspark holds no Ivy, which fetches Kafka", "install pyspark again", where=str(jars))
    return ivy[-1]


_PACKAGES = ("org/apache/kafka/tools/", "org/apache/kafka/shell/", "kafka/")


def main_class(jars: Path, name: str) -> str:
    """Returns the full class name of a tool.

    The package may be omitted, because Kafka has moved tools before.

    Raises LabError.
    """
    classes = sorted(_classes(jars))
    if name in classes:
        return name
    short = name.rpartition(".")[2]
    matching = [class_name for class_name in classes if class_name.rpartition(".")[2] == short]
    if len(matching) != 1:
        problem = f"several tools are called {short}" if matching else f"Kafka has no tool {name}"
        raise LabError(
            problem, ", ".join(matching) or "for example TopicCommand, ConsoleProducer, ConsoleConsumer"
        )
    return matching[0]


def bootstrap_flag(tool: str, version: KafkaVersion) -> str:
    """Returns the flag with which a tool takes the bootstrap servers."""
    old = version < (2, 5, 0) and tool.endswith("ConsoleProducer")
    return "--broker-list" if old else "--bootstrap-server"


def _classes(jars: Path) -> set[str]:
    names: set[str] = set()
    for jar in jars.glob("kafka*.jar"):
        with zipfile.ZipFile(jar) as archive:
            names |= {
                entry.removesuffix(".class").replace("/", ".")
                for entry in archive.namelist()
                if entry.startswith(_PACKAGES) and entry.endswith(".class") and "$" not in entry
            }
    return names


@dataclass(frozen=True, slots=True)
class Kit:
    """A Kit is a Java and the class path of one version of Kafka."""

    java: str
    classpath: str
    version: KafkaVersion = DEFAULT

    @property
    def jars(self) -> Path:
        return Path(self.classpath).parent

    @property
    def archive(self) -> ClassArchive:
        return ClassArchive(self.jars, "classes", Path(shutil.which(self.java) or self.java))

    def command(self, *jvm: str, heap: str = "256m") -> list[str]:
        """Returns the Java command line without the class to run."""
        return [
            *(self.java, f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.awt.headless=true"),
            # Java must not print a line about an archive that does not fit into a tool's output.
            *(*self.archive.options, "-Xlog:disable", "-Xlog:all=error:stderr"),
            *jvm,
            *("-cp", self.classpath),
        ]


def find_kit(report: Report, version: str = KAFKA_VERSION) -> Kit:
    """Finds Java and fetches the jars of a version. Raises LabError."""
    java, kafka_version = str(find_java(os.environ, LabError)), KafkaVersion.of(version)
    return Kit(java, classpath(java, broker_jars(kafka_version), report), kafka_version)


def ensure_archive(kit: Kit, train: Callable[[Path, Path], None]) -> None:
    """Makes the archive if there is none: `train` runs a broker once, in a scratch folder."""
    archive = kit.archive
    failed = archive.path.with_suffix(".failed")
    if archive.path.exists() or failed.exists():
        return
    try:
        with archive.making() as made:
            if made is not None:
                train(made.parent / "lab", made)
    except (LabError, OSError):
        with suppress(OSError):
            failed.touch()  # later starts must not try again and wait
