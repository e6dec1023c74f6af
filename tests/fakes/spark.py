"""A Spark that starts at once: a `spark-submit` that runs a driver which lives or ends as it is told.

It stands behind SPARK_HOME, so a supervisor is tested whole, with real processes, without Java and brokers.
"""

import sys
from pathlib import Path

_SUBMIT = """#!{python}
import os, pathlib, subprocess, sys
main = next(at for at, word in enumerate(sys.argv) if word.endswith("main.py"))
driver = subprocess.Popen([sys.executable, {driver!r}, *sys.argv[main:]])
if pathlib.Path({mode!r}).read_text() == "orphan":
    sys.exit(0)
code = driver.wait()
sys.exit(128 - code if code < 0 else code)
"""
_DRIVER = """
import os, pathlib, signal, sys, threading, time
parent = os.getppid()
how = pathlib.Path({mode!r}).read_text().split()
print("the driver is told to", *how, flush=True)
def follow():
    while os.getppid() == parent:
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)
if how[0] != "orphan":
    threading.Thread(target=follow, daemon=True).start()
def goodbye(*_):
    print("goodbye", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if how[0] == "deaf" else goodbye)
if how[0] == "orphan":
    print("the driver is process", os.getpid(), flush=True)
    time.sleep(60)
if how[0] == "long":
    print("x" * int(how[1]), flush=True)
if how[0] == "tell":
    print("the driver has the variables", *sorted(os.environ), "in", os.getcwd(), flush=True)
    sys.exit(0)
if how[0] == "end":
    time.sleep(float(how[2]))
    sys.exit(int(how[1]))
while how[0] == "turn":
    time.sleep(0.02)
    if pathlib.Path({mode!r}).read_text().split() != how:
        sys.exit(int(how[1]))
while True:
    time.sleep(1)
"""


class FakeSpark:
    """`home` is what SPARK_HOME is set to."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "spark"
        self._mode = folder / "mode"
        (self.home / "bin").mkdir(parents=True)
        driver, submit = self.home / "driver.py", self.home / "bin" / "spark-submit"
        driver.write_text(_DRIVER.format(mode=str(self._mode)))
        submit.write_text(_SUBMIT.format(python=sys.executable, driver=str(driver), mode=str(self._mode)))
        submit.chmod(0o755)
        self.drivers("run")

    def drivers(self, how: str) -> None:
        """From the next start on: `run`, `deaf`, `tell`, `end CODE SECONDS`; `turn CODE`, with the next.

        `long BYTES` prints a line. An `orphan` outlives its spark-submit.
        """
        self._mode.write_text(how)
