"""A trained Model and its validation part in; how it will answer out: top-k, ranking and threshold, chosen once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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

    def measure(predictions: Predictions, what: str) -> float:
        return tried.setdefault(what, metric_of(predictions, part, model.labels, name))

    over_all = measure(vectors.predictions(lambda v: model.cascade.predict_all(v, 20)), "all labels")

    def by_cascade(top_k: tuple[int, ...], rank: str) -> float:
        what = f"top-k {'/'.join(map(str, top_k))}, {rank}"
        if what not in tried:
            measure(vectors.predictions(lambda v: model.cascade.predict(v, top_k, 20, rank)), what)
        return tried[what]

    top_k = asked.top_k or _smallest_top_k(model, over_all, by_cascade)
    ranks = (asked.rank,) if asked.rank else (RANKS if top_k else RANKS[:1])
    rank = max(ranks, key=lambda each: by_cascade(top_k, each))
    threshold = asked.threshold
    if threshold is None:
        threshold = _threshold(
            vectors.predictions(lambda v: model.cascade.predict(v, top_k, DEPTH, rank)), part, model.labels
        )
    return Choice(PredictConfig(top_k, rank, threshold), by_cascade(top_k, rank), over_all, tried)


def _smallest_top_k(model: Model, over_all: float, by_cascade) -> tuple[int, ...]:  # type: ignore[no-untyped-def]
    """Doubles all levels' top-k until the score is within the tolerance, then halves each level's while it stays there."""
    clusters = model.cascade.tree.clusters
    if not clusters:
        return ()
    steps = [tuple(min(1 << power, count) for count in clusters) for power in range(3, max(clusters).bit_length())]
    goal = over_all - TOLERANCE
    if model.config.model.final == "shortlist":
        # labels never met the negatives outside their shortlists, so scoring them all is no ceiling to aim at
        goal = max(by_cascade(step, "label") for step in steps) - TOLERANCE
    best = next((step for step in steps if by_cascade(step, "label") >= goal), steps[-1])
    for level in range(len(clusters)):
        while best[level] > 1:
            smaller = (*best[:level], best[level] // 2, *best[level + 1 :])
            if by_cascade(smaller, "label") < goal:
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
    return float(np.round(100 * min(1.0, kept[-1] * tree.num_labels / tree.clusters[-1] / tree.num_labels), 2))
