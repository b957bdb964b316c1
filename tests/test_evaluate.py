import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from cascadexml.conventions import ALL, KNOWN
from cascadexml.evaluate import evaluate_predictions
from cascadexml.report import Report


@dataclass(frozen=True)
class Truth:
    labels: csr_matrix
    num_unknown: np.ndarray
    num_unknown_labels: int = 1
    excluded: csr_matrix | None = None


# Labels 0 and 1 are seen, 2 is not. Documents: {0}, {1, 2, one unknown}, {one unknown}, {}.
TRUTH = Truth(
    csr_matrix(np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)), np.array([0, 1, 1, 0], np.int32)
)
PREDICTED = np.array([[0, 1], [2, 1], [0, -1], [1, 0]])
SCORES = np.array([[0.9, 0.3], [0.8, 0.6], [0.7, 0.0], [0.9, 0.8]], dtype=np.float32)


def report(truth: Truth = TRUTH, **options: Any) -> Report:
    return evaluate_predictions(PREDICTED, SCORES, truth, np.array([4, 1, 0]), 100, 0.55, 1.5, **options)


def test_both_conventions_side_by_side() -> None:
    result = report(threshold=0.5)
    assert list(result.conventions) == [KNOWN, ALL]
    assert result.num_documents == 4
    assert result.num_without_labels == 1
    assert result.num_judged == {KNOWN: 2, ALL: 3}
    assert result.num_true == {KNOWN: 2, ALL: 5}
    known, everything = result.conventions[KNOWN], result.conventions[ALL]
    assert known["P@1"] == known["R@1"] == known["PSP@1"] == 100
    assert everything["P@1"] == pytest.approx(100 * 2 / 3)
    assert everything["R@3"] == pytest.approx(100 * (1 + 2 / 3 + 0) / 3)
    assert known["micro-F1"] == 100
    # Sets {0}, {2, 1}, {0}: 3 hits, 4 chosen, 5 true. By label: 0 has 2/3, 1 and 2 have 1, the unknown one 0.
    assert everything["micro-F1"] == pytest.approx(100 * 2 * 3 / (4 + 5))
    assert everything["macro-F1"] == pytest.approx(100 * (2 / 3 + 1 + 1 + 0) / 4)
    assert [(band.name, band.num_labels, band.num_true) for band in result.bands] == [("1", 1, 1), (">1", 1, 1)]


def test_any_ks_and_no_sets_without_a_threshold() -> None:
    known = report(ks=(2, 10)).conventions[KNOWN]
    assert [name for name in known if name.startswith("nDCG")] == ["nDCG@2", "nDCG@10"]
    assert "F1@5" in known
    assert "micro-F1" not in known


def test_excluded_pairs() -> None:
    excluded = csr_matrix(([True], ([0], [0])), shape=(4, 3))
    result = report(replace(TRUTH, excluded=excluded))
    assert result.num_without_labels == 2
    assert result.num_judged == {KNOWN: 1, ALL: 2}


def test_nothing_known_leaves_one_convention_without_figures() -> None:
    truth = Truth(csr_matrix((4, 3), dtype=bool), np.array([0, 1, 1, 0]))
    result = report(truth, threshold=0.5)
    assert result.conventions[KNOWN] == {}
    assert result.conventions[ALL]["P@1"] == 0
    assert result.bands == ()
    assert "P@1/3/5" in result.table()
    with pytest.raises(ValueError, match="none of the 4 documents has a true label"):
        report(Truth(csr_matrix((4, 3), dtype=bool), np.zeros(4, int)))


def test_json_holds_everything() -> None:
    extra = {"all labels scored": {"P@1": np.float32(50.0)}, "seconds": 1.5, "ids": np.arange(2)}
    result = report(threshold=0.5, shortlist_recall={"level 1": 97.4}, extra=extra)
    read = json.loads(result.to_json())
    assert read["conventions"] == result.conventions
    assert read["propensity_a"] == 0.55
    assert read["threshold"] == 0.5
    assert read["shortlist_recall"] == {"level 1": 97.4}
    assert read["extra"] == {"all labels scored": {"P@1": 50.0}, "seconds": 1.5, "ids": [0, 1]}
    assert read["bands"][0]["name"] == "1"


@pytest.mark.parametrize("with_rich", [True, False])
def test_table_for_people(with_rich: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not with_rich:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    extra = {"all labels scored": {"P@1": 50.0}, "[bold]": "[/nothing]"}
    table = report(threshold=0.5, shortlist_recall={"level 1": 97.4}, extra=extra).table()
    for expected in (KNOWN, ALL, "P@1/3/5", "100.00", "micro-F1", ">1", "level 1", "97.40", "A = 0.55, B = 1.5"):
        assert expected in table
    assert "P@1 50.00" in table
    assert "[/nothing]" in table
    assert max(map(len, table.splitlines())) <= 110


def test_import_brings_in_neither_torch_nor_scikit_learn() -> None:
    code = (
        "import sys; import cascadexml.evaluate, cascadexml.predictions_file\n"
        "print([name for name in ('torch', 'sklearn', 'rich', 'numba') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
