"""Pure functions on arrays: hits, scores and counts come in, figures go out.

Functions of `hits` (N documents x K predictions, best first) return fractions; the `*_figures` and `choice_metric`,
which people read, return per cent. A document given fewer than k predictions is scored as if the others were wrong.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from cascadexml.conventions import KNOWN, Judged, entry_rows, judge
from cascadexml.propensity import propensities

FAMILIES = ("P", "nDCG", "R", "PSP", "PSnDCG", "F1")
DEFAULT_KS = (1, 3, 5)
BAND_EDGES = (1, 5, 20, 100, 1000)
"""largest number of training documents of each band but the last"""


def precision_at(hits: np.ndarray, k: int) -> float:
    return float(hits[:, :k].sum(axis=1).mean() / k)


def recall_at(hits: np.ndarray, num_true: np.ndarray, k: int) -> float:
    return float((hits[:, :k].sum(axis=1) / num_true).mean())


def f1_at(hits: np.ndarray, given: np.ndarray, num_true: np.ndarray, k: int) -> float:
    """Mean over documents of the F1 of their first k predictions."""
    return float((2 * hits[:, :k].sum(axis=1) / (given[:, :k].sum(axis=1) + num_true)).mean())


def ndcg_at(hits: np.ndarray, num_true: np.ndarray, k: int) -> float:
    return float((_discounted(hits, k) / _ideal(num_true, k)).mean())


def psp_at(gains: np.ndarray, best: np.ndarray, k: int) -> float:
    """Normalised over the set: the gain of all documents by the best attainable of all documents."""
    return float(gains[:, :k].sum() / best[:, :k].sum())


def psndcg_at(gains: np.ndarray, best: np.ndarray, num_true: np.ndarray, k: int) -> float:
    """Each document's discounted gain over its ideal discount, then normalised over the set."""
    ideal = _ideal(num_true, k)
    return float((_discounted(gains, k) / ideal).sum() / (_discounted(best, k) / ideal).sum())


def _discounts(k: int) -> np.ndarray:
    return 1.0 / np.log2(np.arange(k) + 2.0)


def _discounted(gains: np.ndarray, k: int) -> np.ndarray:
    gains = gains[:, :k]
    return gains @ _discounts(gains.shape[1])


def _ideal(num_true: np.ndarray, k: int) -> np.ndarray:
    return np.cumsum(_discounts(k))[np.minimum(num_true, k) - 1]


def best_gains(truth: csr_matrix, num_unknown: np.ndarray, weights: np.ndarray, unknown: float, k: int) -> np.ndarray:
    """N x k: the largest weights among each document's true labels, descending, 0 behind the last.

    `unknown` is the weight of each true label outside the label set, and no label's weight is above it.
    """
    assert len(weights) == 0 or weights.max() <= unknown
    best = np.where(np.arange(k) < num_unknown[:, None], unknown, 0.0)
    rows = entry_rows(truth)
    # One integer a pair, (document, place of the label by weight), so that a plain sort does.
    by_weight = np.argsort(-weights, kind="stable")
    place = np.empty(len(weights), dtype=np.int64)
    place[by_weight] = np.arange(len(weights))
    labels = by_weight[np.sort(rows * len(weights) + place[truth.indices]) - rows * len(weights)]
    rank = np.arange(len(rows)) - truth.indptr[rows] + num_unknown[rows]
    fits = rank < k
    best[rows[fits], rank[fits]] = weights[labels[fits]]
    return best


def ranking_figures(
    judged: Judged, names: Iterable[str], *, label_counts: np.ndarray, num_train: int, a: float, b: float
) -> dict[str, float]:
    """Per cent for each metric named, such as "PSP@5"; all are means over the documents judged."""
    wanted = {name: parse_single(name) for name in names}
    widest = max((k for family, k in wanted.values() if family.startswith("PS")), default=0)
    weights = propensities(label_counts, num_train, a, b)
    unknown = float(propensities(np.zeros(1), num_train, a, b)[0])
    gains = np.where(judged.hits[:, :widest], weights[judged.predicted[:, :widest]], 0.0)
    best = best_gains(judged.truth, judged.num_unknown, weights, unknown, widest) if widest else gains
    hits, num_true = judged.hits, judged.num_true

    def figure(family: str, k: int) -> float:
        match family:
            case "P":
                return precision_at(hits, k)
            case "nDCG":
                return ndcg_at(hits, num_true, k)
            case "R":
                return recall_at(hits, num_true, k)
            case "F1":
                return f1_at(hits, judged.given, num_true, k)
            case "PSP":
                return psp_at(gains, best, k)
            case _:
                return psndcg_at(gains, best, num_true, k)

    return {name: 100.0 * figure(family, k) for name, (family, k) in wanted.items()}


def set_figures(judged: Judged, threshold: float, num_unknown_labels: int = 0) -> dict[str, float]:
    """Per cent, for the sets of predictions that score at least the threshold (at most K a document).

    Macro: mean over the labels true or predicted at least once, and over the `num_unknown_labels` labels outside the
    label set, which no set can hold.
    """
    chosen = judged.given & (judged.scores >= threshold)
    hit = chosen & judged.hits
    num_labels = judged.truth.shape[1]
    hits_L = np.bincount(judged.predicted[hit], minlength=num_labels)
    chosen_L = np.bincount(judged.predicted[chosen], minlength=num_labels)
    true_L = np.bincount(judged.truth.indices, minlength=num_labels)
    met = chosen_L + true_L > 0
    label_f1 = 2 * hits_L[met] / (chosen_L[met] + true_L[met])
    num_hit, num_chosen, num_true = int(hit.sum()), int(chosen.sum()), int(judged.num_true.sum())
    return {
        "micro-F1": 100.0 * 2 * num_hit / (num_chosen + num_true),
        "macro-F1": 100.0 * float(label_f1.sum()) / max(len(label_f1) + num_unknown_labels, 1),
        "per-document F1": 100.0 * f1_at(hit, chosen, judged.num_true, hit.shape[1]),
        "micro-precision": 100.0 * num_hit / max(num_chosen, 1),
        "micro-recall": 100.0 * num_hit / num_true,
    }


