"""Stored tokens, with their template around them, are what the tokenizer itself would have said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from cascadexml import tokens as tokens_module
from cascadexml.encoder import load_tokenizer
from cascadexml.texts import Texts
from cascadexml.tokens import Tokenizer, TokenStore, tokenise, tokenise_cached, tokenizer_of

KINDS = ["bert", "roberta", "xlnet", "gpt2"]
TEXTS = ["w1 w2 w3", "", "   ", "w4", "w5 w6 w7 w8 w9 w10 w11", "unheard-of w3", "w1\n\nw2 é 漢"]


def store_of(kind: str, texts: list[str], limit: int = 32) -> TokenStore:
    return tokenise(Texts.from_strings(texts), tiny.tokenizer(kind), limit)


def unpacked(store: TokenStore, rows: list[int] | None = None, limit: int | None = None) -> list[list[int]]:
    packed, lengths = store.pack(np.array(rows if rows is not None else range(len(store))), limit)
    assert packed.dtype == np.int64 and len(packed) == lengths.sum()
    return [piece.tolist() for piece in np.split(packed, np.cumsum(lengths)[:-1])]


def said_by(kind: str, text: str, limit: int) -> list[int]:
    """The tokenizer library's own answer, its truncation on; an empty answer is one special token."""
    raw = tiny.raw_tokenizer(kind)
    raw.enable_truncation(limit)
    return raw.encode(text).ids or [raw.token_to_id("<|endoftext|>")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limit", [32, 5, 3])
def test_tokens_equal_the_tokenizers_own(kind: str, limit: int) -> None:
    """Special tokens around them, cut as the library cuts: what stands behind a text is kept."""
    store = store_of(kind, TEXTS, limit)
    expected = [said_by(kind, text, limit) for text in TEXTS]
    assert unpacked(store) == expected
    assert store.lengths().tolist() == [len(of_text) for of_text in expected]
    assert store.num_cut == sum(len(said_by(kind, text, 1000)) > limit for text in TEXTS)
    assert (store.num_cut > 0) == (limit < 32)


@pytest.mark.parametrize("kind", KINDS)
@given(lengths=st.lists(st.integers(0, 12), min_size=1, max_size=8), limit=st.integers(3, 12))
def test_shortening_later_equals_tokenising_at_that_limit(kind: str, lengths: list[int], limit: int) -> None:
    texts = [" ".join(tiny.WORDS[:length]) for length in lengths]
    long, short = store_of(kind, texts, 13), store_of(kind, texts, limit)
    assert unpacked(long, limit=limit) == unpacked(short)
    assert long.lengths(limit).tolist() == short.lengths().tolist() == short.lengths(limit + 5).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_in_any_order(kind: str) -> None:
    store = store_of(kind, TEXTS)
    whole = unpacked(store)
    rows = [4, 1, 1, 0, 6]
    assert unpacked(store, rows) == [whole[row] for row in rows]
    assert unpacked(store.take(np.array(rows))) == [whole[row] for row in rows]
    assert unpacked(store.take(np.array([2])).followed_by(store)) == [whole[2], *whole]
    assert len(store.take(np.empty(0, np.int64))) == 0


def test_special_tokens_that_frame_a_text() -> None:
    found = {kind: tiny.tokenizer(kind).template for kind in KINDS}
    raw = {kind: tiny.raw_tokenizer(kind).token_to_id for kind in KINDS}
    assert (found["bert"].prefix, found["bert"].suffix) == ((raw["bert"]("[CLS]"),), (raw["bert"]("[SEP]"),))
    assert found["xlnet"].prefix == () and found["xlnet"].suffix == (raw["xlnet"]("<sep>"), raw["xlnet"]("<cls>"))
    assert found["gpt2"].prefix == found["gpt2"].suffix == ()
    assert [found[kind].cls_position for kind in KINDS] == [0, 0, -1, None]
    assert found["gpt2"].empty == found["gpt2"].padding == raw["gpt2"]("<|endoftext|>")
    assert found["roberta"].padding == 1


def test_empty_texts_are_never_empty() -> None:
    for kind, expected in (("bert", 2), ("roberta", 2), ("xlnet", 2), ("gpt2", 1)):
        assert store_of(kind, ["", ""]).lengths().tolist() == [expected] * 2
        assert [len(row) for row in unpacked(store_of(kind, ["", "w1", ""]))][::2] == [expected] * 2
        assert len(store_of(kind, [])) == 0


def test_limit_without_room_for_a_word() -> None:
    with pytest.raises(ValueError, match=r"--max-tokens 2 leaves no room beside the encoder's 2 special .* at least 3"):
        store_of("bert", TEXTS, 2)
    assert store_of("gpt2", TEXTS, 1).lengths().tolist() == [1] * len(TEXTS)


def test_narrow_ids_where_they_fit() -> None:
    assert store_of("bert", TEXTS).ids.dtype == np.uint16
    vocabulary = {"[UNK]": 0} | {f"x{number}": number for number in range(1, (1 << 16) + 2)}
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    large = Tokenizer(raw, tiny.tokenizer("gpt2").template)
    store = tokenise(Texts.from_strings([f"x{(1 << 16) + 1}", "x1"]), large, 8)
    assert store.ids.dtype == np.int32 and unpacked(store) == [[(1 << 16) + 1], [1]]


def test_more_documents_than_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = unpacked(store_of("bert", TEXTS))
    monkeypatch.setattr(tokens_module, "CHUNK", 2)
    assert unpacked(store_of("bert", TEXTS)) == whole


def test_packaged_tokenizers_truncation_and_padding_are_off() -> None:
    """As it is packed, it cuts at 128 tokens and pads every text to 128."""
    tokenizer = load_tokenizer("minilm")
    store = tokenise(Texts.from_strings(["heart failure", "heart " * 300]), tokenizer, 256)
    assert store.lengths().tolist() == [4, 256] and store.num_cut == 1
    assert tokenise(Texts.from_strings(["heart " * 300]), tokenizer, 400).lengths().tolist() == [302]
    assert [tokenizer.backend.id_to_token(token) for token in unpacked(store)[0]] == [
        "[CLS]",
        "heart",
        "failure",
        "[SEP]",
    ]


def test_truncation_and_padding_of_the_given_tokenizer_stay_as_they_were() -> None:
    theirs = tiny.hugging_face_tokenizer("bert")
    theirs.backend_tokenizer.enable_truncation(4)
    theirs.backend_tokenizer.enable_padding(length=9)
    store = tokenise(Texts.from_strings(["w1 w2 w3 w4", ""]), tokenizer_of(theirs), 32)
    assert store.lengths().tolist() == [6, 2]
    assert len(theirs.backend_tokenizer.encode("w1 w2 w3 w4").ids) == 9


def test_slow_tokenizers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"dict has no fast tokenizer \(tokenizer\.json\): convert it"):
        tokenizer_of({})


