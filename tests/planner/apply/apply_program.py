"""`repl apply PATH --auto-approve --json` with two things that only tests want: a short lease, and a signal
that the process sends itself right after its first step ended, or so many of them, or the first whose id
begins with STEP.

python apply_program.py PATH LEASE_MS [SIGNAL [COUNT or STEP]]
"""

import os
import signal
import sys
from pathlib import Path

from planner.cli.output import show
from planner.cli.view import TerminalView, interruptible
from planner.kafka import run
from planner.model.diagnostic import Failure
from planner.model.step import StepsEnded
from planner.state import planfile
from planner.workflows.applying.session import ApplySession
from planner.workflows.audit.access import endpoints_of
from planner.workflows.interaction import ProgressEvent
from planner.workflows.plans import observe_and_plan
from planner.workflows.requests import ChangeRequest, TopologyRequest
from planner.workflows.topology import load_and_lint
from tests.fakes.applying import tools

TIMEOUT_MS = 10_000


class Signalling(TerminalView):
    """Sends the signal in the very moment between that step's end and the next one's beginning."""

    def __init__(self, number: signal.Signals | None, after: str) -> None:
        super().__init__(as_json=True)
        self._number = number
        self._after = after
        self._count = 0

    def __call__(self, event: ProgressEvent) -> None:
        super().__call__(event)
        if not isinstance(event, StepsEnded):
            return
        self._count += len(event.results)
        if self._number is None or not self._due(event):
            return
        number, self._number = self._number, None
        os.kill(os.getpid(), number)

    def _due(self, event: StepsEnded) -> bool:
        if self._after.isdigit():
            return self._count >= int(self._after)
        return any(step.id.startswith(self._after) for step, _ in event.results)


def main(path: Path, lease_ms: int, number: signal.Signals | None, after: str) -> int:
    known = planfile.is_plan_file(path)
    plan = (
        planfile.load(path).plan()
        if known
        else run(observe_and_plan(load_and_lint(TopologyRequest(path)).topology, TIMEOUT_MS / 1000))
    )
    view = Signalling(number, after)
    session = ApplySession(
        plan=plan,
        request=ChangeRequest(path, timeout_ms=TIMEOUT_MS),
        endpoints=endpoints_of(plan.connections.values()),
        tools=tools(),
        progress=view,
        interrupts=interruptible,
        lease_ttl_ms=lease_ms,
    )
    try:
        result = run(session.carry_out())
        view(result)
        return int(result.exit_code)
    except Failure as failure:
        show(failure.diagnostics)
        return int(failure.exit_code)


if __name__ == "__main__":
    wanted = signal.Signals[sys.argv[3]] if len(sys.argv) > 3 else None
    after = sys.argv[4] if len(sys.argv) > 4 else ""
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), wanted, after))
