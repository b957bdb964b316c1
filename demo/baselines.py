"""What a clinical phrase's nearest neighbours say: labelled phrases and test phrases come in, P@k and R@k go out.

A code's score is the cosine between the test phrase and the nearest of the code's own phrases.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from icd import Phrases, draw_phrases
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer
from tokenizers import Encoding, Tokenizer
from transformers import AutoModel, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from cascadexml.devices import autocast, pick_device, pick_precision
from cascadexml.encoder import locate

Vectors = np.ndarray | csr_matrix
"""phrases x features, rows of length one"""
Embed = Callable[[list[str], list[str]], tuple[Vectors, Vectors]]
"""train texts, test texts -> their vectors"""

DEPTHS = (1, 3, 5)
CHUNK = 256
"""test phrases compared at a time: never test x train at once"""
MAX_TOKENS = 128
TOKENS_PER_BATCH = 4096


def nearest_neighbours(embed: Embed, train: Phrases, test: Phrases) -> dict[str, float]:
    """Per cent; a phrase has one code, so P@k is R@k over k."""
    codes, label_of_row = np.unique(train.codes, return_inverse=True)
    order = np.argsort(label_of_row, kind="stable")
    starts = np.searchsorted(label_of_row[order], np.arange(len(codes)))
    train_vectors, test_vectors = embed(train.texts, test.texts)
    train_vectors, truth = train_vectors[order], np.searchsorted(codes, test.codes)

    ranks = np.empty(len(test), dtype=np.int64)
    for begin in range(0, len(test), CHUNK):
        rows = slice(begin, begin + CHUNK)
        similarity = _dense(test_vectors[rows] @ train_vectors.T)
        ranks[rows] = _rank_of_truth(np.maximum.reduceat(similarity, starts, axis=1), truth[rows])
    recall = {k: 100 * float(np.mean(ranks < k)) for k in DEPTHS}
    return {f"P@{k}": recall[k] / k for k in DEPTHS} | {f"R@{k}": recall[k] for k in DEPTHS}


def _dense(matrix: Vectors) -> np.ndarray:
    return matrix.toarray() if isinstance(matrix, csr_matrix) else matrix


def _rank_of_truth(scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """How many codes stand before the true one; among equals the first code does."""
    true_scores = np.take_along_axis(scores, truth[:, None], axis=1)
    equal_and_before = (scores == true_scores) & (np.arange(scores.shape[1]) < truth[:, None])
    return np.sum((scores > true_scores) | equal_and_before, axis=1)


def embed_words(train: list[str], test: list[str]) -> tuple[Vectors, Vectors]:
    # one-letter words count: "type A" is not "type B"
    return _embed_tfidf(TfidfVectorizer(token_pattern=r"\b\w+\b", sublinear_tf=True, dtype=np.float32), train, test)


def embed_character_ngrams(train: list[str], test: list[str]) -> tuple[Vectors, Vectors]:
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, dtype=np.float32)
    return _embed_tfidf(vectorizer, train, test)


def _embed_tfidf(vectorizer: TfidfVectorizer, train: list[str], test: list[str]) -> tuple[Vectors, Vectors]:
    return csr_matrix(vectorizer.fit_transform(train)), csr_matrix(vectorizer.transform(test))


def embed_untrained_encoder(train: list[str], test: list[str]) -> tuple[Vectors, Vectors]:
    vectors = encode(train + test)
    return vectors[: len(train)], vectors[len(train) :]


def encode(texts: list[str]) -> np.ndarray:
    """The packaged MiniLM as it comes: mean over tokens, length one."""
    folder, device = locate("minilm"), pick_device(None)
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    # as packaged it pads every phrase to 128 tokens
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    encodings = tokenizer.encode_batch(texts)
    disable_progress_bar()
    model = AutoModel.from_pretrained(folder).to(device).eval()
    vectors = np.empty((len(texts), model.config.hidden_size), dtype=np.float32)
    with torch.inference_mode(), autocast(device, pick_precision("auto", device)):
        for rows in _batches_by_length(encodings):
            vectors[rows] = _mean_pooled(model, [encodings[row] for row in rows]).cpu().numpy()
    return vectors


def _batches_by_length(encodings: list[Encoding]) -> list[np.ndarray]:
    lengths = np.array([len(encoding.ids) for encoding in encodings])
    order = np.argsort(-lengths, kind="stable")
    batches, begin = [], 0
    while begin < len(order):
        end = begin + max(1, TOKENS_PER_BATCH // int(lengths[order[begin]]))
        batches.append(order[begin:end])
        begin = end
    return batches


def _mean_pooled(model: PreTrainedModel, encodings: list[Encoding]) -> torch.Tensor:
    longest = max(len(encoding.ids) for encoding in encodings)
    ids = torch.zeros(len(encodings), longest, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, encoding in enumerate(encodings):
        ids[row, : len(encoding.ids)] = torch.tensor(encoding.ids)
        mask[row, : len(encoding.ids)] = 1
    ids, mask = ids.to(model.device), mask.to(model.device)
    states = model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
    return torch.nn.functional.normalize((states * mask[:, :, None]).sum(dim=1), dim=1)


BASELINES: dict[str, Embed] = {
    "words": embed_words,
    "character n-grams": embed_character_ngrams,
    "untrained encoder": embed_untrained_encoder,
}


if __name__ == "__main__":
    draw = draw_phrases()
    for name, embed in BASELINES.items():
        began = time.monotonic()
        figures = nearest_neighbours(embed, draw.train, draw.test)
        rounded = {metric: round(value, 2) for metric, value in figures.items()}
        print(f"{name}, {time.monotonic() - began:.0f} s:", rounded, flush=True)
