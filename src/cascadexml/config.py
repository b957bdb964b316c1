"""Every choice of a run, as frozen data: what a recipe returns, what `--set` overrides, what a model folder keeps.

The choices of all stages stand together, so that a run can be read on one page and the file needs no torch.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin, get_type_hints

RANKS = ("label", "parent", "path")


@dataclass(frozen=True)
class ModelConfig:
    """The encoder, what each level reads of it, and how the levels are trained."""

    encoder: str = "minilm"
    """`minilm` (packaged), a folder, or a hub name"""
    pooling: str = "auto"
    """the document vector of a layer: `cls`, `mean`, `last` token, or `auto`: what the encoder's folder asks for"""
    max_tokens: int = 128
    """tokens of a document that the encoder reads, special ones included"""
    clusters: tuple[int, ...] = (512, 4096)
    """clusters of each coarse level, coarsest first: increasing powers of two; the labels come after the last"""
    layers: tuple[tuple[int, ...], ...] = ((3, 4), (5,), (6,))
    """the encoder layers (1 = lowest) that each level reads, labels last; several are concatenated"""
    top_k: tuple[int, ...] = (64, 64)
    """clusters of each coarse level whose children the next level scores in training"""
    dropout: tuple[float, ...] = (0.2, 0.3, 0.4)
    """dropout on each level's vector, labels last"""
    passengers: tuple[bool, ...] = (False, False, False)
    """levels whose gradient stops before the encoder: their rows learn, the encoder does not hear of it"""
    final: str = "shortlist"
    """labels scored in training: `shortlist`, or `all` in chunks"""
    loss: str = "bce"
    """`bce`, or `softmax` over the nodes scored"""
    start: tuple[str, ...] = ("random", "random", "random")
    """what each level's rows start from: `random`, or `centroids` of the untrained vectors of their documents"""
    start_length: float = 20.0
    """length of a row that starts from a centroid: a logit then starts near length x cosine"""
    rescale: bool = True
    """divide every level's summed loss by one common number (the paper's alpha); False: each by its own size"""
    literal: bool = False
    """Algorithm 1 to the letter, alpha for each document: two passes, for tests and small data"""
    common_size: int = 0
    """that common number; 0: the smallest nominal shortlist, at most 1,024"""

    @property
    def trained_top_k(self) -> tuple[int, ...]:
        """Clusters that training keeps of each coarse level; never more than there are."""
        return tuple(min(kept, count) for kept, count in zip(self.top_k, self.clusters, strict=True))

    def __post_init__(self) -> None:
        levels = len(self.clusters) + 1
        for name, length in (("layers", levels), ("dropout", levels), ("passengers", levels), ("start", levels)):
            if len(getattr(self, name)) != length:
                raise ValueError(
                    f"model.{name} has {len(getattr(self, name))} entries, but there are {levels} levels "
                    f"({len(self.clusters)} in model.clusters, then the labels): give one entry a level"
                )
        if len(self.top_k) != len(self.clusters):
            raise ValueError(
                f"model.top_k has {len(self.top_k)} entries, model.clusters {len(self.clusters)}: "
                "give one for each coarse level"
            )
        check_clusters(self.clusters)
        _one_of("model.pooling", self.pooling, ("auto", "cls", "mean", "last"))
        _one_of("model.final", self.final, ("shortlist", "all"))
        _one_of("model.loss", self.loss, ("bce", "softmax"))
        for start in self.start:
            _one_of("model.start", start, ("random", "centroids"))
        if any(not layers or min(layers) < 1 for layers in self.layers):
            raise ValueError(f"model.layers is {self.layers}: every level reads at least one layer, counted from 1")
        if any(k < 1 for k in self.top_k):
            raise ValueError(f"model.top_k is {self.top_k}: every level keeps at least one cluster")
        if any(not 0 <= rate < 1 for rate in self.dropout):
            raise ValueError(f"model.dropout is {self.dropout}: expected shares from 0 to below 1")
        if self.max_tokens < 1:
            raise ValueError(f"model.max_tokens is {self.max_tokens}: expected at least 1")
        if not 0 < self.start_length < math.inf:
            raise ValueError(f"model.start_length is {self.start_length}: expected more than 0")
        if self.common_size < 0:
            raise ValueError(f"model.common_size is {self.common_size}: expected 0 or more")
        if self.literal and (self.loss != "bce" or self.final == "all"):
            raise ValueError(
                "model.literal is Algorithm 1 to the letter: it needs model.loss=bce and model.final=shortlist"
            )


