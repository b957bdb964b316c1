"""What a user may say about how data are read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadOptions:
    """How to read data, where looking at them is not enough."""

    label_separator: str | None = None
    """what stands between two labels of a line or cell; None: TAB where any line has one, else spaces"""
    text_column: tuple[str, ...] = ()
    """columns of CSV, JSONL or Parquet that hold the text, joined with a space; empty: the usual names"""
    label_column: str | None = None
    """the column that holds the labels; None: the usual names"""
    id_column: str | None = None
    """the column that holds a document's own id; None: the usual names, or no ids"""
    all_labels: bool = False
    """the label set takes in every id of labels.tsv, not only those of training documents"""
    hold_out: float = 0.0
    """share of the training documents, drawn by seed, that becomes the test part"""
    seed: int = 0
    """decides which documents are held out"""

    def __post_init__(self) -> None:
        if isinstance(self.text_column, str):
            raise ValueError(
                f"text_column is the string {self.text_column!r}, expected a tuple of column names: "
                f"({self.text_column!r},)"
            )
        if self.label_separator is not None and (self.label_separator == "" or "\n" in self.label_separator):
            raise ValueError(
                f"label_separator is {self.label_separator!r}, expected at least one character and no line break"
            )
        if not 0 <= self.hold_out < 1:
            raise ValueError(f"hold_out is {self.hold_out}, expected a share from 0 to below 1, such as 0.1")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}, expected a whole number from 0 on")
