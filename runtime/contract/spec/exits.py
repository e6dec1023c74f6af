"""Defines the exit codes of a job's process, by which its supervisor decides whether to restart it."""

from enum import IntEnum


class JobExit(IntEnum):
    """Lists the exit codes of a job's process.

    STOPPED, BAD_SPEC and FENCED are final. After FAILED or any other number the supervisor starts the job
    again.
    """

    STOPPED = 0  # stopped on request
    FAILED = 1
    BAD_SPEC = 64
    FENCED = 75  # another driver runs the job: a fenced driver no longer acts (R10)

    @property
    def final(self) -> bool:
        """Returns whether the supervisor does not start the job again."""
        return self is not JobExit.FAILED
