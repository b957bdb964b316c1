"""What `evaluate`, `encode`, `info` and `recipes` do: a trained model, or predictions, beside data of any kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cascadexml.checkpoint import KIND as MODEL
from cascadexml.corpus import ReadOptions, read_corpus
from cascadexml.evaluate import evaluate_predictions
from cascadexml.folders import is_folder, open_folder, write_folder
from cascadexml.predictions_file import load_predictions_npz
from cascadexml.prepared import PARTS, Prepared, TokenisedPart
from cascadexml.prepared_folder import KIND as PREPARED
from cascadexml.prepared_folder import load_prepared
from cascadexml.propensity import published_constants
from cascadexml.recipes import ABOUT, PAPER, Sizes, recipe
from cascadexml.report import Report
from cascadexml.training_command import config_lines

if TYPE_CHECKING:
    from cascadexml.classifier import CascadeXML

VECTORS = "vectors"
DEPTH = 100
"""predictions a document that are read of a file"""


def evaluate_model(folder: Path, data: Path, options: ReadOptions, part: str | None, device: str | None) -> Report:
    from cascadexml.classifier import CascadeXML

    classifier = CascadeXML.load(folder, device=device)
    parts = labelled_parts(classifier, data, options)
    return classifier.evaluate_part(parts[_which(part, list(parts), data)])


def evaluate_file(data: Path, predictions: Path, options: ReadOptions, part: str | None) -> Report:
    """Predictions of any system, their columns in the order of the label set that `prepare` writes."""
    if is_folder(data, PREPARED):
        prepared = load_prepared(data)
        known = prepared.parts[_which(part, list(prepared.parts), data)].known
        counts, num_train = prepared.labels.counts, prepared.labels.num_train
    else:
        corpus = read_corpus(data, options)
        assert corpus.train is not None
        known = corpus.parts()[_which(part, list(corpus.parts()), data)]
        counts = np.asarray(corpus.train.labels.sum(axis=0)).ravel().astype(np.int64)
        num_train = int((np.diff(corpus.train.labels.indptr) > 0).sum())
    predicted, scores = load_predictions_npz(predictions, len(known), len(counts), DEPTH)
    a, b = published_constants(len(counts))
    return evaluate_predictions(predicted, scores, known, counts, num_train, a, b)


def labelled_parts(classifier: CascadeXML, data: Path, options: ReadOptions) -> dict[str, TokenisedPart]:
    """The parts of data or a prepared folder, over the model's labels and in its tokens."""
    labels = classifier.model.labels
    if is_folder(data, PREPARED):
        prepared = load_prepared(data)
        _refuse_other(classifier, prepared, data)
        return prepared.parts
    if is_folder(data, MODEL):
        raise ValueError(f"{data} is a model folder, expected data: evaluate MODEL DATA")
    corpus = read_corpus(data, options, label_ids=labels.ids)
    return {name: TokenisedPart(classifier.tokens(part.texts), part) for name, part in corpus.parts().items()}


def _refuse_other(classifier: CascadeXML, prepared: Prepared, data: Path) -> None:
    model = classifier.model
    same = len(model.labels) == len(prepared.labels) and np.array_equal(
        model.labels.ids.buffer, prepared.labels.ids.buffer
    )
    if not same:
        raise ValueError(
            f"{data} was prepared with another label set than the model's: evaluate on the data themselves"
        )
    if model.tokenizer.fingerprint != prepared.tokenizer.fingerprint:
        raise ValueError(
            f"{data} was prepared with another tokenizer than the model's: evaluate on the data themselves"
        )
    if prepared.max_tokens < model.config.model.max_tokens:
        raise ValueError(
            f"{data} keeps {prepared.max_tokens} tokens a text, the model reads {model.config.model.max_tokens}"
        )


def _which(asked: str | None, there: list[str], data: Path) -> str:
    if asked is not None:
        if asked not in there:
            raise ValueError(f"--part {asked}: {data} has {', '.join(there)}")
        return asked
    return next(name for name in ("test", "dev", "train") if name in there)


def encode_parts(
    folder: Path, data: Path, output: Path, options: ReadOptions, overwrite: bool, device: str | None
) -> Iterator[str]:
    from cascadexml.classifier import CascadeXML
    from cascadexml.predict import encode_levels

    classifier = CascadeXML.load(folder, device=device)
    parts = labelled_parts(classifier, data, options)
    about = {
        "model": folder.name,
        "layers": classifier.model.config.model.layers,
        "documents": {n: len(p) for n, p in parts.items()},
    }
    with write_folder(output, VECTORS, about, overwrite) as written:
        for name in PARTS:
            if name in parts:
                (written / name).mkdir()
                for level, vectors in enumerate(encode_levels(classifier.model, parts[name].tokens)):
                    np.save(written / name / f"level-{level + 1}.npy", vectors)
                yield f"{output / name}: {len(parts[name]):,} documents, {vectors.shape[1]} numbers a level"


def model_lines(folder: Path) -> list[str]:
    """A model folder in words; reads no weights."""
    manifest = open_folder(folder, MODEL, verify=False)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    encoder = json.loads((folder / "encoder" / "config.json").read_text(encoding="utf-8"))
    size = sum(entry["bytes"] for entry in manifest["files"].values())
    training = manifest.get("training", {})
    lines = [
        f"{folder}: a CascadeXML model ({size / 2**20:,.1f} MiB, written by version {manifest['cascadexml']})",
        f"labels: {manifest['num_labels']:,}, learnt from {manifest['num_train']:,} documents",
        f"propensities: A = {manifest['propensity_a']}, B = {manifest['propensity_b']}",
        f"encoder: {config['model']['encoder']}, {encoder.get('model_type')}, pooling {config['pooling']}",
        f"tree: {' -> '.join(f'{count:,}' for count in (*config['model']['clusters'], manifest['num_labels']))}",
    ]
    if training.get("seconds"):
        lines.append(f"training: {training['seconds']:,.0f} s, {training['documents_per_second']:,.0f} documents/s")
        lines += [
            "  " + ", ".join(f"{name} {value}" for name, value in epoch.items())
            for epoch in training.get("history", [])
        ]
    return lines + config_lines(config)


def recipe_lines(name: str | None, labels: int, documents: int, labels_per_document: float, depth: int) -> list[str]:
    if name is None:
        width = max(map(len, ABOUT))
        return [f"{each:<{width}}  {about}" for each, about in ABOUT.items()]
    per_label = documents * labels_per_document / labels
    sizes = Sizes(labels, documents, labels_per_document, per_label, depth, "mean")
    lines = config_lines(recipe(name, sizes).to_dict())
    if name in PAPER:
        return [f"{ABOUT[name]}; here for {depth} layers", *lines]
    told = f"for {labels:,} labels, {documents:,} documents, {labels_per_document:g} labels a document, {depth} layers"
    return [f"{ABOUT.get(name, name)}; here {told}", *lines]