@dataclass(frozen=True)
class TrainConfig:
    """The optimiser, the schedule, and what ends a run."""

    epochs: float = 15.0
    """passes over the training documents (the most, where a plateau may end the middle phase earlier)"""
    warmup: float = 1.0
    """epochs in which the rates rise from a tenth, as a cosine"""
    anneal: float = 3.0
    """last epochs, in which the rates fall to zero, as a cosine"""
    batch_size: int = 128
    """documents an update"""
    small_batch: int = 0
    """documents on the device at a time; fewer than batch_size are accumulated; 0: all of them"""
    encoder_rate: float = 1e-4
    """learning rate of the encoder"""
    head_rate: float = 1e-3
    """learning rate of the levels' rows and input maps"""
    encoder_decay: float = 0.05
    """weight decay of the encoder, none on biases and layer norms"""
    head_decay: float = 0.005
    """weight decay of the levels' rows, none on biases"""
    update_rule: str = "adamw_full"
    """`adamw_full` moves every row at every update; `adamw` only the rows that an update touched"""
    freeze: int = -1
    """lowest part of the encoder left as it is: -1 none, 0 the embeddings, n the n lowest layers too"""
    precision: str = "auto"
    """`fp32`, `bf16`, `fp16`, or `auto`: bf16 where the device multiplies it, else fp32"""
    metric: str = "P"
    """what chooses epoch, ranking and top-k on validation: `P` (mean of P@1, 3, 5), `PSP@5`, or any other metric"""
    plateau: int = 0
    """epochs without a better validation metric that start the annealing; 0: the epochs are run as given"""
    seed: int = 0
    """decides batches, dropout and random starts"""
    checkpoint_minutes: float = 10.0
    """time between checkpoints, which are also written after each epoch"""

    def __post_init__(self) -> None:
        _one_of("train.update_rule", self.update_rule, ("adamw_full", "adamw"))
        _one_of("train.precision", self.precision, ("auto", "fp32", "bf16", "fp16"))
        phases = self.warmup + self.anneal
        if not (0 < self.epochs < math.inf and self.warmup >= 0 and self.anneal >= 0 and phases <= self.epochs + 1e-9):
            raise ValueError(
                f"train.epochs={self.epochs}, train.warmup={self.warmup}, train.anneal={self.anneal}: "
                "expected epochs above 0, and warm-up and annealing within them"
            )
        if self.batch_size < 1 or self.small_batch < 0:
            raise ValueError(
                f"train.batch_size={self.batch_size}, train.small_batch={self.small_batch}: expected at least 1"
            )
        rates = ("encoder_rate", "head_rate", "encoder_decay", "head_decay")
        for name in (*rates, "plateau", "seed", "checkpoint_minutes"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"train.{name} is {getattr(self, name)}: expected 0 or more")


@dataclass(frozen=True)
class PredictConfig:
    """How a trained model answers; empty fields are chosen on validation after training."""

    top_k: tuple[int, ...] = ()
    """clusters kept at each coarse level; empty: the smallest within 0.2 of scoring all labels"""
    rank: str = ""
    """score of a label: `label` alone, times its `parent`, or times its whole `path`"""
    threshold: float | None = None
    """score with the best micro-F1"""

    def __post_init__(self) -> None:
        if self.rank:
            _one_of("predict.rank", self.rank, RANKS)
        if any(k < 1 for k in self.top_k):
            raise ValueError(f"predict.top_k is {self.top_k}: every level keeps at least one cluster")


