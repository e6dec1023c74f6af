"""A real Apicurio Registry, in memory, with Confluent's API below `/apis/ccompat/v7`."""

import hashlib
import os
import subprocess
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.contract.extras import spark_package
from runtime.java import find_java
from runtime.lab.files import exclusive
from runtime.lab.ports import free_ports
from runtime.machine import cache_folder
from tests.labs import WITH_PARENT
from tests.records import wait_for

VERSION = "3.0.9"
_SHA_256 = "8fc13160eaaafeec930a9a93b7e82da1ee8caef3eae29c9ce4b403d80a1523ea"
_NAME = "apicurio-registry-app"
_MODULE = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="repl" module="tests"/><dependencies>
<dependency org="io.apicurio" name="{_NAME}" rev="{VERSION}" transitive="false" conf="default">
<artifact name="{_NAME}" type="zip" ext="zip" m:classifier="all"/>
</dependency></dependencies></ivy-module>"""
# The parents of its module are not needed for an archive that holds everything.
_SETTINGS = """<ivysettings><settings defaultResolver="public"/><resolvers>
<ibiblio name="public" m2compatible="true" usepoms="false"/></resolvers></ivysettings>"""
_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# No proxy of the environment leads to the loopback.
_LOOPBACK = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def apicurio(log: Path) -> Iterator[str]:
    """Yields the address of a registry that is empty. What it says goes to `log`."""
    port = next(free_ports())
    command = [*WITH_PARENT, str(find_java(os.environ)), *_JVM, "-jar", str(_runner())]
    variables = {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(port)}
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **variables})
    try:
        wait_for(lambda: _answers(process, url), 120, every=0.2, about=log.read_text)
        yield url
    finally:
        process.kill()
        process.wait(60)


def _answers(process: "subprocess.Popen[bytes]", url: str) -> bool:
    assert process.poll() is None, "the registry ended"
    try:
        with _LOOPBACK.open(f"{url}/subjects", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _runner() -> Path:
    """Fetches the registry with the Ivy of pyspark, if the user's cache has none."""
    folder = cache_folder() / f"{_NAME}-{VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(folder.parent / f"{folder.name}.lock", f"fetching {folder.name}", wait_s=900):
        if not folder.exists():
            with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
                archive = _fetched(Path(scratch))
                with archive.open("rb") as file:
                    assert hashlib.file_digest(file, "sha256").hexdigest() == _SHA_256
                made = Path(scratch) / "made"
                with zipfile.ZipFile(archive) as files:
                    files.extractall(made)
                made.rename(folder)
    (runner,) = folder.glob("*-runner.jar")
    return runner


def _fetched(scratch: Path) -> Path:
    package = spark_package()
    assert package is not None
    (ivy,) = (package / "jars").glob("ivy-*.jar")
    (scratch / "ivy.xml").write_text(_MODULE)
    (scratch / "settings.xml").write_text(_SETTINGS)
    command = [str(find_java(os.environ)), f"-Divy.default.ivy.user.dir={scratch / 'ivy'}", "-jar", str(ivy)]
    command += ["-settings", str(scratch / "settings.xml"), "-cache", str(scratch / "cache")]
    command += ["-ivy", str(scratch / "ivy.xml"), "-retrieve", str(scratch / "[artifact].[ext]")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    return scratch / f"{_NAME}.zip"
