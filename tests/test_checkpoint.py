"""Model folders answer bit for bit as the model did; damaged and foreign ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from cascadexml.checkpoint import load_checkpoint, load_model, save_checkpoint, save_model
from cascadexml.model import Model
from cascadexml.predict import encode_levels, predict, predict_all, shortlist_recall
from cascadexml.prepared import Prepared
from cascadexml.propensity import published_constants
from cascadexml.texts import Texts
from cascadexml.tokens import tokenise


@pytest.fixture(scope="module")
def model(data: Prepared, encoder: str) -> Model:
    """With a level of two layers, and so a map; trained a little, so that nothing is as it began."""
    return tiny.trained(data, tiny.config(encoder)).model


def assert_same_answers(left: Model, right: Model, data: Prepared) -> None:
    tokens = data.parts["train"].tokens
    for rank in ("label", "parent", "path"):
        mine, other = (predict(m, tokens, 5, (2, 4), rank) for m in (left, right))
        assert np.array_equal(mine.labels, other.labels) and np.array_equal(mine.scores, other.scores)
    mine, other = predict_all(left, tokens, 5), predict_all(right, tokens, 5)
    assert np.array_equal(mine.labels, other.labels) and np.array_equal(mine.scores, other.scores)


@pytest.mark.parametrize("shard_size", [1 << 30, 20_000, 1])
def test_invariant_4_loaded_answers_are_equal_to_the_last_bit(
    data: Prepared, model: Model, tmp_path: Path, shard_size: int
) -> None:
    """From one file of weights, several, and one for each tensor."""
    save_model(model, tmp_path / "m", shard_size=shard_size)
    loaded = load_model(tmp_path / "m", tiny.CPU)
    assert_same_answers(model, loaded, data)
    assert loaded.config == model.config and loaded.encoder.pooling == model.encoder.pooling
    assert list(loaded.labels.ids) == list(model.labels.ids)
    assert loaded.labels.counts.tolist() == model.labels.counts.tolist()
    files = sorted(file.name for file in (tmp_path / "m").glob("*.safetensors"))
    num_files = {1 << 30: 1, 1: len(model.weights())}.get(shard_size)
    assert num_files in (None, len(files)) and (shard_size == 1 << 30 or len(files) > 1)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlnet", "gpt2"])
def test_invariant_4_for_every_family(tmp_path: Path, kind: str) -> None:
    """Two of three layers, mean pooling; the folder needs no other beside it."""
    encoder = tiny.save_encoder(tmp_path / "encoder", kind, pooling="mean_tokens", depth=3)
    data = tiny.prepared(encoder, tiny.corpus(60, 12))
    config = tiny.config(encoder, train={"epochs": 0.5, "warmup": 0.0, "update_rule": "adamw"})
    trained = tiny.trained(data, config).model
    save_model(trained, tmp_path / "m")
    for file in sorted((tmp_path / "encoder").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    assert_same_answers(trained, load_model(tmp_path / "m", tiny.CPU), data)


def test_invariant_4_company_changes_nothing_beyond_rounding(
    data: Prepared, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document by itself, among few, and among all of them."""
    part = data.parts["train"]
    whole = predict(model, part.tokens, 5, (2, 4), "path")
    for rows in ([7], [200, 7, 3], list(range(9))):
        some = predict(model, part.tokens.take(np.array(rows)), 5, (2, 4), "path")
        np.testing.assert_allclose(some.scores, whole.scores[rows], rtol=1e-4, atol=1e-6)
        assert (some.labels == whole.labels[rows]).mean() > 0.97
    monkeypatch.setattr("cascadexml.predict.BATCH_TOKENS", {"cpu": 40})
    small = predict(model, part.tokens, 5, (2, 4), "path")
    np.testing.assert_allclose(small.scores, whole.scores, rtol=1e-4, atol=1e-6)


