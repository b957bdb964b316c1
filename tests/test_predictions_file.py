import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_matrix, csr_matrix, save_npz

from cascadexml import predictions_file
from cascadexml.predictions_file import load_predictions_npz, save_predictions_npz


def reference(matrix: list[dict[int, float]], k: int) -> list[list[int]]:
    ranked = [sorted(row, key=lambda label: (-row[label], label))[:k] for row in matrix]
    return [row + [-1] * (k - len(row)) for row in ranked]


def csr(rows: list[dict[int, float]], num_labels: int, *, backwards: bool = False) -> csr_matrix:
    """Stores zeros too; `backwards` in falling order of labels."""
    ordered = [sorted(row.items(), reverse=backwards) for row in rows]
    data = np.array([score for row in ordered for _, score in row], dtype=np.float32)
    indices = np.array([label for row in ordered for label, _ in row], dtype=np.int32)
    return csr_matrix((data, indices, np.cumsum([0, *map(len, rows)])), shape=(len(rows), num_labels))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.dictionaries(st.integers(0, 9), st.sampled_from([-1.0, 0.0, 0.5, 2.0])), max_size=8),
    k=st.integers(1, 6),
    backwards=st.booleans(),
    entries=st.integers(1, 9),
)
def test_ranks_as_loops_do(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[int, float]], k: int, backwards: bool, entries: int
) -> None:
    path = tmp_path_factory.mktemp("ranks") / "scores.npz"
    save_npz(path, csr(rows, 10, backwards=backwards), compressed=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predictions_file, "_CHUNK_ENTRIES", entries)
        patch.setattr(predictions_file, "_CHUNK_DOCUMENTS", 3)
        predicted, scores = load_predictions_npz(path, len(rows), 10, k)
    wanted = reference(rows, k)
    assert predicted.tolist() == wanted
    assert scores.tolist() == [
        [row[label] if label >= 0 else 0.0 for label in labels] for row, labels in zip(rows, wanted, strict=True)
    ]


def test_round_trip(tmp_path: Path) -> None:
    predicted = np.array([[3, 0, -1], [-1, -1, -1], [1, 2, 3]])
    scores = np.array([[0.9, 0.0, 0.0], [0.0, 0.0, 0.0], [0.5, 0.25, 0.1]], dtype=np.float32)
    path = tmp_path / "out.npz"
    save_predictions_npz(path, predicted, scores, 4)
    save_predictions_npz(path, predicted, scores, 4)
    assert [file.name for file in tmp_path.iterdir()] == ["out.npz"]
    loaded, loaded_scores = load_predictions_npz(path, 3, 4, 3)
    np.testing.assert_array_equal(loaded, predicted)
    np.testing.assert_array_equal(loaded_scores, scores)
    assert loaded_scores.dtype == np.float32


def test_equal_scores_keep_their_order(tmp_path: Path) -> None:
    """Labels 3 and 1 score alike, in this order; sorting by label id would turn them around."""
    predicted = np.array([[3, 1, 2], [2, 1, 0]])
    scores = np.array([[1.0, 1.0, 1.0], [0.5, 0.5, 0.1]], dtype=np.float32)
    save_predictions_npz(tmp_path / "out.npz", predicted, scores, 4)
    loaded, loaded_scores = load_predictions_npz(tmp_path / "out.npz", 2, 4, 3)
    np.testing.assert_array_equal(loaded, predicted)
    np.testing.assert_allclose(loaded_scores, scores, rtol=1e-6)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.npz"
    path.write_bytes(b"old")

    def fail(*arguments: object, **options: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(predictions_file, "save_npz", fail)
    with pytest.raises(OSError, match="disk full"):
        save_predictions_npz(path, np.array([[0]]), np.array([[1.0]]), 1)
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["out.npz"]


def saved(path: Path, **changed: np.ndarray) -> Path:
    members = {
        "data": np.array([0.5, 0.25, 1.0]),
        "indices": np.array([0, 2, 1]),
        "indptr": np.array([0, 2, 3]),
        "shape": np.array([2, 3]),
        "format": np.array(b"csr"),
    }
    np.savez(path, **{name: value for name, value in (members | changed).items() if value.size})
    return path


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shape": np.array([2, 4])}, "holds 2 x 4 scores, wanted 2 documents x 3 labels"),
        ({"data": np.array([0.5, np.nan, 1.0])}, "scores are nan or the like, first in row 0"),
        ({"data": np.array([0.5, 1.0, np.inf])}, "scores are inf or the like, first in row 1"),
        ({"data": np.array([0.5, 1.0, 1j])}, "type complex128, wanted real numbers"),
        ({"data": np.array([0.5, None, 1.0])}, "not an .npz of plain arrays"),
        ({"indices": np.array([0, 3, 1])}, "don't make a csr matrix"),
        ({"indices": np.array([0.0, 2.0, 1.0])}, "don't make a csr matrix"),
        ({"indptr": np.array([0, 4, 3])}, "don't make a csr matrix"),
        ({"indptr": np.array([0, 3])}, "don't make a csr matrix"),
        ({"indices": np.array([2, 2, 1])}, "row 0 scores label 2 twice"),
        ({"indices": np.array([])}, "an .npz without indices, so not a sparse matrix"),
    ],
)
def test_refuses_what_is_no_matrix_of_scores(tmp_path: Path, changed: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_predictions_npz(saved(tmp_path / "bad.npz", **changed), 2, 3, 2)


def test_refuses_foreign_and_damaged_files(tmp_path: Path) -> None:
    good = saved(tmp_path / "good.npz").read_bytes()
    path = tmp_path / "bad.npz"
    for content in (good[: len(good) // 2], good[:200] + b"x" * 40 + good[240:], b""):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.npz: .*(damaged or cut short|don't make|not an .npz)"):
            load_predictions_npz(path, 2, 3, 2)
    np.save(tmp_path / "array.npy", np.ones(3))
    for content in (b"label one, label two\n", pickle.dumps({"a": 1}), (tmp_path / "array.npy").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"not an \.npz of plain arrays; write predictions with scipy"):
            load_predictions_npz(path, 2, 3, 2)
    save_npz(path, coo_matrix(np.eye(3)))
    with pytest.raises(ValueError, match="holds a coo matrix, wanted csr"):
        load_predictions_npz(path, 3, 3, 2)
    with pytest.raises(ValueError, match="there is no such file"):
        load_predictions_npz(tmp_path / "none.npz", 2, 3, 2)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, bool])
def test_reads_every_kind_of_score(tmp_path: Path, dtype: type) -> None:
    path = saved(tmp_path / "scores.npz", data=np.array([1, 1, 1], dtype=dtype))
    predicted, scores = load_predictions_npz(path, 2, 3, 3)
    assert predicted.tolist() == [[0, 2, -1], [1, -1, -1]]
    assert scores.tolist() == [[1, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_writes_every_kind_of_score(tmp_path: Path, dtype: type) -> None:
    save_predictions_npz(tmp_path / "scores.npz", np.array([[2, 0]]), np.array([[0.5, 0.25]], dtype=dtype), 3)
    predicted, scores = load_predictions_npz(tmp_path / "scores.npz", 1, 3, 2)
    assert predicted.tolist() == [[2, 0]]
    assert scores.tolist() == [[0.5, 0.25]]
