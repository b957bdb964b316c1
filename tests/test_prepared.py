"""What `prepare` keeps: tokens, labels, trees, and a validation split that leaves every label a document."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from written_files import write

from cascadexml.corpus import Corpus, corpus_from_python, read_corpus
from cascadexml.fit import prepare_corpus
from cascadexml.prepared import Prepared, TokenisedPart, draw_validation
from cascadexml.prepared_folder import fingerprint, load_prepared, save_prepared

WITH_TEST = {
    "train_texts.txt": "w1 w2\nw3 w1\nw2\n\nw5 w6 w1\n",
    "train_labels.txt": "a b\nb\n\nc\na c\n",
    "dev_texts.txt": "w1\nw9 w2\n",
    "dev_labels.txt": "a z\nb c\n",
    "test_texts.txt": "w1 w1 w1 w1 w1 w1\n",
    "test_labels.txt": "b\n",
}


def on_disk(folder: Path) -> Corpus:
    return read_corpus(write(folder, dict(WITH_TEST)))


def assert_same_part(left: TokenisedPart, right: TokenisedPart) -> None:
    rows = np.arange(len(left))
    assert [array.tolist() for array in left.tokens.pack(rows)] == [array.tolist() for array in right.tokens.pack(rows)]
    assert (left.known.labels != right.known.labels).nnz == 0 and left.known.labels.dtype == right.known.labels.dtype
    assert left.known.num_unknown.tolist() == right.known.num_unknown.tolist()
    assert left.known.num_unknown_labels == right.known.num_unknown_labels


def assert_same(left: Prepared, right: Prepared) -> None:
    for name, part in left.parts.items():
        assert_same_part(part, right.parts[name])
    for name in ("validation", "tree_order", "refit_order"):
        assert getattr(left, name).tolist() == getattr(right, name).tolist()
    assert list(left.labels.ids) == list(right.labels.ids)
    assert left.labels.counts.tolist() == right.labels.counts.tolist()
    assert left.tokenizer.fingerprint == right.tokenizer.fingerprint
    for name in ("encoder", "max_tokens", "seed", "statistics", "notes"):
        assert getattr(left, name) == getattr(right, name)


def test_saved_and_loaded(encoder: str, tmp_path: Path) -> None:
    made = prepare_corpus(on_disk(tmp_path / "data"), encoder, 6, 0)
    save_prepared(made, tmp_path / "p")
    loaded = load_prepared(tmp_path / "p")
    assert_same(made, loaded)
    assert fingerprint(loaded) == fingerprint(made)
    assert set(loaded.parts) == {"train", "dev", "test"} and loaded.parts["dev"].known.num_unknown.tolist() == [1, 0]
    assert loaded.statistics["test texts cut at 6 tokens (%)"] == 100
    assert loaded.labels.counts.tolist() == [2, 2, 2] and loaded.labels.num_train == 4
    text = "\n".join(f.read_text(errors="ignore") for f in (tmp_path / "p").rglob("*") if f.suffix in (".txt", ".json"))
    assert "w1 w2" not in text, "no texts are kept"


def test_excluded_pairs_are_kept(encoder: str, tmp_path: Path) -> None:
    made = tiny.prepared(encoder, tiny.corpus(60, 12))
    pairs = csr_matrix(made.parts["train"].known.labels.toarray() & (np.arange(60)[:, None] % 2 == 0))
    part = made.parts["train"]
    object.__setattr__(part.known, "excluded", pairs)
    save_prepared(made, tmp_path / "p")
    loaded = load_prepared(tmp_path / "p").parts["train"].known.excluded
    assert loaded is not None and (loaded != pairs).nnz == 0 and loaded.nnz == pairs.nnz > 0


def test_split_and_trees_by_seed_alone(encoder: str) -> None:
    data = tiny.corpus()
    first, again = (prepare_corpus(data, encoder, 32, 3, cached=False) for _ in range(2))
    other = prepare_corpus(data, encoder, 32, 4, cached=False)
    assert_same(first, again)
    assert fingerprint(first) == fingerprint(again) != fingerprint(other)
    assert first.validation.tolist() != other.validation.tolist()
    assert first.refit_order.tolist() != first.tree_order.tolist()
    assert first.training.tolist() == sorted(set(range(240)) - set(first.validation.tolist()))


def test_tree_sees_nothing_of_the_documents_held_out(encoder: str) -> None:
    """Other words in them, the same tree; in those left, another one."""
    texts, labels = tiny.texts_and_labels(240, 24)
    made = prepare_corpus(corpus_from_python(texts, labels), encoder, 32, 0, cached=False)

    def changed(rows: np.ndarray) -> Prepared:
        other = [f"{text} w80 w81" if row in rows else text for row, text in enumerate(texts)]
        return prepare_corpus(corpus_from_python(other, labels), encoder, 32, 0, cached=False)

    held_out = changed(made.validation)
    assert held_out.tree_order.tolist() == made.tree_order.tolist()
    assert held_out.refit_order.tolist() != made.refit_order.tolist()
    assert changed(made.training[::7]).tree_order.tolist() != made.tree_order.tolist()


def test_dev_part_is_the_validation(encoder: str, tmp_path: Path) -> None:
    made = prepare_corpus(on_disk(tmp_path), encoder, 32, 0, cached=False)
    assert not len(made.validation) and made.training.tolist() == [0, 1, 2, 3, 4]
    part = made.validation_part()
    assert part is not None and len(part) == 2
    without = tiny.prepared(encoder, hold_out=False)
    assert not len(without.validation) and without.validation_part() is None
    assert without.refit_order is without.tree_order


def test_features_that_come_with_the_data_build_the_tree(encoder: str, tmp_path: Path) -> None:
    """Texts that say nothing, features that say everything: labels of one group are neighbours."""
    random = np.random.default_rng(0)
    num_labels, per_label = 8, 3
    documents = random.permutation(np.repeat(np.arange(num_labels), per_label))
    features = "".join(f"{label} {label // 2}:1.0\n" for label in documents)
    write(
        tmp_path,
        {
            "train.txt": f"{len(documents)} 4 {num_labels}\n{features}",
            "train_raw_texts.txt": "w1\n" * len(documents),
        },
    )
    made = prepare_corpus(read_corpus(tmp_path), encoder, 8, 0, cached=False, hold_out=False)
    assert made.statistics["tf-idf features"] == 4
    pairs = made.tree_order.reshape(-1, 2) // 2
    assert (pairs[:, 0] == pairs[:, 1]).all()


# --- the validation split ---


@given(
    num_documents=st.integers(0, 600), num_labels=st.integers(1, 300), seed=st.integers(0, 5), skew=st.floats(0.0, 2.0)
)
def test_validation_never_takes_a_labels_only_document(
    num_documents: int, num_labels: int, seed: int, skew: float
) -> None:
    random = np.random.default_rng(seed)
    weights = (1.0 + np.arange(num_labels)) ** -skew
    rows = [
        np.unique(random.choice(num_labels, size=random.integers(0, 4), p=weights / weights.sum()))
        for _ in range(num_documents)
    ]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(int)
    indices = np.concatenate([*rows, np.empty(0, np.int64)]).astype(int)
    labels = csr_matrix((np.ones(len(indices), dtype=bool), indices, indptr), shape=(num_documents, num_labels))
    drawn = draw_validation(labels, seed)
    left = np.setdiff1d(np.arange(num_documents), drawn)
    has_document = np.asarray(labels.sum(axis=0)).ravel() > 0
    assert (np.asarray(labels[left].sum(axis=0)).ravel() > 0).tolist() == has_document.tolist()
    assert len(set(drawn.tolist())) == len(drawn) <= num_documents // 10
    assert drawn.tolist() == sorted(drawn.tolist()) == draw_validation(labels, seed).tolist()
    assert (np.diff(labels.indptr)[drawn] > 0).all(), "a document without labels says nothing"


def test_size_of_the_split() -> None:
    """A tenth of the documents, or of those that can be spared; none where that says nothing."""
    plenty = csr_matrix(np.ones((1000, 1), dtype=bool))
    assert len(draw_validation(plenty, 0)) == 100
    assert len(draw_validation(csr_matrix(np.ones((199, 1), dtype=bool)), 0)) == 0
    assert len(draw_validation(csr_matrix(np.ones((200, 1), dtype=bool)), 0)) == 20
    assert len(draw_validation(csr_matrix(np.eye(1000, dtype=bool)), 0)) == 0
    rare = csr_matrix(np.vstack([np.eye(1000, 1001, dtype=bool), np.eye(1, 1001, 1000, dtype=bool).repeat(500, 0)]))
    assert len(draw_validation(rare, 0)) == 50
    large = csr_matrix(np.ones((150_000, 1), dtype=bool))
    assert len(draw_validation(large, 0)) == 10_000


def test_notes_say_what_was_held_out(encoder: str, few: Prepared, data: Prepared) -> None:
    assert "24 training documents are held out to choose by, none of them a label's only one" in data.notes
    assert any(note.startswith("no validation split: ") and "60 training documents" in note for note in few.notes)


def test_corpora_without_a_training_part(encoder: str) -> None:
    with pytest.raises(ValueError, match=r"there is no training part \(train_texts\.txt"):
        prepare_corpus(Corpus(None, None, None, tiny.corpus(20, 5).label_ids), encoder, 32, 0)


def test_more_tokens_than_the_encoder_reads(encoder: str) -> None:
    with pytest.raises(ValueError, match=r"--max-tokens 65: the encoder .* reads at most 64 tokens"):
        prepare_corpus(tiny.corpus(20, 5), encoder, 65, 0)
