"""This module runs Ivy to fetch jars, reports progress, and turns failures into one sentence."""

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from xml.sax.saxutils import quoteattr

from runtime.lab.errors import LabError

# It names an Ivy settings file, for a company's own mirror, as for Spark's packages.
SETTINGS = "REPL_IVY_SETTINGS"
_RETRIEVE = "[artifact]-[revision](-[classifier]).[ext]"
_FULL = ("No space left on device", "Disk quota exceeded", "File too large")
_FOUND, _FETCHED = "found ", "[SUCCESSFUL ]"

Report: TypeAlias = Callable[[str, int, int], None]  # activity, steps done, total steps


@dataclass(frozen=True, slots=True)
class IvyDependency:
    """An IvyDependency names one artifact."""

    organisation: str
    name: str
    version: str
    transitive: bool = False


@dataclass(frozen=True, slots=True)
class IvyRequest:
    """An IvyRequest names the artifacts of one set of jars."""

    name: str
    dependencies: tuple[IvyDependency, ...]
    count: int  # approximate number of jars, for the progress only


def resolve(java: str, ivy: Path, request: IvyRequest, scratch: Path, into: Path, report: Report) -> None:
    """Fetches the jars. Ivy writes only below `scratch`, its cache included. Raises LabError."""
    module = scratch / "ivy.xml"
    module.write_text(_module(request.dependencies))
    command = [
        *(java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
        f"-Divy.default.ivy.user.dir={scratch / 'ivy'}",
        *("-jar", str(ivy), "-cache", str(scratch / "cache"), "-ivy", str(module)),
        *_settings(),
        *("-retrieve", str(into / _RETRIEVE)),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            said = list(_counted(process.stdout, request, report))
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise explained(request, said)


def _settings() -> tuple[str, ...]:
    chosen = os.environ.get(SETTINGS)
    if not chosen:
        return ()
    if not Path(chosen).is_file():
        raise LabError(f"{SETTINGS} names {chosen}, which is no file", f"correct or unset {SETTINGS}")
    return "-settings", chosen


def _counted(lines: Iterable[str], request: IvyRequest, report: Report) -> Iterator[str]:
    """Yields Ivy's lines and reports progress.

    Each module is found first, which is slower, and then fetched.
    """
    found = fetched = 0
    for raw in lines:
        line = raw.strip()
        found += line.startswith(_FOUND)
        fetched += line.startswith(_FETCHED)
        total = 2 * request.count
        report(f"fetching {request.name}", min(found + fetched, total), total)
        yield line


def _module(dependencies: Iterable[IvyDependency]) -> str:
    wanted = "".join(_dependency(one) for one in dependencies)
    return (
        '<ivy-module version="2.0"><info organisation="repl" module="lab"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )


def _dependency(one: IvyDependency) -> str:
    configurations = "master,compile,runtime" if one.transitive else "master"
    return (
        f"<dependency org={quoteattr(one.organisation)} name={quoteattr(one.name)}"
        f" rev={quoteattr(one.version)} transitive={quoteattr(str(one.transitive).lower())}"
        f" conf={quoteattr(f'default->{configurations}')}/>"
    )


def explained(request: IvyRequest, said: list[str]) -> LabError:
    """Returns the error for Ivy's output."""
    if any(sign in line for line in said for sign in _FULL):
        return LabError(
            f"the disk is full: {request.name} could not be fetched",
            "free some space (about 150 MB), or set XDG_CACHE_HOME to a folder that has it",
        )
    reason = _reason(said)
    return LabError(
        f"{request.name} could not be fetched{f': {reason}' if reason else ''}",
        f"check the network, or name your company's mirror in an Ivy settings file with {SETTINGS}",
    )


def _reason(said: list[str]) -> str:
    """Returns the first line of Ivy's output that states a cause; later errors follow from it."""
    for line in said:
        for sign in (
            "Host ",
            "java.net.",
            "javax.net.ssl.",
            "Server access",
            "unresolved dependency:",
            "Exception",
        ):
            if sign in line:
                return line.lstrip(":\t ").removeprefix("WARN: ")[:160]
    return ""
