"""`repl status --watch`: look after look on one screen, with what came before as sparklines."""

import asyncio
import json
import sys
from collections import deque
from collections.abc import Mapping

import click
from rich.console import Group
from rich.live import Live

from planner.cli.printing import console, on_one_line, print_lines, terminal_width
from planner.cli.status import document
from planner.render.status.rows import FlowHistory
from planner.render.status.screen import DetailLevel, screen
from runtime.audit.status.facts import StatusRequest
from runtime.audit.status.join import join
from runtime.audit.status.reader import StatusReader
from runtime.contract.views.status_view import StatusView

_REMEMBERED = 20
_LATER_WITHIN_S = 3.0  # a cluster that is down must not hold what the others have to say


class FlowHistories:
    """The last rates and lags of each flow."""

    def __init__(self) -> None:
        self._rates: dict[str, deque[float | None]] = {}
        self._lags: dict[str, deque[float | None]] = {}

    def take(self, status: StatusView) -> Mapping[str, FlowHistory]:
        for flow in status.flows:
            self._rates.setdefault(flow.name, deque(maxlen=_REMEMBERED)).append(flow.records_per_s)
            self._lags.setdefault(flow.name, deque(maxlen=_REMEMBERED)).append(flow.lag_records)
        return {
            name: FlowHistory(tuple(rates), tuple(self._lags[name])) for name, rates in self._rates.items()
        }


async def watch(
    asked: StatusRequest, every_s: float, within_s: float, depth: DetailLevel, *, as_json: bool
) -> None:
    """Until it is interrupted. With `as_json`, a document a line."""
    trails = FlowHistories()
    live = (
        None
        if as_json or not sys.stdout.isatty()
        else Live(console=console(terminal_width()), auto_refresh=False)
    )
    async with StatusReader(asked, within_s) as looker:
        before = await looker.read()
        looker.within_s = min(within_s, _LATER_WITHIN_S)
        try:
            if live is not None:
                live.start()
            while True:
                await asyncio.sleep(every_s)
                now = await looker.read()
                status = join(asked, now, before)
                before = now
                _show(status, depth, trails.take(status), live, as_json=as_json)
        finally:
            if live is not None:
                live.stop()


def _show(
    status: StatusView,
    depth: DetailLevel,
    trails: Mapping[str, FlowHistory],
    live: Live | None,
    *,
    as_json: bool,
) -> None:
    if as_json:
        click.echo(json.dumps(document(status), ensure_ascii=False))
    elif live is not None:
        live.update(Group(*map(on_one_line, screen(status, terminal_width(), depth, trails))), refresh=True)
    else:
        print_lines(lambda width: screen(status, width, depth, trails))
        click.echo()


__all__ = ["FlowHistories", "watch"]
