"""The Model: encoder, cascade, labels and tokenizer in one hand, built for training or for use."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from cascadexml.batches import Batch
from cascadexml.cascade import Cascade
from cascadexml.config import Config
from cascadexml.devices import autocast
from cascadexml.encoder import Encoder
from cascadexml.heads.rows import UpdateRule
from cascadexml.label_tree import LabelTree
from cascadexml.prepared import Labels
from cascadexml.tokens import Tokenizer


@dataclass(eq=False)
class Model:
    """What answers. `config.predict` is filled in once training has chosen."""

    config: Config
    encoder: Encoder
    cascade: Cascade
    labels: Labels
    tokenizer: Tokenizer
    device: torch.device
    precision: str

    def encode(self, batch: Batch) -> dict[int, Tensor]:
        with autocast(self.device, self.precision):
            return self.encoder(batch)  # type: ignore[no-any-return]

    def weights(self) -> dict[str, Tensor]:
        """Everything that was learnt, by name."""
        named = {f"encoder.{name}": tensor for name, tensor in self.encoder.backbone.state_dict().items()}
        named |= {f"inputs.{name}": tensor for name, tensor in self.cascade.inputs.state_dict().items()}
        for level, rows in enumerate(self.cascade.rows):
            rows.settle()
            named |= {f"levels.{level}.weight": rows.weight_LH, f"levels.{level}.bias": rows.bias_L}
        return named

    def load_weights(self, named: dict[str, Tensor]) -> None:
        def within(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): tensor for name, tensor in named.items() if name.startswith(prefix)}

        self.encoder.backbone.load_state_dict(within("encoder."))
        self.cascade.inputs.load_state_dict(within("inputs."))
        for level, rows in enumerate(self.cascade.rows):
            rows.weight_LH.copy_(named[f"levels.{level}.weight"])
            rows.bias_L.copy_(named[f"levels.{level}.bias"])

    def train(self, mode: bool) -> None:
        self.encoder.train(mode)
        self.cascade.inputs.train(mode)

    def choose(self, **predict: object) -> None:
        self.config = replace(self.config, predict=replace(self.config.predict, **predict))  # type: ignore[arg-type]


def build_model(
    config: Config,
    backbone: nn.Module,
    pooling: str,
    tree: LabelTree,
    labels: Labels,
    tokenizer: Tokenizer,
    device: torch.device,
    precision: str,
    trained: bool = False,
) -> Model:
    """`trained`: rows get the moments that an update needs. `pooling` is what the encoder's folder asks for."""
    layers = tuple(layer for of_level in config.model.layers for layer in of_level)
    asked = pooling if config.model.pooling == "auto" else config.model.pooling
    encoder = Encoder(backbone, layers, asked, tokenizer.template).to(device)
    rule = UpdateRule(config.train.update_rule, config.train.head_decay) if trained else None
    cascade = Cascade(tree, config.model, encoder.width, device, rule)
    model = Model(config, encoder, cascade, labels, tokenizer, device, precision)
    model.train(False)
    return model
