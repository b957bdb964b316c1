"""Corpus in, Prepared out: tokens, labels and trees, what training needs and no text; small enough to send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack

from cascadexml.corpus import Corpus, Part, statistics
from cascadexml.texts import Texts
from cascadexml.tokens import Tokenizer, TokenStore

PARTS = ("train", "dev", "test")
FEWEST_TO_VALIDATE = 20
"""documents below which a validation split would say nothing"""


@dataclass(frozen=True, eq=False)
class TokenisedPart:
    """A part as the encoder will read it; `known` is its labels and all else that is known of it, without texts."""

    tokens: TokenStore
    known: Part

    def __len__(self) -> int:
        return len(self.tokens)

    def followed_by(self, other: TokenisedPart) -> TokenisedPart:
        """Both, this one's documents first."""
        known = replace(
            self.known,
            labels=csr_matrix(vstack([self.known.labels, other.known.labels])),
            num_unknown=np.concatenate([self.known.num_unknown, other.known.num_unknown]),
            excluded=None,
        )
        return TokenisedPart(self.tokens.followed_by(other.tokens), known)

    def take(self, rows: np.ndarray) -> TokenisedPart:
        known = self.known
        return TokenisedPart(
            self.tokens.take(rows),
            replace(
                known,
                texts=NO_TEXTS,
                labels=known.labels[rows],
                num_unknown=known.num_unknown[rows],
                row_ids=None,
                features=None,
                excluded=None if known.excluded is None else known.excluded[rows],
            ),
        )


@dataclass(frozen=True, eq=False)
class Labels:
    """The label set and what training knows of it; kept by every model, so that PSP needs no training data."""

    ids: Texts
    names: Texts | None
    counts: np.ndarray
    """int64: training documents of each label"""
    num_train: int
    """training documents with a label"""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Prepared:
    """What `prepare` makes and `train`, `evaluate` and `encode` read."""

    parts: dict[str, TokenisedPart]
    validation: np.ndarray
    """rows of train held out to choose by; empty where there is a dev part, or too few documents"""
    labels: Labels
    tree_order: np.ndarray
    """the whole binary tree over the documents left to train on"""
    refit_order: np.ndarray
    """the tree over everything, for `--refit`"""
    tokenizer: Tokenizer
    encoder: str
    """as it was named; another machine may keep it elsewhere"""
    max_tokens: int
    seed: int
    statistics: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def training(self) -> np.ndarray:
        """Rows of train that are trained on."""
        return np.setdiff1d(np.arange(len(self.parts["train"])), self.validation)

    def validation_part(self) -> TokenisedPart | None:
        """What choices are made on: dev, else the rows held out, else nothing."""
        if len(self.validation):
            return self.parts["train"].take(self.validation)
        return self.parts.get("dev")


NO_TEXTS = Texts(np.empty(0, np.uint8), np.zeros(1, np.int64))


def prepare(
    corpus: Corpus,
    tokenizer: Tokenizer,
    encoder: str,
    max_tokens: int,
    seed: int,
    tokenise: Callable[[Texts, Tokenizer, int], TokenStore],
    refit: bool = True,
    hold_out: bool = True,
) -> Prepared:
    """Everything left of Batch. `refit` builds the second tree too; without `hold_out` nothing is drawn."""
    if corpus.train is None:
        raise ValueError(f"{corpus.source}: there is no training part (train_texts.txt, train.jsonl, ...)")
    parts = {}
    for name in PARTS:
        part: Part | None = getattr(corpus, name)
        if part is not None:
            parts[name] = TokenisedPart(
                tokenise(part.texts, tokenizer, max_tokens), replace(part, texts=NO_TEXTS, features=None)
            )
    notes = []
    validation = np.empty(0, np.int64)
    if corpus.dev is None and hold_out:
        validation = draw_validation(corpus.train.labels, seed)
        notes.append(_validation_note(validation, len(corpus.train)))
    rest = np.setdiff1d(np.arange(len(corpus.train)), validation)
    tree_order, num_features = _tree([corpus.train], rest, seed)
    everything = [corpus.train] + ([corpus.dev] if corpus.dev is not None else [])
    is_whole = len(rest) == len(corpus.train) and corpus.dev is None
    refit_order = _tree(everything, None, seed)[0] if refit and not is_whole else tree_order
    counts = np.asarray(corpus.train.labels.sum(axis=0)).ravel().astype(np.int64)
    with_label = int((np.diff(corpus.train.labels.indptr) > 0).sum())
    numbers = {"tf-idf features": num_features, **statistics(corpus)}
    for name, tokenised in parts.items():
        numbers[f"{name} texts cut at {max_tokens} tokens (%)"] = round(
            100 * tokenised.tokens.num_cut / max(1, len(tokenised)), 2
        )
    return Prepared(
        parts=parts,
        validation=validation,
        labels=Labels(corpus.label_ids, corpus.label_names, counts, with_label),
        tree_order=tree_order,
        refit_order=refit_order,
        tokenizer=tokenizer,
        encoder=encoder,
        max_tokens=max_tokens,
        seed=seed,
        statistics=numbers,
        notes=(*corpus.notes, *notes),
    )


