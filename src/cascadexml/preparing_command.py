"""What `prepare` and `train` do with raw data: read them, tell what was read, make everything up to batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cascadexml.corpus import ReadOptions, read_corpus, summary_lines
from cascadexml.encoder import shape_of
from cascadexml.fit import prepare_corpus
from cascadexml.prepared import Prepared, statistics_table
from cascadexml.runlog import say


def read_options(
    label_separator: str | None,
    text_column: str | None,
    label_column: str | None,
    id_column: str | None,
    all_labels: bool,
    hold_out: float,
    seed: int,
) -> ReadOptions:
    """The readers' options as the command line gives them."""
    return ReadOptions(
        # a shell passes \t as two characters
        label_separator=label_separator.replace("\\t", "\t") if label_separator is not None else None,
        text_column=tuple(name.strip() for name in text_column.split(",")) if text_column else (),
        label_column=label_column,
        id_column=id_column,
        all_labels=all_labels,
        hold_out=hold_out,
        seed=seed,
    )


def read_and_prepare(
    data: Path,
    options: ReadOptions,
    encoder: str,
    max_tokens: int | None,
    seed: int,
    refit: bool,
    hold_out: bool = True,
) -> Prepared:
    """Reads, tells what was read, and makes everything up to batches."""
    # an encoder that is not there is told before a long read
    shape_of(encoder)
    corpus = read_corpus(data, options)
    for line in summary_lines(corpus):
        say(line)
    prepared = prepare_corpus(corpus, encoder, max_tokens, seed, refit=refit, hold_out=hold_out)
    for note in prepared.notes[len(corpus.notes) :]:
        say(f"  {note}")
    for line in statistics_table(prepared.statistics):
        say(line)
    return prepared


def refuse_with_prepared(given: dict[str, Any]) -> None:
    """Options that can only be given where texts are read."""
    for option, value in given.items():
        if value:
            raise ValueError(f"--{option} comes too late for a prepared folder: give it to `cascadexml prepare`")
