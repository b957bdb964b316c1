"""The XC repository's train.txt (`N D L`, then `l1,l2 f:v f:v`) with the raw texts beside it."""

from __future__ import annotations

from cascadexml.formats.filters import column_number, read_excluded
from cascadexml.formats.label_names import read_label_names
from cascadexml.formats.lines import read_lines
from cascadexml.formats.matrix_lines import MatrixLines, read_matrix_lines
from cascadexml.formats.options import ReadOptions
from cascadexml.formats.raw_corpus import RawCorpus, RawPart, column_corpus
from cascadexml.formats.recognise import Source, matrix_file
from cascadexml.formats.sparse_features import check_rows, same_width


def read(source: Source, options: ReadOptions, notes: list[str]) -> RawCorpus:
    texts = {part: read_lines(path, notes) for part, path in source.parts.items()}
    matrices = {part: _read_matrix(source, part, len(texts[part]), notes) for part in texts}
    features = same_width({part: matrix.features for part, matrix in matrices.items()})
    num_columns = _num_columns(source, matrices)
    number_of = column_number(num_columns, [matrix.labels for matrix in matrices.values()])
    parts = {}
    for part, matrix in matrices.items():
        excluded = read_excluded(source.folder, part, len(texts[part]), number_of, notes)
        parts[part] = RawPart(texts[part], matrix.labels, None, features[part], excluded)
    listed = read_label_names(source.folder, notes)
    return column_corpus(parts, num_columns, notes, listed=listed)


def _read_matrix(source: Source, part: str, num_documents: int, notes: list[str]) -> MatrixLines:
    path = matrix_file(source.folder, part)
    if path is None:
        raise ValueError(
            f"{source.parts[part]} has no labels: neither {part}_labels.txt (a line of label ids for each text line) "
            f"nor {part}.txt (N D L, then l1,l2 f:v f:v) lies beside it"
        )
    matrix = read_matrix_lines(path, notes)
    check_rows(path, len(matrix.labels), num_documents, part)
    notes.append(f"{path.name}: labels and {matrix.features.shape[1]:,} sparse features for {part}")
    return matrix


def _num_columns(source: Source, matrices: dict[str, MatrixLines]) -> int | None:
    widths = {part: matrix.num_columns for part, matrix in matrices.items() if matrix.num_columns is not None}
    if len(set(widths.values())) > 1:
        said = ", ".join(f"{width:,} in {part}" for part, width in widths.items())
        raise ValueError(f"{source.folder}: the headers disagree on the number of labels: {said}")
    return next(iter(widths.values()), None)
