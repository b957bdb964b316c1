"""ICD-10-CM as phrases and codes: the package simple-icd-10-cm comes in, a draw of train and test goes out.

A code's description, and four fifths of its inclusion terms (synonyms), are trained on; the other terms are the test.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import simple_icd_10_cm

SIZES = {"codes": 29_712, "train": 37_550, "test": 2_018}
"""of the draw, with simple-icd-10-cm 1.5.0"""
SHARE_HELD_OUT = 0.2
LEFT_OUT_LETTERS = "STUVWXY"
"""injuries and external causes: tens of thousands of codes that differ in little but side and encounter"""
MAX_LETTERS = 6


@dataclass(frozen=True)
class Phrases:
    """Clinical phrases, and the code of each."""

    texts: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.texts)

    def append(self, text: str, code: str) -> None:
        self.texts.append(text)
        self.codes.append(code)

    def beginning_with(self, letters: Container[str]) -> Phrases:
        pairs = [pair for pair in zip(self.texts, self.codes, strict=True) if pair[1][0] in letters]
        return Phrases([text for text, _ in pairs], [code for _, code in pairs])


@dataclass(frozen=True)
class Draw:
    """Phrases to train on and phrases held out, both in the order of the codes."""

    train: Phrases
    test: Phrases
    names: dict[str, str]
    """code -> description"""

    def beginning_with(self, letters: Container[str]) -> Draw:
        """The same draw on fewer chapters: codes whose first letter is one of `letters`."""
        names = {code: name for code, name in self.names.items() if code[0] in letters}
        return Draw(self.train.beginning_with(letters), self.test.beginning_with(letters), names)


def draw_phrases() -> Draw:
    """The draw that published figures refer to: one random number an inclusion term, in the order of the codes."""
    generator = np.random.default_rng(0)
    train, test, names = Phrases(), Phrases(), {}
    for code in _codes():
        names[code] = _one_line(simple_icd_10_cm.get_description(code))
        train.append(names[code], code)
        for term in simple_icd_10_cm.get_inclusion_term(code):
            part = test if generator.random() < SHARE_HELD_OUT else train
            part.append(_one_line(term), code)
    sizes = {"codes": len(names), "train": len(train), "test": len(test)}
    if sizes != SIZES:
        raise ValueError(f"The draw has {sizes}, not {SIZES}: install simple-icd-10-cm==1.5.0")
    return Draw(train, test, names)


def _codes() -> list[str]:
    # a category that is also a block of one (B20, C50) counts as a block
    return [
        code
        for code in simple_icd_10_cm.get_all_codes(with_dots=True)
        if not simple_icd_10_cm.is_chapter_or_block(code)
        and code[0] not in LEFT_OUT_LETTERS
        and len(code.replace(".", "")) <= MAX_LETTERS
    ]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def write_folder(draw: Draw, folder: Path) -> None:
    """The draw in the form that every `cascadexml` command reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, phrases in (("train", draw.train), ("test", draw.test)):
        _write_lines(folder / f"{part}_texts.txt", phrases.texts)
        _write_lines(folder / f"{part}_labels.txt", phrases.codes)
    _write_lines(folder / "labels.tsv", [f"{code}\t{name}" for code, name in draw.names.items()])


def _write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write_folder(draw_phrases(), Path(__file__).parent / "data")
