"""Finds the Java that Spark, and the brokers of a lab, run on."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from runtime.contract.launching import LaunchError

_OLDEST: Final = 17
_HINT: Final = "install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
Refusal = Callable[[str, str], Exception]  # makes an error of what is wrong and a hint


def find_java(environ: Mapping[str, str], refusal: Refusal = LaunchError) -> Path:
    """Returns the java of JAVA_HOME, or else of PATH.

    Raises a `refusal` if there is none of version 17 or newer.
    """
    java = _java_path(environ, refusal)
    # Java 8 calls itself 1.8.0_302, and early builds have names like 26-ea.
    numbers = [int(number) for number in re.findall(r"\d+", _version(java, refusal).removeprefix("1."))]
    version = numbers[0] if numbers else 0
    if version < _OLDEST:
        raise refusal(f"Java {_OLDEST} or newer is needed; {java} is Java {version}", _HINT)
    return java


def _java_path(environ: Mapping[str, str], refusal: Refusal) -> Path:
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if shutil.which(java) is None:
            raise refusal(
                f"JAVA_HOME is {home}, but there is no program {java}", "correct or unset JAVA_HOME"
            )
        return java
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is None:
        raise refusal(f"Java {_OLDEST} or newer is needed; no java was found on PATH", _HINT)
    return Path(on_path)


def _version(java: Path, refusal: Refusal) -> str:
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
        raise refusal(f"{java} could not be run: {error}", _HINT) from error
    match = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    if match is None:
        raise refusal(f"{java} -version names no version: {answer.stderr.strip()[:200]!r}", _HINT)
    return match[1]
