"""The model of the paper: one vector a level in, a Step (training) or Predictions out; each level shortlists the next.

Shapes: B documents, H hidden, K clusters kept, L labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from cascadexml.batches import Batch, Positives
from cascadexml.config import ModelConfig
from cascadexml.heads import Grade, Head, Top
from cascadexml.heads.dense import DenseHead
from cascadexml.heads.plain import PlainHead
from cascadexml.heads.rows import Rows, UpdateRule
from cascadexml.label_tree import LabelTree
from cascadexml.shortlist import ALL, Children, Shortlist

MOST_COMMON_SIZE = 1024
COMMON_SIZE_WITHOUT_LEVELS = 512


@dataclass(frozen=True, eq=False)
class Step:
    """One small batch graded at every level."""

    losses: tuple[Tensor, ...]
    """a level: summed over documents and nodes, divided as the config says"""
    num_covered: tuple[Tensor, ...]
    """a level: positives that the level above had shortlisted"""
    num_positives: tuple[int, ...]
    inputs: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]

    def backward(self, factor: Tensor | float = 1.0) -> None:
        """Sends the heads' gradients into level inputs and encoder; `factor` is fp16's loss scale."""
        pairs = [(x, g) for x, g in zip(self.inputs, self.gradients, strict=True) if x.requires_grad]
        # nothing is left to autograd where the encoder is frozen and no level maps several layers
        if pairs:
            torch.autograd.backward([x for x, _ in pairs], [g * factor for _, g in pairs])


@dataclass(frozen=True, eq=False)
class Predictions:
    """The best labels of each document, best first."""

    labels: np.ndarray
    """int64 N x k, ids in the label set, -1 where a document has fewer"""
    scores: np.ndarray
    """fp32 N x k, probabilities"""

    def __len__(self) -> int:
        return len(self.labels)


class LevelInput(nn.Module):
    """The vector that one level reads: its layers, concatenated and mapped to H if several, then dropout."""

    def __init__(self, layers: tuple[int, ...], width: int, dropout: float, passenger: bool) -> None:
        super().__init__()
        self.layers = layers
        self.passenger = passenger
        self.map = nn.Linear(len(layers) * width, width) if len(layers) > 1 else nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def forward(self, vectors: dict[int, Tensor]) -> Tensor:
        x = torch.cat([vectors[layer] for layer in self.layers], dim=1)
        x = self.map(x.detach() if self.passenger else x)
        return self.dropout(x.float())


class Cascade:
    """The levels: their inputs, their heads, and the loop over them."""

    def __init__(
        self, tree: LabelTree, config: ModelConfig, width: int, device: torch.device, rule: UpdateRule | None = None
    ) -> None:
        self.tree = tree
        self.config = config
        self.device = device
        self.inputs = nn.ModuleList(
            LevelInput(layers, width, dropout, passenger)
            for layers, dropout, passenger in zip(config.layers, config.dropout, config.passengers, strict=True)
        ).to(device)
        self.children = [
            None,
            *(
                Children(torch.from_numpy(starts), torch.from_numpy(parents), tree.max_children(level)).to(device)
                for level, (starts, parents) in enumerate(zip(tree.starts, tree.parents, strict=True))
            ),
        ]
        self.rows = [Rows(n, width, rule or UpdateRule(), device, trained=rule is not None) for n in tree.num_nodes]
        self.heads = [self._head(level) for level in range(self.num_levels)]

    @property
    def num_levels(self) -> int:
        return len(self.tree.num_nodes)

    def _head(self, level: int) -> Head:
        """Level 1 always scores all its clusters; the labels do where the config says so."""
        is_final = level == self.num_levels - 1
        dense = level == 0 or (is_final and self.config.final == "all")
        kind = DenseHead if dense else PlainHead
        return kind(self.rows[level], self.children[level], self.config.loss)

    def start(self, mean_positives: tuple[float, ...], seed: int) -> None:
        """Random rows, and biases at the log-odds of a positive in each level's shortlist."""
        sizes = nominal_sizes(self.config, self.tree)
        for level, rows in enumerate(self.rows):
            share = min(max(mean_positives[level] / sizes[level], 1e-9), 0.5)
            bias = float(np.log(share / (1 - share))) if self.config.loss == "bce" else 0.0
            rows.start_random(torch.Generator().manual_seed(seed * 1000 + level), bias)

    def level_vectors(self, vectors: dict[int, Tensor]) -> list[Tensor]:
        return [level_input(vectors) for level_input in self.inputs]

    def begin(self, lr: Tensor, step: int) -> None:
        for head in self.heads:
            head.begin(lr, step)

    def update(self) -> None:
        for head in self.heads:
            head.update()

    def discard(self) -> None:
        for head in self.heads:
            head.discard()

    def step(self, vectors: dict[int, Tensor], batch: Batch, num_documents: int) -> Step:
        """Grades one small batch of an update of `num_documents`."""
        inputs = self.level_vectors(vectors)
        divisors = [float(size * num_documents) for size in self._divisors()]
        scales = [torch.tensor(1 / divisor, device=self.device) for divisor in divisors]
        with torch.no_grad():
            if self.config.literal:
                scales = self._literal_scales(inputs, batch, num_documents)
            grades = self._grade(inputs, batch.positives, scales)
        return Step(
            tuple(grade.loss / divisor for grade, divisor in zip(grades, divisors, strict=True)),
            tuple(grade.num_covered for grade in grades),
            tuple(len(positives.nodes) for positives in batch.positives),
            tuple(inputs),
            tuple(grade.gradient_BH for grade in grades),
        )

    def _grade(self, inputs: list[Tensor], positives: tuple[Positives, ...], scales: list[Tensor]) -> list[Grade]:
        grades: list[Grade] = []
        shortlist: Shortlist | None = ALL
        for level, head in enumerate(self.heads):
            is_final = level == self.num_levels - 1
            candidates = ALL if is_final and self.config.final == "all" else shortlist
            k = 0 if is_final else self.config.top_k[level]
            grade = head.grade(inputs[level].detach(), candidates, positives[level], scales[level], k)
            grades.append(grade)
            if grade.top is not None:
                shortlist = Shortlist(grade.top.ids_BK, grade.top.own_BK, grade.top.own_BK)
        return grades

    def _divisors(self) -> list[int]:
        sizes = nominal_sizes(self.config, self.tree)
        if self.config.loss == "softmax":
            return [1] * self.num_levels
        return [common_size(self.config, self.tree)] * self.num_levels if self.config.rescale else list(sizes)

    def _literal_scales(self, inputs: list[Tensor], batch: Batch, num_documents: int) -> list[Tensor]:
        """Algorithm 1's alpha_t / |S_t| is 1 / (the document's smallest |S_t|), known after the last shortlist."""
        grades = self._grade(inputs, batch.positives, [torch.tensor(1.0, device=self.device)] * self.num_levels)
        for head in self.heads:
            head.forget_last()
        sizes = torch.stack([grade.sizes_B for grade in grades])
        smallest = sizes.min(dim=0).values if self.config.rescale else None
        return [1.0 / ((smallest if smallest is not None else size) * num_documents) for size in sizes]

    @torch.no_grad()
    def predict(self, vectors: dict[int, Tensor], top_k: tuple[int, ...], k: int, rank: str) -> Predictions:
        """The k best labels by `rank`, among the labels of the clusters that the levels kept."""
        inputs = self.level_vectors(vectors)
        shortlist: Shortlist | None = ALL
        for level, keep in enumerate(top_k):
            best = self.heads[level].top(inputs[level], shortlist, keep, "label")
            shortlist = self._shortlist(level, best, shortlist)
        return self._predictions(self.heads[-1].top(inputs[-1], shortlist, k, rank))

    @torch.no_grad()
    def predict_all(self, vectors: dict[int, Tensor], k: int) -> Predictions:
        """The k best of all labels by their own score: the cascade's ceiling."""
        return self._predictions(self.heads[-1].top(self.level_vectors(vectors)[-1], ALL, k, "label"))

    @torch.no_grad()
    def shortlist_recall(
        self, vectors: dict[int, Tensor], top_k: tuple[int, ...], positives: tuple[Positives, ...]
    ) -> list[int]:
        """For each level below the first: positives whose cluster was kept by every level above."""
        inputs = self.level_vectors(vectors)
        shortlist: Shortlist | None = ALL
        found = []
        for level, keep in enumerate(top_k):
            shortlist = self._shortlist(
                level, self.heads[level].top(inputs[level], shortlist, keep, "label"), shortlist
            )
            children, pairs = self.children[level + 1], positives[level + 1]
            assert children is not None
            kept = shortlist.clusters_BK[pairs.documents] == children.parents[pairs.nodes].unsqueeze(1)
            found.append(int(kept.any(dim=1).sum()))
        return found

    def _shortlist(self, level: int, best: Top, above: Shortlist | None) -> Shortlist:
        children = self.children[level]
        if above is None or children is None:
            return Shortlist(best.ids_BK, best.own_BK, best.own_BK)
        path_BK = best.own_BK + above.path_BK.gather(1, best.places_BK // children.most)
        return Shortlist(best.ids_BK, best.own_BK, path_BK)

    def _predictions(self, best: Top) -> Predictions:
        positions = best.ids_BK.cpu().numpy()
        labels = np.where(positions < 0, -1, self.tree.order[np.maximum(positions, 0)]).astype(np.int64)
        return Predictions(labels, torch.exp(best.scores_BK.float()).cpu().numpy())


def nominal_sizes(config: ModelConfig, tree: LabelTree) -> list[int]:
    """Nodes that each level scores for a document in training, forced positives not counted."""
    nodes = tree.num_nodes
    sizes = [nodes[0]]
    for level, keep in enumerate(config.top_k):
        sizes.append(min(nodes[level + 1], max(1, round(min(keep, nodes[level]) * nodes[level + 1] / nodes[level]))))
    if config.final == "all":
        sizes[-1] = nodes[-1]
    return sizes


def common_size(config: ModelConfig, tree: LabelTree) -> int:
    """M of the loss scale: the paper's alpha with its jitter from document to document taken out."""
    if config.common_size:
        return config.common_size
    if config.loss == "softmax":
        return 1
    if not tree.clusters:
        return COMMON_SIZE_WITHOUT_LEVELS
    return min(*nominal_sizes(config, tree), MOST_COMMON_SIZE)
