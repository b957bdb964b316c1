"""Strings by the million: what goes in comes out, at any place, in any order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascadexml.texts import Texts, TextsBuilder, encode

SOME = ["", "one", "zwei\u2028drei", "日本", "x\ny", ""]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_round_trip(strings: list[str]) -> None:
    texts = Texts.from_strings(strings)
    assert len(texts) == len(strings)
    assert list(texts) == strings
    assert texts[:] == strings
    assert [string for chunk in texts.byte_chunks(2) for string in chunk] == [s.encode() for s in strings]
    assert texts.is_empty().tolist() == [not s for s in strings]


def test_index_from_both_ends_and_slices() -> None:
    texts = Texts.from_strings(SOME)
    assert (texts[1], texts[-2], texts[1:3], texts[4:2]) == ("one", "x\ny", SOME[1:3], [])
    with pytest.raises(IndexError):
        texts[6]


def test_take_in_any_order_and_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cascadexml.texts._ROWS_AT_ONCE", 3)
    rows = np.array([3, 0, 3, 5, 1, 2, 4, 4])
    assert list(Texts.from_strings(SOME).take(rows)) == [SOME[row] for row in rows]
    assert list(Texts.from_strings(SOME).take(np.array([], dtype=int))) == []


def test_lines_round_trip(tmp_path: Path) -> None:
    strings = ["a", "", "\u2028\x0b\x85", "é\r"]
    Texts.from_strings(strings).save_lines(tmp_path / "lines.txt")
    assert list(Texts.load_lines(tmp_path / "lines.txt")) == strings


def test_lone_surrogate_becomes_replacement_character() -> None:
    assert encode("a\ud800b").decode() == "a\ufffdb"
    assert list(Texts.from_strings(["\udfff"])) == ["\ufffd"]


def test_builder_counts() -> None:
    builder = TextsBuilder()
    assert len(builder) == 0
    builder.append(b"x")
    assert (len(builder), list(builder.finish())) == (1, ["x"])
    assert list(TextsBuilder().finish()) == []
