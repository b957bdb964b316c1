"""Sizes in, a full Config out: the five rows of the paper's table, exact at 12 layers, and `auto`."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass

from cascadexml.config import Config, ModelConfig, PredictConfig, TrainConfig

PAPER_DEPTH = 12
FEW_DOCUMENTS = 3.0
"""mean documents a label under which the start decides more than anything else"""
COARSE_FROM = 4096
"""labels above which `auto` has coarse levels"""


@dataclass(frozen=True)
class Sizes:
    """What a recipe may look at."""

    num_labels: int
    num_documents: int
    labels_per_document: float
    documents_per_label: float
    depth: int
    """layers of the encoder"""
    pooling: str
    most_tokens: int = 512
    """tokens that the prepared documents keep"""
    on_gpu: bool = True
    gpu_memory: int = 0
    """bytes; 0: none, or not known"""


@dataclass(frozen=True)
class PaperRecipe:
    """One row of the paper's hyperparameter table; layers as at 12."""

    layers: tuple[tuple[int, ...], ...]
    clusters: tuple[int, ...]
    top_k: tuple[int, ...]
    """the table's shortlist sizes count nodes: top_k = round(nodes shortlisted x clusters / nodes below)"""
    epochs: int
    max_tokens: int
    dropout: tuple[float, ...]


_LARGE = ((5, 6), (8,), (10,), (12,))
# the published code rounds some of these top-k
PAPER = {
    "wiki10-31k": PaperRecipe(((9, 10), (11,), (12,)), (2**9, 2**12), (64, 68), 15, 256, (0.3, 0.3, 0.4)),
    "amazoncat-13k": PaperRecipe(((7, 8), (10,), (12,)), (2**8, 2**11), (32, 39), 6, 256, (0.2, 0.3, 0.4)),
    "wiki-500k": PaperRecipe(_LARGE, (2**10, 2**13, 2**16), (128, 256, 536), 12, 128, (0.2, 0.25, 0.35, 0.5)),
    "amazon-670k": PaperRecipe(_LARGE, (2**10, 2**13, 2**16), (128, 256, 401), 15, 128, (0.2, 0.25, 0.4, 0.5)),
    "amazon-3m": PaperRecipe(_LARGE, (2**10, 2**13, 2**16), (128, 256, 95), 15, 128, (0.2, 0.25, 0.3, 0.5)),
}
ABOUT = {
    "auto": "chosen from sizes: one-vs-all accuracy with a cascade for prediction (the default)",
    "one-vs-all": "no coarse levels: every label scored, in training and prediction",
    "lightxml": "one coarse level; every level reads the last layer",
    **{name: f"the paper's {name}: for 12-layer encoders, others in proportion" for name in PAPER},
}


def recipe(name: str, sizes: Sizes) -> Config:
    """The configuration that `name` gives for data and encoder of these sizes."""
    if name in PAPER:
        return _paper(name, sizes)
    check_name(name)
    return {"auto": auto, "one-vs-all": _one_vs_all, "lightxml": _lightxml}[name](sizes)


def check_name(name: str) -> None:
    if name not in ABOUT:
        near = difflib.get_close_matches(name.lower(), ABOUT, n=3, cutoff=0.3) or sorted(ABOUT)
        raise ValueError(f"there is no recipe {name!r}; the nearest are {', '.join(near)}")


def scaled_layers(layers: tuple[tuple[int, ...], ...], depth: int) -> tuple[tuple[int, ...], ...]:
    """Layers of a 12-layer encoder on one of another depth: in proportion, and still strictly increasing."""
    flat = [layer for of_level in layers for layer in of_level]
    scaled = [math.ceil(layer * depth / PAPER_DEPTH) for layer in flat]
    for at in range(len(scaled) - 2, -1, -1):
        scaled[at] = min(scaled[at], scaled[at + 1] - 1)
    if scaled[0] < 1:
        shared = [[depth]] * len(layers)
        raise ValueError(
            f"the recipe reads {len(flat)} different layers, the encoder has {depth}: "
            f"share the last one, --set model.layers={shared}".replace(" [[", "[[")
        )
    left = iter(scaled)
    return tuple(tuple(next(left) for _ in of_level) for of_level in layers)


