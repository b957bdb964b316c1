"""Peak memory and time of reading a corpus of Amazon-3M's shape from raw texts and label lines."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from rows import add_row

LIMIT_GIB = 8.0
LOAD = """
import json, sys, time
from pathlib import Path
began = time.perf_counter()
from cascadexml.corpus import read_corpus
corpus = read_corpus(sys.argv[1])
seconds = time.perf_counter() - began
# not ru_maxrss, which a child inherits from the process that starts it
status = Path("/proc/self/status").read_text()
peak = int(status.split("VmHWM:")[1].split()[0]) / 2**20
print(json.dumps({
    "seconds": seconds, "peak": peak, "documents": len(corpus.train), "labels": corpus.num_labels,
    "pairs": corpus.train.labels.nnz,
}))
"""


def write_folder(folder: Path, num_documents: int, num_labels: int, labels_each: int) -> None:
    """Texts of about 100 characters; every label as likely as any other, the hardest case for memory caches."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), 5)) for _ in range(20_000)]
    texts = (folder / "train_texts.txt").open("w", encoding="utf-8")
    labels = (folder / "train_labels.txt").open("w", encoding="utf-8")
    with texts, labels:
        for start in range(0, num_documents, 10_000):
            num_rows = min(10_000, num_documents - start)
            for row in rng.integers(len(words), size=(num_rows, 17)).tolist():
                texts.write(" ".join([words[word] for word in row]) + "\n")
            for row in rng.integers(num_labels, size=(num_rows, labels_each)).tolist():
                labels.write(" ".join(map(str, row)) + "\n")


def load_in_subprocess(folder: Path) -> dict[str, float]:
    source = str(Path(__file__).parents[1] / "src")
    environment = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(folder)], env=environment, check=True, capture_output=True, text=True
    )
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_717_899)
    parser.add_argument("--labels", type=int, default=2_812_281)
    parser.add_argument("--labels-each", type=int, default=36)
    parser.add_argument("--no-row", action="store_true", help="print only, leave results.csv as it is")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder), options.documents, options.labels, options.labels_each)
        found = load_in_subprocess(Path(folder))
    print(
        f"{found['documents']:,} documents, {found['labels']:,} labels, {found['pairs']:,} pairs: "
        f"{found['seconds']:.1f} s, peak {found['peak']:.2f} GiB (limit {LIMIT_GIB:g})"
    )
    if options.no_row:
        return
    name = f"load_corpus {options.documents}x{options.labels_each} of {options.labels}"
    add_row(name, "peak GiB (baseline: the limit)", found["peak"], LIMIT_GIB, ["numpy", "scipy"])
    add_row(name, "seconds", found["seconds"], None, ["numpy", "scipy"])


if __name__ == "__main__":
    main()
