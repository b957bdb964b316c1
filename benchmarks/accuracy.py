"""Accuracy of recipes and variants on prepared data, several seeds, validation first and test once; see docs/log.md."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from cascadexml.classifier import CascadeXML
from cascadexml.fit import fit, plan
from cascadexml.prepared_folder import load_prepared
from cascadexml.runlog import RunLog

PAPER_CASCADE: dict[str, Any] = {
    "model.clusters": [512, 4096],
    "model.layers": [[3, 4], [5], [6]],
    "model.top_k": [64, 64],
    "model.dropout": [0.3, 0.3, 0.4],
    "model.passengers": [False, False, False],
    "model.start": ["random"] * 3,
    "model.pooling": "cls",
    "model.final": "shortlist",
    "model.loss": "bce",
    "predict.top_k": [64, 64],
    "train.update_rule": "adamw_full",
    "train.epochs": 15,
    "train.plateau": 0,
    "train.warmup": 1,
    "train.anneal": 3,
    "train.encoder_rate": 1e-4,
    "train.head_rate": 1e-3,
}
IMPROVED = {
    **PAPER_CASCADE,
    "model.pooling": "mean",
    "model.start": ["centroids"] * 3,
    "model.top_k": [256, 256],
    "predict.top_k": [256, 256],
}
VARIANTS: dict[str, dict[str, Any]] = {"auto": {}, "paper": PAPER_CASCADE, "improved": IMPROVED}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("--encoder", help="folder, where the prepared one is not installed")
    parser.add_argument("--variant", default="auto", choices=sorted(VARIANTS))
    parser.add_argument("--set", action="append", default=[], help="room.field=value, on top of the variant")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--test", action="store_true", help="look at the test part: once, with settings already chosen")
    parser.add_argument("--out", type=Path, help="JSON lines")
    arguments = parser.parse_args()
    prepared = load_prepared(arguments.prepared)
    extra = dict(assignment.split("=", 1) for assignment in arguments.set)
    for seed in arguments.seeds:
        settings = {**VARIANTS[arguments.variant], **extra}
        chosen = plan(prepared, "auto", arguments.encoder, settings, torch.device(arguments.device), seed)
        began = time.monotonic()
        done = fit(prepared, chosen, log=RunLog(quiet=True))
        classifier = CascadeXML(done.model)
        row: dict[str, Any] = {
            "variant": arguments.variant,
            "set": extra,
            "seed": seed,
            "seconds": round(done.seconds, 1),
        }
        row |= {"documents_per_second": round(done.documents_per_second), "gib": round(done.peak_memory / 2**30, 2)}
        if done.choice:
            row |= {"top_k": done.choice.predict.top_k, "rank": done.choice.predict.rank}
            row |= {
                "validation": round(done.choice.by_cascade, 3),
                "validation_all": round(done.choice.over_all_labels, 3),
            }
            row["tried"] = {name: round(value, 2) for name, value in done.choice.tried.items()}
        part = prepared.parts["test"] if arguments.test else prepared.validation_part()
        assert part is not None
        report = classifier.evaluate_part(part)
        row["part"] = "test" if arguments.test else "validation"
        row["by cascade"] = _short(report.conventions["known labels"])
        row["over all labels"] = _short({k.removesuffix(" over all labels"): v for k, v in report.extra.items()})
        row["recall"] = {name: round(value, 1) for name, value in report.shortlist_recall.items()}
        row["history"] = [epoch.get("validation P") for epoch in done.history]
        row["whole_seconds"] = round(time.monotonic() - began, 1)
        print(json.dumps(row), flush=True)
        if arguments.out:
            with arguments.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


def _short(figures: Any) -> str:
    """P@1/3/5, then PSP@1/3/5."""
    return " · ".join(
        "/".join(f"{figures[f'{m}@{k}']:.2f}" for k in (1, 3, 5)) for m in ("P", "PSP") if f"{m}@1" in figures
    )


if __name__ == "__main__":
    main()
