"""This module finds Java 17 or newer before any process is started; its absence is reported in one
sentence.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from runtime.launch.launcher import LaunchError

OLDEST = 17
_HINT = "install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"


def find_java(environ: Mapping[str, str]) -> Path:
    """Returns the java of JAVA_HOME, or else of PATH. Raises LaunchError."""
    java = _java_path(environ)
    version = _major(_version(java))
    if version < OLDEST:
        raise LaunchError(f"Spark needs Java {OLDEST} or newer; {java} is Java {version}", _HINT)
    return java


def _java_path(environ: Mapping[str, str]) -> Path:
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise LaunchError(
                f"JAVA_HOME is {home}, but there is no {java}", f"correct it, or {_HINT.split(' or ')[0]}"
            )
        return java
    found = shutil.which("java", path=environ.get("PATH", ""))
    if found is None:
        raise LaunchError(f"Spark needs Java {OLDEST} or newer; no java was found on PATH", _HINT)
    return Path(found)


def _version(java: Path) -> str:
    """Returns the version from the `release` file of the Java folder, which is faster than `java
    -version`.
    """
    try:
        release = (java.resolve().parent.parent / "release").read_text()
        if match := re.search(r'JAVA_VERSION="([^"]+)"', release):
            return match[1]
    except OSError:
        pass  # a Java folder without the file: run `java -version` instead
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{java} could not be run: {error}", _HINT) from error
    match = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    if match is None:
        raise LaunchError(f"{java} -version names no version: {answer.stderr.strip()[:200]!r}", _HINT)
    return match[1]


def _major(version: str) -> int:
    """Returns the major version. Java 8 calls itself 1.8.0_302, and early builds have names like 26-ea."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
