"""This module provides what runs Kafka: a Java, the jars, and an archive of loaded classes that halves the
start's work.

Java ignores an archive that does not fit. Where none can be made, everything works without it, only slower.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from runtime.lab.errors import LabBusy, LabError
from runtime.lab.files import exclusive
from runtime.lab.kit import jars
from runtime.lab.kit.ivy import Report
from runtime.lab.kit.java import find_java
from runtime.lab.kit.versions import DEFAULT, KAFKA_VERSION, KafkaVersion


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
        """The archive of one Java: another Java, or a newer one at the same path, gets an archive of its
        own.
        """
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
