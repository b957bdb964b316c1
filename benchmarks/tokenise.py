"""Tokens a second of the TokenStore beside the raw tokenizer library on the same texts, in one run."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

from rows import add_row

from cascadexml.encoder import load_tokenizer
from cascadexml.texts import Texts
from cascadexml.tokens import CHUNK, Tokenizer, tokenise


def raw(texts: Texts, tokenizer: Tokenizer) -> None:
    """The library alone, its ids thrown away."""
    for chunk in texts.chunks(CHUNK):
        tokenizer.backend.encode_batch_fast(chunk, add_special_tokens=False)


def seconds(run: object, *arguments: object) -> float:
    began = time.perf_counter()
    run(*arguments)  # type: ignore[operator]
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", type=Path, help="one document a line")
    parser.add_argument("--limit", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    texts = Texts.load_lines(options.texts)
    tokenizer = load_tokenizer("minilm")
    ours, library = [], []
    for _ in range(options.repeats):
        library.append(seconds(raw, texts, tokenizer))
        ours.append(seconds(tokenise, texts, tokenizer, options.limit))
    # documents a second, so that more is better
    rates = [len(texts) / median(times) for times in (ours, library)]
    add_row(f"tokenise {len(texts)} texts", "documents/s (baseline: raw library)", *rates, ["tokenizers", "numpy"])


if __name__ == "__main__":
    main()
