"""tf-idf of whole texts, and what it makes of labels."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from cascadexml.features import label_features, tfidf
from cascadexml.texts import Texts


def test_rows_have_length_one_and_words_of_one_document_do_not_count() -> None:
    found = tfidf(Texts.from_strings(["apple pear", "apple plum", "apple pear pear cherry", "", "cherry? CHERRY!"]))
    assert found.dtype == np.float32 and found.shape == (5, 3)
    lengths = np.sqrt(np.asarray(found.multiply(found).sum(axis=1)).ravel())
    np.testing.assert_allclose(lengths, [1, 1, 1, 0, 1], rtol=1e-5)


def test_the_whole_text_counts() -> None:
    long = "filler " * 2000
    found = tfidf(Texts.from_strings([long + "apple", long + "apple", long + "pear", "pear"])).toarray()
    assert found[0] @ found[1] > found[0] @ found[2] > 0


def test_too_few_texts_to_share_a_word() -> None:
    assert tfidf(Texts.from_strings(["apple", "pear"])).shape == (2, 2)
    for texts in (["", ""], ["?", "!"], [""]):
        found = tfidf(Texts.from_strings(texts))
        assert found.shape[0] == len(texts) and found.nnz == 0


def test_label_features_are_normalised_sums() -> None:
    random = np.random.default_rng(0)
    documents = random.random((9, 6)) * (random.random((9, 6)) > 0.5)
    labels = random.random((9, 5)) > 0.6
    labels[:, 3] = False
    found = label_features(csr_matrix(labels), csr_matrix(documents.astype(np.float32)))
    sums = labels.T.astype(float) @ documents
    expected = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-5)
    assert found.dtype == np.float32 and not found[3].nnz
