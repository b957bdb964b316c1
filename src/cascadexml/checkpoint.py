"""What is kept of a Model: its folder, for use, and the one-file checkpoint of a run, to go on from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cascadexml.config import Config
from cascadexml.encoder import attention_for
from cascadexml.folders import open_folder, write_folder
from cascadexml.label_tree import LabelTree
from cascadexml.model import Model, build_model
from cascadexml.prepared_folder import load_labels, save_labels
from cascadexml.propensity import published_constants
from cascadexml.tokens import Tokenizer

KIND = "model"
DEFAULT_SHARD = 4 << 30


def save_model(
    model: Model,
    path: Path,
    *,
    overwrite: bool = False,
    shard_size: int = DEFAULT_SHARD,
    about: dict[str, Any] | None = None,
) -> None:
    """A folder that needs nothing beside it: configuration, weights, tokenizer, tree, labels and their counts."""
    a, b = published_constants(len(model.labels))
    numbers = {
        "num_labels": len(model.labels),
        "num_train": model.labels.num_train,
        "propensity_a": a,
        "propensity_b": b,
    }
    with write_folder(path, KIND, {**numbers, **(about or {})}, overwrite) as folder:
        settings = {**model.config.to_dict(), "pooling": model.encoder.pooling}
        (folder / "config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
        model.encoder.backbone.config.save_pretrained(folder / "encoder")  # type: ignore[union-attr, operator]
        model.tokenizer.save(folder / "tokenizer")
        np.save(folder / "tree_order.npy", model.cascade.tree.order)
        save_labels(model.labels, folder)
        _save_shards(model.weights(), folder, shard_size)


def load_model(path: Path, device: torch.device, precision: str = "fp32", verify: bool = True) -> Model:
    """What `save_model` wrote; answers bit for bit the same on the same device and precision."""
    import transformers

    manifest = open_folder(path, KIND, verify)
    settings = json.loads((path / "config.json").read_text(encoding="utf-8"))
    config = Config.from_dict(settings)
    transformers.utils.logging.disable_progress_bar()
    about_encoder = transformers.AutoConfig.from_pretrained(path / "encoder", local_files_only=True)
    backbone = transformers.AutoModel.from_config(about_encoder, **attention_for(device))
    model = build_model(
        config,
        backbone.float(),
        settings["pooling"],
        LabelTree(np.load(path / "tree_order.npy", allow_pickle=False), config.model.clusters),
        load_labels(path, manifest["num_train"]),
        Tokenizer.load(path / "tokenizer"),
        device,
        precision,
    )
    model.load_weights(_load_shards(path))
    return model


def _save_shards(named: dict[str, Tensor], folder: Path, shard_size: int) -> None:
    """safetensors of at most `shard_size` bytes, or one tensor each where a tensor is larger."""
    from safetensors.torch import save_file

    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in named.items():
        num_bytes = tensor.numel() * tensor.element_size()
        if shards[-1] and size + num_bytes > shard_size:
            shards.append({})
            size = 0
        shards[-1][name] = tensor.detach().cpu().contiguous().clone()
        size += num_bytes
    for at, shard in enumerate(shards):
        name = "model.safetensors" if len(shards) == 1 else f"model-{at + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / name)


def _load_shards(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    named: dict[str, Tensor] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        named |= load_file(file)
    return named


def save_checkpoint(file: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """One safetensors file with the plain numbers in its header; whole, or the one before it stays."""
    from safetensors.torch import save_file

    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".unfinished")
    copied = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # two names of one memory (tied weights) are written twice
    unique = {name: tensor.clone() for name, tensor in copied.items()}
    save_file(unique, temporary, metadata={"state": json.dumps(state)})
    with temporary.open("rb") as opened:
        os.fsync(opened.fileno())
    temporary.replace(file)


def load_checkpoint(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        state = json.loads(opened.metadata()["state"])
        return {name: opened.get_tensor(name) for name in opened.keys()}, state  # noqa: SIM118
