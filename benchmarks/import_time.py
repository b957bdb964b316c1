"""Seconds that `import cascadexml` takes in a fresh interpreter, beside the bare interpreter's start (quick)."""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

from rows import add_row


def seconds(code: str, repeats: int = 9) -> float:
    def once() -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - began

    return median(once() for _ in range(repeats))


if __name__ == "__main__":
    add_row(
        "import_time", "seconds (baseline: python -c pass)", seconds("import cascadexml"), seconds("pass"), ["numpy"]
    )
