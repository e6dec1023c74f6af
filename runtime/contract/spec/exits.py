"""How a job's process ends: what its supervisor goes by."""

from enum import IntEnum


class JobExit(IntEnum):
    """STOPPED, BAD_SPEC and FENCED are final; after FAILED or any other number a job is started again."""

    STOPPED = 0  # as asked
    FAILED = 1
    BAD_SPEC = 64
    FENCED = 75  # another driver has the job: whoever was it before acts no more (R10)

    @property
    def final(self) -> bool:
        return self is not JobExit.FAILED
