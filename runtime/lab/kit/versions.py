"""This module reads Kafka versions, and knows what of the lab depends on them. It is pure."""

import re
from typing import NamedTuple, Self

from runtime.lab.errors import LabError

KAFKA_VERSION = "4.1.1"  # what a lab runs unless it is told otherwise
_PATTERN = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})")


class KafkaVersion(NamedTuple):
    """A KafkaVersion is a release of Apache Kafka; versions compare in the order of their release lines."""

    major: int
    minor: int
    patch: int

    @classmethod
    def of(cls, text: str) -> Self:
        """Reads a version such as 2.8.2. Raises LabError for one that the lab cannot run."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise LabError(f"{text!r} is not a version of Kafka", "write three numbers, for example 3.9.1")
        version = cls(*map(int, match.groups()))
        if version < OLDEST:
            raise LabError(f"Kafka {text} is too old for the lab", f"choose {OLDEST} or newer")
        return version

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def zookeeper(self) -> bool:
        """Whether the lab runs this version with ZooKeeper.

        KRaft is ready for production from 3.3 on, and its storage tool writes SCRAM users from 3.5 on.
        """
        return self < (3, 5, 0)

    @property
    def log4j2(self) -> bool:
        """Whether brokers log with Log4j 2; older ones use the API of Log4j 1."""
        return self >= (4, 0, 0)

    @property
    def pem(self) -> bool:
        """Whether brokers read keys and certificates as PEM files (KIP-651)."""
        return self >= (2, 7, 0)


OLDEST = KafkaVersion(2, 4, 0)
DEFAULT = KafkaVersion.of(KAFKA_VERSION)
