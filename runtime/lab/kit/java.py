"""This module finds Java, which the user must install, and checks its version."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from runtime.lab.errors import LabError

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
