"""The progress of a long command on standard error: a bar on a terminal, elsewhere a line every half minute."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kafka_forensics.cli.streams import Screen
from kafka_forensics.model.amounts import size

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

BAR_AFTER_SECONDS: Final = 2.0
LINE_EVERY_SECONDS: Final = 30.0
_REDRAW_SECONDS: Final = 0.1


class Progress:
    """Called with (bytes done, bytes in total), or with numbers of tasks if `counts_tasks`, as often as the work likes.

    Shows nothing on a quiet screen, and nothing if the work ends soon.
    """

    def __init__(self, screen: Screen, *, counts_tasks: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = screen
        self._counts_tasks = counts_tasks
        self._clock = clock
        self._bar: Bar | None = None
        self._started = self._shown = clock()

    def __enter__(self) -> Self:
        self._call_before_compiling(self._announce_compiling)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._call_before_compiling(None)
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` bytes or tasks are done."""
        if self._screen.quiet:
            return
        now = self._clock()
        if not self._screen.animated:
            if now - self._shown >= LINE_EVERY_SECONDS:
                self._shown = now
                self._screen.stream.write(self._line(done, total, now - self._started))
                self._screen.stream.flush()
        elif now - self._started >= BAR_AFTER_SECONDS and now - self._shown >= _REDRAW_SECONDS:
            self._shown = now
            self._draw(done, total)

    def _call_before_compiling(self, announce: Callable[[], None] | None) -> None:
        if self._screen.animated and not self._screen.quiet:
            from kafka_forensics.parsers.kernels.compiling import call_before_compiling  # `--help` does without

            call_before_compiling(announce)

    def _announce_compiling(self) -> None:
        console = self._screen.console() if self._bar is None else self._bar.console
        console.print("compiling kernels: the first large scan takes up to half a minute longer")

    def _line(self, done: int, total: int, seconds: float) -> str:
        from kafka_forensics.wording import duration  # loads jinja2, which `--help` does without

        if self._counts_tasks:
            return f"{done} of {total} tasks are done, {duration(round(seconds) * 1000)}\n"
        rate = done / seconds
        remaining = f", about {duration(round((total - done) / rate) * 1000)} left" if done else ""
        return f"read {size(done)} of {size(total)} ({100 * done // max(total, 1)} %), {size(int(rate))}/s{remaining}\n"

    def _draw(self, done: int, total: int) -> None:
        if self._bar is None:
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                MofNCompleteColumn,
                Progress as Bar,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            byte_columns = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
            task_columns = (MofNCompleteColumn(), TextColumn("tasks"), TimeElapsedColumn())
            self._bar = Bar(
                BarColumn(),
                *(task_columns if self._counts_tasks else byte_columns),
                console=self._screen.console(),
                transient=True,
                auto_refresh=False,
                get_time=self._clock,
            )
            self._bar.add_task("read", total=total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, refresh=True)
