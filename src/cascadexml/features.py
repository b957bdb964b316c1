"""Full texts in, tf-idf rows out: what the label tree is built from when no features come with the data."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from cascadexml.texts import Texts


def tfidf(texts: Texts) -> csr_matrix:
    """Documents x words, float32, rows of length one; the whole text counts, whatever the encoder's token limit."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    # a word of one document says nothing about another, unless there are so few that no other word is left
    for min_documents in (2, 1):
        vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=min_documents, dtype=np.float32)
        try:
            return csr_matrix(vectorizer.fit_transform(texts))
        except ValueError as error:
            if not any(
                reason in str(error) for reason in ("no terms remain", "empty vocabulary", "max_df corresponds")
            ):
                raise
    return csr_matrix((len(texts), 1), dtype=np.float32)


def label_features(labels: csr_matrix, features: csr_matrix) -> csr_matrix:
    """z_l of the paper: the sum of the features of a label's documents, at length one (a label of no document: 0)."""
    sums = csr_matrix(labels.T.astype(np.float32) @ features.astype(np.float32))
    sums.sort_indices()
    lengths = np.sqrt(np.asarray(sums.multiply(sums).sum(axis=1)).ravel())
    sums.data /= np.repeat(np.maximum(lengths, 1e-12), np.diff(sums.indptr)).astype(np.float32)
    return sums
