"""Predictions out of the program: JSON lines, CSR matrices or a table, one answer for each input row."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cascadexml.cascade import Predictions
from cascadexml.corpus import Documents
from cascadexml.predictions_file import save_predictions_npz
from cascadexml.prepared import Labels

TEXT_WIDTH = 76


def check_output(output: Path | None) -> None:
    """Refuses a file that cannot be written before anything is computed."""
    if output is None:
        return
    if output.suffix not in (".jsonl", ".npz"):
        raise ValueError(f"-o {output}: expected a name that ends in .jsonl or .npz")
    if not output.absolute().parent.is_dir():
        raise ValueError(f"-o {output}: there is no folder {output.parent}; make it first")


def write_answers(predictions: Predictions, documents: Documents, labels: Labels, output: Path | None) -> None:
    if output is None:
        for line in _table(predictions, documents, labels):
            print(line)
    elif output.suffix == ".npz":
        save_predictions_npz(output, predictions.labels, predictions.scores, len(labels))
    else:
        _write_lines(output, _json_lines(predictions, documents, labels))
    if output is not None:
        print(f"{output}: {len(predictions):,} documents", file=sys.stderr)


def _write_lines(output: Path, lines: Iterator[str]) -> None:
    """Whole, or not there at all."""
    handle, temporary = tempfile.mkstemp(dir=output.absolute().parent, prefix=f".{output.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(lines)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(output)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _json_lines(predictions: Predictions, documents: Documents, labels: Labels) -> Iterator[str]:
    for row in range(len(predictions)):
        answer: dict[str, object] = {"row": row}
        if documents.row_ids is not None:
            answer["id"] = documents.row_ids[row]
        answer["labels"] = [
            {"id": labels.ids[label], **({"name": labels.names[label]} if labels.names else {}), "score": score}
            for label, score in _of_row(predictions, row)
        ]
        yield json.dumps(answer, ensure_ascii=False) + "\n"


def _table(predictions: Predictions, documents: Documents, labels: Labels) -> Iterator[str]:
    for row in range(len(predictions)):
        name = f"{documents.row_ids[row]} " if documents.row_ids is not None else ""
        text = " ".join(documents.texts[row].split())
        yield f"{row + 1}. {name}{text[:TEXT_WIDTH]}{'...' if len(text) > TEXT_WIDTH else ''}"
        for label, score in _of_row(predictions, row):
            shown = labels.ids[label] if labels.names is None or labels.names[label] == labels.ids[label] else (
                f"{labels.ids[label]}  {labels.names[label]}"
            )  # fmt: skip
            yield f"   {score:6.3f}  {shown}"
        yield ""


def _of_row(predictions: Predictions, row: int) -> list[tuple[int, float]]:
    pairs = zip(predictions.labels[row].tolist(), predictions.scores[row].tolist(), strict=True)
    return [(label, round(score, 6)) for label, score in pairs if label >= 0]
