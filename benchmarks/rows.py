"""Rows of results.csv: what was measured, on which device, at which commit, beside which baseline. Not a benchmark."""

from __future__ import annotations

import csv
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).with_name("results.csv")
COLUMNS = ["date", "benchmark", "device", "commit", "versions", "metric", "value", "baseline", "ratio"]


def add_row(
    benchmark: str, metric: str, value: float, baseline: float | None, packages: Sequence[str], device: str = ""
) -> None:
    """Appends one row, and prints it; the ratio is value / baseline."""
    row: dict[str, object] = {
        "date": date.today().isoformat(),
        "benchmark": benchmark,
        "device": device or f"CPU, {os.cpu_count()} cores",
        "commit": commit(),
        "versions": "; ".join([f"python {platform.python_version()}", *(f"{p} {version(p)}" for p in packages)]),
        "metric": metric,
        "value": f"{value:.4g}",
        "baseline": "" if baseline is None else f"{baseline:.4g}",
        "ratio": "" if baseline is None else f"{value / baseline:.3f}",
    }
    is_new = not RESULTS.exists()
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)
    print(", ".join(f"{name} {row[name]}" for name in ("benchmark", "metric", "value", "baseline", "ratio")))


def commit() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=RESULTS.parent, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"
