"""Bytes to lines: line feeds and nothing else end one."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascadexml.formats import lines as lines_module
from cascadexml.formats.lines import first_lines, lines_of, numbered_lines, read_lines

LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\ufeff")).filter(
    lambda s: not s.endswith("\r")
)


@given(st.lists(LINE, min_size=1), st.booleans(), st.sampled_from(["\n", "\r\n"]), st.integers(1, 9))
def test_any_lines_come_back(strings: list[str], closed: bool, ending: str, block_size: int) -> None:
    if strings[-1] == "":
        closed = True
    raw = (ending.join(strings) + (ending if closed else "")).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "_BLOCK_SIZE", block_size)
        assert list(lines_of(io.BytesIO(raw), "x", [])) == strings


def write(path: Path, raw: bytes) -> Path:
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\n", ["a", ""]),
        (b"\n\na\n", ["", "", "a"]),
        (b"a\rb\n", ["a\rb"]),
        ("a\u2028b\x0bc\x85d\u2029\x1ce\n".encode(), ["a\u2028b\x0bc\x85d\u2029\x1ce"]),
    ],
)
def test_what_ends_a_line(tmp_path: Path, raw: bytes, expected: list[str]) -> None:
    path = write(tmp_path / "x.txt", raw)
    notes: list[str] = []
    assert list(read_lines(path, notes)) == expected
    assert [(n, line.decode()) for n, line in numbered_lines(path, notes)] == list(enumerate(expected, start=1))
    assert notes == []


def test_repairs_are_noted(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", b"\xef\xbb\xbfa\r\nb\xff\xfec\ncaf\xe9\n\xe2\x82\n")
    notes: list[str] = []
    assert list(read_lines(path, notes)) == ["a", "b\ufffd\ufffdc", "caf\ufffd", "\ufffd"]
    assert notes == [
        "x.txt: bytes that are not UTF-8 in 3 lines, replaced by U+FFFD",
        "x.txt: 1 lines end in CR LF, read as LF",
        "x.txt: byte order mark at the beginning left out",
    ]


def test_gzip_by_content_not_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", gzip.compress(b"a\nb\n"))
    assert list(read_lines(path, [])) == ["a", "b"]
    assert first_lines(path) == [b"a", b"b"]


def test_damaged_gzip(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gz", gzip.compress(bytes(range(256)) * 50)[:-30])
    with pytest.raises(ValueError, match=r"x\.gz: the gzip file is damaged or cut short"):
        read_lines(path, [])


def test_first_lines_are_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", b"\xef\xbb\xbfabc\r\nde\nfghi")
    assert first_lines(path) == [b"abc", b"de", b"fghi"]
    assert first_lines(path, size=9) == [b"abc"]
    assert first_lines(path, size=2)[:1] == [b"abc"]
    assert first_lines(write(tmp_path / "empty", b"")) == []


def test_wrong_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder, expected a file"):
        read_lines(tmp_path, [])
    with pytest.raises(ValueError, match="no such file"):
        read_lines(tmp_path / "none", [])
    with pytest.raises(ValueError, match=r"x\.txt is UTF-16 .* save it as UTF-8"):
        read_lines(write(tmp_path / "x.txt", "abc".encode("utf-16")), [])
