"""Failpoints are off unless a test names one."""

import pytest

from runtime.slot.failpoints import VARIABLE, from_environment, no_failpoint


@pytest.mark.parametrize("environ", [{}, {VARIABLE: ""}])
def test_without_the_variable_failpoints_do_nothing(environ: dict[str, str]) -> None:
    assert from_environment(environ) is no_failpoint
    no_failpoint("before_flush")


def test_an_unknown_failpoint_is_refused() -> None:
    with pytest.raises(ValueError, match="elsewhere is no failpoint, they are before_flush"):
        from_environment({VARIABLE: "elsewhere:2"})


def test_only_the_named_failpoint_counts_its_passages() -> None:
    failpoint = from_environment({VARIABLE: "after_end:2"})
    failpoint("before_end")
    failpoint("after_end")  # the first of two: still alive
