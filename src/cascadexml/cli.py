"""The commands. A user's mistake ends in one clear sentence and a non-zero exit, never in a traceback."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cascadexml import __version__
from cascadexml.runlog import say

if TYPE_CHECKING:
    from cascadexml.prepared import Prepared

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Matches texts to the right few of thousands or millions of labels.",
)

DATA = "A folder (train_texts.txt, train_labels.txt, optionally dev_*, test_*, labels.tsv) or a file of any format."
Data = Annotated[Path, typer.Argument(help=DATA, show_default=False)]
DataOrPrepared = Annotated[Path, typer.Argument(help=f"{DATA} Or a prepared folder.", show_default=False)]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.", show_default=False)]
Encoder = Annotated[str | None, typer.Option(help="minilm (packaged), a Hugging Face encoder's folder, or a hub name.")]
Seed = Annotated[int, typer.Option(help="Decides every random choice.", min=0)]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; a GPU where there is one unless given.")]
LabelSeparator = Annotated[
    str | None, typer.Option(help="Between labels of a line; TAB where a line has one, else spaces.")
]
TextColumn = Annotated[str | None, typer.Option("--text-column", "-x", help="Columns of text, joined: title,body.")]
LabelColumn = Annotated[str | None, typer.Option("--label-column", "-y", help="Column of labels.")]
IdColumn = Annotated[str | None, typer.Option(help="Column of the documents' own ids.")]
AllLabels = Annotated[bool, typer.Option("--all-labels", help="Labels that only labels.tsv names count too.")]
HoldOut = Annotated[float, typer.Option(help="Share of the documents that becomes the test part.", min=0.0, max=0.99)]
MaxTokens = Annotated[int | None, typer.Option(help="Tokens kept of a text, special ones included.", min=1)]
Validation = Annotated[
    bool,
    typer.Option("--validation/--no-validation", help="Hold documents out to choose by, where there is no dev part."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]


def main() -> None:
    """The console script."""
    try:
        app(standalone_mode=False)
    except typer.Abort:
        sys.exit(130)
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
    except KeyboardInterrupt:
        _fail("stopped", 130)
    except BrokenPipeError:
        # the reader of a pipe left; what it wanted it has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except Exception as error:
        if os.environ.get("CASCADEXML_DEBUG"):
            raise
        _report(error)


def _report(error: Exception) -> None:
    from click import ClickException

    if isinstance(error, ClickException):
        error.show()
        sys.exit(error.exit_code)
    if type(error).__name__ == "Stopped":
        _fail(str(error), 130)
    if isinstance(error, ValueError | OSError | ImportError):
        _fail(f"error: {error}", 2)
    _fail(f"error: {type(error).__name__}: {error}\nThis is a fault of CascadeXML; CASCADEXML_DEBUG=1 shows where.", 1)


def _fail(text: str, code: int) -> None:
    print(text, file=sys.stderr)
    sys.exit(code)


@app.command("prepare")
def prepare_command(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="The prepared folder to write.")],
    encoder: Encoder = None,
    max_tokens: MaxTokens = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    hold_validation: Validation = True,
    label_separator: LabelSeparator = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
    all_labels: AllLabels = False,
    hold_out: HoldOut = 0.0,
) -> None:
    """Reads, tokenises and clusters once: everything that training needs, small enough to send to another machine."""
    from cascadexml.folders import refuse_existing
    from cascadexml.prepared_folder import KIND, save_prepared
    from cascadexml.preparing_command import read_and_prepare, read_options

    refuse_existing(output, KIND, overwrite)
    options = read_options(label_separator, text_column, label_column, id_column, all_labels, hold_out, seed)
    prepared = read_and_prepare(
        data, options, encoder or "minilm", max_tokens, seed, refit=True, hold_out=hold_validation
    )
    save_prepared(prepared, output, overwrite)
    size = sum(file.stat().st_size for file in output.rglob("*") if file.is_file())
    say(f"{output}: {size / 2**20:.1f} MiB. Next: cascadexml train {output} -o MODEL")


@app.command("train")
def train_command(
    data: DataOrPrepared,
    output: Annotated[Path, typer.Option("--output", "-o", help="The model folder to write.")],
    recipe: Annotated[str, typer.Option(help="auto, or one that `cascadexml recipes` lists.")] = "auto",
    encoder: Encoder = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="room.field=value overrides the recipe.")] = None,
    max_tokens: MaxTokens = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    overwrite: Overwrite = False,
    refit: Annotated[bool, typer.Option("--refit", help="Train again on everything with the settings chosen.")] = False,
    hold_validation: Validation = True,
    seed: Seed = 0,
    device: Device = None,
    shard_size: Annotated[str, typer.Option(help="Largest weight file, e.g. 500M or 4G.")] = "4G",
    label_separator: LabelSeparator = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
    all_labels: AllLabels = False,
    hold_out: HoldOut = 0.0,
) -> None:
    """Trains a model, shows how good it is on the test part, and writes its folder."""
    from cascadexml.config import parse_settings
    from cascadexml.preparing_command import read_and_prepare, read_options, refuse_with_prepared
    from cascadexml.training_command import TrainingCommand, parse_size

    options = read_options(label_separator, text_column, label_column, id_column, all_labels, hold_out, seed)
    asked = parse_settings(settings or [])
    if max_tokens is not None:
        asked.setdefault("model.max_tokens", str(max_tokens))
    command = TrainingCommand(
        output=output,
        recipe=recipe,
        encoder=encoder,
        settings=asked,
        resume=resume,
        overwrite=overwrite,
        refit=refit,
        seed=seed,
        device=device,
        shard_size=parse_size(shard_size),
    )
    command.check()

    def prepared() -> Prepared:
        from cascadexml.folders import is_folder
        from cascadexml.prepared_folder import KIND, load_prepared

        if is_folder(data, KIND):
            fixed: dict[str, Any] = {
                "hold-out": hold_out,
                "all-labels": all_labels,
                "no-validation": not hold_validation,
            }
            fixed |= {"label-separator": label_separator, "text-column": text_column, "label-column": label_column}
            refuse_with_prepared(fixed)
            return load_prepared(data)
        limit = max_tokens or command.max_tokens()
        return read_and_prepare(data, options, encoder or "minilm", limit, seed, refit=refit, hold_out=hold_validation)

    command.run(prepared())


@app.command("predict")
def predict_command(
    model: ModelFolder,
    documents: Annotated[
        str, typer.Argument(metavar="INPUT", help="A file of any format, a folder, or - (lines of standard input).")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="OUT.jsonl or OUT.npz; a table without it.")
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", help="Labels a document.", min=1)] = 5,
    threshold: Annotated[
        str | None, typer.Option(help="Only labels that score at least so much; auto: as chosen on validation.")
    ] = None,
    device: Device = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
) -> None:
    """Answers every document with its best labels, in the order of the input."""
    from cascadexml.answers import check_output, write_answers
    from cascadexml.classifier import CascadeXML, above
    from cascadexml.corpus import read_documents
    from cascadexml.preparing_command import read_options

    check_output(output)
    classifier = CascadeXML.load(model, device=device)
    limit = classifier.threshold(_number_or_word(threshold))
    read = read_documents(documents, read_options(None, text_column, None, id_column, False, 0.0, 0))
    for note in read.notes:
        say(note)
    write_answers(above(classifier.answer(read.texts, top_k), limit), read, classifier.model.labels, output)


@app.command("evaluate")
def evaluate_command(
    first: Annotated[Path, typer.Argument(metavar="MODEL|DATA", help="A model folder; or data, with --predictions.")],
    data: Annotated[Path | None, typer.Argument(metavar="DATA", help="Data or a prepared folder.")] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="Scores of any system: CSR .npz, columns as in labels.txt.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the report here.")] = None,
    part: Annotated[str | None, typer.Option(help="train, dev or test; test unless given, else dev.")] = None,
    device: Device = None,
    label_separator: LabelSeparator = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    all_labels: AllLabels = False,
) -> None:
    """Scores a model, or anybody's predictions, on labelled documents."""
    from cascadexml.evaluation_command import evaluate_file, evaluate_model
    from cascadexml.preparing_command import read_options

    options = read_options(label_separator, text_column, label_column, None, all_labels, 0.0, 0)
    if predictions is not None:
        if data is not None:
            raise ValueError("evaluate takes DATA --predictions FILE.npz, or MODEL DATA: leave one of them out")
        report = evaluate_file(first, predictions, options, part)
    elif data is None:
        raise ValueError(f"evaluate {first}: name the data too (evaluate MODEL DATA), or give --predictions FILE.npz")
    else:
        report = evaluate_model(first, data, options, part, device)
    print(report.table())
    if json_file is not None:
        json_file.write_text(report.to_json(), encoding="utf-8")