def best_threshold(judged: Judged) -> float:
    """The score that, as a threshold (at least), gives the best micro-F1; the highest one of equals.

    Exact over all given predictions, so predict enough of them: no threshold brings back what was not given.
    """
    scores, hits = judged.scores[judged.given], judged.hits[judged.given]
    if len(scores) == 0:
        raise ValueError("a threshold can't be chosen: no prediction was given for any document with a true label")
    descending = np.argsort(-scores)
    scores = scores[descending]
    num_hits = np.cumsum(hits[descending])
    # A threshold takes all predictions of equal score or none, so only the last of equals can be a cut.
    cuts = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))
    f1 = 2 * num_hits[cuts] / (cuts + 1 + judged.num_true.sum())
    return float(scores[cuts[np.argmax(f1)]])


@dataclass(frozen=True)
class FrequencyBand:
    """How the labels fare that have so many training documents."""

    name: str
    """number of training documents: "1", "2-5", ">1000" and the like"""
    num_labels: int
    """labels of the label set that have so many"""
    num_true: int
    """their occurrences in the documents judged"""
    share: float
    """per cent of all occurrences"""
    recall: float
    """per cent of their occurrences among the first k predictions"""
    precision_part: float
    """their part of P@k, per cent; the parts of all bands add up to P@k"""


def frequency_bands(judged: Judged, label_counts: np.ndarray, k: int = 5) -> tuple[FrequencyBand, ...]:
    """One for each band that has labels or occurrences; labels outside the label set occur in band 0."""
    largest = int(label_counts.max(initial=0))
    # The last edge below the largest count opens the last band, so no band is empty by construction.
    edges = np.array([0, *(edge for edge in BAND_EDGES if edge < largest)])
    band_L = np.searchsorted(edges, label_counts)
    num_bands = len(edges) + 1
    hit_labels = judged.predicted[:, :k][judged.hits[:, :k]]
    num_hits = np.bincount(band_L[hit_labels], minlength=num_bands)
    num_true = np.bincount(band_L[judged.truth.indices], minlength=num_bands)
    num_true[0] += judged.num_unknown.sum()
    num_labels = np.bincount(band_L, minlength=num_bands)
    return tuple(
        FrequencyBand(
            name=_band_name(band, edges, largest),
            num_labels=int(num_labels[band]),
            num_true=int(num_true[band]),
            share=100.0 * float(num_true[band] / num_true.sum()),
            recall=100.0 * float(num_hits[band] / max(num_true[band], 1)),
            precision_part=100.0 * float(num_hits[band] / (k * len(judged))),
        )
        for band in range(num_bands)
        if num_true[band] or (band and num_labels[band])
    )


def _band_name(band: int, edges: np.ndarray, largest: int) -> str:
    if band == 0:
        return "0"
    low, high = edges[band - 1] + 1, edges[band] if band < len(edges) else largest
    if low >= high:
        return str(low)
    return f"{low}-{high}" if band < len(edges) else f">{low - 1}"


def parse_metric(name: str) -> tuple[str, ...]:
    """The single metrics behind a name: "PSP@5" is itself, "P" alone stands for P@1, P@3 and P@5."""
    match = re.fullmatch(r"([A-Za-z0-9]+?)(?:@([1-9][0-9]*))?", name)
    if match is None or match[1] not in FAMILIES:
        known = [*FAMILIES, *(f"{family}@{k}" for family in FAMILIES for k in DEFAULT_KS)]
        folded = {option.lower(): option for option in known}
        near = [folded[option] for option in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.5)]
        hint = f"did you mean {' or '.join(near)}?" if near else "for instance P, P@1 or PSP@5"
        raise ValueError(f"there is no metric {name!r}; {hint} (one of {', '.join(FAMILIES)}, and @k)")
    return (name,) if match[2] else tuple(f"{name}@{k}" for k in DEFAULT_KS)


def parse_single(name: str) -> tuple[str, int]:
    family, _, k = name.partition("@")
    assert parse_metric(name) == (name,), name
    return family, int(k)


def choice_metric(
    predicted: np.ndarray,
    scores: np.ndarray,
    truth: csr_matrix,
    num_unknown: np.ndarray,
    *,
    label_counts: np.ndarray,
    num_train: int,
    a: float,
    b: float,
    name: str = "P",
    excluded: csr_matrix | None = None,
) -> float:
    """The single number, in per cent, by which epochs and settings are chosen; under known labels."""
    names = parse_metric(name)
    judged = judge(predicted, scores, truth, num_unknown, label_counts, convention=KNOWN, excluded=excluded)
    if len(judged) == 0:
        raise ValueError("nothing to choose by: no validation document has a label that training documents have")
    figures = ranking_figures(judged, names, label_counts=label_counts, num_train=num_train, a=a, b=b)
    return float(np.mean(list(figures.values())))
