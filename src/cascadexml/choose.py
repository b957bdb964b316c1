"""A trained Model and its validation part in; how it will answer out: top-k, ranking and threshold, chosen once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from cascadexml.cascade import Predictions
from cascadexml.config import RANKS, PredictConfig
from cascadexml.conventions import judge
from cascadexml.metrics import best_threshold, choice_metric
from cascadexml.model import Model
from cascadexml.predict import Vectors
from cascadexml.prepared import Labels, TokenisedPart
from cascadexml.propensity import published_constants

TOLERANCE = 0.2
"""points of the metric that a smaller shortlist may cost"""
TAIL_METRIC = "PSP"
DEPTH = 50
"""predictions a document that thresholds are chosen from"""


@dataclass(frozen=True)
class Choice:
    predict: PredictConfig
    by_cascade: float
    """the metric on validation, as chosen"""
    over_all_labels: float
    """the same with every label scored by itself: the cascade's ceiling"""
    tried: dict[str, float]
    """everything that was compared, by name"""


def metric_of(predictions: Predictions, part: TokenisedPart, labels: Labels, name: str) -> float:
    """The single number that choices go by (per cent, known labels)."""
    a, b = published_constants(len(labels))
    known = part.known
    return choice_metric(
        predictions.labels,
        predictions.scores,
        known.labels,
        known.num_unknown,
        label_counts=labels.counts,
        num_train=labels.num_train,
        a=a,
        b=b,
        name=name,
        excluded=known.excluded,
    )


def choose(model: Model, part: TokenisedPart) -> Choice:
    """Fields of the config's `predict` that are set stay as they are."""
    asked, name = model.config.predict, model.config.train.metric
    vectors = Vectors(model, part.tokens)
    tried: dict[str, float] = {}

    def measure(predictions: Predictions, what: str) -> tuple[float, float]:
        """The metric asked for, and PSP: shortlists cost rare labels first, which P alone would not show."""
        both = tuple(metric_of(predictions, part, model.labels, each) for each in (name, TAIL_METRIC))
        tried[what], tried[f"{what} ({TAIL_METRIC})"] = both
        return both[0], both[1]

    @cache
    def by_cascade(top_k: tuple[int, ...], rank: str) -> tuple[float, float]:
        predictions = vectors.predictions(lambda v: model.cascade.predict(v, top_k, 20, rank))
        return measure(predictions, f"top-k {'/'.join(map(str, top_k))}, {rank}")

    over_all = measure(vectors.predictions(lambda v: model.cascade.predict_all(v, 20)), "all labels")
    top_k = asked.top_k or _smallest_top_k(model, over_all, lambda kept: by_cascade(kept, "label"))
    ranks = (asked.rank,) if asked.rank else (RANKS if top_k else RANKS[:1])
    rank = max(ranks, key=lambda each: by_cascade(top_k, each)[0])
    threshold = asked.threshold
    if threshold is None:
        best = vectors.predictions(lambda v: model.cascade.predict(v, top_k, DEPTH, rank))
        threshold = _threshold(best, part, model.labels)
    return Choice(PredictConfig(top_k, rank, threshold), by_cascade(top_k, rank)[0], over_all[0], tried)


def _smallest_top_k(
    model: Model, over_all: tuple[float, float], by_cascade: Callable[[tuple[int, ...]], tuple[float, float]]
) -> tuple[int, ...]:
    """Doubles all levels' top-k until the scores are within the tolerance, then halves each level's while they stay."""
    clusters = model.cascade.tree.clusters
    if not clusters:
        return ()
    most = max(clusters).bit_length() - 1
    steps = [tuple(min(1 << power, count) for count in clusters) for power in range(min(3, most), most + 1)]
    goal = over_all
    if model.config.model.final == "shortlist":
        # labels never met the negatives outside their shortlists, so scoring them all is no ceiling to aim at
        steps = sorted({*steps, model.config.model.trained_top_k}, key=sum)
        goal = max(map(by_cascade, steps))

    def is_close(kept: tuple[int, ...]) -> bool:
        return all(value >= wanted - TOLERANCE for value, wanted in zip(by_cascade(kept), goal, strict=True))

    best = next((step for step in steps if is_close(step)), steps[-1])
    for level in range(len(clusters)):
        while best[level] > 1:
            smaller = (*best[:level], best[level] // 2, *best[level + 1 :])
            if not is_close(smaller):
                break
            best = smaller
    return best


def _threshold(predictions: Predictions, part: TokenisedPart, labels: Labels) -> float:
    known = part.known
    judged = judge(
        predictions.labels, predictions.scores, known.labels, known.num_unknown, labels.counts, excluded=known.excluded
    )
    return best_threshold(judged)


def share_scored(model: Model) -> float:
    """Labels scored for a document, as a share (%) of all."""
    tree, kept = model.cascade.tree, model.config.predict.top_k
    if not kept:
        return 100.0
    return 100 * kept[-1] / tree.clusters[-1]
