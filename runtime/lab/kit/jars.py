"""This module fetches Kafka's jars once with the Ivy inside pyspark and keeps them in the user's cache
folder.

A set of jars is complete or absent: it is made in a folder of its own, listed with sizes and checksums, and
only then renamed to its name. A set that does not match its list is fetched again.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from pathlib import Path

from runtime.lab.errors import LabError
from runtime.lab.files import exclusive, explained, write
from runtime.lab.kit.ivy import IvyDependency, IvyRequest, Report, resolve
from runtime.lab.kit.versions import KAFKA_VERSION, KafkaVersion

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
    tools = ("kafka-tools",) if version.zookeeper else ("kafka-tools", "kafka-shell")
    return IvyRequest(
        f"kafka-{version}",
        (
            IvyDependency("org.apache.kafka", f"kafka_{SCALA_VERSION}", str(version), transitive=True),
            *(IvyDependency("org.apache.kafka", tool, str(version)) for tool in tools),
            *(_LOG4J_2 if version.log4j2 else _LOG4J_1),
        ),
        count=48 if version.log4j2 else 40,
    )


# MirrorMaker 2 for the benchmarks; the lab itself does not need it.
MIRROR = IvyRequest(
    f"connect-mirror-{KAFKA_VERSION}",
    (
        IvyDependency("org.apache.kafka", "connect-mirror", KAFKA_VERSION, transitive=True),
        IvyDependency("org.apache.logging.log4j", "log4j-core", "2.24.3", transitive=True),
        IvyDependency("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
    ),
    count=63,
)


def cache_folder() -> Path:
    """Returns the cache folder of the user."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "repl"


def classpath(java: str, wanted: IvyRequest, report: Report = silent) -> str:
    """Returns the class path of a set of jars, and fetches the set if it is missing or damaged.

    Raises LabError.
    """
    cache = cache_folder()
    with explained(cache, "set XDG_CACHE_HOME to a folder with room that you may write to"):
        folder = cache / wanted.name
        if not whole(folder):
            with exclusive(cache / f"{wanted.name}.lock", f"fetching {wanted.name}", patience=900):
                # Another process may have fetched it meanwhile.
                if not whole(folder):
                    _fetch(java, wanted, folder, report)
    return f"{folder}/*"


def whole(folder: Path) -> bool:
    """Returns whether the jars are exactly those of the list, by size and checksum."""
    try:
        listed = json.loads((folder / MANIFEST).read_text())
        return bool(listed) and listed == _listing(folder)
    except (OSError, ValueError):
        return False


def _fetch(java: str, wanted: IvyRequest, folder: Path, report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{wanted.name}.", dir=folder.parent) as scratch:
        made = Path(scratch) / "jars"
        made.mkdir()
        resolve(java, _ivy_jar(), wanted, Path(scratch), made, report)
        write(made / MANIFEST, json.dumps(_listing(made), indent=1))
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)


def _listing(folder: Path) -> dict[str, list[object]]:
    return {jar.name: [jar.stat().st_size, _checksum(jar)] for jar in sorted(folder.glob("*.jar"))}


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _ivy_jar() -> Path:
    # Do not import pyspark: that takes longer than everything else here.
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise LabError("pyspark is not installed, and its Ivy fetches Kafka", "install it: make setup")
    jars = Path(next(iter(found.submodule_search_locations))) / "jars"
    ivy = sorted(jars.glob("ivy-*.jar"))
    if not ivy:
        raise LabError("pyspark holds no Ivy, which fetches Kafka", "install pyspark again", where=str(jars))
    return ivy[-1]
