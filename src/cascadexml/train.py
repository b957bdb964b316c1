"""Prepared data and a Config in, a trained Model out; a run that was stopped goes on where it was."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from cascadexml.choose import Choice, choose
from cascadexml.config import Config
from cascadexml.devices import peak_memory, pick_precision, reduced_products
from cascadexml.label_tree import LabelTree
from cascadexml.metrics import parse_metric
from cascadexml.model import Model, build_model
from cascadexml.prepared import Prepared, TokenisedPart
from cascadexml.prepared_folder import fingerprint
from cascadexml.runlog import RunLog
from cascadexml.training_run import CHECKPOINT, TrainingRun


@dataclass(frozen=True, eq=False)
class Trained:
    model: Model
    choice: Choice | None
    """None without validation"""
    history: list[dict[str, Any]]
    epochs: float
    """of the schedule as it was run"""
    seconds: float
    documents_per_second: float
    peak_memory: int

    @property
    def about(self) -> dict[str, Any]:
        """What a model's folder keeps of its training."""
        return {"seconds": self.seconds, "documents_per_second": self.documents_per_second, "history": self.history}


def train(
    prepared: Prepared,
    config: Config,
    backbone: nn.Module,
    pooling: str,
    device: torch.device,
    *,
    run: Path | None = None,
    resume: bool = False,
    log: RunLog | None = None,
    everything: bool = False,
) -> Trained:
    """`run` is where checkpoints and logs go; `everything` trains on validation documents too and chooses nothing."""
    log = log or RunLog(quiet=True)
    torch.manual_seed(config.train.seed)
    config = _fitted(config, prepared)
    order = prepared.refit_order if everything else prepared.tree_order
    precision = pick_precision(config.train.precision, device)
    tree = LabelTree(order, config.model.clusters)
    model = build_model(
        config, backbone, pooling, tree, prepared.labels, prepared.tokenizer, device, precision, trained=True
    )
    part, rows = _documents(prepared, everything)
    held_out = prepared.validation_part() if not everything else None
    run_of = TrainingRun(model, part, rows, held_out, log, run, _identity(prepared, config, everything))
    if resume and run is not None and (run / CHECKPOINT).exists():
        run_of.resume()
    else:
        run_of.start()
    with _until_stopped() as stopped, reduced_products(device, precision):
        run_of.epochs(stopped)
    choice = None
    if held_out is not None and len(held_out):
        choice = choose(model, held_out)
        model.choose(top_k=choice.predict.top_k, rank=choice.predict.rank, threshold=choice.predict.threshold)
        log.event("choice", **{"tried": choice.tried, "top_k": choice.predict.top_k, "rank": choice.predict.rank})
    else:
        kept = config.predict.top_k or config.model.trained_top_k
        model.choose(top_k=kept, rank=config.predict.rank or "label")
    done = run_of.counters
    rate = done.documents_seen / max(done.seconds, 1e-9)
    seconds = done.start_seconds + done.seconds
    return Trained(model, choice, done.history, run_of.state.schedule.epochs, seconds, rate, peak_memory(device))


def _fitted(config: Config, prepared: Prepared) -> Config:
    """Settings that data cannot follow are refused; a limit above the tokens kept is lowered to them."""
    parse_metric(config.train.metric)
    if config.model.max_tokens > prepared.max_tokens:
        config = replace(config, model=replace(config.model, max_tokens=prepared.max_tokens))
    for given, count in zip(config.predict.top_k, config.model.clusters, strict=False):
        if given > count:
            raise ValueError(f"predict.top_k asks for {given} of {count} clusters: give at most {count}")
    if len(config.predict.top_k) not in (0, len(config.model.clusters)):
        raise ValueError(
            f"predict.top_k has {len(config.predict.top_k)} entries: give one for each of {config.model.clusters}"
        )
    return config


def _documents(prepared: Prepared, everything: bool) -> tuple[TokenisedPart, np.ndarray]:
    """The part and rows to train on: documents with labels; with `everything` those held out too."""
    part = prepared.parts["train"]
    rows = np.arange(len(part)) if everything else prepared.training
    if everything and "dev" in prepared.parts:
        part = part.followed_by(prepared.parts["dev"])
        rows = np.arange(len(part))
    rows = rows[np.diff(part.known.labels.indptr)[rows] > 0]
    if not len(rows):
        raise ValueError("no training document has a label: give labels to some")
    return part, rows


def _identity(prepared: Prepared, config: Config, everything: bool) -> dict[str, Any]:
    """What must be the same for a run to go on."""
    flat = {
        f"{room}.{name}": value
        for room, fields in config.to_dict().items()
        if isinstance(fields, dict)
        for name, value in fields.items()
    }
    return {"data": fingerprint(prepared), "refit": everything, "recipe": config.recipe, **flat}


@contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM set the event; a second Ctrl-C interrupts at once."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def ask(number: int, frame: object) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
