"""Training speed of `auto` on prepared data beside the encoder alone: same autocast, batches and lengths, one run."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

import torch
from rows import add_row

from cascadexml.batches import Batch, BatchMaker, epoch_order, mean_positives
from cascadexml.devices import pick_precision, reduced_products
from cascadexml.encoder import load_backbone
from cascadexml.fit import plan
from cascadexml.label_tree import LabelTree
from cascadexml.model import Model, build_model
from cascadexml.optim import encoder_optimizer
from cascadexml.prepared_folder import load_prepared


def encoder_alone(model: Model, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    """Forward, backward from its vectors, AdamW."""
    optimizer.zero_grad(set_to_none=True)
    vectors = list(model.encode(batch).values())
    torch.autograd.backward(vectors, [torch.full_like(vector, 1e-6) for vector in vectors])
    optimizer.step()


def whole_step(model: Model, optimizer: torch.optim.Optimizer, batch: Batch, number: int) -> None:
    optimizer.zero_grad(set_to_none=True)
    model.cascade.begin(torch.tensor(1e-4, device=model.device), number)
    model.cascade.step(model.encode(batch), batch, len(batch)).backward()
    optimizer.step()
    model.cascade.update()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--max-tokens", type=int, default=128)
    options = parser.parse_args()
    prepared = load_prepared(options.prepared)
    device = torch.device("cpu")
    chosen = plan(prepared, settings={"model.max_tokens": options.max_tokens}, device=device)
    config = chosen.config
    precision = pick_precision("auto", device)
    tree = LabelTree(prepared.tree_order, config.model.clusters)
    arguments = (chosen.shape.pooling, tree, prepared.labels, prepared.tokenizer, device, precision)
    model = build_model(config, load_backbone(config.model.encoder, device), *arguments, trained=True)
    part = prepared.parts["train"]
    model.cascade.start(mean_positives(part.known.labels, tree), 0)
    model.train(True)
    optimizer = encoder_optimizer(model.encoder, model.cascade.inputs, config.train, device)
    maker = BatchMaker(part.tokens, config.model.max_tokens, part.known.labels, tree)
    alone, whole = [], []
    with reduced_products(device, precision):
        order = epoch_order(maker.lengths, config.train.batch_size, 0, 0)[: options.updates + 2]
        for number, rows in enumerate(order, start=1):
            batch = maker.make(rows)
            began = time.perf_counter()
            encoder_alone(model, optimizer, batch)
            middle = time.perf_counter()
            whole_step(model, optimizer, batch, number)
            alone.append((middle - began) / len(batch))
            whole.append((time.perf_counter() - middle) / len(batch))
    # the first two warm up
    rates = [1 / median(times[2:]) for times in (whole, alone)]
    name = f"cpu_step {options.prepared.name}, {len(prepared.labels)} labels, {options.max_tokens} tokens, {precision}"
    add_row(name, "documents/s (baseline: encoder alone)", *rates, ["torch", "transformers"])


if __name__ == "__main__":
    main()