def test_saved_and_loaded(tmp_path: Path) -> None:
    for kind in KINDS:
        tokenizer = tiny.tokenizer(kind)
        tokenizer.save(tmp_path / kind)
        again = Tokenizer.load(tmp_path / kind)
        assert again.template == tokenizer.template and again.fingerprint == tokenizer.fingerprint
        store = tokenise(Texts.from_strings(TEXTS), again, 6)
        store.save(tmp_path / kind / "store")
        loaded = TokenStore.load(tmp_path / kind / "store", again.template)
        assert isinstance(loaded.ids, np.memmap)
        assert unpacked(loaded) == unpacked(store) and (loaded.limit, loaded.num_cut) == (6, store.num_cut)


# --- the cache ---


def test_cached_tokens_are_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, tokenizer = Texts.from_strings(TEXTS), tiny.tokenizer()
    made: list[int] = []
    original = tokens_module.tokenise
    monkeypatch.setattr(tokens_module, "tokenise", lambda *given: made.append(1) or original(*given))
    first = tokenise_cached(texts, tokenizer, 6, tmp_path)
    assert (
        unpacked(tokenise_cached(texts, tokenizer, 6, tmp_path))
        == unpacked(first)
        == unpacked(original(texts, tokenizer, 6))
    )
    assert len(made) == 1
    # any of the three makes another; so does a text's end that moved
    tokenise_cached(texts, tokenizer, 7, tmp_path)
    tokenise_cached(texts, tiny.tokenizer("roberta"), 6, tmp_path)
    tokenise_cached(Texts.from_strings([*TEXTS[:-1], "w9"]), tokenizer, 6, tmp_path)
    tokenise_cached(Texts.from_strings(["w1 w2", "w3"]), tokenizer, 6, tmp_path)
    tokenise_cached(Texts.from_strings(["w1 w", "2w3"]), tokenizer, 6, tmp_path)
    assert len(made) == 6 == len(list(tmp_path.iterdir()))


def test_cache_that_was_not_finished_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, tokenizer = Texts.from_strings(TEXTS), tiny.tokenizer()
    with monkeypatch.context() as context:
        context.setattr(TokenStore, "save", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
        with pytest.raises(OSError, match="no space left"):
            tokenise_cached(texts, tokenizer, 6, tmp_path)
    assert len(tokenise_cached(texts, tokenizer, 6, tmp_path)) == len(TEXTS)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("unfinished")] == []


def test_texts_without_a_token_are_cached_too(tmp_path: Path) -> None:
    for kind in ("bert", "gpt2"):
        store = tokenise_cached(Texts.from_strings(["", ""]), tiny.tokenizer(kind), 6, tmp_path)
        assert unpacked(store) == unpacked(store_of(kind, ["", ""]))


def test_cache_stands_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADEXML_CACHE", str(tmp_path / "a"))
    tokenise_cached(Texts.from_strings(["w1"]), tiny.tokenizer(), 6)
    assert len(list((tmp_path / "a" / "tokens").iterdir())) == 1
    monkeypatch.delenv("CASCADEXML_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert tokens_module.cache_folder() == tmp_path / "b" / "cascadexml"
