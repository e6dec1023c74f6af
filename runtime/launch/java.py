"""Java 17 or newer, found before anything is started; its absence is one clear sentence."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from runtime.launch.launcher import LaunchError

OLDEST = 17
_WAY_OUT = "install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"


def find_java(environ: Mapping[str, str]) -> Path:
    """The java of JAVA_HOME, else of PATH."""
    java = _where(environ)
    version = _major(_version(java))
    if version < OLDEST:
        raise LaunchError(f"Spark needs Java {OLDEST} or newer; {java} is Java {version}", _WAY_OUT)
    return java


def _where(environ: Mapping[str, str]) -> Path:
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise LaunchError(
                f"JAVA_HOME is {home}, but there is no {java}", f"correct it, or {_WAY_OUT.split(' or ')[0]}"
            )
        return java
    found = shutil.which("java", path=environ.get("PATH", ""))
    if found is None:
        raise LaunchError(f"Spark needs Java {OLDEST} or newer; no java was found on PATH", _WAY_OUT)
    return Path(found)


def _version(java: Path) -> str:
    """From the file that comes with every Java, which is quicker than asking Java itself."""
    try:
        release = (java.resolve().parent.parent / "release").read_text()
        if said := re.search(r'JAVA_VERSION="([^"]+)"', release):
            return said[1]
    except OSError:
        pass  # put together by hand: it is asked
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{java} could not be run: {error}", _WAY_OUT) from error
    said = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    if said is None:
        raise LaunchError(f"{java} -version names no version: {answer.stderr.strip()[:200]!r}", _WAY_OUT)
    return said[1]


def _major(version: str) -> int:
    """1.8.0_302 is how Java 8 calls itself; early builds say 26-ea."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
