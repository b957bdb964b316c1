"""Texts and labels, read: any supported file or folder comes in, one Corpus goes out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from cascadexml.formats.dispatch import read_raw, read_texts
from cascadexml.formats.label_matrix import label_matrix, pair_matrix
from cascadexml.formats.label_set import LabelSet, choose_label_set, given_label_set
from cascadexml.formats.lines import lines_of
from cascadexml.formats.observations import fingerprints, label_notes, num_words, text_notes
from cascadexml.formats.options import ReadOptions
from cascadexml.formats.python_lists import raw_from_python
from cascadexml.formats.raw_corpus import RawCorpus, RawPart, hold_out_test
from cascadexml.formats.recognise import recognise
from cascadexml.texts import Texts

_USUAL = ReadOptions()


@dataclass(frozen=True, eq=False)
class Part:
    """Train, dev or test: documents and what is known of them."""

    texts: Texts
    labels: csr_matrix
    """documents x labels of the label set, bool, column indices sorted and unique"""
    num_unknown: np.ndarray
    """int32 a document: how many of its (distinct) labels are not in the label set"""
    num_unknown_labels: int = 0
    """distinct labels outside the label set in this part"""
    row_ids: Texts | None = None
    """what the file calls each document, where it has an id column"""
    features: csr_matrix | None = None
    """tf-idf (or other sparse features) that came with the data, float32"""
    excluded: csr_matrix | None = None
    """documents x labels, bool: pairs left out at evaluation (`filter_labels_*`)"""

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, eq=False)
class Corpus:
    """Everything that was read, over one label set (train's, in a fixed order)."""

    train: Part | None
    dev: Part | None
    test: Part | None
    label_ids: Texts
    label_names: Texts | None = None
    """same order as `label_ids`; where a label has no name, its id"""
    notes: tuple[str, ...] = field(default=())
    """what was decided while reading, one sentence each, for the summary"""
    source: str = ""

    @property
    def num_labels(self) -> int:
        return len(self.label_ids)

    def parts(self) -> dict[str, Part]:
        """The parts there are, by name, in the order train, dev, test."""
        named = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: part for name, part in named.items() if part is not None}


@dataclass(frozen=True, eq=False)
class Documents:
    """Texts alone, one for each input row and in that order, to be labelled."""

    texts: Texts
    row_ids: Texts | None = None
    """what the file calls each document, where it has an id column"""
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.texts)


def read_corpus(source: str | Path, options: ReadOptions = _USUAL, label_ids: Texts | None = None) -> Corpus:
    """Documents and labels of a folder or file of any known format.

    The label set is train's; with `label_ids`, a trained model's, it is those, and one file alone is the test part.
    """
    found = recognise(Path(source), options)
    raw = read_raw(found, options, [])
    if options.hold_out:
        raw = hold_out_test(raw, options.hold_out, options.seed)
    elif found.alone and label_ids is not None:
        raw.parts["test"] = raw.parts.pop("train")
        raw.notes.append(f"{source}: one file alone, read as the test part")
    return _assembled(raw, options, label_ids, str(source))


def read_documents(source: str | Path, options: ReadOptions = _USUAL) -> Documents:
    """Documents to label: a file of any format, a folder (its test part, or its only part), or "-": standard input."""
    notes: list[str] = []
    if str(source) == "-":
        return Documents(lines_of(sys.stdin.buffer, "standard input", notes), None, tuple(notes))
    found = recognise(Path(source), options)
    if "test" not in found.parts and len(found.parts) > 1:
        raise ValueError(
            f"{source} has the parts {', '.join(found.parts)} but no test part; name the file to read instead"
        )
    part = "test" if "test" in found.parts else next(iter(found.parts))
    texts, row_ids = read_texts(found, part, options, notes)
    return Documents(texts, row_ids, tuple([*notes, f"documents of {found.parts[part]}"]))


def corpus_from_python(
    texts: Sequence[str], labels: Any, label_names: Sequence[str] | None = None, label_ids: Texts | None = None
) -> Corpus:
    """A train part of Python objects: `labels` are lists of names, or a CSR matrix whose ids are column numbers.

    With `label_ids`, a trained model's, names are looked up among those.
    """
    return _assembled(raw_from_python(texts, labels, label_names), _USUAL, label_ids, "Python objects")


