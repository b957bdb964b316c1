"""Predictions of any system beside the truth come in, a `Report` under both conventions goes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from scipy.sparse import csr_matrix

from cascadexml.conventions import ALL, KNOWN, Judged, judge
from cascadexml.metrics import DEFAULT_KS, frequency_bands, ranking_figures, set_figures
from cascadexml.report import Report

_BAND_K = 5


class Labelled(Protocol):
    """What evaluation reads of a `corpus.Part`; whatever else has these will do."""

    @property
    def labels(self) -> csr_matrix: ...
    @property
    def num_unknown(self) -> np.ndarray: ...
    @property
    def num_unknown_labels(self) -> int: ...
    @property
    def excluded(self) -> csr_matrix | None: ...


def evaluate_predictions(
    predicted: np.ndarray,
    scores: np.ndarray,
    part: Labelled,
    label_counts: np.ndarray,
    num_train: int,
    a: float,
    b: float,
    *,
    ks: Sequence[int] = DEFAULT_KS,
    threshold: float | None = None,
    shortlist_recall: Mapping[str, float] | None = None,
    extra: Mapping[str, object] | None = None,
) -> Report:
    """`predicted` and `scores` are documents x K; K a few above max(ks) where labels are unseen or pairs excluded."""
    judged = {
        convention: judge(
            predicted,
            scores,
            part.labels,
            part.num_unknown,
            label_counts,
            convention=convention,
            excluded=part.excluded,
        )
        for convention in (KNOWN, ALL)
    }
    if len(judged[ALL]) == 0:
        raise ValueError(
            f"none of the {len(predicted):,} documents has a true label, so there is nothing to evaluate by"
        )
    names = [f"{family}@{k}" for family in ("P", "nDCG", "R", "PSP", "PSnDCG") for k in ks] + ["F1@5"]

    def figures(judged: Judged) -> dict[str, float]:
        if len(judged) == 0:
            return {}
        ranking = ranking_figures(judged, names, label_counts=label_counts, num_train=num_train, a=a, b=b)
        outside = part.num_unknown_labels if judged.convention == ALL else 0
        return ranking | (set_figures(judged, threshold, outside) if threshold is not None else {})

    return Report(
        num_documents=len(predicted),
        num_without_labels=judged[ALL].num_without_labels,
        num_judged={convention: len(each) for convention, each in judged.items()},
        num_true={convention: int(each.num_true.sum()) for convention, each in judged.items()},
        conventions={convention: figures(each) for convention, each in judged.items()},
        bands=frequency_bands(judged[KNOWN], label_counts, _BAND_K) if len(judged[KNOWN]) else (),
        band_k=_BAND_K,
        num_labels=part.labels.shape[1],
        num_train=num_train,
        propensity_a=a,
        propensity_b=b,
        threshold=threshold,
        shortlist_recall=dict(shortlist_recall or {}),
        extra=dict(extra or {}),
    )