@app.command("encode")
def encode_command(
    model: ModelFolder,
    data: DataOrPrepared,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")],
    overwrite: Overwrite = False,
    device: Device = None,
    label_separator: LabelSeparator = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
) -> None:
    """Writes the vector of every document that each level reads: PART/level-1.npy, ..., fp16, rows in input order."""
    from cascadexml.evaluation_command import encode_parts
    from cascadexml.preparing_command import read_options

    options = read_options(label_separator, text_column, label_column, None, False, 0.0, 0)
    for line in encode_parts(model, data, output, options, overwrite, device):
        say(line)


@app.command("info")
def info_command(model: ModelFolder) -> None:
    """Says what a model folder holds."""
    from cascadexml.evaluation_command import model_lines

    for line in model_lines(model):
        print(line)


@app.command("recipes")
def recipes_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show every field of this one.")] = None,
    labels: Annotated[int, typer.Option(help="Number of labels that `auto` should plan for.", min=1)] = 30938,
    documents: Annotated[int, typer.Option(help="Training documents that it should plan for.", min=1)] = 14146,
    labels_per_document: Annotated[float, typer.Option(help="Mean labels a document.", min=0.01)] = 18.64,
    depth: Annotated[int, typer.Option(help="Layers of the encoder.", min=1)] = 12,
) -> None:
    """Lists the recipes, or shows one in full."""
    from cascadexml.evaluation_command import recipe_lines

    for line in recipe_lines(name, labels, documents, labels_per_document, depth):
        print(line)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Show the version.", is_eager=True)] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def _number_or_word(value: str | None) -> float | str | None:
    if value is None or value == "auto":
        return value
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"--threshold {value}: expected a number or auto") from None


if __name__ == "__main__":
    main()
