"""What a run tells: a display for people, JSON lines for programs, TensorBoard where it is installed."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from cascadexml.cascade import Step

LINE_SECONDS = 30.0
"""between two lines of progress where there is no terminal to draw on"""


def say(text: str = "") -> None:
    """To the user, beside whatever a command writes to standard output."""
    print(text, file=sys.stderr, flush=True)


class RunLog:
    """Quiet: no display. Without a folder: no files."""

    def __init__(self, folder: Path | None = None, quiet: bool = False) -> None:
        self.quiet = quiet
        self._file = (folder / "log.jsonl").open("a", encoding="utf-8") if folder else None
        self._board = _tensorboard(folder) if folder else None
        self._progress: Any = None
        self._task: Any = None
        self._last_line = 0.0

    def event(self, kind: str, **fields: Any) -> None:
        """One JSON line; numbers with a step also go to TensorBoard."""
        if self._file:
            self._file.write(json.dumps({"time": round(time.time(), 3), "event": kind, **fields}, default=str) + "\n")
            self._file.flush()
        if self._board and "update" in fields:
            for name, value in fields.items():
                if isinstance(value, int | float) and name != "update":
                    self._board.add_scalar(f"{kind}/{name}", value, fields["update"])

    def say(self, text: str) -> None:
        if self.quiet:
            return
        if self._progress:
            self._progress.console.print(text, markup=False, highlight=False)
        else:
            say(text)

    def start(self, total: int, done: int = 0) -> None:
        """Begins the display of `total` updates."""
        self._last_line = time.monotonic()
        if self.quiet or not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("training", total=total, completed=done, figures="")
        self._progress.start()

    def advance(self, done: int, total: int, epoch: float, figures: Mapping[str, str], seconds_left: float) -> None:
        text = " · ".join(f"{name} {value}" for name, value in figures.items())
        if self._progress:
            self._progress.update(
                self._task, completed=done, total=total, description=f"epoch {epoch:.1f}", figures=text
            )
        elif time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            self.say(f"epoch {epoch:.2f} · update {done:,} of {total:,} · {text} · {_duration(seconds_left)} left")

    def finish(self) -> None:
        """All updates are done."""
        if self._progress:
            self._progress.update(self._task, completed=self._progress.tasks[0].total)
        self.stop()

    def stop(self) -> None:
        if self._progress:
            self._progress.stop()
            self._progress = None

    def close(self) -> None:
        self.stop()
        if self._file:
            self._file.close()
        if self._board:
            self._board.close()


class Window:
    """Losses and recalls since they were last shown, summed on the device."""

    def __init__(self, num_levels: int, final_sees_all: bool) -> None:
        self._levels = num_levels
        self._final_sees_all = final_sees_all
        self._clear()

    def _clear(self) -> None:
        self._num_updates = 0
        self._losses: list[list[Tensor]] = [[] for _ in range(self._levels)]
        self._covered: list[list[Tensor]] = [[] for _ in range(self._levels)]
        self._positives = [0] * self._levels

    def add(self, steps: list[Step]) -> None:
        """One update, all its pieces."""
        self._num_updates += 1
        for step in steps:
            for level in range(self._levels):
                self._losses[level].append(step.losses[level])
                self._covered[level].append(step.num_covered[level])
                self._positives[level] += step.num_positives[level]

    def figures(self) -> dict[str, float]:
        """Per level, named from 1: mean loss of an update, and recall (%) of the shortlist it was given."""
        shown = {}
        for level in range(self._levels):
            shown[f"loss {level + 1}"] = float(sum(self._losses[level])) / self._num_updates
            is_final = level == self._levels - 1
            if level and not (is_final and self._final_sees_all):
                covered = float(sum(self._covered[level]))
                shown[f"recall {level + 1}"] = 100 * covered / max(1, self._positives[level])
        self._clear()
        return shown


def _tensorboard(folder: Path) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