def _assembled(raw: RawCorpus, options: ReadOptions, label_ids: Texts | None, source: str) -> Corpus:
    for name, part in raw.parts.items():
        if not len(part):
            raise ValueError(f"{source}: the {name} part has no documents; fill its file or take it away")
    notes = raw.notes
    if label_ids is not None:
        if options.all_labels:
            notes.append("all_labels has no effect here: the label set is the model's")
        label_set = given_label_set(raw, label_ids, notes)
    elif "train" in raw.parts:
        label_set = choose_label_set(raw, options.all_labels, notes)
    else:
        raise ValueError(f"{source} has no train part, only {', '.join(raw.parts)}; train's labels are the label set")
    parts = {name: _part(name, part, label_set, notes) for name, part in raw.parts.items()}
    _note_texts(parts, notes)
    return Corpus(
        train=parts.get("train"),
        dev=parts.get("dev"),
        test=parts.get("test"),
        label_ids=label_set.ids,
        label_names=label_set.names,
        notes=tuple(notes),
        source=source,
    )


def _part(name: str, raw: RawPart, label_set: LabelSet, notes: list[str]) -> Part:
    num_labels = len(label_set.ids)
    matrix = label_matrix(raw.labels, label_set.position, num_labels)
    excluded = None
    if raw.excluded is not None:
        excluded = pair_matrix(raw.excluded, label_set.position, (len(raw), num_labels))
    notes.extend(label_notes(name, np.diff(matrix.known.indptr), matrix.num_unknown, matrix.num_repeated))
    if matrix.num_unknown_labels:
        total = int(matrix.num_unknown.sum())
        notes.append(f"{name}: {matrix.num_unknown_labels:,} labels, {total:,} times, are not in the label set")
    return Part(
        texts=raw.texts,
        labels=matrix.known,
        num_unknown=matrix.num_unknown,
        num_unknown_labels=matrix.num_unknown_labels,
        row_ids=raw.row_ids,
        features=raw.features,
        excluded=excluded,
    )


def _note_texts(parts: dict[str, Part], notes: list[str]) -> None:
    train = None
    for name, part in parts.items():
        found = fingerprints(part.texts)
        notes.extend(text_notes(name, part.texts, found, train))
        if name == "train":
            train = found


def statistics(corpus: Corpus) -> dict[str, int | float]:
    """The paper's table of a data set, but for the number of tf-idf features."""
    train = corpus.train
    numbers: dict[str, int | float] = {"labels": corpus.num_labels}
    numbers.update({f"{name} documents": len(part) for name, part in corpus.parts().items()})
    if train is not None:
        numbers["labels per document (ALpP)"] = train.labels.nnz / len(train)
        numbers["documents per label (APpL)"] = train.labels.nnz / corpus.num_labels
        numbers["words per document"] = num_words(train.texts) / len(train)
    return numbers


def summary_lines(corpus: Corpus) -> list[str]:
    """How the data were read, how large they are, and three examples to check it by."""
    lines = [f"Read {corpus.source}", *(f"  {note}" for note in corpus.notes)]
    lines += [f"  {name}: {_rounded(value)}" for name, value in statistics(corpus).items()]
    name, part = next(iter(corpus.parts().items()))
    for row in _examples(part):
        lines.append(f"  {name} document {row + 1}: {_shortened(part.texts[row], 100)}")
        lines.append(f"    labels: {_label_list(corpus, part, row)}")
    return lines


def _examples(part: Part) -> list[int]:
    """Three documents with text and labels, spread over the part; fewer where there are none."""
    usable = np.flatnonzero(~part.texts.is_empty() & (np.diff(part.labels.indptr) > 0))
    places = [place * (len(usable) - 1) // 2 for place in range(3)] if len(usable) else []
    return [int(usable[place]) for place in dict.fromkeys(places)]


def _label_list(corpus: Corpus, part: Part, row: int) -> str:
    columns = part.labels.indices[part.labels.indptr[row] : part.labels.indptr[row + 1]].tolist()
    shown = [f"{_shortened(corpus.label_ids[column], 60)}{_name_in_brackets(corpus, column)}" for column in columns[:5]]
    return ", ".join(shown) + (f" and {len(columns) - 5} more" if len(columns) > 5 else "")


def _name_in_brackets(corpus: Corpus, column: int) -> str:
    if corpus.label_names is None or corpus.label_names[column] == corpus.label_ids[column]:
        return ""
    return f" ({_shortened(corpus.label_names[column], 50)})"


def _shortened(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _rounded(value: int | float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
