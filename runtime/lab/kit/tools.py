"""This module finds Kafka's own tools by their short names: TopicCommand, ConsoleProducer,
ConsoleConsumer, …
"""

import zipfile
from pathlib import Path

from runtime.lab.errors import LabError
from runtime.lab.kit.versions import KafkaVersion

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
