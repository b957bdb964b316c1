"""The loop over epochs and updates, and what happens around it: memory, validation, checkpoints."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cascadexml.batches import Batch, BatchMaker, ahead, epoch_order, mean_positives
from cascadexml.centroids import start_from_centroids
from cascadexml.choose import metric_of
from cascadexml.devices import is_out_of_memory, peak_memory
from cascadexml.model import Model
from cascadexml.optim import set_rates
from cascadexml.predict import predict, predict_all
from cascadexml.prepared import TokenisedPart
from cascadexml.run_state import Counters, RunState
from cascadexml.runlog import RunLog, Window

CHECKPOINT = "checkpoint.safetensors"
SHOW_EVERY = 10
"""updates between two looks at the figures on the device"""


class Stopped(Exception):
    """A signal asked the run to end; its checkpoint is written."""


class Halved(Exception):
    """The update must be made again from smaller pieces."""


class TrainingRun:
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
        self.log, self.folder = log, folder
        self.config = model.config.train
        self.maker = BatchMaker(part.tokens, model.config.model.max_tokens, part.known.labels, model.cascade.tree)
        model.encoder.freeze(self.config.freeze)
        self.state = RunState(model, identity)
        self._saved_at = time.monotonic()

    @property
    def counters(self) -> Counters:
        return self.state.counters

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
            self.counters.start_seconds = time.monotonic() - began

    def epochs(self, stopped: threading.Event) -> None:
        """All that are left; ends early within the last one where the schedule does."""
        self._show_start()
        while self._updates_done() < self._total_updates():
            self._epoch(stopped)
            self._end_epoch()
        self.log.finish()
        if self.state.best and self.counters.best_epoch != self._epochs_done():
            self.model.load_weights({name: tensor.to(self.model.device) for name, tensor in self.state.best.items()})
            self.log.say(f"epoch {self.counters.best_epoch:g} was the best on validation and is kept")

    def _updates_done(self) -> int:
        return self.counters.epoch * self.updates_an_epoch + self.counters.update

    def _total_updates(self) -> int:
        """Of the whole schedule; a fraction of an epoch is as many whole updates."""
        return max(1, round(self.state.schedule.epochs * self.updates_an_epoch))

    def _epochs_done(self) -> float:
        return self._updates_done() / self.updates_an_epoch

    def _epoch(self, stopped: threading.Event) -> None:
        order = epoch_order(
            self.maker.lengths[self.rows], self.config.batch_size, self.config.seed, self.counters.epoch
        )
        left = min(len(order), self._total_updates() - self.counters.epoch * self.updates_an_epoch)
        updates = [self.rows[rows] for rows in order[:left]]
        window = Window(self.model.cascade.num_levels, self.model.config.model.final == "all")
        while self.counters.update < len(updates):
            batches = ahead(self.maker, updates[self.counters.update :], self.counters.small_batch, self.model.device)
            try:
                self._run_updates(batches, window, stopped)
            except Halved:
                continue
            finally:
                batches.close()  # type: ignore[attr-defined]

    def _run_updates(self, batches: Iterator[list[Batch]], window: Window, stopped: threading.Event) -> None:
        began = time.monotonic()
        for pieces in batches:
            self.model.train(True)
            self._update(pieces, window)
            self.counters.update += 1
            self.counters.documents_seen += sum(map(len, pieces))
            now = time.monotonic()
            self.counters.seconds += now - began
            began = now
            if self.counters.update % SHOW_EVERY == 0:
                self._show(window)
            if self._updates_done() == self._total_updates():
                # a checkpoint here would go on behind the last epoch's measure; what is left is measuring and choosing
                continue
            if stopped.is_set():
                self._stop()
            if now - self._saved_at > 60 * self.config.checkpoint_minutes:
                self.save()

    def _update(self, pieces: list[Batch], window: Window) -> None:
        """One large batch: graded piece by piece, moved once."""
        factor = self.state.schedule.factor(self._epochs_done())
        set_rates(self.state.optimizer, factor)
        cascade = self.model.cascade
        num_documents = sum(map(len, pieces))
        cascade.begin(torch.tensor(self.config.head_rate * factor, device=self.model.device), self.counters.moved + 1)
        self.state.optimizer.zero_grad(set_to_none=True)
        try:
            steps = []
            for piece in pieces:
                step = cascade.step(self.model.encode(piece), piece, num_documents)
                step.backward(self._loss_factor())
                steps.append(step)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            cascade.discard()
            self._halve(max(map(len, pieces)))
        window.add(steps)
        if self._step_optimizer():
            cascade.update()
            self.counters.moved += 1
        else:
            cascade.discard()

    def _loss_factor(self) -> torch.Tensor | float:
        """fp16's loss scale; 1 in any other precision."""
        scaler = self.state.scaler
        return scaler.scale(torch.ones((), device=self.model.device)) if scaler.is_enabled() else 1.0

    def _step_optimizer(self) -> bool:
        """False where fp16 overflowed and nothing moved."""
        if not self.state.scaler.is_enabled():
            self.state.optimizer.step()
            return True
        before = self.state.scaler.get_scale()
        self.state.scaler.step(self.state.optimizer)
        self.state.scaler.update()
        return self.state.scaler.get_scale() >= before

    def _halve(self, size: int) -> None:
        self.state.optimizer.zero_grad(set_to_none=True)
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
        raise Halved

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
            predictions = predict(self.model, self.held_out.tokens, 20, config.model.trained_top_k, "label")
        value = metric_of(predictions, self.held_out, self.model.labels, config.train.metric)
        if value > counters.best:
            counters.best, counters.best_epoch, counters.waited = value, self._epochs_done(), 0
            self.state.keep_best()
        else:
            counters.waited += 1
            self._anneal_at_plateau()
        return {f"validation {config.train.metric}": round(value, 3)}

    def _anneal_at_plateau(self) -> None:
        counters, schedule = self.counters, self.state.schedule
        if not self.config.plateau or counters.waited < self.config.plateau or counters.epoch >= schedule.anneal_from:
            return
        schedule.anneal_from = counters.anneal_from = float(max(counters.epoch, self.config.warmup))
        self.log.say(f"no better for {counters.waited} epochs: the rates fall over the next {schedule.anneal:g}")

    def _show_start(self) -> None:
        self.log.start(self._total_updates(), self._updates_done())

    def _show(self, window: Window) -> None:
        figures = window.figures()
        done, total = self._updates_done(), self._total_updates()
        rate = self.counters.documents_seen / max(self.counters.seconds, 1e-9)
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
        if self.folder is not None:
            self.state.save(self.folder / CHECKPOINT)
            self._saved_at = time.monotonic()

    def resume(self) -> None:
        assert self.folder is not None
        self.state.load(self.folder / CHECKPOINT)
        self.log.say(f"going on from epoch {self._epochs_done():.2f}")
