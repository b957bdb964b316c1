"""The demo: learns clinical phrases and their ICD-10-CM codes, scores itself beside baselines, answers questions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from baselines import BASELINES, nearest_neighbours
from icd import Draw, draw_phrases, write_folder
from rich.console import Console
from rich.table import Table

from cascadexml import CascadeXML
from cascadexml.devices import multiplies_bf16, pick_device
from cascadexml.texts import Texts

HERE = Path(__file__).parent
DATA, MODEL, REPORT = HERE / "data", HERE / "model", HERE / "report.json"

# chosen beforehand on phrases taken out of the training ones, so that here all of them are trained on (docs/log.md)
SETTINGS: dict[str, object] = {"predict.top_k": [512, 512], "predict.rank": "label"}
FEWER_SETTINGS: dict[str, object] = {"predict.top_k": [256], "predict.rank": "label"}
MINUTES = {"every chapter": 7, "fewer chapters": 5}
"""the whole demo on 2 cores: with bf16, and on fewer chapters without"""
FEWER_CHAPTERS = "EGIJKLN"
"""a quarter of the codes, for chips that would take half an hour: glands, nerves, heart, lungs, gut, skin, kidneys"""

METRICS = ("P@1", "P@3", "P@5", "R@3", "R@5")
QUESTIONS = (
    "kidney stone stuck in the ureter",
    "type 2 diabetes with damaged nerves in the feet",
    "burst appendix with infection spreading in the belly",
)
BAR_WIDTH = 20

console = Console(highlight=False)


@dataclass(frozen=True)
class Scores:
    """Per cent, on the phrases held out."""

    cascade: Mapping[str, float]
    over_all_labels: Mapping[str, float]
    """the same model with every label scored"""
    baselines: Mapping[str, Mapping[str, float]]
    train_seconds: float


def main() -> None:
    started = time.monotonic()
    draw = draw_phrases()
    full = multiplies_bf16(pick_device(None))
    if not full:
        draw = draw.beginning_with(FEWER_CHAPTERS)
    write_folder(draw, DATA)
    announce(draw, full)

    model, train_seconds = train(draw, SETTINGS if full else FEWER_SETTINGS)
    console.print(f"Trained in {train_seconds:.0f} s.")
    if full:
        scores = compare(model, draw, train_seconds)
        REPORT.write_text(json.dumps(asdict(scores), indent=2) + "\n", encoding="utf-8")
        show_scores(scores)
    show_answers(model, draw)
    model.save(MODEL, overwrite=True)
    seconds = time.monotonic() - started
    console.print(f"\n{seconds:.0f} s in all. The model is in demo/model, its data in demo/data; try")
    console.print("  echo 'swollen toe' | .venv/bin/cascadexml predict demo/model -")


def announce(draw: Draw, full: bool) -> None:
    console.print(
        f"ICD-10-CM: {len(draw.train):,} clinical phrases of {len(draw.names):,} codes to train on, "
        f"{len(draw.test):,} held out."
    )
    if not full:
        console.print("This machine does not multiply bf16: the demo keeps to fewer chapters and claims no score.")
    whole = MINUTES["every chapter" if full else "fewer chapters"]
    console.print(f"This takes about {whole} minutes on 2 cores, less on more.\n")


def train(draw: Draw, settings: dict[str, object]) -> tuple[CascadeXML, float]:
    """The seconds are of training alone."""
    labels = [[code] for code in draw.train.codes]
    model = CascadeXML.fit(
        draw.train.texts, labels, encoder="minilm", validation=False, label_names=draw.names, seed=0, settings=settings
    )
    return model, float(model.about["seconds"])


def compare(model: CascadeXML, draw: Draw, train_seconds: float) -> Scores:
    report = model.evaluate(draw.test.texts, [[code] for code in draw.test.codes])
    baselines = {}
    for name, embed in BASELINES.items():
        console.print(f"Baseline: nearest neighbours by {name} ...")
        baselines[name] = nearest_neighbours(embed, draw.train, draw.test)
    suffix = " over all labels"
    whole = {name.removesuffix(suffix): float(str(value)) for name, value in report.extra.items()}
    return Scores(dict(report.conventions["known labels"]), whole, baselines, train_seconds)


def show_scores(scores: Scores) -> None:
    table = Table(title="Phrases held out: per cent (standard error about 1)", title_justify="left")
    table.add_column("")
    for metric in METRICS:
        table.add_column(metric, justify="right")
    for name, figures in scores.baselines.items():
        table.add_row(f"neighbours by {name}", *_cells(figures))
    table.add_row("CascadeXML", *_cells(scores.cascade), style="bold")
    table.add_row("the same, every label scored", *_cells(scores.over_all_labels))
    console.print(table)


def _cells(figures: Mapping[str, float]) -> list[str]:
    return [f"{figures[metric]:.1f}" for metric in METRICS]


def show_answers(model: CascadeXML, draw: Draw) -> None:
    """Questions in nobody's code book, with the five best codes of each."""
    known = {text.lower() for text in (*draw.train.texts, *draw.test.texts)}
    assert known.isdisjoint(QUESTIONS), "a question is among the phrases of the data"
    labels = model.model.labels
    answers = model.answer(Texts.from_strings(QUESTIONS), 5)
    for question, codes, scores in zip(QUESTIONS, answers.labels, answers.scores, strict=True):
        console.print(f"\n{question}", style="bold")
        for code, score in zip(codes.tolist(), scores.tolist(), strict=True):
            line = f"  {labels.ids[code]:<8} {bar(score)} {score:.2f}  {draw.names[labels.ids[code]]}"
            console.print(line, markup=False, no_wrap=True, overflow="ellipsis")


def bar(score: float) -> str:
    return ("█" * round(BAR_WIDTH * score)).ljust(BAR_WIDTH, "·")


if __name__ == "__main__":
    main()
