"""A plan on the terminal and in files. Its errors go to stderr and decide the exit code."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from planner.cli.command import Output
from planner.cli.output import print_plan, show, write_report
from planner.model.diagnostic import ExitCode, Failure, Severity, worst
from planner.workflows.options import Option

if TYPE_CHECKING:
    from planner.model.forecast import Simulation
    from planner.model.plan import Plan


class PlanOutput(Output, frozen=True):
    """The output of a command that shows a plan, which may go into files as well."""

    markdown: Annotated[
        Path | None, Option("--markdown", "Write it as a comment for a pull request.", "FILE", path="file")
    ] = None
    html: Annotated[
        Path | None,
        Option("--html", "Write it as a page with a drawing of the topology.", "FILE", path="file"),
    ] = None

    def show_plan(
        self,
        make: "Callable[[], Plan]",
        simulate: "Callable[[Plan], Simulation] | None" = None,
        save: "Callable[[Plan], str] | None" = None,
        signature: str | None = None,
    ) -> "Plan":
        """Makes a plan, saves and writes it where that is requested, and prints it.

        `save` returns what it says to the user, which is printed last. Where there is no plan, an older one
        is removed, and the comment says why: a pull request or an apply must not take it for this one.
        """
        from planner.render.plan import documents

        with self.failures():
            try:
                plan = make()
                simulation = simulate(plan) if simulate is not None else None
                saved = save(plan) if save is not None else ""
            except Failure as failure:
                raise self._without_older_plan(failure) from None
            if self.markdown is not None:
                write_report(self.markdown, documents.markdown(plan, simulation=simulation))
            if self.html is not None:
                write_report(self.html, documents.html(plan, simulation))
            self._print(plan, signature, simulation)
        if saved:
            click.echo(saved, err=True)
        return plan

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Prints a failure as a document on stdout with --json."""
        try:
            yield
        except Failure as failure:
            if not self.as_json:
                raise
            from planner.render.plan.json import as_json, failure_tree

            click.echo(as_json(failure_tree(failure.diagnostics)))
            raise click.exceptions.Exit(int(failure.exit_code)) from None

    def _without_older_plan(self, failure: Failure) -> Failure:
        """Writes why there is no plan in place of an older one. Returns the failure to raise."""
        from planner.render.plan.documents import failed

        if self.markdown is None:
            return failure
        try:
            write_report(self.markdown, failed(failure.diagnostics))
        except Failure as unwritten:
            return Failure([*failure.diagnostics, *unwritten.diagnostics], failure.exit_code)
        return failure

    def _print(self, plan: "Plan", signature: str | None, simulation: "Simulation | None") -> None:
        """Prints a plan to stdout and its errors to stderr; JSON holds them."""
        if self.as_json:
            from planner.render.plan.json import json_text

            click.echo(json_text(plan, signature, simulation))
            return
        print_plan(plan)
        if simulation is not None:
            from planner.cli.console import print_lines as print_styled
            from planner.render.plan.documents import simulation_text

            click.echo()
            print_styled(lambda width: simulation_text(simulation, width))
        show([diagnostic for diagnostic in plan.diagnostics if diagnostic.severity is Severity.ERROR])


class SavedPlanOutput(PlanOutput, frozen=True):
    """The output of a command whose plan can be saved."""

    out: Annotated[
        Path | None,
        Option("--out", "Save the plan; repl apply FILE executes exactly it.", "FILE", path="file"),
    ] = None

    def save(self, plan: "Plan") -> str:
        """Saves a plan, and returns what to say about it.

        One that can't be applied is not saved: it could be picked up later and tried. So could an older plan.
        """
        from planner.workflows.applying.apply import remove_plan, save_plan

        if self.out is None:
            return ""
        if plan.errored:
            older = ", and the older plan there was removed" if remove_plan(self.out) else ""
            return f"{self.out} was not written{older}: this plan can't be applied."
        saved = save_plan(plan, self.out)
        signed = " and signed" if saved.signed else ""
        return (
            f"Saved to {self.out}{signed}. To do exactly this: repl apply {self.out}\n"
            f"Plan digest: {saved.digest}"
        )

    def _without_older_plan(self, failure: Failure) -> Failure:
        from planner.workflows.applying.apply import remove_plan

        failure = super()._without_older_plan(failure)
        try:
            if self.out is not None:
                remove_plan(self.out)
        except Failure as left:
            return Failure([*failure.diagnostics, *left.diagnostics], failure.exit_code)
        return failure


def exit_code(plan: "Plan", *, detailed: bool = False) -> int:
    """Returns 1 or 3 for errors, 1 for what could not be read, 2 for changes where that was asked."""
    from planner.model.plan import Mode

    refusal = worst(plan.diagnostics)
    if refusal is not ExitCode.DONE:
        return refusal
    if not plan.complete:
        return ExitCode.ERROR
    return (
        ExitCode.DIFFERENT if plan.changed and (detailed or plan.inputs.mode is Mode.DRIFT) else ExitCode.DONE
    )
