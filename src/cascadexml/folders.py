"""What a stage leaves on disk: one folder, whole or not there at all, with a manifest that says what it is."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cascadexml import __version__

MANIFEST = "cascadexml.json"
FORMAT = 1
"""raised when a folder written before can no longer be read"""


@contextmanager
def write_folder(path: Path, kind: str, about: dict[str, Any], overwrite: bool = False) -> Iterator[Path]:
    """Yields a temporary folder beside `path`; it takes that name, with a manifest, if nothing goes wrong."""
    refuse_existing(path, kind, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.unfinished-"))
    temporary.chmod(0o755)
    try:
        yield temporary
        files = {name: {"bytes": size, "sha256": digest} for name, size, digest in _contents(temporary)}
        manifest = {"kind": kind, "format": FORMAT, "cascadexml": __version__, **about, "files": files}
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False), encoding="utf-8")
        _replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def refuse_existing(path: Path, kind: str, overwrite: bool) -> None:
    """Nothing is overwritten unasked, and nothing but a folder of the same kind when asked."""
    if not path.exists():
        return
    if not overwrite:
        raise ValueError(f"{path} is there already: give --overwrite to replace it, or another name")
    is_same = path.is_dir() and (not any(path.iterdir()) or _kind_of(path) == kind)
    if not is_same:
        raise ValueError(f"{path} is not a {kind} folder of CascadeXML: it is not overwritten; give another name")


def is_folder(path: Path, kind: str) -> bool:
    return _kind_of(path) == kind


def open_folder(path: Path, kind: str, verify: bool = True) -> dict[str, Any]:
    """The manifest of a whole folder of this kind; anything else is refused with the reason."""
    if not path.exists():
        raise ValueError(f"{path}: there is no such folder; expected a {kind} folder")
    if not path.is_dir() or not (path / MANIFEST).is_file():
        raise ValueError(f"{path}: no {MANIFEST} in it, so it is not a {kind} folder of CascadeXML")
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        found, form, files = manifest["kind"], manifest["format"], manifest["files"]
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path / MANIFEST} is damaged ({error}): make the {kind} folder again") from None
    if found != kind:
        raise ValueError(f"{path} is a {found} folder; expected a {kind} folder")
    if form != FORMAT:
        raise ValueError(
            f"{path} has format {form} (CascadeXML {manifest.get('cascadexml')}), this version reads format {FORMAT}: "
            "use that version, or make the folder again"
        )
    for name, expected in files.items():
        _check_file(path, name, expected, verify)
    return manifest


def _check_file(folder: Path, name: str, expected: dict[str, Any], verify: bool) -> None:
    file = folder / name
    if not file.is_file():
        raise ValueError(f"{folder}: {name} is missing; copy the folder again")
    if file.stat().st_size != expected["bytes"]:
        raise ValueError(
            f"{folder}: {name} has {file.stat().st_size} bytes, {expected['bytes']} were written; copy the folder again"
        )
    if verify and _digest(file) != expected["sha256"]:
        raise ValueError(
            f"{folder}: {name} was changed after it was written (its checksum differs); copy the folder again"
        )


def _kind_of(path: Path) -> str | None:
    try:
        return str(json.loads((path / MANIFEST).read_text(encoding="utf-8"))["kind"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _contents(folder: Path) -> list[tuple[str, int, str]]:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return [(file.relative_to(folder).as_posix(), file.stat().st_size, _digest(file)) for file in files]


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while block := opened.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def _replace(temporary: Path, path: Path) -> None:
    """A folder cannot be renamed onto another, so the old one steps aside first."""
    aside = path.parent / f".{path.name}.replaced-{os.getpid()}"
    if path.exists():
        path.rename(aside)
    temporary.rename(path)
    shutil.rmtree(aside, ignore_errors=True)
