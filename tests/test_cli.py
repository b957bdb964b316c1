"""The commands as a user types them: one small corpus through all of them, and every mistake with its sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
from scipy.sparse import load_npz

from cascadexml import cli

SMALL = [
    "--set", "train.epochs=2", "--set", "train.warmup=0.2", "--set", "train.anneal=1", "--set", "train.batch_size=16",
    "--max-tokens", "32", "--device", "cpu",
]  # fmt: skip


class Ran:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def go(*arguments: object) -> Ran:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["cascadexml", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Ran(code, captured.out, captured.err)

    return go


def write_data(folder: Path, num_documents: int = 320, num_labels: int = 12) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    texts, labels = tiny.texts_and_labels(num_documents, num_labels)
    cut = num_documents * 3 // 4
    for part, rows in (("train", slice(0, cut)), ("test", slice(cut, None))):
        (folder / f"{part}_texts.txt").write_text("".join(f"{t}\n" for t in texts[rows]))
        (folder / f"{part}_labels.txt").write_text("".join(" ".join(ls) + "\n" for ls in labels[rows]))
    names = sorted({label for of_text in labels for label in of_text})
    (folder / "labels.tsv").write_text("".join(f"{name}\tname of {name}\n" for name in names))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def data(folder: Path) -> Path:
    return write_data(folder / "data")


@pytest.fixture(scope="module")
def model(folder: Path, data: Path, encoder: str) -> Path:
    """Trained by the command itself, once."""
    output = folder / "model"
    before = sys.argv
    sys.argv = ["cascadexml", "train", str(data), "-o", str(output), "--encoder", encoder, *SMALL]
    try:
        cli.main()
    except SystemExit as ended:
        assert not ended.code
    finally:
        sys.argv = before
    return output


def test_train_writes_a_model_and_its_log(model: Path) -> None:
    assert {"config.json", "labels.txt", "label_names.txt", "cascadexml.json"} <= {f.name for f in model.iterdir()}
    left = {file.name for file in (model.parent / "model.run").iterdir()}
    assert "log.jsonl" in left and "checkpoint.safetensors" not in left
    events = [json.loads(line) for line in (model.parent / "model.run" / "log.jsonl").read_text().splitlines()]
    assert [event["epoch"] for event in events if event["event"] == "epoch"] == [1.0, 2.0]


def test_prepared_folder_trains_evaluates_and_encodes(run, folder: Path, data: Path, encoder: str) -> None:
    prepared, output = folder / "prepared", folder / "from-prepared"
    ran = run("prepare", data, "-o", prepared, "--encoder", encoder, "--max-tokens", 32)
    assert ran.code == 0 and "labels per document" in ran.err and "texts cut at 32 tokens" in ran.err
    assert (prepared / "labels.txt").read_text().count("\n") == 12
    small = [word for word in SMALL if word not in ("--max-tokens", "32")]
    ran = run("train", prepared, "-o", output, *small)
    assert ran.code == 0, ran.err
    assert "P@1/3/5" in ran.out and "known labels" in ran.out and "all labels" in ran.out
    evaluated = run("evaluate", output, prepared, "--json", folder / "report.json", "--device", "cpu")
    assert evaluated.out == ran.out
    report = json.loads((folder / "report.json").read_text())
    assert set(report["conventions"]) == {"known labels", "all labels"}
    encoded = run("encode", output, prepared, "-o", folder / "vectors", "--device", "cpu")
    assert encoded.code == 0
    vectors = np.load(folder / "vectors" / "test" / "level-1.npy")
    assert vectors.dtype == np.float16 and vectors.shape == (80, 16) and np.isfinite(vectors).all()


def test_predict_answers_every_row_in_order(run, model: Path, folder: Path) -> None:
    lines = folder / "some.txt"
    lines.write_text("first document\n\nthird document\n")
    answers = folder / "answers.jsonl"
    assert run("predict", model, lines, "-o", answers, "--top-k", 3).code == 0
    rows = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [row["row"] for row in rows] == [0, 1, 2]
    assert all(len(row["labels"]) == 3 for row in rows)
    assert rows[0]["labels"][0]["name"] == f"name of {rows[0]['labels'][0]['id']}"
    assert run("predict", model, lines, "-o", folder / "answers.npz", "--top-k", 3).code == 0
    matrix = load_npz(folder / "answers.npz")
    assert matrix.shape == (3, 12) and matrix.nnz == 9
    table = run("predict", model, lines)
    assert table.code == 0 and "name of" in table.out


def test_predict_keeps_the_id_column(run, model: Path, folder: Path) -> None:
    given = folder / "given.jsonl"
    given.write_text('{"id": "a-7", "text": "one"}\n{"id": "b-9", "text": ""}\n')
    assert run("predict", model, given, "-o", folder / "with-ids.jsonl").code == 0
    rows = [json.loads(line) for line in (folder / "with-ids.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == ["a-7", "b-9"]


def test_threshold_leaves_low_scores_out(run, model: Path, data: Path, folder: Path) -> None:
    for threshold in ("auto", "1.1"):
        assert run("predict", model, data, "-o", folder / "sets.jsonl", "--threshold", threshold).code == 0
        assert len((folder / "sets.jsonl").read_text().splitlines()) == 80
    assert all(not json.loads(line)["labels"] for line in (folder / "sets.jsonl").read_text().splitlines())


def test_predictions_of_any_system_score_as_the_model_does(run, model: Path, data: Path, folder: Path) -> None:
    assert run("predict", model, data, "-o", folder / "all.npz", "--top-k", 12).code == 0
    own = run("evaluate", model, data, "--json", folder / "own.json")
    other = run("evaluate", data, "--predictions", folder / "all.npz", "--json", folder / "other.json")
    assert own.code == other.code == 0
    figures = [json.loads((folder / f"{n}.json").read_text())["conventions"]["known labels"] for n in ("own", "other")]
    assert figures[0]["P@1"] == pytest.approx(figures[1]["P@1"])
    assert figures[0]["PSP@5"] == pytest.approx(figures[1]["PSP@5"])


def test_info_and_recipes(run, model: Path) -> None:
    info = run("info", model)
    assert info.code == 0 and "labels: 12" in info.out and "recipe auto" in info.out
    assert "amazon-670k" in run("recipes").out
    assert "top_k=[128,256,401]" in run("recipes", "amazon-670k").out
    assert run("--version").out.strip()


def test_one_file_with_a_hold_out(run, encoder: str, tmp_path: Path) -> None:
    texts, labels = tiny.texts_and_labels(60, 6)
    file = tmp_path / "all.jsonl"
    file.write_text(
        "".join(json.dumps({"title": t, "body": "x", "tags": ls}) + "\n" for t, ls in zip(texts, labels, strict=True))
    )
    arguments = ["--text-column", "title,body", "--label-column", "tags", "--hold-out", "0.2", "--encoder", encoder]
    ran = run("train", file, "-o", tmp_path / "model", *arguments, *SMALL)
    assert ran.code == 0 and "P@1/3/5" in ran.out


def test_a_run_that_failed_before_its_first_checkpoint_is_begun_anew(
    run, data: Path, encoder: str, tmp_path: Path
) -> None:
    arguments = ["train", data, "-o", tmp_path / "model", "--encoder", encoder, *SMALL]
    too_many = ["--set", "model.clusters=[64]", "--set", "model.top_k=[8]", "--set", "model.layers=[[2],[2]]"]
    too_many += ["--set", "model.dropout=[0,0]", "--set", "model.passengers=[true,false]"]
    ran = run(*arguments, *too_many, "--set", 'model.start=["random","random"]')
    assert ran.code == 2 and "at most 8 fit" in ran.err
    assert run(*arguments).code == 0


def test_refit_and_no_validation(run, data: Path, encoder: str, tmp_path: Path) -> None:
    for option in ("--refit", "--no-validation"):
        ran = run("train", data, "-o", tmp_path / option, "--encoder", encoder, option, *SMALL)
        assert ran.code == 0 and "P@1/3/5" in ran.out, ran.err


def test_existing_model_is_refused(run, model: Path, data: Path, encoder: str) -> None:
    before = (model / "cascadexml.json").read_text()
    ran = run("train", data, "-o", model, "--encoder", encoder, *SMALL)
    assert ran.code == 2 and "--overwrite" in ran.err
    assert "nothing to resume" in run("train", data, "-o", model, "--resume", *SMALL).err
    assert (model / "cascadexml.json").read_text() == before


MISTAKES = {
    "no such data": (["train", "NOWHERE", "-o", "OUT"], "NOWHERE"),
    "unknown recipe": (["train", "DATA", "-o", "OUT", "--recipe", "amazon-670"], "amazon-670k"),
    "unknown field": (["train", "DATA", "-o", "OUT", "--set", "train.epoch=3"], "train.epochs"),
    "not an assignment": (["train", "DATA", "-o", "OUT", "--set", "train.epochs"], "room.field=value"),
    "wrong value": (["train", "DATA", "-o", "OUT", "--set", "train.epochs=many"], "a number"),
    "clusters no power of two": (["train", "DATA", "-o", "OUT", *["--set", "model.clusters=[3]"]], "model."),
    "unknown device": (["train", "DATA", "-o", "OUT", "--device", "tpu"], "expected cpu"),
    "resume and overwrite": (["train", "DATA", "-o", "OUT", "--resume", "--overwrite"], "one of them"),
    "nothing to resume": (["train", "DATA", "-o", "OUT", "--resume"], "no run to resume"),
    "bad shard size": (["train", "DATA", "-o", "OUT", "--shard-size", "much"], "500M"),
    "no such encoder": (["train", "DATA", "-o", "OUT", "--encoder", "./missing"], "no such folder"),
    "encoder reads less": (["prepare", "DATA", "-o", "OUT", "--max-tokens", "100000"], "at most"),
    "no room for a token": (["prepare", "DATA", "-o", "OUT", "--max-tokens", "2"], "special tokens"),
    "predict with no model": (["predict", "DATA", "-"], "not a model folder"),
    "output of no known kind": (["predict", "MODEL", "DATA", "-o", "out.csv"], ".jsonl or .npz"),
    "output nowhere": (["predict", "MODEL", "DATA", "-o", "no/such/out.npz"], "no folder"),
    "threshold of no number": (["predict", "MODEL", "DATA", "--threshold", "high"], "a number or auto"),
    "evaluate without data": (["evaluate", "MODEL"], "evaluate MODEL DATA"),
    "model as data": (["evaluate", "MODEL", "MODEL"], "model folder"),
    "no such part": (["evaluate", "MODEL", "DATA", "--part", "dev"], "has train, test"),
    "no such predictions": (["evaluate", "DATA", "--predictions", "none.npz"], "none.npz"),
    "info of data": (["info", "DATA"], "not a model folder"),
    "unknown command": (["trian", "DATA"], "trian"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_end_in_one_clear_sentence(
    run, mistake: str, model: Path, data: Path, encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words, expected = MISTAKES[mistake]
    places = {"DATA": str(data), "MODEL": str(model), "OUT": str(tmp_path / "out")}
    arguments = [places.get(word, word) for word in words]
    if words[0] in ("train", "prepare") and "--encoder" not in words:
        arguments += ["--encoder", encoder]
    ran = run(*arguments)
    assert ran.code != 0
    assert expected in " ".join(ran.err.split()), ran.err
    assert not (tmp_path / "out").exists()


def test_truncated_and_foreign_models_are_refused(run, model: Path, data: Path, tmp_path: Path) -> None:
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    ran = run("predict", broken, data)
    assert ran.code == 2 and "model.safetensors has 1000 bytes" in ran.err
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text("{}")
    assert "not a model folder" in run("predict", other, data).err


def test_texts_and_labels_that_do_not_match(run, encoder: str, tmp_path: Path) -> None:
    folder = write_data(tmp_path / "data")
    labels = folder / "train_labels.txt"
    labels.write_text("".join(labels.read_text().splitlines(keepends=True)[:-2]))
    ran = run("train", folder, "-o", tmp_path / "out", "--encoder", encoder)
    assert ran.code == 2 and "train_labels.txt" in ran.err and "240" in ran.err and "238" in ran.err
