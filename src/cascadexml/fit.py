"""From Prepared and a recipe's name to a trained Model: the one way that the class and the command share."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cascadexml.config import Config, PredictConfig, override
from cascadexml.corpus import Corpus
from cascadexml.encoder import EncoderShape, load_backbone, load_tokenizer, shape_of
from cascadexml.prepared import Prepared, prepare
from cascadexml.recipes import Sizes, recipe
from cascadexml.runlog import RunLog
from cascadexml.tokens import tokenise, tokenise_cached
from cascadexml.train import Trained, train

DEFAULT_TOKENS = 256
"""kept of each text, as far as the encoder reads so many"""
FIRST_STAGE = "chosen.json"


@dataclass(frozen=True)
class Plan:
    """What will be run, known before it is."""

    config: Config
    shape: EncoderShape
    device: torch.device


def prepare_corpus(
    corpus: Corpus,
    encoder: str,
    max_tokens: int | None,
    seed: int,
    *,
    cached: bool = True,
    refit: bool = True,
    hold_out: bool = True,
) -> Prepared:
    shape = shape_of(encoder)
    if max_tokens is None:
        max_tokens = min(DEFAULT_TOKENS, shape.most_tokens)
    if max_tokens > shape.most_tokens:
        raise ValueError(f"--max-tokens {max_tokens}: the encoder {encoder} reads at most {shape.most_tokens} tokens")
    tokenizer = load_tokenizer(encoder)
    return prepare(
        corpus, tokenizer, encoder, max_tokens, seed, tokenise_cached if cached else tokenise, refit, hold_out
    )


def plan(
    prepared: Prepared,
    recipe_name: str = "auto",
    encoder: str | None = None,
    settings: dict[str, Any] | None = None,
    device: torch.device | None = None,
    seed: int = 0,
) -> Plan:
    """The full configuration for these data, this encoder and this device; `settings` override the recipe's."""
    device = device or torch.device("cpu")
    name = encoder or prepared.encoder
    shape = shape_of(name)
    if encoder is not None and load_tokenizer(name).fingerprint != prepared.tokenizer.fingerprint:
        raise ValueError(
            f"--encoder {name} has another tokenizer than the {prepared.encoder} that the data were prepared with: "
            "prepare them again with this encoder"
        )
    config = recipe(recipe_name, sizes_of(prepared, shape, device))
    config = override(config, {"model.encoder": name, "train.seed": seed, **(settings or {})})
    return Plan(config, shape, device)


def sizes_of(prepared: Prepared, shape: EncoderShape, device: torch.device) -> Sizes:
    counts = prepared.labels.counts
    num_documents, num_labels = len(prepared.parts["train"]), len(prepared.labels)
    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0
    return Sizes(
        num_labels=num_labels,
        num_documents=num_documents,
        labels_per_document=float(counts.sum() / max(1, prepared.labels.num_train)),
        documents_per_label=float(counts.sum() / max(1, np.count_nonzero(counts))),
        depth=shape.depth,
        pooling=shape.pooling,
        most_tokens=prepared.max_tokens,
        on_gpu=device.type == "cuda",
        gpu_memory=int(memory),
    )


def fit(
    prepared: Prepared,
    chosen: Plan,
    *,
    run: Path | None = None,
    resume: bool = False,
    refit: bool = False,
    log: RunLog | None = None,
) -> Trained:
    """Trains; with `refit`, once more on everything with the epochs and answers chosen the first time."""
    log = log or RunLog(quiet=True)

    def stage(config: Config, folder: Path | None, everything: bool, again: bool) -> Trained:
        torch.manual_seed(config.train.seed)
        backbone = load_backbone(config.model.encoder, chosen.device)
        options: dict[str, Any] = {"run": folder, "resume": again, "log": log, "everything": everything}
        return train(prepared, config, backbone, chosen.shape.pooling, chosen.device, **options)

    if not refit:
        return stage(chosen.config, run, False, resume)
    first = run / FIRST_STAGE if run else None
    if resume and first is not None and first.exists():
        config = _settled(chosen.config, json.loads(first.read_text(encoding="utf-8")))
    else:
        done = stage(chosen.config, run, False, resume)
        found = {"epochs": done.epochs, "predict": asdict(done.model.config.predict)}
        if first is not None:
            first.write_text(json.dumps(found), encoding="utf-8")
        config = _settled(chosen.config, found)
        log.say(
            f"refitting on everything: {config.train.epochs:g} epochs, "
            f"top-k {config.predict.top_k}, rank {config.predict.rank}"
        )
    return stage(config, run / "refit" if run else None, True, resume)


def _settled(config: Config, found: dict[str, Any]) -> Config:
    """The schedule as it was run, a plateau included, and the answers as they were chosen."""
    predict = PredictConfig(tuple(found["predict"]["top_k"]), found["predict"]["rank"], found["predict"]["threshold"])
    return replace(config, train=replace(config.train, epochs=found["epochs"], plateau=0), predict=predict)
