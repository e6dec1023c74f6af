"""What runs Kafka: a Java, the jars, and an archive of loaded classes that halves the work of a start.

Java ignores an archive that does not fit, and where none can be made all works without it, only slower."""

import hashlib
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from runtime.lab.errors import Busy, LabError
from runtime.lab.files import exclusive
from runtime.lab.kit import jars
from runtime.lab.kit.ivy import Report
from runtime.lab.kit.java import find_java


@dataclass(frozen=True, slots=True)
class Kit:
    java: str
    classpath: str

    @property
    def jars(self) -> Path:
        return Path(self.classpath).parent

    @property
    def archive(self) -> Path:
        """One for each Java: another one, or a newer one at the same place, makes its own."""
        java = Path(shutil.which(self.java) or self.java).resolve()
        known = f"{java} {java.stat().st_mtime_ns}"
        return self.jars / f"classes-{hashlib.sha256(known.encode()).hexdigest()[:12]}.jsa"

    def command(self, *jvm: str, heap: str = "256m") -> list[str]:
        """Java with everything but the class to run."""
        fast = (f"-XX:SharedArchiveFile={self.archive}",) if self.archive.is_file() else ()
        return [
            *(self.java, f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.awt.headless=true"),
            # An archive that does not fit is not worth a line among what a tool prints.
            *(*fast, "-Xlog:disable", "-Xlog:all=error:stderr"),
            *jvm,
            *("-cp", self.classpath),
        ]


def obtain(report: Report) -> Kit:
    java = find_java()
    return Kit(java, jars.classpath(java, report=report))


def quicken(kit: Kit, train: Callable[[Path, Path], None]) -> None:
    """Make the archive where there is none: `train` runs a broker once, in a scratch folder."""
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
    except Busy:
        return  # somebody else is making it
    except (LabError, OSError):
        with suppress(OSError):
            failed.touch()  # not to be tried, and waited for, each time
