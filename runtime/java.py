"""Finds the Java that Spark, and the brokers of a lab, run on."""

from __future__ import annotations

import errno
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from runtime.contract.launching import LaunchError

_OLDEST: Final = 17
_PACKAGE: Final = "(Debian: apt-get install openjdk-17-jre-headless)"
_HINT: Final = f"install it {_PACKAGE} or set JAVA_HOME"
_ELF: Final = b"\x7fELF"
_SCRIPT: Final = b"#!"
Refusal = Callable[[str, str], Exception]  # makes an error of what is wrong and a hint


def find_java(environ: Mapping[str, str], refusal: Refusal = LaunchError) -> Path:
    """Returns the java of JAVA_HOME, or else of PATH.

    Raises a `refusal` if there is none of version 17 or newer that runs on this machine.
    """
    java = _java_path(environ, refusal)
    home = environ.get("JAVA_HOME")

    def not_run(why: str) -> Exception:
        if not home:
            return refusal(f"{java} {why}", _HINT)
        return refusal(
            f"JAVA_HOME is {home}, but {java} {why}",
            f"correct or unset JAVA_HOME, or install Java {_PACKAGE} and set it",
        )

    # Java 8 calls itself 1.8.0_302, and early builds have names like 26-ea.
    numbers = [int(number) for number in re.findall(r"\d+", _version(java, not_run).removeprefix("1."))]
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


def _version(java: Path, not_run: Callable[[str], Exception]) -> str:
    """Returns the version from the `release` file of the Java folder, which is faster than `java
    -version`.

    A program that seems to be of another machine is run all the same: an emulator may be installed.
    """
    released = None
    try:
        release = (java.resolve().parent.parent / "release").read_text()
        released = re.search(r'JAVA_VERSION="([^"]+)"', release)
    except OSError:
        pass  # a Java folder without the file: run `java -version` instead
    if released is not None and not _is_of_another_machine(java):
        return released[1]
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        raise not_run("did not answer -version within 30 s") from None
    except OSError as error:
        of_another = ": it is made for another kind of machine" if error.errno == errno.ENOEXEC else ""
        raise not_run(f"could not be run ({error.strerror}){of_another}") from error
    match = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    if match is None:
        raise not_run(f"-version names no version: {answer.stderr.strip()[:200]!r}")
    return match[1]


def _is_of_another_machine(java: Path) -> bool:
    """Returns whether a program has another format or processor than the Python that runs this."""
    try:
        formats = [_format(java), _format(Path(sys.executable))]
    except OSError:
        return False  # what can't be read may run
    return formats[0] != formats[1] and not formats[0].startswith(_SCRIPT)


def _format(program: Path) -> bytes:
    """Returns the format of a program, its word size and, of ELF, its processor."""
    with program.open("rb") as opened:
        head = opened.read(20)
    return head[:5] + head[18:20] if head.startswith(_ELF) else head[:4]
