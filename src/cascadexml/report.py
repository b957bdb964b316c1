"""How good predictions are, in figures: a `Report` comes in from `evaluate`, a table or JSON goes out."""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from cascadexml.conventions import ALL, KNOWN
from cascadexml.metrics import FrequencyBand


@dataclass(frozen=True)
class Report:
    """All figures are per cent."""

    num_documents: int
    """rows evaluated, those skipped included"""
    num_without_labels: int
    """documents without any true label: skipped by both conventions"""
    num_judged: Mapping[str, int]
    """documents that count, a convention"""
    num_true: Mapping[str, int]
    """true labels of those documents, a convention"""
    conventions: Mapping[str, Mapping[str, float]]
    """figure by name ("P@1") by convention ("known labels", "all labels"); no figures where nothing is judged"""
    bands: tuple[FrequencyBand, ...]
    """known labels by number of training documents"""
    band_k: int
    """recall and precision of the bands are of so many predictions"""
    num_labels: int
    num_train: int
    propensity_a: float
    propensity_b: float
    threshold: float | None = None
    """the F1s of sets are of predictions that score at least this; None: no such figures"""
    shortlist_recall: Mapping[str, float] = field(default_factory=dict)
    """per cent of true nodes that were scored, by level"""
    extra: Mapping[str, object] = field(default_factory=dict)
    """whatever belongs beside: figures with all labels scored, seconds"""

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False, default=_plain) + "\n"

    def table(self) -> str:
        """For people; drawn by rich where it is installed."""
        sections = [
            _Section("", ["", *self.conventions], _figure_rows(self.conventions)),
            _Section(
                f"known labels by number of training documents (recall and part of P@{self.band_k})",
                ["documents", "labels", "true", "% of true", f"R@{self.band_k}", f"P@{self.band_k} part"],
                [_band_row(band) for band in self.bands],
            ),
            _Section("recall of the shortlists", ["level", "%"], _pairs(self.shortlist_recall)),
            _Section("beside", ["", ""], _pairs(self.extra)),
        ]
        draw = _draw_rich if importlib.util.find_spec("rich") else _draw_plain
        drawn = [f"{section.title}\n{draw(section)}".lstrip("\n") for section in sections if section.rows]
        return "\n\n".join([self._heading(), *drawn]) + "\n"

    def _heading(self) -> str:
        num_unseen = self.num_true[ALL] - self.num_true[KNOWN]
        share = 100.0 * num_unseen / self.num_true[ALL]
        lines = [
            f"{self.num_documents:,} documents, {self.num_without_labels:,} of them skipped, having no label.",
            f"known labels: labels never seen in training are left out; {self.num_judged[KNOWN]:,} documents remain.",
            f"all labels: those labels ({share:.1f}% of all true ones) are misses; {self.num_judged[ALL]:,} documents.",
            f"PSP with A = {self.propensity_a:g}, B = {self.propensity_b:g}, {self.num_train:,} training documents.",
        ]
        if self.threshold is not None:
            lines.append(f"F1 of sets: predictions that score at least {self.threshold:.4g}.")
        return "\n".join(lines)


@dataclass(frozen=True)
class _Section:
    title: str
    header: list[str]
    rows: list[list[str]]


def _figure_rows(conventions: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    """A row for each family, its figures for each k side by side: P@1/3/5."""
    families: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for figures in conventions.values() for name in figures):
        families.setdefault(name.partition("@")[0], []).append(name)
    rows = []
    for family, names in families.items():
        ks = "/".join(name.partition("@")[2] for name in names)
        cells = [" ".join(_number(figures.get(name), width=6) for name in names) for figures in conventions.values()]
        rows.append([f"{family}@{ks}" if ks else family, *cells])
    return rows


def _band_row(band: FrequencyBand) -> list[str]:
    figures = [_number(value) for value in (band.share, band.recall, band.precision_part)]
    return [band.name, f"{band.num_labels:,}", f"{band.num_true:,}", *figures]


def _pairs(values: Mapping[str, object]) -> list[list[str]]:
    return [[str(name), _shown(value)] for name, value in values.items()]


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(inner)}" for name, inner in value.items())
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _number(value: float | None, width: int = 0) -> str:
    return f"{'-' if value is None else format(value, '.2f'):>{width}}"


def _draw_plain(section: _Section) -> str:
    lines = [section.header, *section.rows] if any(section.header) else section.rows
    widths = [max(len(line[column]) for line in lines) for column in range(len(section.header))]
    drawn = [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    ]
    return "\n".join(line.rstrip() for line in drawn)


def _draw_rich(section: _Section) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, show_header=any(section.header))
    for column, name in enumerate(section.header):
        table.add_column(name, justify="right" if column else "left", no_wrap=column == 0)
    for row in section.rows:
        table.add_row(*(Text(cell) for cell in row))
    buffer = io.StringIO()
    Console(file=buffer, width=110, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().splitlines())


def _plain(value: object) -> object:
    """numpy's numbers and arrays, for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a report can't hold {type(value).__name__}")
