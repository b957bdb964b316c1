"""Folders that are whole or not there: damage, foreign kinds, overwriting, and what an exception leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cascadexml.folders import MANIFEST, is_folder, open_folder, refuse_existing, write_folder


def written(path: Path, kind: str = "model", overwrite: bool = False, content: str = "content") -> Path:
    with write_folder(path, kind, {"about": "this"}, overwrite) as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "a.txt").write_text(content)
        np.save(folder / "b.npy", np.arange(5))
    return path


def beside(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.parent.iterdir())


def test_written_and_opened(tmp_path: Path) -> None:
    path = written(tmp_path / "deep" / "er" / "m")
    manifest = open_folder(path, "model")
    assert manifest["about"] == "this" and sorted(manifest["files"]) == ["b.npy", "inner/a.txt"]
    assert (path / "inner" / "a.txt").read_text() == "content"
    assert is_folder(path, "model") and not is_folder(path, "prepared") and not is_folder(tmp_path, "model")
    assert beside(path) == ["m"]
    assert path.stat().st_mode & 0o777 == 0o755


def test_nothing_is_left_where_writing_fails(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), write_folder(tmp_path / "m", "model", {}) as folder:
        (folder / "half.txt").write_text("x")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    written(tmp_path / "m")
    with pytest.raises(OSError, match="disk"), write_folder(tmp_path / "m", "model", {}, overwrite=True) as folder:
        (folder / "half.txt").write_text("x")
        raise OSError("disk full")
    assert beside(tmp_path / "m") == ["m"] and open_folder(tmp_path / "m", "model")["about"] == "this"


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    path = written(tmp_path / "m")
    with pytest.raises(ValueError, match="m is there already: give --overwrite to replace it, or another name"):
        written(path)
    written(path, overwrite=True, content="new")
    assert (path / "inner" / "a.txt").read_text() == "new" and beside(path) == ["m"]


def test_only_the_same_kind_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "precious.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    written(tmp_path / "prepared", "prepared")
    for name in ("home", "file", "prepared"):
        with pytest.raises(ValueError, match=rf"{name} is not a model folder of CascadeXML: it is not overwritten"):
            written(tmp_path / name, "model", overwrite=True)
    assert (tmp_path / "home" / "precious.txt").read_text() == "x"
    (tmp_path / "empty").mkdir()
    written(tmp_path / "empty", overwrite=True)
    assert is_folder(tmp_path / "empty", "model")
    refuse_existing(tmp_path / "nothing", "model", overwrite=False)


def test_folders_that_are_not_ours(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "none", "none: there is no such folder; expected a model folder"),
        (tmp_path, rf"no {MANIFEST} in it, so it is not a model folder of CascadeXML"),
        (written(tmp_path / "prepared", "prepared"), "prepared is a prepared folder; expected a model folder"),
    ):
        with pytest.raises(ValueError, match=reason):
            open_folder(path, "model")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is not a model folder"):
        open_folder(tmp_path / "file", "model")


def damage(path: Path, how: str) -> None:
    file = path / "b.npy"
    if how == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    elif how == "changed":
        whole = bytearray(file.read_bytes())
        whole[-1] ^= 1
        file.write_bytes(bytes(whole))
    elif how == "missing":
        (path / "inner" / "a.txt").unlink()
    elif how == "no manifest":
        (path / MANIFEST).unlink()


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("cut", r"b\.npy has 167 bytes, 168 were written; copy the folder again"),
        ("changed", r"b\.npy was changed after it was written \(its checksum differs\)"),
        ("missing", r"inner/a\.txt is missing; copy the folder again"),
        ("no manifest", f"no {MANIFEST} in it"),
    ],
)
def test_damaged_folders_say_what_is_wrong(tmp_path: Path, how: str, reason: str) -> None:
    path = written(tmp_path / "m")
    damage(path, how)
    with pytest.raises(ValueError, match=reason):
        open_folder(path, "model")


def test_checksums_can_be_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "m")
    damage(path, "changed")
    assert open_folder(path, "model", verify=False)["kind"] == "model"
    damage(path, "cut")
    with pytest.raises(ValueError, match="has 167 bytes"):
        open_folder(path, "model", verify=False)


@pytest.mark.parametrize("manifest", ["", "{", "[]", "3", '{"kind": "model"}', b"\xff\xfe\x00"])
def test_damaged_manifests(tmp_path: Path, manifest: Any) -> None:
    path = written(tmp_path / "m")
    (path / MANIFEST).write_bytes(manifest if isinstance(manifest, bytes) else manifest.encode())
    with pytest.raises(ValueError, match=r"is damaged .*: make the model folder again"):
        open_folder(path, "model")
    assert not is_folder(path, "prepared")


def test_formats_of_another_version(tmp_path: Path) -> None:
    path = written(tmp_path / "m")
    manifest = json.loads((path / MANIFEST).read_text())
    (path / MANIFEST).write_text(json.dumps({**manifest, "format": 99, "cascadexml": "9.9"}))
    with pytest.raises(ValueError, match=r"has format 99 \(CascadeXML 9\.9\), this version reads format 1: use that"):
        open_folder(path, "model")
