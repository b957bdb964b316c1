"""One thread of arithmetic, no network, and a cache of the run's own; set before anything imports torch or numba."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cascadexml.prepared import Prepared

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# the label tree is built by one worker and by two, whatever the machine has
os.environ["NUMBA_NUM_THREADS"] = "2"

# `tiny` brings torch and transformers, which the tests of the readers do without: it is imported where it is used


@pytest.fixture(scope="session", autouse=True)
def _cache_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["CASCADEXML_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random BERT of two layers, with dropout."""
    import tiny

    return tiny.save_encoder(tmp_path_factory.mktemp("bert"), "bert", dropout=0.1)


@pytest.fixture(scope="session")
def data(encoder: str) -> Prepared:
    """240 documents of 24 labels; 24 are held out to choose by."""
    import tiny

    return tiny.prepared(encoder)


@pytest.fixture(scope="session")
def few(encoder: str) -> Prepared:
    """60 documents of 12 labels, without a validation split."""
    import tiny

    return tiny.prepared(encoder, tiny.corpus(60, 12))
