"""The demo's data and settings: the draw that its figures refer to, and top-k for the levels that `auto` gives it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cascadexml.recipes import Sizes, recipe

if TYPE_CHECKING:
    from icd import Draw

DEMO = Path(__file__).parent.parent / "demo"


@pytest.fixture(scope="module")
def demo() -> Any:
    sys.path.insert(0, str(DEMO))
    try:
        import run

        yield run
    finally:
        sys.path.remove(str(DEMO))


@pytest.fixture(scope="module")
def draw(demo: Any) -> Draw:
    return demo.draw_phrases()


def test_draw_is_the_one_that_figures_refer_to(draw: Draw) -> None:
    assert (len(draw.names), len(draw.train), len(draw.test)) == (29_712, 37_550, 2_018)
    assert set(draw.test.codes) <= set(draw.train.codes)


def test_every_level_has_its_top_k(demo: Any, draw: Draw) -> None:
    for part, settings in ((draw, demo.SETTINGS), (draw.beginning_with(demo.FEWER_CHAPTERS), demo.FEWER_SETTINGS)):
        num_labels, num_documents = len(part.names), len(part.train)
        sizes = Sizes(num_labels, num_documents, 1.0, num_documents / num_labels, 6, "mean", on_gpu=False)
        clusters = recipe("auto", sizes).model.clusters
        assert len(settings["predict.top_k"]) == len(clusters)
        assert all(k <= count for k, count in zip(settings["predict.top_k"], clusters, strict=True))


def test_questions_are_new(demo: Any, draw: Draw) -> None:
    known = {text.lower() for text in (*draw.train.texts, *draw.test.texts)}
    assert known.isdisjoint(demo.QUESTIONS)