@dataclass(frozen=True)
class Config:
    """One run."""

    recipe: str = "custom"
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    predict: PredictConfig = field(default_factory=PredictConfig)

    def to_dict(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @staticmethod
    def from_dict(given: dict[str, Any]) -> Config:
        config = Config(recipe=given.get("recipe", "custom"))
        return override(
            config,
            {
                f"{room}.{name}": value
                for room in ("model", "train", "predict")
                for name, value in given.get(room, {}).items()
            },
        )


def check_clusters(clusters: tuple[int, ...], num_labels: int | None = None) -> None:
    """Refuses levels that the binary tree does not have."""
    for coarse, count in zip((0, *clusters), clusters, strict=False):
        if count < 1 or count & (count - 1):
            raise ValueError(
                f"model.clusters has {count}: a level of the tree has a power of two of clusters, e.g. 512"
            )
        if count <= coarse:
            raise ValueError(f"model.clusters is {clusters}: each level needs more clusters than the one before")
        if num_labels is not None and count > num_labels:
            raise ValueError(
                f"model.clusters asks for {count} clusters, but there are {num_labels} labels: "
                f"a cluster holds at least one; at most {1 << (num_labels.bit_length() - 1)} fit"
            )


def override(config: Config, settings: dict[str, Any]) -> Config:
    """`config` with fields named `room.field` replaced, checked all together; text is read as the field's type."""
    rooms: dict[str, dict[str, Any]] = {"model": {}, "train": {}, "predict": {}}
    for name, value in settings.items():
        value = _read_value(name, value, _hint_of(name))
        room, _, field_name = name.partition(".")
        rooms[room][field_name] = value
    if "epochs" in rooms["train"] and not {"warmup", "anneal"} & rooms["train"].keys():
        # given alone, it stretches the whole schedule
        stretch = rooms["train"]["epochs"] / config.train.epochs
        rooms["train"] |= {name: round(getattr(config.train, name) * stretch, 6) for name in ("warmup", "anneal")}
    return dataclasses.replace(
        config, **{room: dataclasses.replace(getattr(config, room), **new) for room, new in rooms.items() if new}
    )


def check_settings(settings: dict[str, Any]) -> None:
    """Refuses unknown fields and values of another kind, before anything is known of data and encoder."""
    for name, value in settings.items():
        read = _read_value(name, value, _hint_of(name))
        if name == "model.clusters":
            check_clusters(read)


def _hint_of(name: str) -> Any:
    room, _, field_name = name.partition(".")
    rooms = {"model": ModelConfig, "train": TrainConfig, "predict": PredictConfig}
    hints = get_type_hints(rooms[room]) if room in rooms else {}
    if field_name not in hints:
        raise ValueError(_unknown_field(name))
    return hints[field_name]


def parse_settings(assignments: list[str]) -> dict[str, str]:
    """`["train.epochs=3", ...]` as a dict."""
    settings = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ValueError(f"--set {assignment}: expected room.field=value, e.g. train.epochs=3")
        settings[name.strip()] = value.strip()
    return settings


def field_names() -> list[str]:
    rooms = {"model": ModelConfig, "train": TrainConfig, "predict": PredictConfig}
    return [f"{room}.{f.name}" for room, kind in rooms.items() for f in dataclasses.fields(kind)]


def _unknown_field(name: str) -> str:
    known = field_names()
    last = name.rpartition(".")[2]
    near = [full for full in known if full.rpartition(".")[2] == last]
    near += difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    near += [
        full
        for full in known
        if full.rpartition(".")[2] in difflib.get_close_matches(last, [k.rpartition(".")[2] for k in known], n=2)
    ]
    nearest = list(dict.fromkeys(near))[:4] or known
    return f"there is no setting {name!r}; the nearest are {', '.join(nearest)}"


def _read_value(name: str, value: Any, hint: Any) -> Any:
    if isinstance(value, str) and hint is not str:
        try:
            value = json.loads(
                value.replace("(", "[")
                .replace(")", "]")
                .replace(",]", "]")
                .replace("True", "true")
                .replace("False", "false")
                .replace("None", "null")
            )
        except json.JSONDecodeError:
            raise ValueError(f"{name}={value}: expected {_describe(hint)}") from None
    return _coerce(name, value, hint)


def _coerce(name: str, value: Any, hint: Any) -> Any:
    wrong = ValueError(f"{name}={value!r}: expected {_describe(hint)}")
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise wrong
        return tuple(_coerce(name, entry, get_args(hint)[0]) for entry in value)
    if type(None) in get_args(hint):
        return None if value is None else _coerce(name, value, get_args(hint)[0])
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise wrong
    return value


def _describe(hint: Any) -> str:
    if get_origin(hint) is tuple:
        return f"a list of {_plural(get_args(hint)[0])}, e.g. [..., ...]"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
    return names.get(hint, "a number or null")


def _plural(hint: Any) -> str:
    if get_origin(hint) is tuple:
        return f"lists of {_plural(get_args(hint)[0])}"
    return {int: "whole numbers", float: "numbers", bool: "true or false", str: "words"}[hint]


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        near = difflib.get_close_matches(value, allowed, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"{name} is {value!r}: expected one of {', '.join(allowed)}{hint}")
