"""How likely a true label is to be noticed: training counts come in, inverse propensities (Jain et al. 2016) go out."""

from __future__ import annotations

import numpy as np

DEFAULT_CONSTANTS = (0.55, 1.5)

# Number of labels -> (A, B), for the sets whose published tables use other constants than the default.
_AMAZON, _WIKIPEDIA = (0.6, 2.6), (0.5, 0.4)
_PUBLISHED = {670_091: _AMAZON, 2_812_281: _AMAZON, 501_070: _WIKIPEDIA}


def published_constants(num_labels: int) -> tuple[float, float]:
    """(A, B) of the published tables: Amazon-670K, Amazon-3M and Wiki-500K are known by their label sets."""
    return _PUBLISHED.get(num_labels, DEFAULT_CONSTANTS)


def propensities(label_counts: np.ndarray, num_train: int, a: float, b: float) -> np.ndarray:
    """Inverse propensity of every label, float64: 1 + C (n + B)^-A with C = (ln N - 1)(B + 1)^A.

    C would be negative below N = e, which no probability allows, so two training documents weigh every label 1.
    """
    if a < 0 or b <= 0:
        raise ValueError(f"the propensity constants are A = {a}, B = {b}; A must be at least 0 and B above 0")
    scale = max(np.log(max(num_train, 1)) - 1.0, 0.0) * (b + 1.0) ** a
    return 1.0 + scale * (np.asarray(label_counts, dtype=np.float64) + b) ** -a
