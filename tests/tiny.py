"""Small random encoders with their tokenizers, corpora that can be learnt, trees, cascades and batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
from scipy.sparse import csr_matrix
from tokenizers.processors import TemplateProcessing

from cascadexml.batches import Batch, positives_of
from cascadexml.cascade import Cascade
from cascadexml.config import Config, ModelConfig, TrainConfig
from cascadexml.corpus import Corpus, corpus_from_python
from cascadexml.encoder import load_backbone
from cascadexml.fit import prepare_corpus
from cascadexml.heads.rows import UpdateRule
from cascadexml.label_tree import LabelTree
from cascadexml.prepared import Prepared
from cascadexml.runlog import RunLog
from cascadexml.tokens import Tokenizer, tokenizer_of
from cascadexml.train import Trained, train

CPU = torch.device("cpu")
WORDS = tuple(f"w{number}" for number in range(90))
LONGEST = 64
"""tokens that the encoders read"""

SPECIAL: dict[str, dict[str, str]] = {
    "bert": {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"},
    "roberta": {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
    "xlnet": {"unk_token": "<unk>", "pad_token": "<pad>", "sep_token": "<sep>", "cls_token": "<cls>"},
    "gpt2": {"eos_token": "<|endoftext|>"},
}
SPECIAL["roberta"] |= {"cls_token": "<s>", "sep_token": "</s>"}
TEMPLATES = {"bert": "[CLS] $A [SEP]", "roberta": "<s> $A </s>", "xlnet": "$A <sep> <cls>"}


def raw_tokenizer(kind: str) -> tokenizers.Tokenizer:
    """Whole words; for GPT-2 pieces of bytes, without special tokens around a text."""
    known = list(dict.fromkeys(SPECIAL[kind].values()))
    if kind == "gpt2":
        raw = tokenizers.Tokenizer(tokenizers.models.BPE())
        raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=340, special_tokens=known, initial_alphabet=alphabet, show_progress=False
        )
        raw.train_from_iterator([" ".join(WORDS)] * 3, trainer)
        return raw
    vocabulary = {token: at for at, token in enumerate([*known, *WORDS])}
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=SPECIAL[kind]["unk_token"]))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    raw.add_special_tokens(known)
    special = [(token, vocabulary[token]) for token in known if token in TEMPLATES[kind]]
    raw.post_processor = TemplateProcessing(single=TEMPLATES[kind], special_tokens=special)
    return raw


def hugging_face_tokenizer(kind: str, padding_side: str = "right") -> transformers.PreTrainedTokenizerFast:
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw_tokenizer(kind), padding_side=padding_side, **SPECIAL[kind]
    )


def tokenizer(kind: str = "bert") -> Tokenizer:
    return tokenizer_of(hugging_face_tokenizer(kind))


def encoder_config(kind: str, depth: int = 2, width: int = 16, dropout: float = 0.0) -> Any:
    size = raw_tokenizer(kind).get_vocab_size()
    if kind == "gpt2":
        rates = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
        return transformers.GPT2Config(
            vocab_size=size, n_embd=width, n_layer=depth, n_head=2, n_positions=LONGEST, bos_token_id=0, eos_token_id=0,
            initializer_range=0.2, **rates,
        )  # fmt: skip
    if kind == "xlnet":
        return transformers.XLNetConfig(
            vocab_size=size, d_model=width, n_layer=depth, n_head=2, d_inner=2 * width, dropout=dropout, pad_token_id=1,
            initializer_range=0.2,
        )  # fmt: skip
    given = {
        "vocab_size": size,
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": 2,
        "intermediate_size": 2 * width,
        "max_position_embeddings": LONGEST,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "initializer_range": 0.2,
    }
    if kind == "roberta":
        return transformers.RobertaConfig(**{**given, "max_position_embeddings": LONGEST + 2}, pad_token_id=1)
    return transformers.BertConfig(**given)


def backbone(kind: str = "bert", depth: int = 2, width: int = 16, dropout: float = 0.0) -> torch.nn.Module:
    """Random weights, the same at every call; norms too, so that none is the identity."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = transformers.AutoModel.from_config(encoder_config(kind, depth, width, dropout))
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 and ("norm" in name.lower() or "ln_" in name):
                torch.nn.init.normal_(parameter, 1.0 if name.endswith("weight") else 0.0, 0.3)
    return model.float().eval()


def save_encoder(
    folder: Path, kind: str = "bert", *, pooling: str | None = None, padding_side: str = "right", **shape: Any
) -> str:
    """A folder as sentence-transformers or transformers write them; `pooling` as its 1_Pooling/config.json names it."""
    backbone(kind, **shape).save_pretrained(folder)
    hugging_face_tokenizer(kind, padding_side).save_pretrained(folder)
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{pooling}": True}))
    return str(folder)


# --- data ---


