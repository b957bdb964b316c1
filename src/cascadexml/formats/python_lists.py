"""Texts and labels that are Python objects already: lists of names, or a CSR matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse

from cascadexml.formats.label_lists import LabelLists, LabelListsBuilder, Vocabulary, number_list
from cascadexml.formats.raw_corpus import RawCorpus, RawPart, column_corpus
from cascadexml.texts import Texts, TextsBuilder, encode


def raw_from_python(texts: Sequence[str], labels: Any, label_names: Sequence[str] | None) -> RawCorpus:
    packed = pack_texts(texts)
    num_labels = labels.shape[0] if issparse(labels) else _length(labels)
    if num_labels != len(packed):
        raise ValueError(f"{len(packed):,} texts but {num_labels:,} rows of labels; expected one for each text")
    notes: list[str] = []
    if issparse(labels):
        return _from_matrix(packed, csr_matrix(labels, copy=True), label_names, notes)
    if label_names is not None:
        raise ValueError(
            "label_names name a matrix's columns, but the labels are lists of names already; leave them out"
        )
    vocabulary = Vocabulary()
    part = RawPart(packed, _number_lists(labels, vocabulary))
    return RawCorpus({"train": part}, vocabulary.ids(), notes=notes)


def pack_texts(texts: Sequence[str]) -> Texts:
    if isinstance(texts, str | bytes):
        raise ValueError("texts is one string, expected a sequence of strings: [text]")
    builder = TextsBuilder()
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"texts[{row}] is {text!r:.60} ({type(text).__name__}), expected a string")
        builder.append(encode(text))
    return builder.finish()


def _length(labels: Any) -> int:
    if isinstance(labels, str | bytes):
        raise ValueError("labels is one string, expected a list of names for each text: [[name, name], ...]")
    if isinstance(labels, np.ndarray) and labels.ndim == 2 and labels.dtype != object:
        raise ValueError("labels is a dense array; expected lists of names, or scipy.sparse.csr_matrix(labels)")
    return len(labels)


def _number_lists(labels: Sequence[Any], vocabulary: Vocabulary) -> LabelLists:
    builder = LabelListsBuilder()
    for row, names in enumerate(labels):
        if isinstance(names, str | bytes) or not hasattr(names, "__iter__"):
            raise ValueError(f"labels[{row}] is {names!r:.60}, expected a list of names: [{names!r:.60}]")
        try:
            builder.append(number_list(names, vocabulary))
        except ValueError as error:
            raise ValueError(f"labels[{row}]: {error}") from None
    return builder.finish()


def _from_matrix(texts: Texts, matrix: csr_matrix, label_names: Sequence[str] | None, notes: list[str]) -> RawCorpus:
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    lists = LabelLists(matrix.indices.astype(np.int32), matrix.indptr.astype(np.int64))
    names = None
    if label_names is not None:
        if isinstance(label_names, str) or len(label_names) != matrix.shape[1]:
            raise ValueError(f"{len(label_names):,} label_names for {matrix.shape[1]:,} columns; expected one each")
        if any(not isinstance(name, str) or "\n" in name for name in label_names):
            raise ValueError("label_names must be strings without line breaks")
        names = Texts.from_strings(label_names)
    return column_corpus({"train": RawPart(texts, lists)}, matrix.shape[1], notes, names=names)
