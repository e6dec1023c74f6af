"""A real MirrorMaker 2 in dedicated mode, as `connect-mirror-maker.sh` starts it."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from runtime.java import find_java
from runtime.lab import kit
from runtime.lab.files import log4j2
from runtime.lab.kit import IvyDependency, IvyRequest

VERSION = "4.3.1"  # 4.4.0 was published without it
JARS = IvyRequest(
    f"connect-mirror-{VERSION}",
    (
        IvyDependency("org.apache.kafka", "connect-mirror", VERSION, transitive=True),
        IvyDependency("org.apache.logging.log4j", "log4j-core", "2.24.3", transitive=True),
        IvyDependency("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
    ),
    count=63,
    pins=Path(__file__).with_name("jars.sha256"),
)
# Its own topics, for clusters of one broker.
ONE_COPY = dict.fromkeys(
    [
        "replication.factor",
        "checkpoints.topic.replication.factor",
        "heartbeats.topic.replication.factor",
        "offset-syncs.topic.replication.factor",
        "config.storage.replication.factor",
        "offset.storage.replication.factor",
        "status.storage.replication.factor",
    ],
    "1",
)
SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def command(file: Path, configuration: Mapping[str, str], jvm: Sequence[str] = SMALL) -> list[str]:
    """The command that runs it. `file` is written."""
    logging = file.with_name("mirror-log4j2.properties")
    file.write_text("".join(f"{key} = {value}\n" for key, value in configuration.items()))
    logging.write_text(log4j2("INFO"))
    java = str(find_java(os.environ))
    return [
        *(java, *jvm, "-Djava.awt.headless=true", f"-Dlog4j2.configurationFile={logging}"),
        *("-cp", kit.classpath(java, JARS)),
        *("org.apache.kafka.connect.mirror.MirrorMaker", str(file)),
    ]
