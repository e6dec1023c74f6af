"""Says why YARN does not run an application, or gives it no containers, yet.

Spark's context is created only once YARN runs the application master. Until then nothing but the
ResourceManager knows what is missing: a full queue, say, or nodes without memory. It is asked over the JVM
that waits, by the tag of this driver.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext

_TAGS, _STAGING = "spark.yarn.tags", "spark.yarn.stagingDir"
_WAITING = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED")  # YARN has it, and does not run it
_FULL = 0.995  # of a queue's capacity, as the ResourceManager rounds it
_MOST_CHARACTERS = 400
# A ResourceManager or a file system that is away is asked again by the next call. By default, a call waits 15
# minutes for it.
_PATIENCE = {
    "yarn.resourcemanager.connect.max-wait.ms": "2000",
    "yarn.resourcemanager.connect.retry-interval.ms": "1000",
    "ipc.client.connect.max.retries": "1",
    "ipc.client.connect.timeout": "2000",
    "ipc.client.connect.max.retries.on.timeouts": "0",
    "ipc.client.rpc-timeout.ms": "5000",
}


def _settings(jvm: Any) -> Any:
    settings = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
    for key, value in _PATIENCE.items():
        settings.set(key, value)
    return settings


class YarnApplications:
    """Asks the ResourceManager for the application of a driver. Its calls block, for seconds at most.

    They return "" where the ResourceManager does not answer: Spark's own messages say that. `wanted` is the
    number of executors.
    """

    def __init__(self, driver: str, wanted: int) -> None:
        self._tag = f"repl-{driver}"
        self._wanted = max(wanted, 1)  # 0 leaves it to Spark
        self._client: Any = None
        self._files: Any = None
        self._staging: str | None = None
        self._staged: dict[str, int] = {}

    def prepare(self, conf: SparkConf) -> None:
        """Adds the tag by which the application is found to the settings of Spark."""
        conf.set(_TAGS, ",".join(filter(None, (conf.get(_TAGS), self._tag))))
        self._staging = conf.get(_STAGING)

    @property
    def shipped(self) -> int:
        """The bytes of files that Spark has copied to the cluster, as `waits_for` saw them last.

        They grow while a large archive is copied, of which YARN does not know yet. Spark's folder for the
        files of its applications belongs to a user, so this counts what all jobs of the user ship.
        """
        return sum(self._staged.values())

    def waits_for(self) -> str:
        """Returns why the application has no container yet; "" if it has one, or YARN does not know it."""
        with suppress(Py4JError, OSError):
            self._measure_staging()
        try:
            return next(
                (
                    self._described(application)
                    for application in self._applications()
                    if self._waits(application)
                ),
                "",
            )
        except (Py4JError, OSError):
            return ""

    def queue(self, application: str) -> str:
        """Returns how full the queue of the application is; "" if each executor has a container."""
        try:
            for running in self._applications():
                if running.getApplicationId().toString() == application:
                    # The application master has one more.
                    containers = running.getApplicationResourceUsageReport().getNumUsedContainers()
                    return "" if containers > self._wanted else self._filled(running.getQueue())
        except (Py4JError, OSError):
            return ""
        return ""

    def _measure_staging(self) -> None:
        """Notes the size of each folder below Spark's staging folder, which is removed at an end."""
        jvm: Any = SparkContext._jvm
        if jvm is None:
            return
        fs = jvm.org.apache.hadoop.fs
        if self._files is None:
            settings = _settings(jvm)
            base = fs.Path(self._staging).toUri() if self._staging else fs.FileSystem.getDefaultUri(settings)
            self._files = fs.FileSystem.newInstance(base, settings)  # Spark's own has its own patience
        home = self._files.getHomeDirectory()
        if self._staging:
            user = jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().getShortUserName()
            home = fs.Path(self._staging, user)
        staging = fs.Path(home, ".sparkStaging")
        for folder in self._files.listStatus(staging) if self._files.exists(staging) else ():
            size = self._files.getContentSummary(folder.getPath()).getLength()
            name = folder.getPath().getName()
            self._staged[name] = max(size, self._staged.get(name, 0))

    def _applications(self) -> list[Any]:
        jvm: Any = SparkContext._jvm
        if jvm is None:
            return []  # the JVM itself is starting
        if self._client is None:
            client = jvm.org.apache.hadoop.yarn.client.api.YarnClient.createYarnClient()
            client.init(_settings(jvm))
            client.start()
            self._client = client
        request = jvm.org.apache.hadoop.yarn.api.protocolrecords.GetApplicationsRequest.newInstance()
        tags = jvm.java.util.HashSet()
        tags.add(self._tag)
        request.setApplicationTags(tags)
        return list(self._client.getApplications(request))

    def _waits(self, application: Any) -> bool:
        """Returns whether no container runs the application master of an attempt yet."""
        if application.getYarnApplicationState().toString() not in _WAITING:
            return False
        attempt = application.getCurrentApplicationAttemptId()
        if attempt is None or attempt.getAttemptId() <= 0:
            return True
        return self._client.getApplicationAttemptReport(attempt).getAMContainerId() is None

    def _described(self, application: Any) -> str:
        said = " ".join(str(application.getDiagnostics() or "").split())[:_MOST_CHARACTERS]
        text = (
            f"YARN has no container for {application.getApplicationId().toString()}:"
            f" {self._filled(application.getQueue())}"
        )
        return f"{text}; the ResourceManager says: {said}" if said else text

    def _filled(self, queue: str) -> str:
        info = self._client.getQueueInfo(queue)
        used = info.getCurrentCapacity() if info is not None else 0.0
        return f"the queue {queue} of YARN is {'full' if used >= _FULL else f'{used:.0%} full'}"
