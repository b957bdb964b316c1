"""Raw texts and label lines: train_texts.txt (or train_raw_texts.txt), train_labels.txt, and dev_*, test_* alike."""

from __future__ import annotations

from pathlib import Path

from cascadexml.formats.filters import read_excluded
from cascadexml.formats.label_lists import LabelLists, Vocabulary, choose_separator
from cascadexml.formats.label_names import read_label_names
from cascadexml.formats.lines import read_lines
from cascadexml.formats.options import ReadOptions
from cascadexml.formats.raw_corpus import RawCorpus, RawPart
from cascadexml.formats.recognise import Source
from cascadexml.formats.sparse_features import find_features
from cascadexml.formats.whole_number_labels import split_labels
from cascadexml.texts import Texts


def read(source: Source, options: ReadOptions, notes: list[str]) -> RawCorpus:
    texts = {part: read_lines(path, notes) for part, path in source.parts.items()}
    vocabulary = Vocabulary()
    labels = _read_labels(source, texts, vocabulary, options, notes)
    features = find_features(source.folder, {part: len(texts[part]) for part in texts}, notes)
    parts = {}
    for part in texts:
        excluded = read_excluded(source.folder, part, len(texts[part]), vocabulary.get, notes)
        parts[part] = RawPart(texts[part], labels[part], None, features.get(part), excluded)
    listed = read_label_names(source.folder, notes)
    return RawCorpus(parts, vocabulary.ids(), listed=listed, notes=notes)


def _read_labels(
    source: Source, texts: dict[str, Texts], vocabulary: Vocabulary, options: ReadOptions, notes: list[str]
) -> dict[str, LabelLists]:
    paths = {part: source.folder / f"{part}_labels.txt" for part in texts}
    lines = {}
    for part, path in paths.items():
        if not path.exists():
            raise ValueError(
                f"{path} is missing: {source.parts[part].name} needs its labels, a line for each text line"
            )
        lines[part] = read_lines(path, notes)
        _check_same_number(path, len(lines[part]), source.parts[part], len(texts[part]))
    separator = choose_separator(lines.values(), options.label_separator, notes)
    return {part: split_labels(lines[part], separator, vocabulary, paths[part].name) for part in lines}


def _check_same_number(labels: Path, num_labels: int, texts: Path, num_texts: int) -> None:
    if num_labels != num_texts:
        raise ValueError(
            f"{labels}:{min(num_labels, num_texts) + 1}: {labels.name} has {num_labels:,} lines, but {texts.name} has "
            f"{num_texts:,}; each text line needs its label line (an empty one for a document without labels)"
        )