def statistics_table(numbers: dict[str, Any]) -> list[str]:
    """The paper's table of a data set, in two lines, and below it what the token limit cuts."""
    columns = {
        "d tf-idf": "tf-idf features",
        "labels": "labels",
        "training": "train documents",
        "test": "test documents",
        "ALpP": "labels per document (ALpP)",
        "APpL": "documents per label (APpL)",
    }
    shown = {head: _number(numbers.get(name, "-")) for head, name in columns.items()}
    widths = {head: max(len(head), len(value)) for head, value in shown.items()}
    rows = (dict.fromkeys(shown), shown)
    lines = ["  ".join((row[head] or head).rjust(widths[head]) for head in shown) for row in rows]
    return lines + [f"{name}: {value:.2f}" for name, value in numbers.items() if " cut at " in name]


def _number(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def draw_validation(labels: csr_matrix, seed: int) -> np.ndarray:
    """Rows to choose by: a tenth of those that can be spared, at most 10,000, never a label's last."""
    num_documents = labels.shape[0]
    counts = np.asarray(labels.sum(axis=0)).ravel().astype(np.int64)
    sizes = np.diff(labels.indptr)
    fewest = np.full(num_documents, np.iinfo(np.int64).max)
    np.minimum.at(fewest, np.repeat(np.arange(num_documents), sizes), counts[labels.indices])
    spared = np.flatnonzero((sizes > 0) & (fewest >= 2))
    wanted = min(num_documents // 10, len(spared) // 10, 10_000)
    if wanted < FEWEST_TO_VALIDATE:
        return np.empty(0, np.int64)
    left = counts.copy()
    drawn: list[int] = []
    for row in np.random.default_rng(seed).permutation(spared):
        of_row = labels.indices[labels.indptr[row] : labels.indptr[row + 1]]
        if left[of_row].min() >= 2:
            left[of_row] -= 1
            drawn.append(int(row))
            if len(drawn) == wanted:
                break
    return np.sort(np.array(drawn, dtype=np.int64))


def _validation_note(validation: np.ndarray, num_train: int) -> str:
    if len(validation):
        return f"{len(validation):,} training documents are held out to choose by, none of them a label's only one"
    return f"no validation split: of {num_train:,} training documents too few can be spared to choose by"


def _tree(parts: list[Part], rows: np.ndarray | None, seed: int) -> tuple[np.ndarray, int]:
    """The order of the tree over the documents of `parts` (or `rows` of the first), and the number of features."""
    from cascadexml.features import label_features, tfidf
    from cascadexml.label_tree import build_tree

    labels = csr_matrix(vstack([part.labels for part in parts])) if len(parts) > 1 else parts[0].labels
    given = [part.features for part in parts if part.features is not None]
    if len(given) == len(parts):
        features = csr_matrix(vstack(given)) if len(parts) > 1 else given[0]
        features = features if rows is None else features[rows]
    elif len(parts) > 1:
        features = tfidf(Texts.from_strings(text for part in parts for text in part.texts))
    else:
        features = tfidf(parts[0].texts if rows is None else parts[0].texts.take(rows))
    labels = labels if rows is None else labels[rows]
    return build_tree(label_features(labels, features), seed), int(features.shape[1])
