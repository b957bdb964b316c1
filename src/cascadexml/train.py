"""Prepared data and a Config in, a trained Model out; a run that was stopped goes on where it was."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cascadexml.batches import Batch, BatchMaker, ahead, epoch_order, mean_positives
from cascadexml.cascade import Step
from cascadexml.centroids import start_from_centroids
from cascadexml.checkpoint import load_checkpoint, save_checkpoint
from cascadexml.choose import Choice, choose, metric_of
from cascadexml.config import Config
from cascadexml.devices import is_out_of_memory, peak_memory, pick_precision, reduced_products
from cascadexml.label_tree import LabelTree
from cascadexml.model import Model, build_model
from cascadexml.optim import Schedule, encoder_optimizer, set_rates
from cascadexml.predict import predict, predict_all
from cascadexml.prepared import Prepared, TokenisedPart, fingerprint
from cascadexml.runlog import RunLog

CHECKPOINT = "checkpoint.safetensors"
SHOW_EVERY = 10
"""updates between two looks at the figures on the device"""


class Stopped(Exception):
    """A signal asked the run to end; its checkpoint is written."""


@dataclass
class Counters:
    """Where a run stands; all of it is in the checkpoint."""

    epoch: int = 0
    """epochs begun and ended"""
    update: int = 0
    """updates done of the epoch under way"""
    moved: int = 0
    """updates in which rows and encoder moved"""
    small_batch: int = 0
    anneal_from: float = 0.0
    best: float = -1.0
    best_epoch: float = 0.0
    waited: int = 0
    """epochs since the best"""
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)


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
    run_of = _Run(model, part, rows, held_out, log, run, _identity(prepared, config, everything))
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
        kept = config.predict.top_k or tuple(
            min(k, c) for k, c in zip(config.model.top_k, config.model.clusters, strict=True)
        )
        model.choose(top_k=kept, rank=config.predict.rank or "label")
    done = run_of.counters
    rate = run_of.documents_seen / max(done.seconds, 1e-9)
    return Trained(model, choice, done.history, run_of.schedule.epochs, done.seconds, rate, peak_memory(device))


def _fitted(config: Config, prepared: Prepared) -> Config:
    """Settings that data cannot follow are refused; a limit above the tokens kept is lowered to them."""
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


class _Run:
    """One training run: its state and the loop over it."""

    def __init__(
        self,
        model: Model,
        part: TokenisedPart,
        rows: np.ndarray,
        held_out: TokenisedPart | None,
        log: RunLog,
        folder: Path | None,
        identity: dict[str, Any],
    ) -> None:
        self.model, self.part, self.rows, self.held_out = model, part, rows, held_out
        self.log, self.folder, self.identity = log, folder, identity
        self.config = model.config.train
        self.maker = BatchMaker(part.tokens, model.config.model.max_tokens, part.known.labels, model.cascade.tree)
        model.encoder.freeze(self.config.freeze)
        self.optimizer = encoder_optimizer(model.encoder, model.cascade.inputs, self.config, model.device)
        self.scaler = torch.amp.GradScaler(model.device.type, enabled=model.precision == "fp16", init_scale=2.0**12)
        self.schedule = Schedule.of(self.config)
        self.counters = Counters(small_batch=self.config.small_batch, anneal_from=self.schedule.anneal_from)
        self.best: dict[str, Tensor] = {}
        self.documents_seen = 0
        self._saved_at = time.monotonic()

    @property
    def updates_an_epoch(self) -> int:
        return -(-len(self.rows) // self.config.batch_size)

    def start(self) -> None:
        config = self.model.config.model
        cascade = self.model.cascade
        cascade.start(mean_positives(self.part.known.labels[self.rows], cascade.tree), self.config.seed)
        levels = [level for level, start in enumerate(config.start) if start == "centroids"]
        if levels:
            began = time.monotonic()
            self.log.say("starting rows from their documents' centroids")
            start_from_centroids(self.model, self.part, self.rows, levels)
            self.counters.seconds += time.monotonic() - began

    def epochs(self, stopped: threading.Event) -> None:
        """All that are left; ends early within the last one where the schedule does."""
        self._show_start()
        while self._updates_done() < self._total_updates():
            self._epoch(stopped)
            self._end_epoch()
        self.log.stop()
        if self.best and self.counters.best_epoch != self._epochs_done():
            self.model.load_weights({name: tensor.to(self.model.device) for name, tensor in self.best.items()})
            self.log.say(f"epoch {self.counters.best_epoch:g} was the best on validation and is kept")

    def _updates_done(self) -> int:
        return self.counters.epoch * self.updates_an_epoch + self.counters.update

    def _total_updates(self) -> int:
        """Of the whole schedule; a fraction of an epoch is as many whole updates."""
        return max(1, round(self.schedule.epochs * self.updates_an_epoch))

    def _epochs_done(self) -> float:
        return self._updates_done() / self.updates_an_epoch

    def _epoch(self, stopped: threading.Event) -> None:
        order = epoch_order(
            self.maker.lengths[self.rows], self.config.batch_size, self.config.seed, self.counters.epoch
        )
        left = min(len(order), self._total_updates() - self.counters.epoch * self.updates_an_epoch)
        updates = [self.rows[rows] for rows in order[:left]]
        window = _Window(self.model)
        while self.counters.update < len(updates):
            batches = ahead(self.maker, updates[self.counters.update :], self.counters.small_batch, self.model.device)
            try:
                self._run_updates(batches, window, stopped)
            except _Halved:
                continue
            finally:
                batches.close()  # type: ignore[attr-defined]

    def _run_updates(self, batches: Iterator[list[Batch]], window: _Window, stopped: threading.Event) -> None:
        began = time.monotonic()
        for pieces in batches:
            self.model.train(True)
            self._update(pieces, window)
            self.counters.update += 1
            self.documents_seen += sum(map(len, pieces))
            now = time.monotonic()
            self.counters.seconds += now - began
            began = now
            if self.counters.update % SHOW_EVERY == 0:
                self._show(window)
            if stopped.is_set():
                self._stop()
            if now - self._saved_at > 60 * self.config.checkpoint_minutes:
                self.save()

    def _update(self, pieces: list[Batch], window: _Window) -> None:
        """One large batch: graded piece by piece, moved once."""
        factor = self.schedule.factor(self._epochs_done())
        set_rates(self.optimizer, factor)
        cascade = self.model.cascade
        num_documents = sum(map(len, pieces))
        cascade.begin(torch.tensor(self.config.head_rate * factor, device=self.model.device), self.counters.moved + 1)
        self.optimizer.zero_grad(set_to_none=True)
        try:
            for piece in pieces:
                step = cascade.step(self.model.encode(piece), piece, num_documents)
                step.backward(
                    self.scaler.scale(torch.ones((), device=self.model.device)) if self.scaler.is_enabled() else 1.0
                )
                window.add(step)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            cascade.discard()
            self._halve(max(map(len, pieces)))
        if self._step_optimizer():
            cascade.update()
            self.counters.moved += 1
        else:
            cascade.discard()

    def _step_optimizer(self) -> bool:
        """False where fp16 overflowed and nothing moved."""
        if not self.scaler.is_enabled():
            self.optimizer.step()
            return True
        before = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return self.scaler.get_scale() >= before

    def _halve(self, size: int) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()
        if size == 1:
            raise ValueError(
                "out of memory with one document at a time: lower model.max_tokens, or take a smaller encoder"
            )
        self.counters.small_batch = max(1, size // 2)
        self.log.say(
            f"out of memory: batches of {size} documents are now accumulated from {self.counters.small_batch} at a time"
        )
        self.log.event("out of memory", small_batch=self.counters.small_batch, update=self.counters.moved)
        raise _Halved

    def _end_epoch(self) -> None:
        if self.counters.update == self.updates_an_epoch:
            self.counters.epoch, self.counters.update = self.counters.epoch + 1, 0
        record: dict[str, Any] = {"epoch": round(self._epochs_done(), 4), "seconds": round(self.counters.seconds, 1)}
        if self.held_out is not None:
            record |= self._validate()
        self.counters.history.append(record)
        self.log.event("epoch", **record, update=self.counters.moved)
        self.log.say(
            f"epoch {record['epoch']:g} · " + " · ".join(f"{k} {v}" for k, v in record.items() if k != "epoch")
        )
        if self.folder is not None and self._updates_done() < self._total_updates():
            self.save()

    def _validate(self) -> dict[str, Any]:
        """Measures on the documents held out, keeps the best weights, starts the annealing at a plateau."""
        assert self.held_out is not None
        config, counters = self.model.config, self.counters
        for rows in self.model.cascade.rows:
            rows.settle()
        if config.model.final == "all":
            predictions = predict_all(self.model, self.held_out.tokens, 20)
        else:
            kept = tuple(min(k, c) for k, c in zip(config.model.top_k, config.model.clusters, strict=True))
            predictions = predict(self.model, self.held_out.tokens, 20, kept, "label")
        value = metric_of(predictions, self.held_out, self.model.labels, config.train.metric)
        if value > counters.best:
            counters.best, counters.best_epoch, counters.waited = value, self._epochs_done(), 0
            self.best = {name: tensor.detach().cpu().clone() for name, tensor in self.model.weights().items()}
        else:
            counters.waited += 1
            if (
                config.train.plateau
                and counters.waited >= config.train.plateau
                and counters.epoch < self.schedule.anneal_from
            ):
                self.schedule.anneal_from = counters.anneal_from = float(max(counters.epoch, config.train.warmup))
                self.log.say(
                    f"no better for {counters.waited} epochs: the rates fall over the next {self.schedule.anneal:g}"
                )
        return {f"validation {config.train.metric}": round(value, 3)}

    def _show_start(self) -> None:
        self.log.start(self._total_updates(), self._updates_done())

    def _show(self, window: _Window) -> None:
        figures = window.figures()
        done, total = self._updates_done(), self._total_updates()
        rate = self.documents_seen / max(self.counters.seconds, 1e-9)
        left = (total - done) * self.config.batch_size / max(rate, 1e-9)
        memory = peak_memory(self.model.device)
        self.log.event(
            "update", update=self.counters.moved, **figures, documents_per_second=round(rate, 1), memory=memory
        )
        shown = {name: f"{value:.3g}" for name, value in figures.items()}
        shown |= {"documents/s": f"{rate:,.0f}", "memory": f"{memory / 2**30:.1f} GiB"}
        self.log.advance(done, total, self._epochs_done(), shown, left)

    def _stop(self) -> None:
        self.log.stop()
        if self.folder is None:
            raise KeyboardInterrupt
        self.save()
        raise Stopped(f"stopped at epoch {self._epochs_done():.2f}; the run is saved, go on with --resume")

    def save(self) -> None:
        if self.folder is None:
            return
        tensors = {f"encoder.{name}": tensor for name, tensor in self.model.encoder.state_dict().items()}
        tensors |= {f"inputs.{name}": tensor for name, tensor in self.model.cascade.inputs.state_dict().items()}
        for level, head in enumerate(self.model.cascade.heads):
            tensors |= {f"heads.{level}.{name}": tensor for name, tensor in head.state().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for at, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{at}.{name}": tensor for name, tensor in state.items()}
        tensors["random.cpu"] = torch.get_rng_state()
        if self.model.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.model.device)
        state = {"identity": self.identity, "counters": vars(self.counters), "scaler": self.scaler.state_dict()}
        save_checkpoint(self.folder / CHECKPOINT, tensors, {**state, "documents_seen": self.documents_seen})
        self._saved_at = time.monotonic()

    def resume(self) -> None:
        assert self.folder is not None
        tensors, state = load_checkpoint(self.folder / CHECKPOINT)
        _refuse_other(state["identity"], self.identity)

        def within(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

        self.model.encoder.load_state_dict(within("encoder."))
        self.model.cascade.inputs.load_state_dict(within("inputs."))
        for level, head in enumerate(self.model.cascade.heads):
            head.load_state({name: tensor.to(self.model.device) for name, tensor in within(f"heads.{level}.").items()})
        self.best = within("best.")
        optimizer = self.optimizer.state_dict()
        for full, tensor in within("optimizer.").items():
            at, name = full.split(".")
            optimizer["state"].setdefault(int(at), {})[name] = tensor
        self.optimizer.load_state_dict(optimizer)
        torch.set_rng_state(tensors["random.cpu"])
        if "random.cuda" in tensors and self.model.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], self.model.device)
        self.counters = Counters(**state["counters"])
        self.schedule.anneal_from = self.counters.anneal_from
        self.scaler.load_state_dict(state["scaler"])
        self.documents_seen = state["documents_seen"]
        self.log.say(f"going on from epoch {self._epochs_done():.2f}")


class _Halved(Exception):
    """The update must be made again from smaller pieces."""


class _Window:
    """Losses and recalls since they were last shown, summed on the device."""

    def __init__(self, model: Model) -> None:
        self._levels = model.cascade.num_levels
        self._first_shortlisted = self._levels if self._levels == 1 else 1
        self._final_sees_all = model.config.model.final == "all"
        self._clear()

    def _clear(self) -> None:
        self._losses: list[list[Tensor]] = [[] for _ in range(self._levels)]
        self._covered: list[list[Tensor]] = [[] for _ in range(self._levels)]
        self._positives = [0] * self._levels

    def add(self, step: Step) -> None:
        for level in range(self._levels):
            self._losses[level].append(step.losses[level])
            self._covered[level].append(step.num_covered[level])
            self._positives[level] += step.num_positives[level]

    def figures(self) -> dict[str, float]:
        """Per level, named from 1: mean loss of an update, and recall (%) of the shortlist it was given."""
        shown = {}
        for level in range(self._levels):
            shown[f"loss {level + 1}"] = float(torch.stack(self._losses[level]).sum()) / SHOW_EVERY
            is_final = level == self._levels - 1
            if level >= self._first_shortlisted and not (is_final and self._final_sees_all):
                covered = float(torch.stack(self._covered[level]).sum())
                shown[f"recall {level + 1}"] = 100 * covered / max(1, self._positives[level])
        self._clear()
        return shown


def _refuse_other(saved: dict[str, Any], now: dict[str, Any]) -> None:
    for name in saved.keys() | now.keys():
        if saved.get(name) != now.get(name):
            what = "other data" if name == "data" else f"{name} = {saved.get(name)}, now {now.get(name)}"
            raise ValueError(f"the run to resume was begun with {what}: give the same, or start anew with --overwrite")


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
