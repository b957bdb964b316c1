"""What `cascadexml train` does with Prepared: plans, trains, saves, and shows how good the model is."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cascadexml.folders import refuse_existing
from cascadexml.runlog import say

if TYPE_CHECKING:
    from cascadexml.prepared import Prepared

MODEL_KIND = "model"
NEEDED_TO_RESUME = ("checkpoint.safetensors", "chosen.json")
"""what a run that was stopped leaves in its folder"""


@dataclass(frozen=True)
class TrainingCommand:
    """What the user asked for."""

    output: Path
    recipe: str = "auto"
    encoder: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    resume: bool = False
    overwrite: bool = False
    refit: bool = False
    seed: int = 0
    device: str | None = None
    shard_size: int = 4 << 30

    @property
    def run_folder(self) -> Path:
        """Checkpoints and logs, beside the model."""
        return self.output.parent / f"{self.output.name}.run"

    def check(self) -> None:
        """Everything that can be refused before the data are read."""
        from cascadexml.config import check_settings
        from cascadexml.devices import pick_device
        from cascadexml.recipes import check_name

        pick_device(self.device)
        check_name(self.recipe)
        check_settings(self.settings)
        if self.resume and self.overwrite:
            raise ValueError("--resume goes on with a run, --overwrite begins anew: give one of them")
        under_way = any((self.run_folder / name).exists() for name in NEEDED_TO_RESUME)
        if self.resume:
            if self.output.exists() and not under_way:
                raise ValueError(f"{self.output} is finished: there is nothing to resume; --overwrite trains it anew")
            if not under_way:
                raise ValueError(f"there is no run to resume in {self.run_folder}: leave --resume out to begin one")
            return
        refuse_existing(self.output, MODEL_KIND, self.overwrite)
        if under_way and not self.overwrite:
            raise ValueError(
                f"{self.run_folder} holds an unfinished run: go on with --resume, or begin anew with --overwrite"
            )

    def max_tokens(self) -> int | None:
        """Tokens to keep of each text where nothing was prepared: as many as recipe and settings ask for."""
        from cascadexml.recipes import PAPER

        asked = self.settings.get("model.max_tokens")
        if asked is not None and str(asked).isdigit():
            return max(1, int(asked))
        return PAPER[self.recipe].max_tokens if self.recipe in PAPER else None

    def run(self, prepared: Prepared) -> None:
        from cascadexml.choose import share_scored
        from cascadexml.classifier import CascadeXML
        from cascadexml.devices import pick_device
        from cascadexml.fit import fit, plan
        from cascadexml.runlog import RunLog

        chosen = plan(prepared, self.recipe, self.encoder, self.settings, pick_device(self.device), self.seed)
        for line in config_lines(chosen.config.to_dict()):
            say(line)
        if not self.resume and self.run_folder.exists():
            shutil.rmtree(self.run_folder)
        self.run_folder.mkdir(parents=True, exist_ok=True)
        if not self.resume:
            settings = json.dumps(chosen.config.to_dict(), indent=1)
            (self.run_folder / "run.json").write_text(settings, encoding="utf-8")
        log = RunLog(self.run_folder)
        try:
            done = fit(prepared, chosen, run=self.run_folder, resume=self.resume, refit=self.refit, log=log)
        finally:
            log.close()
        classifier = CascadeXML(done.model, done.about)
        classifier.save(self.output, overwrite=self.overwrite or self.resume, shard_size=self.shard_size)
        _end_run(self.run_folder)
        say(
            f"trained in {done.seconds:,.0f} s ({done.documents_per_second:,.0f} documents/s, "
            f"{done.peak_memory / 2**30:.1f} GiB)"
        )
        if done.choice is not None:
            kept = "/".join(map(str, done.choice.predict.top_k)) or "none, all labels are scored"
            say(
                f"on validation, {chosen.config.train.metric}: {done.choice.by_cascade:.2f} by cascade "
                f"(top-k {kept}; rank {done.choice.predict.rank}; "
                f"{share_scored(done.model):.1f}% of the labels scored), "
                f"{done.choice.over_all_labels:.2f} over all labels"
            )
        self._show_test(classifier, prepared)
        say(f"{self.output} is ready: cascadexml predict {self.output} INPUT")

    def _show_test(self, classifier: Any, prepared: Prepared) -> None:
        part = prepared.parts.get("test")
        if part is None:
            say("there is no test part, so nothing is scored; evaluate it with: cascadexml evaluate MODEL DATA")
        elif not part.known.labels.nnz and not part.known.num_unknown.any():
            say("the test part has no labels, so nothing is scored")
        else:
            print(classifier.evaluate_part(part).table())


def config_lines(config: dict[str, Any]) -> list[str]:
    """A configuration as the lines that --set would take."""
    lines = [f"recipe {config['recipe']}:"]
    for room in ("model", "train", "predict"):
        fields = " ".join(f"{name}={json.dumps(value, separators=(',', ':'))}" for name, value in config[room].items())
        lines.append(f"  {room}: {fields}")
    return lines


def parse_size(text: str) -> int:
    """`500M` as bytes."""
    match = re.fullmatch(r"(\d+)\s*([KMGT]?)i?B?", text.strip(), flags=re.IGNORECASE)
    if match is None or not int(match[1]):
        raise ValueError(f"--shard-size {text}: expected a size such as 500M or 4G")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[match[2].upper()]


def _end_run(folder: Path) -> None:
    """The log stays; what only a resumed run needs goes."""
    for name in (*NEEDED_TO_RESUME, "run.json"):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "refit", ignore_errors=True)