def test_one_row_for_each_document_in_order(model: Model) -> None:
    """Empty texts included, and none at all."""
    texts = ["w0 w1", "", "w4 w5 w6 w7 w8 w9 w10 w11 w12 w13 w14", "", "w0 w1"]
    tokens = tokenise(Texts.from_strings(texts), model.tokenizer, 32)
    found = predict(model, tokens, 3)
    assert len(found) == 5 and (found.labels >= 0).all() and np.isfinite(found.scores).all()
    np.testing.assert_allclose(found.scores[0], found.scores[4], rtol=1e-5)
    np.testing.assert_allclose(found.scores[1], found.scores[3], rtol=1e-5)
    assert (np.diff(found.scores, axis=1) <= 0).all() and found.scores.min() >= 0 and found.scores.max() <= 1
    assert len(predict(model, tokens.take(np.empty(0, np.int64)), 3)) == 0
    vectors = encode_levels(model, tokens)
    assert [level.shape for level in vectors] == [(5, 16)] * 3 and vectors[0].dtype == np.float16
    np.testing.assert_allclose(vectors[1][0].astype(float), vectors[1][4].astype(float), rtol=1e-2, atol=1e-3)


def test_shortlist_recall_is_full_where_everything_is_kept(model: Model, data: Prepared) -> None:
    part = data.validation_part()
    assert part is not None
    assert shortlist_recall(model, part, (4, 8)) == [100.0, 100.0]
    assert all(0 < recall < 100 for recall in shortlist_recall(model, part, (1, 1)))


def test_folder_says_what_it_is(model: Model, tmp_path: Path) -> None:
    save_model(model, tmp_path / "m", about={"training": {"seconds": 3}})
    manifest = json.loads((tmp_path / "m" / "cascadexml.json").read_text())
    a, b = published_constants(24)
    assert (manifest["num_labels"], manifest["num_train"]) == (24, model.labels.num_train)
    assert (manifest["propensity_a"], manifest["propensity_b"]) == (a, b) and manifest["training"] == {"seconds": 3}
    config = (tmp_path / "m" / "config.json").read_text()
    assert "label7" not in config and "label7" in (tmp_path / "m" / "labels.txt").read_text()
    assert not [file for file in (tmp_path / "m").rglob("*") if file.suffix in (".bin", ".pt", ".pkl", ".pickle")]


def cut(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])


def forget_the_tree(folder: Path) -> None:
    (folder / "tree_order.npy").unlink()


def change_the_labels(folder: Path) -> None:
    text = (folder / "labels.txt").read_text()
    (folder / "labels.txt").write_text(text.replace("label7", "label8"))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (cut, r"model\.safetensors has \d+ bytes, \d+ were written; copy the folder again"),
        (forget_the_tree, r"tree_order\.npy is missing"),
        (change_the_labels, r"labels\.txt was changed after it was written"),
    ],
)
def test_damaged_models_are_refused(model: Model, tmp_path: Path, damage: Any, reason: str) -> None:
    save_model(model, tmp_path / "m")
    damage(tmp_path / "m")
    with pytest.raises(ValueError, match=reason):
        load_model(tmp_path / "m", tiny.CPU)


def test_other_folders_are_no_models(encoder: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no cascadexml\.json in it, so it is not a model folder"):
        load_model(Path(encoder), tiny.CPU)
    with pytest.raises(ValueError, match="there is no such folder"):
        load_model(tmp_path / "none", tiny.CPU)


# --- the file that a run goes on from ---


def test_checkpoint_file_and_back(tmp_path: Path) -> None:
    shared = torch.randn(4, 3)
    tensors = {"a": shared, "b": shared, "turned": shared.T, "step": torch.tensor(7), "none": torch.empty(0)}
    state = {"epoch": 3, "history": [{"P": 1.5}], "seed": None}
    save_checkpoint(tmp_path / "new" / "c.safetensors", tensors, state)
    found, found_state = load_checkpoint(tmp_path / "new" / "c.safetensors")
    assert found_state == state and found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_a_checkpoint_that_fails_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "c.safetensors"
    save_checkpoint(file, {"a": torch.ones(2)}, {"epoch": 1})

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        save_checkpoint(file, {"a": torch.zeros(2)}, {"epoch": 2})
    assert load_checkpoint(file)[1] == {"epoch": 1}
