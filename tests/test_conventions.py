import numpy as np
import pytest
from scipy.sparse import csr_matrix

from cascadexml.conventions import ALL, KNOWN, Judged, check_predictions, compact, find_hits, judge

# Label 2 has no training document. Documents: two labels; only an unseen one; only unknown ones; none at all.
COUNTS = np.array([5, 1, 0, 3])
TRUTH = csr_matrix(np.array([[1, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=bool))
UNKNOWN = np.array([1, 0, 2, 0], dtype=np.int32)
PREDICTED = np.array([[2, 0, 3], [2, 1, -1], [0, -1, -1], [1, -1, -1]])
SCORES = np.array([[0.9, 0.5, 0.2], [0.8, 0.1, 0.0], [0.7, 0.0, 0.0], [0.6, 0.0, 0.0]], dtype=np.float32)


def judged(convention: str, excluded: csr_matrix | None = None) -> Judged:
    return judge(PREDICTED, SCORES, TRUTH, UNKNOWN, COUNTS, convention=convention, excluded=excluded)


def test_known_labels_leave_truth_and_prediction() -> None:
    known = judged(KNOWN)
    assert known.documents.tolist() == [0]
    assert known.predicted.tolist() == [[0, 3, -1]]
    np.testing.assert_array_equal(known.scores, np.array([[0.5, 0.2, 0]], dtype=np.float32))
    assert known.hits.tolist() == [[True, False, False]]
    assert known.num_true.tolist() == [1]
    assert known.num_without_labels == 1


def test_all_labels_count_the_unseen_as_misses() -> None:
    everything = judged(ALL)
    assert everything.documents.tolist() == [0, 1, 2]
    assert everything.predicted.tolist() == PREDICTED[:3].tolist()
    assert everything.hits.tolist() == [[True, True, False], [True, False, False], [False, False, False]]
    assert everything.num_true.tolist() == [3, 1, 2]
    assert everything.num_without_labels == 1


def test_excluded_pairs_leave_truth_and_prediction_first() -> None:
    excluded = csr_matrix(([True, True, True], ([0, 1, 2], [2, 2, 3])), shape=(4, 4))
    everything = judged(ALL, excluded)
    assert everything.documents.tolist() == [0, 2]
    assert everything.predicted.tolist() == [[0, 3, -1], [0, -1, -1]]
    assert everything.num_true.tolist() == [2, 2]
    assert everything.num_without_labels == 2


def test_nothing_that_comes_in_is_changed() -> None:
    copies = PREDICTED.copy(), SCORES.copy(), TRUTH.copy()
    judged(KNOWN, TRUTH)
    np.testing.assert_array_equal(PREDICTED, copies[0])
    np.testing.assert_array_equal(SCORES, copies[1])
    assert (copies[2] != TRUTH).nnz == 0


def test_compact_moves_later_ones_up_in_order() -> None:
    predicted, scores = compact(
        np.array([[4, 3, 2, 1]]), np.array([[4.0, 3.0, 2.0, 1.0]]), np.array([[False, True, False, True]])
    )
    assert predicted.tolist() == [[3, 1, -1, -1]]
    assert scores.tolist() == [[3, 1, 0, 0]]


def test_hits_of_sizes_whose_pairs_pass_32_bits() -> None:
    num_documents, num_labels = 5, 2_000_000_000
    truth = csr_matrix((np.ones(5, bool), (np.arange(5), np.full(5, num_labels - 1))), (num_documents, num_labels))
    predicted = np.array([[num_labels - 1, 0, -1]] * 5)
    assert find_hits(predicted, truth).tolist() == [[True, False, False]] * 5


def test_empty_sets() -> None:
    none = judge(np.zeros((0, 3), int), np.zeros((0, 3)), csr_matrix((0, 4), dtype=bool), np.zeros(0, int), COUNTS)
    assert len(none) == 0
    no_predictions = judge(np.zeros((4, 0), int), np.zeros((4, 0)), TRUTH, UNKNOWN, COUNTS)
    assert no_predictions.hits.shape == (1, 0)


@pytest.mark.parametrize(
    ("predicted", "scores", "message"),
    [
        ([[1, 2]], [[0.5, 0.4]], r"predicted is \(1, 2\) .* must be 2 documents x K"),
        ([[1], [2]], [[0.5, 0.4]], "must be 2 documents x K"),
        ([[1, 2], [4, 0]], [[0.5, 0.4]] * 2, "row 1 holds a label id outside 0 to 3"),
        ([[1, -2], [0, 1]], [[0.5, 0.4]] * 2, "row 0 holds a label id outside"),
        ([[-1, -1], [3, 3]], [[0.5, 0.4]] * 2, "row 1 holds label 3 twice"),
        ([[1, 0], [3, 2]], [[0.5, 0.4], [np.nan, 0.1]], "row 1 has a score that is not a number"),
    ],
)
def test_refuses_predictions_that_do_not_fit(predicted: list, scores: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_predictions(np.array(predicted), np.array(scores), (2, 4))


def test_arrays_that_may_not_be_written_to() -> None:
    """Truth read by memory map is such."""
    parts = [np.ones(2, dtype=bool), np.array([0, 2], dtype=np.int32), np.array([0, 2, 2])]
    for array in (*parts, predicted := np.array([[2, 3], [0, -1]]), scores := np.array([[0.9, 0.5], [0.3, 0.0]])):
        array.flags.writeable = False
    truth = csr_matrix((parts[0], parts[1], parts[2]), shape=(2, 4), copy=False)
    known = judge(predicted, scores, truth, np.zeros(2, int), COUNTS, excluded=truth)
    assert len(known) == 0
    assert judge(predicted, scores, truth, np.zeros(2, int), COUNTS, convention=ALL).hits.tolist() == [[True, False]]
