"""The label set: which of a RawCorpus's label numbers are labels, in which order, under which names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cascadexml.formats.raw_corpus import RawCorpus
from cascadexml.texts import Texts, TextsBuilder

_WHOLE_NUMBER = re.compile(rb"-?[0-9]{1,18}")


@dataclass(frozen=True, eq=False)
class LabelSet:
    ids: Texts
    names: Texts | None
    position: np.ndarray
    """int32: label number of the RawCorpus -> place in `ids`, -1 outside the set"""


def choose_label_set(raw: RawCorpus, all_labels: bool, notes: list[str]) -> LabelSet:
    """Train's labels, sorted; in matrix formats every column, in the matrix's order."""
    if raw.num_columns is not None:
        return _columns(raw, all_labels, notes)
    in_train = np.zeros(len(raw.ids), dtype=bool)
    in_train[raw.parts["train"].labels.numbers] = True
    numbers = np.flatnonzero(in_train)
    if not len(numbers):
        raise ValueError("no document of train has a label; check the label file or column, and the label separator")
    notes.append(f"label set: the {len(numbers):,} labels of train, sorted")
    ids = _byte_list(raw.ids.take(numbers))
    further = _further_listed(raw, ids, notes) if all_labels else []
    if further:
        ids += further
        return _placed(raw, _from_bytes(ids[place] for place in _in_order(ids)))
    order = _in_order(ids)
    position = np.full(len(raw.ids), -1, dtype=np.int32)
    position[numbers[order]] = np.arange(len(numbers), dtype=np.int32)
    sorted_ids = raw.ids.take(numbers[order])
    return LabelSet(sorted_ids, _names(raw, sorted_ids, position), position)


def given_label_set(raw: RawCorpus, label_ids: Texts, notes: list[str]) -> LabelSet:
    """A trained model's labels: those of the data are looked up among them."""
    label_set = _placed(raw, label_ids)
    known = int((label_set.position >= 0).sum())
    notes.append(f"label set: the {len(label_ids):,} labels given; {known:,} of the data's {len(raw.ids):,} are in it")
    return label_set


def _columns(raw: RawCorpus, all_labels: bool, notes: list[str]) -> LabelSet:
    assert raw.num_columns is not None
    if not len(raw.parts["train"].labels.numbers):
        raise ValueError("no document of train has a label; check the label matrix")
    if all_labels:
        notes.append("all_labels has no effect here: every column of the label matrix is in the label set already")
    notes.append(f"label set: all {raw.num_columns:,} columns, in their order")
    position = np.arange(len(raw.ids), dtype=np.int32)
    position[raw.num_columns :] = -1
    columns = np.arange(raw.num_columns)
    ids = raw.ids if raw.num_columns == len(raw.ids) else raw.ids.take(columns)
    return LabelSet(ids, _names(raw, ids, position), position)


def _placed(raw: RawCorpus, ids: Texts) -> LabelSet:
    place = {label: number for number, label in enumerate(_byte_list(ids))}
    if len(place) < len(ids):
        raise ValueError(f"{len(ids) - len(place):,} of the {len(ids):,} label ids given stand there more than once")
    position = np.fromiter(
        (place.get(label, -1) for chunk in raw.ids.byte_chunks() for label in chunk), dtype=np.int32, count=len(raw.ids)
    )
    return LabelSet(ids, _names(raw, ids, position), position)


def _further_listed(raw: RawCorpus, ids: list[bytes], notes: list[str]) -> list[bytes]:
    if raw.listed is None:
        notes.append("all_labels has no effect here: there is no labels.tsv")
        return []
    known = set(ids)
    further = [label for label in _byte_list(raw.listed.ids) if label not in known]
    notes.append(f"label set: and {len(further):,} more of labels.tsv, which no document of train has")
    return further


def _names(raw: RawCorpus, ids: Texts, position: np.ndarray) -> Texts | None:
    """labels.tsv's name, else the format's own, else the id; None where there are no names at all."""
    if raw.listed is None and raw.names is None:
        return None
    names = _byte_list(ids)
    if raw.names is not None:
        for number, name in enumerate(_byte_list(raw.names)):
            if position[number] >= 0 and name:
                names[position[number]] = name
    if raw.listed is not None:
        listed = dict(zip(_byte_list(raw.listed.ids), _byte_list(raw.listed.names), strict=True))
        names = [listed.get(label, name) for label, name in zip(_byte_list(ids), names, strict=True)]
    return _from_bytes(names)


def _in_order(ids: list[bytes]) -> np.ndarray:
    """Places by value where all are whole numbers, else by their bytes: no order depends on that of the documents."""
    if all(map(_WHOLE_NUMBER.fullmatch, ids)):
        values = np.fromiter(map(int, ids), dtype=np.int64, count=len(ids))
        if len(np.unique(values)) == len(values):
            return np.argsort(values)
        # 7 and 007 are two labels
        return np.array(sorted(range(len(ids)), key=lambda place: (int(ids[place]), ids[place])))
    return np.array(sorted(range(len(ids)), key=ids.__getitem__))


def _byte_list(texts: Texts) -> list[bytes]:
    return [string for chunk in texts.byte_chunks() for string in chunk]


def _from_bytes(strings: Iterable[bytes]) -> Texts:
    builder = TextsBuilder()
    for string in strings:
        builder.append(string)
    return builder.finish()
