"""Against references written with loops over documents and sets of labels, and figures worked out by hand."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from cascadexml.conventions import ALL, KNOWN, judge
from cascadexml.metrics import (
    FAMILIES,
    best_gains,
    best_threshold,
    choice_metric,
    frequency_bands,
    parse_metric,
    ranking_figures,
    set_figures,
)

NUM_TRAIN, A, B = 500, 0.55, 1.5
TRAINED = {"num_train": NUM_TRAIN, "a": A, "b": B}


@dataclass
class Task:
    """Documents as Python lists, beside the same as arrays."""

    ranked: list[list[int]]
    scored: list[list[float]]
    true: list[set[int]]
    unknown: list[int]
    excluded: list[set[int]]
    counts: list[int]
    num_slots: int

    def arrays(self) -> tuple[np.ndarray, np.ndarray, csr_matrix, np.ndarray]:
        predicted = np.full((len(self.ranked), self.num_slots), -1)
        scores = np.zeros((len(self.ranked), self.num_slots), dtype=np.float32)
        for row, (labels, values) in enumerate(zip(self.ranked, self.scored, strict=True)):
            predicted[row, : len(labels)] = labels
            scores[row, : len(labels)] = values
        return predicted, scores, self.csr(self.true), np.array(self.unknown, dtype=np.int32)

    def csr(self, sets: list[set[int]]) -> csr_matrix:
        dense = np.zeros((len(sets), len(self.counts)), dtype=bool)
        for row, labels in enumerate(sets):
            dense[row, sorted(labels)] = True
        return csr_matrix(dense)

    def judge(self, convention: str):
        return judge(*self.arrays(), np.array(self.counts), convention=convention, excluded=self.csr(self.excluded))


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    num_labels = draw(st.integers(1, 8))
    num_documents = draw(st.integers(1, 6))
    labels = st.integers(0, num_labels - 1)
    num_slots = draw(st.integers(1, 7))
    ranked = [draw(st.lists(labels, unique=True, max_size=min(num_slots, num_labels))) for _ in range(num_documents)]
    # Few values, so that scores are often equal.
    scored = [
        sorted(draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=len(r), max_size=len(r))), reverse=True)
        for r in ranked
    ]
    return Task(
        ranked=ranked,
        scored=scored,
        true=[draw(st.sets(labels)) for _ in range(num_documents)],
        unknown=[draw(st.integers(0, 3)) for _ in range(num_documents)],
        excluded=[draw(st.sets(labels, max_size=1)) for _ in range(num_documents)],
        counts=draw(st.lists(st.sampled_from([0, 1, 2, 30]), min_size=num_labels, max_size=num_labels)),
        num_slots=num_slots,
    )


@dataclass
class Document:
    ranked: list[int]
    scored: list[float]
    true: set
    """labels of the label set as int, those outside it as str"""


def documents_of(task: Task, convention: str) -> list[Document]:
    documents = []
    for row, (ranked, scored) in enumerate(zip(task.ranked, task.scored, strict=True)):

        def stays(label: int, row: int = row) -> bool:
            return label not in task.excluded[row] and (convention == ALL or task.counts[label] > 0)

        true = {label for label in task.true[row] if stays(label)}
        if convention == ALL:
            true |= {f"unknown {number}" for number in range(task.unknown[row])}
        pairs = [(label, score) for label, score in zip(ranked, scored, strict=True) if stays(label)]
        if true:
            documents.append(Document([label for label, _ in pairs], [score for _, score in pairs], true))
    return documents


def inverse_propensity(task: Task, label: int | str) -> float:
    count = task.counts[label] if isinstance(label, int) else 0
    return 1 + (math.log(NUM_TRAIN) - 1) * (B + 1) ** A / (count + B) ** A


def reference(task: Task, documents: list[Document], family: str, k: int) -> float:
    total, weight = 0.0, 0.0
    for document in documents:
        first = document.ranked[:k]
        hit = [label in document.true for label in first]
        ideal = sum(1 / math.log2(place + 2) for place in range(min(k, len(document.true))))
        gains = [inverse_propensity(task, label) * h for label, h in zip(first, hit, strict=True)]
        best = sorted((inverse_propensity(task, label) for label in document.true), reverse=True)[:k]
        if family == "P":
            total, weight = total + sum(hit), weight + k
        elif family == "R":
            total, weight = total + sum(hit) / len(document.true), weight + 1
        elif family == "F1":
            total, weight = total + 2 * sum(hit) / (len(first) + len(document.true)), weight + 1
        elif family == "nDCG":
            total += sum(h / math.log2(place + 2) for place, h in enumerate(hit)) / ideal
            weight += 1
        elif family == "PSP":
            total, weight = total + sum(gains), weight + sum(best)
        elif family == "PSnDCG":
            total += sum(gain / math.log2(place + 2) for place, gain in enumerate(gains)) / ideal
            weight += sum(gain / math.log2(place + 2) for place, gain in enumerate(best)) / ideal
    return 100 * total / weight


@settings(max_examples=100, deadline=None)
@given(task=tasks(), convention=st.sampled_from([KNOWN, ALL]))
def test_ranking_figures_equal_loops(task: Task, convention: str) -> None:
    judged, documents = task.judge(convention), documents_of(task, convention)
    assert len(judged) == len(documents)
    if documents:
        names = [f"{family}@{k}" for family in FAMILIES for k in (1, 2, 3, 5, 10)]
        figures = ranking_figures(judged, names, label_counts=np.array(task.counts), **TRAINED)
        for name in names:
            family, k = name.split("@")
            assert figures[name] == pytest.approx(reference(task, documents, family, int(k))), name


def reference_sets(documents: list[Document], threshold: float, outside: int, num_labels: int) -> dict[str, float]:
    sets = [{label for label, score in zip(d.ranked, d.scored, strict=True) if score >= threshold} for d in documents]
    pairs = list(zip(sets, (document.true for document in documents), strict=True))
    num_hit, num_chosen = sum(len(s & t) for s, t in pairs), sum(len(s) for s in sets)
    num_true = sum(len(t) for _, t in pairs)
    of_labels = [0.0] * outside
    for label in range(num_labels):
        hit = sum(label in s and label in t for s, t in pairs)
        size = sum((label in s) + (label in t) for s, t in pairs)
        if size:
            of_labels.append(2 * hit / size)
    return {
        "micro-F1": 100 * 2 * num_hit / (num_chosen + num_true),
        "macro-F1": 100 * sum(of_labels) / len(of_labels),
        "per-document F1": 100 * sum(2 * len(s & t) / (len(s) + len(t)) for s, t in pairs) / len(pairs),
        "micro-precision": 100 * num_hit / max(num_chosen, 1),
        "micro-recall": 100 * num_hit / num_true,
    }


@settings(max_examples=100, deadline=None)
@given(task=tasks(), convention=st.sampled_from([KNOWN, ALL]), threshold=st.sampled_from([0.0, 0.25, 0.4, 2.0]))
def test_set_figures_equal_loops(task: Task, convention: str, threshold: float) -> None:
    judged, documents = task.judge(convention), documents_of(task, convention)
    outside = max(task.unknown) if convention == ALL else 0
    if documents:
        figures = set_figures(judged, threshold, outside)
        assert figures == pytest.approx(reference_sets(documents, threshold, outside, len(task.counts)))


@settings(max_examples=100, deadline=None)
@given(task=tasks(), convention=st.sampled_from([KNOWN, ALL]))
def test_best_threshold_is_the_best_of_all(task: Task, convention: str) -> None:
    judged = task.judge(convention)
    if judged.given.any():
        tried = {score: set_figures(judged, score)["micro-F1"] for score in (0.0, 0.25, 0.5, 1.0)}
        chosen = best_threshold(judged)
        assert set_figures(judged, chosen)["micro-F1"] == pytest.approx(max(tried.values()))
    else:
        with pytest.raises(ValueError, match="no prediction was given"):
            best_threshold(judged)


@settings(max_examples=100, deadline=None)
@given(task=tasks(), convention=st.sampled_from([KNOWN, ALL]))
def test_bands_share_out_precision_and_occurrences(task: Task, convention: str) -> None:
    judged = task.judge(convention)
    if len(judged):
        bands = frequency_bands(judged, np.array(task.counts), k=3)
        precision = ranking_figures(judged, ["P@3"], label_counts=np.array(task.counts), **TRAINED)["P@3"]
        assert sum(band.precision_part for band in bands) == pytest.approx(precision)
        assert sum(band.share for band in bands) == pytest.approx(100)
        assert sum(band.num_true for band in bands) == judged.num_true.sum()


def by_hand() -> Task:
    """Document 0: labels 0 and 3, ranked 3, 1, 0. Document 1: label 1, ranked 2, 1. Equal counts but for label 3."""
    return Task(
        ranked=[[3, 1, 0], [2, 1]],
        scored=[[0.9, 0.6, 0.5], [0.7, 0.6]],
        true=[{0, 3}, {1}],
        unknown=[0, 0],
        excluded=[set(), set()],
        counts=[10, 10, 10, 1],
        num_slots=3,
    )


def test_figures_worked_out_by_hand() -> None:
    task = by_hand()
    names = ["P@1", "P@3", "R@1", "nDCG@1", "nDCG@3", "PSP@1", "F1@5"]
    figures = ranking_figures(task.judge(KNOWN), names, label_counts=np.array(task.counts), **TRAINED)
    assert figures["P@1"] == pytest.approx(50)
    assert figures["P@3"] == pytest.approx(100 * 3 / 6)
    assert figures["R@1"] == pytest.approx(25)
    assert figures["nDCG@1"] == pytest.approx(50)
    # (1 + 1/2) / (1 + 1/log2 3) and (1/log2 3) / 1
    assert figures["nDCG@3"] == pytest.approx(100 * (1.5 / 1.6309298 + 0.6309298) / 2)
    # 1 + 5.214608 * 2.5^0.55 * (1 + 1.5)^-0.55 = 6.214608 for label 3; / 11.5^0.55 makes 3.252708 for label 1
    assert figures["PSP@1"] == pytest.approx(100 * 6.214608 / (6.214608 + 3.252708), rel=1e-5)
    assert figures["F1@5"] == pytest.approx(100 * (4 / 5 + 2 / 3) / 2)


def test_best_threshold_by_hand() -> None:
    # cuts at 0.9, 0.7, 0.6, 0.5: 2 * hits / (given + 3 true) = 2/4, 2/5, 4/7, 6/8
    assert best_threshold(by_hand().judge(KNOWN)) == 0.5


def test_equal_f1_takes_the_higher_threshold() -> None:
    truth = csr_matrix(np.array([[1, 0]], dtype=bool))
    judged = judge(np.array([[1, -1]]), np.array([[0.8, 0.0]]), truth, np.zeros(1, int), np.ones(2, int))
    assert best_threshold(judged) == 0.8


def test_unknown_labels_are_the_best_gains() -> None:
    truth = csr_matrix(np.array([[1, 1, 0], [0, 0, 1]], dtype=bool))
    best = best_gains(truth, np.array([1, 0]), np.array([2.0, 3.0, 5.0]), 7.0, 2)
    assert best.tolist() == [[7, 3], [5, 0]]
    best = best_gains(truth, np.array([3, 0]), np.array([2.0, 3.0, 5.0]), 7.0, 4)
    assert best.tolist() == [[7, 7, 7, 3], [5, 0, 0, 0]]


def test_bands_adapt_to_the_counts() -> None:
    def names(counts: list[int]) -> list[str]:
        truth = csr_matrix(np.ones((1, len(counts)), dtype=bool))
        predicted = np.arange(len(counts))[None, :]
        judged = judge(predicted, np.ones(predicted.shape), truth, np.zeros(1, int), np.array(counts), convention=ALL)
        return [band.name for band in frequency_bands(judged, np.array(counts))]

    assert names([1, 1]) == ["1"]
    assert names([0, 1, 2]) == ["0", "1", "2"]
    assert names([1, 5]) == ["1", ">1"]
    assert names([1, 3, 6, 30]) == ["1", "2-5", "6-20", ">20"]
    assert names([1, 3, 6, 30, 5000]) == ["1", "2-5", "6-20", "21-100", ">1000"]


def test_metric_names() -> None:
    assert parse_metric("P") == ("P@1", "P@3", "P@5")
    assert parse_metric("PSnDCG@10") == ("PSnDCG@10",)
    for wrong, near in {"PSP5": "PSP@5", "ndcg@5": "nDCG@5", "p@1": "P@1"}.items():
        with pytest.raises(ValueError, match=f"no metric '{wrong}'; did you mean .*{near}"):
            parse_metric(wrong)
    for wrong in ("", "accuracy", "P@0", "P@", "P@-1"):
        with pytest.raises(ValueError, match="there is no metric"):
            parse_metric(wrong)


def test_choice_metric_uses_known_labels() -> None:
    task = by_hand()
    task.unknown = [5, 5]
    counts = np.array(task.counts)
    names = ["P@1", "P@3", "P@5", "PSP@5"]
    known = ranking_figures(task.judge(KNOWN), names, label_counts=counts, **TRAINED)
    chosen = choice_metric(*task.arrays(), label_counts=counts, **TRAINED)
    assert chosen == pytest.approx((known["P@1"] + known["P@3"] + known["P@5"]) / 3)
    assert choice_metric(*task.arrays(), label_counts=counts, name="PSP@5", **TRAINED) == pytest.approx(known["PSP@5"])
    with pytest.raises(ValueError, match="nothing to choose by"):
        choice_metric(*task.arrays(), label_counts=np.zeros(4, int), **TRAINED)


@settings(max_examples=30, deadline=None)
@given(task=tasks(), seed=st.integers(0, 9))
def test_the_order_of_documents_does_not_matter(task: Task, seed: int) -> None:
    predicted, scores, truth, unknown = task.arrays()
    counts = np.array(task.counts)
    order = np.random.default_rng(seed).permutation(len(predicted))
    names = [f"{family}@3" for family in FAMILIES]
    first = judge(predicted, scores, truth, unknown, counts, convention=ALL)
    second = judge(predicted[order], scores[order], truth[order], unknown[order], counts, convention=ALL)
    if len(first):
        figures = ranking_figures(first, names, label_counts=counts, **TRAINED)
        assert ranking_figures(second, names, label_counts=counts, **TRAINED) == pytest.approx(figures)
