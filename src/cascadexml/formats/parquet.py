"""Parquet, by pyarrow, which is an extra."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def column_names(path: Path) -> list[str]:
    return list(_open(path).schema_arrow.names)


def read_rows(path: Path, columns: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    number = 0
    for batch in _open(path).iter_batches(batch_size=4096, columns=columns):
        for row in batch.to_pylist():
            number += 1
            yield f"{path}, row {number}", row


def _open(path: Path) -> Any:
    try:
        from pyarrow import ArrowInvalid
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ValueError(f"{path} is Parquet, which needs pyarrow: pip install cascadexml[parquet]") from None
    try:
        return ParquetFile(path)
    except ArrowInvalid as error:
        raise ValueError(f"{path}: not a whole Parquet file ({error})") from None
