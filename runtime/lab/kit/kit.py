"""This module provides a Java, Kafka's jars and tools, and an archive of loaded classes for a faster start.

The archive halves a start's work. Java ignores an archive that does not fit. Where none can be made,
everything works without it, only slower.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from runtime.lab.cluster import DEFAULT, KAFKA_VERSION, KafkaVersion
from runtime.lab.errors import LabBusy, LabError
from runtime.lab.files import exclusive
from runtime.lab.kit import jars
from runtime.lab.kit.jars import Report

OLDEST = 17
WAY_OUT = "install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"


def find_java() -> str:
    """Returns the java of JAVA_HOME, or else of PATH.

    Raises LabError if there is none of version 17 or newer.
    """
    java = _java_path()
    version = _version(java)
    if version < OLDEST:
        raise LabError(f"Java {OLDEST} or newer is needed; {java} is Java {version}", WAY_OUT)
    return java


def _java_path() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise LabError(f"JAVA_HOME is {home}, but there is no {java}", "correct or unset JAVA_HOME")
        return str(java)
    found = shutil.which("java")
    if found is None:
        raise LabError(f"Java {OLDEST} or newer is needed; no java was found on PATH", WAY_OUT)
    return found


def _version(java: str) -> int:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise LabError(f"{java} could not be run: {problem}", WAY_OUT) from problem
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if match is None:
        raise LabError(f"{java} -version did not name a version: {answer.stderr.strip()[:200]!r}", WAY_OUT)
    major = int(match[1])
    return int(match[2]) if major == 1 and match[2] else major  # Java 8 calls itself 1.8


_PACKAGES = ("org/apache/kafka/tools/", "org/apache/kafka/shell/", "kafka/")


def main_class(jars: Path, name: str) -> str:
    """Returns the full class name of a tool.

    The package may be omitted, because Kafka has moved tools before.

    Raises LabError.
    """
    found = sorted(_classes(jars))
    if name in found:
        return name
    short = name.rpartition(".")[2]
    matching = [each for each in found if each.rpartition(".")[2] == short]
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
    found: set[str] = set()
    for jar in jars.glob("kafka*.jar"):
        with zipfile.ZipFile(jar) as archive:
            found |= {_class(entry) for entry in archive.namelist() if _is_tool(entry)}
    return found


def _class(entry: str) -> str:
    return entry.removesuffix(".class").replace("/", ".")


def _is_tool(entry: str) -> bool:
    return entry.startswith(_PACKAGES) and entry.endswith(".class") and "$" not in entry


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
    def archive(self) -> Path:
        """Returns the archive of this Java; a Java of another path or version has its own archive."""
        java = Path(shutil.which(self.java) or self.java).resolve()
        known = f"{java} {java.stat().st_mtime_ns}"
        return self.jars / f"classes-{hashlib.sha256(known.encode()).hexdigest()[:12]}.jsa"

    def command(self, *jvm: str, heap: str = "256m") -> list[str]:
        """Returns the Java command line without the class to run."""
        fast = (f"-XX:SharedArchiveFile={self.archive}",) if self.archive.is_file() else ()
        return [
            *(self.java, f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.awt.headless=true"),
            # Java must not print a line about an archive that does not fit into a tool's output.
            *(*fast, "-Xlog:disable", "-Xlog:all=error:stderr"),
            *jvm,
            *("-cp", self.classpath),
        ]


def find_kit(report: Report, version: str = KAFKA_VERSION) -> Kit:
    """Finds Java and fetches the jars of a version. Raises LabError."""
    java, known = find_java(), KafkaVersion.of(version)
    return Kit(java, jars.classpath(java, jars.broker_jars(known), report), known)


def ensure_archive(kit: Kit, train: Callable[[Path, Path], None]) -> None:
    """Makes the archive if there is none: `train` runs a broker once, in a scratch folder."""
    failed = kit.archive.with_suffix(".failed")
    if kit.archive.exists() or failed.exists():
        return
    try:
        with (
            exclusive(kit.archive.with_suffix(".lock"), "preparing Kafka"),
            tempfile.TemporaryDirectory(prefix=".archive.", dir=kit.jars.parent) as scratch,
        ):
            made = Path(scratch) / kit.archive.name
            train(Path(scratch) / "lab", made)
            made.rename(kit.archive)
    except LabBusy:
        return  # another process is making it
    except (LabError, OSError):
        with suppress(OSError):
            failed.touch()  # later starts must not try again and wait
