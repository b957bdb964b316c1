"""The wheel, built and installed alone in an environment of its own: what a user gets. Run by `make wheel`."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.wheel


def run(*command: str | Path, folder: Path) -> str:
    """Outside the project's folder, so that only what is installed can be imported."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run([str(part) for part in command], cwd=folder, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", ROOT / "dist", ROOT, folder=folder)
    return max((ROOT / "dist").glob("cascadexml-*.whl"), key=lambda path: path.stat().st_mtime)


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel, without extras; its folder of programs."""
    folder = tmp_path_factory.mktemp("alone")
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    pip = (programs / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    run(*pip, "-c", ROOT / "constraints.txt", wheel, folder=folder)
    return programs


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    source = {f"cascadexml/{path.relative_to(ROOT / 'src/cascadexml').as_posix()}" for path in source_files()}
    assert "cascadexml/py.typed" in names
    assert source <= set(names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"cascadexml"}


def source_files() -> list[Path]:
    return [path for path in (ROOT / "src/cascadexml").rglob("*") if path.suffix in (".py", ".typed", ".json")]


def test_package_imports_alone(environment: Path, tmp_path: Path) -> None:
    script = "import cascadexml; from cascadexml import CascadeXML; print(cascadexml.__file__)"
    where = Path(run(environment / "python", "-c", script, folder=tmp_path).strip())
    assert environment.parent in where.parents


def test_command_runs_alone(environment: Path, tmp_path: Path) -> None:
    assert "train" in run(environment / "cascadexml", "--help", folder=tmp_path)