def _paper(name: str, sizes: Sizes) -> Config:
    row = PAPER[name]
    levels = len(row.clusters) + 1
    model = ModelConfig(
        pooling="cls",
        max_tokens=row.max_tokens,
        clusters=row.clusters,
        layers=scaled_layers(row.layers, sizes.depth),
        top_k=row.top_k,
        dropout=row.dropout,
        passengers=(False,) * levels,
        start=("random",) * levels,
    )
    train = TrainConfig(epochs=row.epochs, warmup=1.0, anneal=3.0, batch_size=256)
    return Config(name, model, train, PredictConfig(top_k=row.top_k))


def auto(sizes: Sizes) -> Config:
    """One-vs-all training with passenger coarse levels for prediction; start, loss and rates as sizes call for."""
    few = sizes.documents_per_label < FEW_DOCUMENTS
    single = few and sizes.labels_per_document < 1.5
    coarse = coarse_levels(sizes.num_labels)
    levels = len(coarse) + 1
    model = ModelConfig(
        pooling=sizes.pooling,
        max_tokens=min(128, sizes.most_tokens),
        clusters=coarse,
        layers=((sizes.depth,),) * levels,
        top_k=tuple(min(64 if at == 0 else 128, count) for at, count in enumerate(coarse)),
        dropout=(0.1,) * len(coarse) + (0.1 if few else 0.4,),
        passengers=(True,) * len(coarse) + (False,),
        final="all",
        loss="softmax" if single else "bce",
        start=("centroids",) * levels,
        start_length=14.0 if single else 20.0,
    )
    epochs = _epochs(sizes, few)
    train = TrainConfig(
        epochs=epochs,
        warmup=round(epochs / 10, 6) if few else 1.0,
        anneal=round(epochs * 0.9, 6) if few else min(3.0, epochs - 1),
        batch_size=128,
        encoder_rate=5e-4 if single else 3e-4 if few else 1e-4,
        head_rate=1e-3,
        plateau=0 if few else 2,
    )
    return Config("auto", model, train)


def coarse_levels(num_labels: int) -> tuple[int, ...]:
    """None up to 4,096 labels; then each level's clusters hold about eight nodes of the next."""
    if num_labels <= COARSE_FROM:
        return ()
    finest = 1 << round(math.log2(num_labels / 6))
    levels = [finest]
    while levels[0] > 1 << 11:
        levels.insert(0, max(levels[0] >> 3, 1 << 9))
    return tuple(levels)


def _epochs(sizes: Sizes, few: bool) -> float:
    """Small sets need more passes for the same number of steps; a CPU cannot wait for as many."""
    if few:
        return 6.0 if sizes.on_gpu else 3.0
    steps = sizes.num_documents / 128
    return float(min(40, max(15, round(4000 / max(steps, 1)))))


def _one_vs_all(sizes: Sizes) -> Config:
    base = auto(sizes)
    model = ModelConfig(
        pooling=base.model.pooling,
        max_tokens=base.model.max_tokens,
        clusters=(),
        layers=((sizes.depth,),),
        top_k=(),
        dropout=base.model.dropout[-1:],
        passengers=(False,),
        final="all",
        loss=base.model.loss,
        start=base.model.start[-1:],
        start_length=base.model.start_length,
    )
    return Config("one-vs-all", model, base.train)


def _lightxml(sizes: Sizes) -> Config:
    finest = 1 << max(1, round(math.log2(max(4, sizes.num_labels) / 16)))
    model = ModelConfig(
        pooling=sizes.pooling,
        max_tokens=min(128, sizes.most_tokens),
        clusters=(finest,),
        layers=((sizes.depth,), (sizes.depth,)),
        top_k=(min(64, finest),),
        dropout=(0.3, 0.4),
        passengers=(False, False),
        start=("random", "random"),
    )
    return Config("lightxml", model, TrainConfig(epochs=15, warmup=1.0, anneal=3.0))