def texts_and_labels(num_documents: int, num_labels: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """One to three labels a document; two words of each label stand in its text, among words that mean nothing."""
    random = np.random.default_rng(seed)
    texts, labels = [], []
    for document in range(num_documents):
        drawn = random.choice(num_labels, size=1 + document % 3, replace=False)
        # every label has documents
        drawn[0] = document % num_labels
        meaning = [WORDS[2 * label + half] for label in set(drawn.tolist()) for half in range(2)]
        noise = random.choice(WORDS[2 * num_labels :], size=random.integers(0, 6)).tolist()
        texts.append(" ".join(random.permutation([*meaning, *noise]).tolist()))
        labels.append([f"label{label}" for label in sorted(set(drawn.tolist()))])
    return texts, labels


def corpus(num_documents: int = 240, num_labels: int = 24, seed: int = 0) -> Corpus:
    return corpus_from_python(*texts_and_labels(num_documents, num_labels, seed))


def prepared(encoder: str, data: Corpus | None = None, **options: Any) -> Prepared:
    return prepare_corpus(data or corpus(), encoder, 32, 0, cached=False, **options)


def config(encoder: str, model: dict[str, Any] | None = None, train: dict[str, Any] | None = None) -> Config:
    """The paper's way in small: two coarse levels, a layer each, shortlists, BCE."""
    model_fields: dict[str, Any] = {
        "encoder": encoder,
        "clusters": (4, 8),
        "layers": ((1,), (1, 2), (2,)),
        "top_k": (2, 4),
        "dropout": (0.1, 0.1, 0.1),
    }
    train_fields: dict[str, Any] = {
        "epochs": 2.0,
        "warmup": 0.5,
        "anneal": 0.5,
        "batch_size": 32,
        "encoder_rate": 3e-3,
        "head_rate": 2e-2,
        "precision": "fp32",
    }
    return Config(
        "custom", ModelConfig(**{**model_fields, **(model or {})}), TrainConfig(**{**train_fields, **(train or {})})
    )


AUTO_LIKE: dict[str, Any] = {
    "layers": ((2,), (2,), (2,)),
    "passengers": (True, True, False),
    "final": "all",
    "pooling": "mean",
}
"""what makes of `config` one-vs-all training with passengers"""


def trained(data: Prepared, given: Config, **options: Any) -> Trained:
    return train(data, given, load_backbone(given.model.encoder, CPU), "cls", CPU, **options)


def assert_same_weights(left: Trained, right: Trained) -> None:
    mine, other = left.model.weights(), right.model.weights()
    assert mine.keys() == other.keys()
    assert [name for name in mine if not torch.equal(mine[name], other[name])] == []


class Heard(RunLog):
    """Keeps what was said and logged."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.said: list[str] = []
        self.events: list[tuple[str, dict[str, Any]]] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def event(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))


# --- cascades without an encoder ---


def tree(num_labels: int, clusters: tuple[int, ...]) -> LabelTree:
    order = np.random.default_rng(num_labels).permutation(num_labels).astype(np.int32)
    return LabelTree(order, clusters)


def cascade(
    num_labels: int,
    clusters: tuple[int, ...],
    top_k: tuple[int, ...],
    *,
    width: int = 5,
    rule: str = "adamw",
    seed: int = 0,
    **model: Any,
) -> Cascade:
    """Level t reads layer t; rows at random, far enough from zero that no two scores are alike."""
    levels = len(clusters) + 1
    fields = {
        "clusters": clusters,
        "top_k": top_k,
        "layers": tuple((level + 1,) for level in range(levels)),
        "dropout": (0.0,) * levels,
        "passengers": (False,) * levels,
        "start": ("random",) * levels,
        **model,
    }
    made = Cascade(tree(num_labels, clusters), ModelConfig(**fields), width, CPU, UpdateRule(rule, 0.01))
    for level, rows in enumerate(made.rows):
        generator = torch.Generator().manual_seed(100 * seed + level)
        rows.weight_LH.copy_(torch.randn(rows.weight_LH.shape, generator=generator))
        rows.bias_L.copy_(torch.randn(rows.bias_L.shape, generator=generator))
    return made


def labels_of(num_documents: int, num_labels: int, seed: int = 0) -> csr_matrix:
    """Some documents without a label, some with many, and label entries that are written twice."""
    random = np.random.default_rng(seed)
    rows = [random.choice(num_labels, size=min(num_labels, document * 3 % 7)) for document in range(num_documents)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    indices = np.concatenate([*rows, np.empty(0, np.int64)]).astype(np.int32)
    return csr_matrix((np.ones(len(indices), dtype=bool), indices, indptr), shape=(num_documents, num_labels))


def batch(labels: csr_matrix, label_tree: LabelTree, rows: np.ndarray | None = None) -> Batch:
    rows = np.arange(labels.shape[0]) if rows is None else rows
    ones = torch.ones(len(rows), dtype=torch.int64)
    return Batch(rows, ones, ones, 1, positives_of(rows, labels, label_tree))


def vectors(num_documents: int, num_levels: int, width: int = 5, seed: int = 0) -> dict[int, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        level + 1: torch.randn(num_documents, width, generator=generator).requires_grad_()
        for level in range(num_levels)
    }


def taken(given: dict[int, torch.Tensor], rows: np.ndarray) -> dict[int, torch.Tensor]:
    return {layer: x.detach()[torch.from_numpy(rows)].requires_grad_() for layer, x in given.items()}


def row_gradients(of: Cascade, act: Callable[[], Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each level's gradients of weights and biases, as the rows are given them while `act` runs; no row moves."""
    tables = [(torch.zeros_like(rows.weight_LH), torch.zeros_like(rows.bias_L)) for rows in of.rows]

    def record(level: int) -> Callable[..., None]:
        def apply(rows: Any, gradient_RH: torch.Tensor, gradient_R: torch.Tensor) -> None:
            tables[level][0][rows] += gradient_RH
            tables[level][1][rows] += gradient_R

        return apply

    for level, rows in enumerate(of.rows):
        rows.apply = record(level)  # type: ignore[method-assign]
    act()
    for rows in of.rows:
        del rows.apply
    return tables
