"""The public class: fit, predict, evaluate, save, load; texts and label names in and out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from cascadexml.cascade import Predictions
from cascadexml.checkpoint import DEFAULT_SHARD, load_model, save_model
from cascadexml.corpus import Part, corpus_from_python
from cascadexml.devices import pick_device, pick_precision
from cascadexml.evaluate import evaluate_predictions
from cascadexml.fit import fit, plan, prepare_corpus
from cascadexml.formats.python_lists import pack_texts
from cascadexml.model import Model
from cascadexml.predict import predict, predict_and_measure
from cascadexml.predictions_file import to_csr
from cascadexml.prepared import TokenisedPart
from cascadexml.propensity import published_constants
from cascadexml.report import Report
from cascadexml.runlog import RunLog
from cascadexml.texts import Texts
from cascadexml.tokens import TokenStore, tokenise

DEPTH = 50
"""labels a document that reports and thresholds look at"""


class CascadeXML:
    """A trained model that takes texts and answers with label names."""

    def __init__(self, model: Model, about: dict[str, Any] | None = None) -> None:
        self.model = model
        self.about = about or {}
        """what training left to tell: history, seconds, versions"""

    @staticmethod
    def fit(
        texts: Sequence[str],
        labels: Any,
        *,
        encoder: str = "minilm",
        validation: tuple[Sequence[str], Any] | bool | None = None,
        recipe: str = "auto",
        seed: int = 0,
        device: str | None = None,
        settings: dict[str, Any] | None = None,
        label_names: Sequence[str] | Mapping[str, str] | None = None,
        max_tokens: int | None = None,
        refit: bool = False,
        quiet: bool = False,
    ) -> CascadeXML:
        """Trains on texts and their labels: lists of names, or a CSR matrix of documents x labels.

        `validation`: (texts, labels) to choose by; None draws some of the training documents; False holds none out, and
        the settings are used as they are. `settings` override the recipe's fields, e.g. {"train.epochs": 3}.
        `label_names`: of a matrix's columns in order, or {label in the lists: the name to show}.
        """
        if isinstance(label_names, Mapping):
            corpus = corpus_from_python(texts, labels)
            shown = Texts.from_strings(label_names.get(label, label) for label in corpus.label_ids)
            corpus = replace(corpus, label_names=shown)
        else:
            corpus = corpus_from_python(texts, labels, label_names)
        if isinstance(validation, tuple):
            corpus = replace(corpus, dev=_labelled(*validation, corpus.label_ids))
        settings = {**({"model.max_tokens": max_tokens} if max_tokens else {}), **(settings or {})}
        limit = settings.get("model.max_tokens")
        prepared = prepare_corpus(
            corpus,
            encoder,
            int(limit) if limit else None,
            seed,
            cached=False,
            refit=refit,
            hold_out=validation is not False,
        )
        chosen = plan(prepared, recipe, encoder, settings, pick_device(device), seed)
        done = fit(prepared, chosen, refit=refit, log=RunLog(quiet=quiet))
        return CascadeXML(done.model, done.about)

    @property
    def label_names(self) -> Texts:
        return self.model.labels.names or self.model.labels.ids

    def predict(
        self, texts: Sequence[str], top_k: int = 5, *, threshold: float | str | None = None, as_csr: bool = False
    ) -> list[list[tuple[str, float]]] | csr_matrix:
        """The best labels of each text with their scores: [[(name, score), ...]], or a CSR matrix of scores.

        `threshold`: only labels that score at least so much, `"auto"` for the one chosen on validation.
        """
        predictions = above(self.answer(_as_texts(texts), top_k), self.threshold(threshold))
        if as_csr:
            return to_csr(predictions.labels, predictions.scores, len(self.model.labels))
        names = self.label_names
        return [
            [(names[int(label)], float(score)) for label, score in zip(of_text, scores, strict=True) if label >= 0]
            for of_text, scores in zip(predictions.labels, predictions.scores, strict=True)
        ]

    def threshold(self, asked: float | str | None) -> float | None:
        """A given threshold as it is; `auto` as the one that training chose."""
        if asked is None or isinstance(asked, int | float):
            return asked
        if asked != "auto":
            raise ValueError(f"--threshold {asked}: expected a number or auto")
        chosen = self.model.config.predict.threshold
        if chosen is None:
            raise ValueError(
                "--threshold auto: this model was trained without validation, so none was chosen; give a number"
            )
        return chosen

    def tokens(self, texts: Texts) -> TokenStore:
        return tokenise(texts, self.model.tokenizer, self.model.config.model.max_tokens)

    def answer(self, texts: Texts | TokenStore, top_k: int) -> Predictions:
        """The `top_k` best labels of each document, one row each, in order."""
        if top_k < 1:
            raise ValueError(f"top-k is {top_k}: expected at least 1")
        tokens = texts if isinstance(texts, TokenStore) else self.tokens(texts)
        return predict(self.model, tokens, min(top_k, len(self.model.labels)))

    def evaluate(self, texts: Sequence[str], labels: Any, ks: Sequence[int] = (1, 3, 5)) -> Report:
        """Scores on labelled texts; labels that training never saw are misses under *all labels*."""
        part = _labelled(texts, labels, self.model.labels.ids)
        return self.evaluate_part(TokenisedPart(self.tokens(part.texts), part), ks)

    def evaluate_part(self, part: TokenisedPart, ks: Sequence[int] = (1, 3, 5)) -> Report:
        """By cascade, with the same model's figures over all labels beside it."""
        model = self.model
        depth = min(max(DEPTH, 2 * max(ks)), len(model.labels))
        answered = predict_and_measure(model, part, depth)
        recalls = {f"level {level + 2}": recall for level, recall in enumerate(answered.recall)}
        extra: dict[str, object] = {}
        if answered.over_all is not None:
            whole = self._report(answered.over_all, part, ks)
            extra = {f"{name} over all labels": value for name, value in whole.conventions["known labels"].items()}
        return self._report(answered.by_cascade, part, ks, model.config.predict.threshold, recalls, extra)

    def _report(
        self,
        predictions: Predictions,
        part: TokenisedPart,
        ks: Sequence[int],
        threshold: float | None = None,
        recalls: dict[str, float] | None = None,
        extra: dict[str, object] | None = None,
    ) -> Report:
        labels = self.model.labels
        a, b = published_constants(len(labels))
        return evaluate_predictions(
            predictions.labels, predictions.scores, part.known, labels.counts, labels.num_train, a, b,
            ks=ks, threshold=threshold, shortlist_recall=recalls, extra=extra,
        )  # fmt: skip

    def save(self, path: str | Path, *, overwrite: bool = False, shard_size: int = DEFAULT_SHARD) -> None:
        """One folder that needs nothing beside it."""
        save_model(self.model, Path(path), overwrite=overwrite, shard_size=shard_size, about={"training": self.about})

    @staticmethod
    def load(path: str | Path, *, device: str | None = None, precision: str = "auto") -> CascadeXML:
        chosen = pick_device(device)
        return CascadeXML(load_model(Path(path), chosen, pick_precision(precision, chosen)))

    # the names that transformers' users look for
    save_pretrained = save
    from_pretrained = load


def above(predictions: Predictions, threshold: float | None) -> Predictions:
    """Without the labels that score less."""
    if threshold is None:
        return predictions
    low = predictions.scores < threshold
    return Predictions(np.where(low, -1, predictions.labels), np.where(low, 0, predictions.scores).astype(np.float32))


def _as_texts(texts: Sequence[str]) -> Texts:
    if isinstance(texts, str):
        raise ValueError("predict takes a list of texts, and was given one string: put it into a list")
    return pack_texts(texts)


def _labelled(texts: Sequence[str], labels: Any, label_ids: Texts) -> Part:
    """Labelled texts over a label set that is already there; a matrix's columns are its labels in order."""
    if hasattr(labels, "tocsr"):
        if labels.shape[1] != len(label_ids):
            raise ValueError(
                f"the label matrix has {labels.shape[1]:,} columns, expected one for each of {len(label_ids):,} labels"
            )
        part = corpus_from_python(texts, labels).train
    else:
        part = corpus_from_python(texts, labels, label_ids=label_ids).train
    assert part is not None
    return part
