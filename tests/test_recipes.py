"""The paper's table to the number, the same in proportion on other encoders, and what `auto` makes of sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import tiny

from cascadexml.cascade import nominal_sizes
from cascadexml.config import Config, override
from cascadexml.recipes import ABOUT, COARSE_FROM, PAPER, Sizes, coarse_levels, recipe, scaled_layers

SIZES = Sizes(30_938, 14_146, 18.7, 8.5, 12, "cls")
LARGE = ((5, 6), (8,), (10,), (12,))
PAPERS: dict[str, dict[str, Any]] = {
    "wiki10-31k": {
        "layers": ((9, 10), (11,), (12,)), "clusters": (512, 4096), "top_k": (64, 68), "dropout": (0.3, 0.3, 0.4),
        "epochs": 15, "max_tokens": 256, "labels": 30_938, "nodes": (9, 9, 9),
    },
    "amazoncat-13k": {
        "layers": ((7, 8), (10,), (12,)), "clusters": (256, 2048), "top_k": (32, 39), "dropout": (0.2, 0.3, 0.4),
        "epochs": 6, "max_tokens": 256, "labels": 13_330, "nodes": (8, 8, 8),
    },
    "wiki-500k": {
        "layers": LARGE, "clusters": (1024, 8192, 65_536), "top_k": (128, 256, 536), "dropout": (0.2, 0.25, 0.35, 0.5),
        "epochs": 12, "max_tokens": 128, "labels": 501_070, "nodes": (10, 10, 11, 12),
    },
    "amazon-670k": {
        "layers": LARGE, "clusters": (1024, 8192, 65_536), "top_k": (128, 256, 401), "dropout": (0.2, 0.25, 0.4, 0.5),
        "epochs": 15, "max_tokens": 128, "labels": 670_091, "nodes": (10, 10, 11, 12),
    },
    "amazon-3m": {
        "layers": LARGE, "clusters": (1024, 8192, 65_536), "top_k": (128, 256, 95), "dropout": (0.2, 0.25, 0.3, 0.5),
        "epochs": 15, "max_tokens": 128, "labels": 2_812_281, "nodes": (10, 10, 11, 12),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", list(PAPERS))
def test_the_papers_table(name: str) -> None:
    """Shortlists in nodes are the table's powers of two: exactly at clusters, within a cluster's labels at the end."""
    config, row = recipe(name, SIZES), PAPERS[name]
    for field in ("layers", "clusters", "top_k", "dropout", "max_tokens"):
        assert getattr(config.model, field) == row[field]
    assert config.train.epochs == row["epochs"]
    sizes = nominal_sizes(config.model, tiny.tree(row["labels"], row["clusters"]))
    assert sizes[:-1] == [1 << power for power in row["nodes"][:-1]]
    of_cluster = row["labels"] / row["clusters"][-1]
    assert abs(sizes[-1] - (1 << row["nodes"][-1])) <= of_cluster / 2 + 1


def test_the_papers_way() -> None:
    """[CLS], random starts, BCE on shortlists, every level heard, batches of 256, and no choice of epochs or top-k."""
    assert set(PAPERS) == set(PAPER)
    for name in PAPER:
        config = recipe(name, replace(SIZES, pooling="mean"))
        levels = len(config.model.clusters) + 1
        assert (config.model.pooling, config.model.loss, config.model.final) == ("cls", "bce", "shortlist")
        assert config.model.start == ("random",) * levels and not any(config.model.passengers)
        assert config.model.rescale and not config.model.literal and config.model.common_size == 0
        assert config.train.batch_size == 256 and config.train.plateau == 0
        assert config.predict.top_k == config.model.top_k


@pytest.mark.parametrize(
    ("depth", "wiki10", "large"),
    [
        (12, ((9, 10), (11,), (12,)), LARGE),
        (24, ((18, 20), (22,), (24,)), ((10, 12), (16,), (20,), (24,))),
        (6, ((3, 4), (5,), (6,)), ((2, 3), (4,), (5,), (6,))),
        (5, ((2, 3), (4,), (5,)), ((1, 2), (3,), (4,), (5,))),
        (8, ((5, 6), (7,), (8,)), ((3, 4), (6,), (7,), (8,))),
    ],
)
def test_other_depths(depth: int, wiki10: Any, large: Any) -> None:
    """ceil(layer x depth / 12), lowered until strictly increasing."""
    assert recipe("wiki10-31k", replace(SIZES, depth=depth)).model.layers == wiki10
    assert recipe("amazon-670k", replace(SIZES, depth=depth)).model.layers == large


def test_too_few_layers_propose_to_share_the_last() -> None:
    with pytest.raises(ValueError, match="reads 5 different layers, the encoder has 4: share the last one") as refused:
        recipe("amazon-670k", replace(SIZES, depth=4))
    proposed = str(refused.value).partition("--set ")[2]
    assert proposed.replace(" ", "") == "model.layers=[[4],[4],[4],[4]]"
    # the four layers that it has are enough for the smaller recipes
    assert scaled_layers(((9, 10), (11,), (12,)), 4) == ((1, 2), (3,), (4,))
    with pytest.raises(ValueError, match=r"has 3: share .* model.layers=\[\[3\], \[3\], \[3\]\]"):
        recipe("wiki10-31k", replace(SIZES, depth=3))


def test_auto_has_coarse_levels_above_4096_labels() -> None:
    for num_labels in (1, 2, 100, 4095, COARSE_FROM):
        config = recipe("auto", replace(SIZES, num_labels=num_labels))
        assert config.model.clusters == () and config.model.final == "all"
    for num_labels in (COARSE_FROM + 1, 5000, 22_625, 100_000, 670_091, 2_812_281, 50_000_000):
        clusters = coarse_levels(num_labels)
        assert clusters and recipe("auto", replace(SIZES, num_labels=num_labels)).model.clusters == clusters
        tree_levels = [*clusters, num_labels]
        assert all(count & (count - 1) == 0 for count in clusters) and sorted(set(tree_levels)) == tree_levels
        assert 3 <= num_labels / clusters[-1] <= 12, "labels of a cluster"


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("num_labels", [2, 4096, 22_625, 670_091])
@pytest.mark.parametrize("on_gpu", [True, False])
def test_auto_trains_one_vs_all_with_passengers(few: bool, num_labels: int, on_gpu: bool) -> None:
    sizes = replace(SIZES, num_labels=num_labels, documents_per_label=2.0 if few else 8.0, depth=6, on_gpu=on_gpu)
    config = recipe("auto", sizes)
    assert config.model.passengers[-1] is False and all(config.model.passengers[:-1]) and config.model.final == "all"
    assert not few or set(config.model.start) == {"centroids"}
    assert all(layers == (6,) for layers in config.model.layers)
    assert config.model.pooling == "cls"
    assert config == recipe("auto", sizes)


def test_auto_takes_softmax_where_documents_have_one_label_and_labels_few_documents() -> None:
    def loss(documents_per_label: float, labels_per_document: float) -> str:
        sizes = replace(SIZES, documents_per_label=documents_per_label, labels_per_document=labels_per_document)
        return recipe("auto", sizes).model.loss

    assert [loss(1.2, 1.0), loss(1.2, 2.7), loss(5.0, 2.7)] == ["softmax", "bce", "bce"]


def test_one_vs_all_is_auto_without_its_coarse_levels() -> None:
    for documents_per_label, labels_per_document in ((1.2, 1.0), (1.2, 2.7), (8.5, 2.7)):
        sizes = Sizes(30_938, 14_146, labels_per_document, documents_per_label, 12, "cls")
        whole, alone = recipe("auto", sizes), recipe("one-vs-all", sizes)
        assert alone.model.clusters == () and alone.train == whole.train
        for field in ("start", "layers", "dropout"):
            assert getattr(alone.model, field) == getattr(whole.model, field)[-1:]
        for field in ("loss", "start_length", "pooling", "max_tokens", "final"):
            assert getattr(alone.model, field) == getattr(whole.model, field)


@pytest.mark.parametrize("name", list(ABOUT))
@pytest.mark.parametrize("num_labels", [2, 17, 4097, 700_000])
def test_every_recipe_builds_and_survives_json(name: str, num_labels: int) -> None:
    config = recipe(name, replace(SIZES, num_labels=num_labels))
    assert config.recipe == name and Config.from_dict(config.to_dict()) == config
    if name not in PAPER:
        assert tiny.tree(num_labels, config.model.clusters).num_labels == num_labels


@pytest.mark.parametrize("name", list(ABOUT))
@pytest.mark.parametrize("epochs", ["1", "3", "0.5", "40"])
def test_epochs_alone_can_be_set_in_every_recipe(name: str, epochs: str) -> None:
    """As the README and the help show it: --set train.epochs=3."""
    for documents_per_label in (1.2, 8.5):
        config = override(
            recipe(name, replace(SIZES, documents_per_label=documents_per_label)), {"train.epochs": epochs}
        )
        assert config.train.epochs == float(epochs)
        assert config.train.warmup + config.train.anneal <= config.train.epochs + 1e-6


def test_unknown_recipes_name_the_nearest() -> None:
    for given, nearest in (("wiki10", "wiki10-31k"), ("Amazon670k", "amazon-670k"), ("xlightml", "lightxml")):
        with pytest.raises(ValueError, match=rf"there is no recipe '{given}'; the nearest are .*{nearest}"):
            recipe(given, SIZES)
    with pytest.raises(ValueError, match=r"the nearest are amazon-3m, .*auto"):
        recipe("??", SIZES)
