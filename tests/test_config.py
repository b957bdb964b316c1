"""Every setting's limits and messages, settings as text, and configurations as JSON and back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from cascadexml.config import Config, ModelConfig, PredictConfig, TrainConfig, field_names, override, parse_settings

CONFIG = Config()

BAD: list[tuple[str, Any, str]] = [
    ("model.layers", [[1], [2]], r"model.layers has 2 entries, but there are 3 levels \(2 in model.clusters, then the"),
    ("model.dropout", [0.1], "model.dropout has 1 entries, but there are 3 levels"),
    ("model.passengers", [], "model.passengers has 0 entries"),
    ("model.start", ["random"], "model.start has 1 entries"),
    ("model.top_k", [1, 2, 3], "model.top_k has 3 entries, model.clusters 2: give one"),
    ("model.clusters", [8, 4], r"model.clusters is \(8, 4\): each level needs more clusters than the one before"),
    ("model.clusters", [4, 12], "model.clusters has 12: a level of the tree has a power of two of clusters"),
    (
        "model.pooling",
        "men",
        r"model.pooling is 'men': expected one of auto, cls, mean, last \(did you mean 'mean'\?\)",
    ),
    ("model.final", "everything", "model.final is 'everything': expected one of shortlist, all$"),
    ("model.loss", "hinge", "model.loss is 'hinge': expected one of bce, softmax"),
    ("model.start", ["random", "centroid", "random"], "model.start is 'centroid': .* mean 'centroids'"),
    ("model.layers", [[1], [], [2]], "every level reads at least one layer, counted from 1"),
    ("model.layers", [[1], [0], [2]], "every level reads at least one layer, counted from 1"),
    ("model.top_k", [1, 0], r"model.top_k is \(1, 0\): every level keeps at least one cluster"),
    ("model.dropout", [0.1, 1.0, 0.1], "expected shares from 0 to below 1"),
    ("model.dropout", [0.1, float("nan"), 0.1], "expected shares from 0 to below 1"),
    ("model.max_tokens", 0, "model.max_tokens is 0: expected at least 1"),
    ("model.start_length", 0.0, "model.start_length is 0.0: expected more than 0"),
    (
        "train.epochs",
        0.0,
        "train.epochs=0.0, .*: expected epochs above 0, and warm-up and",
    ),
    ("train.warmup", -1.0, "expected epochs above 0"),
    ("train.anneal", 14.5, "warm-up and annealing within them"),
    ("train.batch_size", 0, "train.batch_size=0, train.small_batch=0: expected at least 1"),
    ("train.small_batch", -1, "train.small_batch=-1"),
    ("train.head_rate", -0.1, "train.head_rate is -0.1: expected 0 or more"),
    ("train.encoder_decay", float("nan"), "train.encoder_decay is nan: expected 0 or more"),
    ("train.update_rule", "adam", r"expected one of adamw_full, adamw \(did you mean 'adamw'\?\)"),
    ("train.precision", "f16", r"expected one of auto, fp32, bf16, fp16 \(did you mean 'fp16'\?\)"),
    ("predict.rank", "parents", r"expected one of label, parent, path \(did you mean 'parent'\?\)"),
]


@pytest.mark.parametrize(("name", "value", "reason"), BAD)
def test_bad_values_say_what_was_expected(name: str, value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        override(CONFIG, {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("train.epochs", float("nan")),
        ("train.epochs", float("inf")),
        ("train.warmup", float("nan")),
        ("model.start_length", float("nan")),
        ("model.common_size", -5),
        ("train.plateau", -1),
        ("train.seed", -1),
        ("train.checkpoint_minutes", -1.0),
        ("train.head_rate", float("inf")),
        ("predict.top_k", [0, 4]),
    ],
)
def test_values_that_would_only_fail_later_are_refused_at_once(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        override(CONFIG, {name: value})


def test_fields_are_checked_together() -> None:
    changed = override(
        CONFIG,
        {
            "model.clusters": [64],
            "model.layers": [[1], [2]],
            "model.top_k": [8],
            "model.dropout": [0, 0],
            "model.passengers": [True, False],
            "model.start": ["random", "centroids"],
        },
    )
    assert changed.model.clusters == (64,) and changed.model.dropout == (0.0, 0.0)
    with pytest.raises(ValueError, match=r"model\.literal is Algorithm 1 to the letter: it needs"):
        override(CONFIG, {"model.literal": True, "model.loss": "softmax"})
    with pytest.raises(ValueError, match=r"model\.final=shortlist"):
        override(CONFIG, {"model.literal": True, "model.final": "all"})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("epochs", "train.epochs"),
        ("train.epoch", "train.epochs"),
        ("model.epochs", "train.epochs"),
        ("train.max_tokens", "model.max_tokens"),
        ("model.topk", "model.top_k"),
        ("trian.batch_size", "train.batch_size"),
        ("model.num_labels", "model."),
        ("zzz", "model.encoder"),
    ],
)
def test_unknown_fields_name_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=rf"there is no setting '{name}'; the nearest are .*{nearest}"):
        override(CONFIG, {name: "1"})


def test_number_of_labels_is_no_setting() -> None:
    assert not [name for name in field_names() if "num_labels" in name or "num_levels" in name]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("train.epochs", "3", 3.0),
        ("train.epochs", "2.5", 2.5),
        ("train.head_rate", "1e-3", 0.001),
        ("train.batch_size", "16", 16),
        ("model.rescale", "false", False),
        ("model.rescale", "True", True),
        ("model.encoder", "some/folder", "some/folder"),
        ("model.encoder", "3", "3"),
        ("model.loss", "softmax", "softmax"),
        ("model.clusters", "[16, 64]", (16, 64)),
        ("model.clusters", "(16,64)", (16, 64)),
        ("model.layers", "[[1],[2],[2]]", ((1,), (2,), (2,))),
        ("model.layers", "((1, 2), (2,), (2,))", ((1, 2), (2,), (2,))),
        ("model.passengers", "[true, False, true]", (True, False, True)),
        ("model.start", '["random", "random", "centroids"]', ("random", "random", "centroids")),
        ("predict.threshold", "0.25", 0.25),
        ("predict.threshold", "null", None),
        ("predict.threshold", "None", None),
        ("predict.top_k", "[]", ()),
    ],
)
def test_values_as_text(name: str, text: str, value: Any) -> None:
    changed = override(CONFIG, {name: text})
    room, _, field = name.partition(".")
    found = getattr(getattr(changed, room), field)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("train.epochs", "three", "train.epochs=three: expected a number"),
        ("train.batch_size", "1.5", "train.batch_size=1.5: expected a whole number"),
        ("train.batch_size", True, "train.batch_size=True: expected a whole number"),
        ("model.rescale", "yes", "model.rescale=yes: expected true or false"),
        ("model.rescale", 1, "model.rescale=1: expected true or false"),
        ("model.clusters", "64", r"model.clusters=64: expected a list of whole numbers, e.g. \[..., ...\]"),
        ("model.clusters", "[64, 1.5]", "expected a whole number"),
        ("model.encoder", 3, "model.encoder=3: expected a word"),
        ("predict.threshold", "auto", "predict.threshold=auto: expected a number or null"),
    ],
)
def test_values_of_another_kind(name: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        override(CONFIG, {name: value})


def test_lists_of_lists_are_described_in_words() -> None:
    with pytest.raises(ValueError, match=r"model\.layers=6: expected a list of lists of whole numbers") as refused:
        override(CONFIG, {"model.layers": "6"})
    assert str(refused.value).count("e.g.") <= 1


def test_assignments() -> None:
    found = parse_settings(["train.epochs=3", " model.encoder = a=b ", "model.clusters=[1, 2]"])
    assert found == {"train.epochs": "3", "model.encoder": "a=b", "model.clusters": "[1, 2]"}
    with pytest.raises(ValueError, match=r"--set train.epochs: expected room\.field=value, e\.g\. train\.epochs=3"):
        parse_settings(["train.epochs"])


def test_json_and_back() -> None:
    config = Config(
        "mine",
        ModelConfig(clusters=(4,), layers=((1, 2), (3,)), top_k=(2,), dropout=(0.0, 0.1), passengers=(True, False),
                    start=("random", "centroids"), loss="softmax"),
        TrainConfig(epochs=2.5, anneal=1.0, seed=7),
        PredictConfig((3,), "path", 0.1),
    )  # fmt: skip
    assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert Config.from_dict({}) == CONFIG
    assert Config.from_dict(CONFIG.to_dict()).predict.threshold is None


def test_configurations_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CONFIG.train.epochs = 3.0  # type: ignore[misc]
