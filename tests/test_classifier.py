"""The public class, from Python objects to answers and back from disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny
from scipy.sparse import csr_matrix

from cascadexml import CascadeXML

SETTINGS = {"train.epochs": 2, "train.warmup": 0.2, "train.anneal": 1.0, "train.batch_size": 16}


@pytest.fixture(scope="module")
def model(encoder: str) -> CascadeXML:
    texts, labels = tiny.texts_and_labels(240, 12)
    return CascadeXML.fit(texts, labels, encoder=encoder, device="cpu", settings=SETTINGS, max_tokens=32, quiet=True)


def test_answers_are_names_and_scores_best_first(model: CascadeXML) -> None:
    answers = model.predict(["some text", ""], top_k=4)
    assert [len(answer) for answer in answers] == [4, 4]
    for answer in answers:
        scores = [score for _, score in answer]
        assert scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)
        assert len({name for name, _ in answer}) == 4


def test_more_than_there_are_labels(model: CascadeXML) -> None:
    assert len(model.predict(["some text"], top_k=1000)[0]) == 12


def test_csr_holds_the_same_scores(model: CascadeXML) -> None:
    matrix = model.predict(["some text", "another"], top_k=3, as_csr=True)
    assert matrix.shape == (2, 12) and matrix.nnz == 6
    names = [model.label_names[int(column)] for column in matrix[0].indices]
    assert {name for name, _ in model.predict(["some text"], top_k=3)[0]} == set(names)


def test_saved_and_loaded_answers_are_equal(model: CascadeXML, tmp_path: Path) -> None:
    texts, labels = tiny.texts_and_labels(40, 12, seed=3)
    model.save(tmp_path / "model", shard_size=4000)
    assert len(list((tmp_path / "model").glob("model-*.safetensors"))) > 1
    loaded = CascadeXML.load(tmp_path / "model", device="cpu")
    assert loaded.predict(texts) == model.predict(texts)
    assert loaded.evaluate(texts, labels).to_json() == model.evaluate(texts, labels).to_json()
    with pytest.raises(ValueError, match="--overwrite"):
        model.save(tmp_path / "model")


def test_labels_as_a_matrix(encoder: str) -> None:
    texts, labels = tiny.texts_and_labels(80, 8)
    names = sorted({name for of_text in labels for name in of_text})
    rows = [row for row, of_text in enumerate(labels) for _ in of_text]
    columns = [names.index(name) for of_text in labels for name in of_text]
    matrix = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(80, len(names)))
    model = CascadeXML.fit(
        texts, matrix, encoder=encoder, device="cpu", settings=SETTINGS, max_tokens=32, label_names=names, quiet=True
    )
    assert model.predict(["x"], top_k=1)[0][0][0] in names
    report = model.evaluate(texts, matrix)
    assert report.num_documents == 80
    with pytest.raises(ValueError, match="columns"):
        model.evaluate(texts, matrix[:, :5])


def test_names_for_labels_in_lists(encoder: str) -> None:
    texts, labels = tiny.texts_and_labels(60, 6)
    names = {labels[0][0]: "the first"}
    model = CascadeXML.fit(
        texts, labels, encoder=encoder, device="cpu", settings=SETTINGS, max_tokens=32, label_names=names, quiet=True
    )
    assert "the first" in list(model.label_names)


def test_labels_training_never_saw_are_misses_under_all_labels(model: CascadeXML) -> None:
    texts, labels = tiny.texts_and_labels(20, 12, seed=5)
    known = model.evaluate(texts, labels).conventions
    report = model.evaluate([*texts, "more"], [*labels, ["never seen"]])
    assert report.conventions["known labels"] == known["known labels"]
    assert report.conventions["all labels"]["P@1"] == pytest.approx(known["all labels"]["P@1"] * 20 / 21)


@pytest.mark.parametrize(
    ("texts", "reason"),
    [("one string", "list of texts"), ([3], "expected a string")],
)
def test_texts_of_another_kind(model: CascadeXML, texts: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        model.predict(texts)  # type: ignore[arg-type]


def test_threshold(model: CascadeXML) -> None:
    assert model.predict(["x"], threshold=1.1) == [[]]
    chosen = model.threshold("auto")
    assert all(score >= chosen for _, score in model.predict(["x"], top_k=12, threshold="auto")[0])
    with pytest.raises(ValueError, match="a number or auto"):
        model.predict(["x"], threshold="most")
