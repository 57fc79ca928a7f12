"""runtime/study.py: measured learning, resumable."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from flipbit.studies import learning as study
from tests.nets.small_nets import photos, small_image


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six samples to learn from, six to test on, two runs."""
    (tmp_path / "net.fbit").write_bytes(small_image())
    labels = np.random.default_rng(0).integers(0, 5, 12)
    np.savez(tmp_path / "data.npz", x=photos(12), y=labels)
    cells = [study.Cell("dim:2", "bias", 1, batch=6, steps=2), study.Cell("dim:2", "sr", 1, batch=3, steps=2)]
    monkeypatch.setitem(study.STUDIES, "drift", lambda quick: iter(cells))
    return tmp_path


def arguments(folder: Path) -> list[str]:
    return [
        "drift",
        str(folder / "net.fbit"),
        str(folder / "data.npz"),
        "-o",
        str(folder / "out.json"),
        "--samples",
        "6",
    ]


def test_a_stopped_study_goes_on_where_it_was(
    folder: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, calls = study.run_cell, []

    def stopping(*given: object) -> dict:
        if calls:
            raise KeyboardInterrupt
        calls.append(given)
        return run(*given)

    monkeypatch.setattr(study, "run_cell", stopping)
    assert study.main(arguments(folder)) == 130
    assert len(json.loads((folder / "out.json").read_text())["runs"]) == 1
    monkeypatch.setattr(study, "run_cell", run)
    assert study.main(arguments(folder)) == 0
    runs = json.loads((folder / "out.json").read_text())["runs"]
    assert [r["method"] for r in runs] == ["bias", "sr"]
    assert runs[0]["flips"] == 0 and 0 <= runs[1]["after"] <= 1
    assert "recovered" in capsys.readouterr().out


def test_results_of_other_data_are_not_gone_on_with(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert study.main(arguments(folder)) == 0
    saved = np.load(folder / "data.npz")
    np.savez(folder / "data.npz", x=saved["x"][::-1], y=saved["y"][::-1])
    capsys.readouterr()
    assert study.main(arguments(folder)) == 2
    said = capsys.readouterr().err
    assert "results of another study (data differ)" in said and said.count("\n") == 1
    (folder / "out.json").write_text("[]")
    assert study.main(arguments(folder)) == 2


def test_the_same_seed_gives_the_same_result(folder: Path) -> None:
    data = study.load_data(str(folder / "data.npz"), (9, 8, 3), [])
    cell = study.Cell("noise:1", "sr+bias", 3, batch=6, steps=2)
    first, second = (study.run_cell(cell, small_image(), data, 6) for _ in range(2))
    assert {**first, "cpu_seconds": 0} == {**second, "cpu_seconds": 0}


def test_a_missing_data_set_is_named(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert study.main(["drift", str(folder / "net.fbit"), str(folder / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err


def test_a_study_of_batches_is_drawn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    cells = [study.Cell("dim:2", "sr", s, 6, 1) for s in (1, 2)] + [study.small_batch("dim:2", 1, 2, f) for f in (0, 1)]
    monkeypatch.setitem(study.STUDIES, "batch", lambda quick: iter(cells))
    assert study.main(["batch", *arguments(folder)[1:], "--plot", str(folder / "p.png")]) == 0
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG")


def test_small_batches_see_as_many_samples_and_flip_as_many_bits() -> None:
    big = study.Cell("blur:1", "sr", 1)
    for batch in (10, 50, 200):
        same_rate, same_flips = (study.small_batch("blur:1", 1, batch, f) for f in (False, True))
        assert same_rate.batch * same_rate.steps == same_flips.batch * same_flips.steps == big.batch * big.steps
        assert same_rate.job.rates.bits[0] == big.job.rates.bits[0]
        assert sum(same_flips.job.rates.bits) == pytest.approx(sum(big.job.rates.bits), rel=0.06)


def a_run(method: str, seed: int, drift: str, after: float) -> dict:
    return {**study.asdict(study.Cell(drift, method, seed)), "clean": 0.8, "before": 0.4, "after": after, "flips": None}


def test_the_summary_has_means_over_changes_with_the_spread_of_seeds() -> None:
    runs = [a_run("bias", 1, "dim:2", 0.8), a_run("bias", 1, "blur:2", 0.6), a_run("bias", 2, "dim:2", 0.6),
            a_run("bias", 2, "blur:2", 0.4), a_run("bias", 1, "blur:1", 0.1)]  # fmt: skip
    head, _, row = study.summary(runs).splitlines()
    assert head.split() == ["method", "batch", "rate", "dim:2", "blur:2", "mean"]
    assert row.split("  ")[-1].strip() == "50 ± 35.4 %"  # of 75 and 25
    assert "0.1" not in row


def test_files_for_a_new_class_are_made(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("sklearn")
    assert study.main(["personalise", "--make", str(tmp_path / "no7")]) == 0
    known, field = (np.load(tmp_path / "no7" / f"{name}.npz") for name in ("known", "field"))
    assert 7 not in known["y_train"] and 7 not in known["y_test"] and len(known["x_train"]) == len(known["y_train"])
    assert np.bincount(field["y"][:200]).tolist() == [20] * 10 and 7 in field["y"][200:]


@pytest.mark.parametrize(
    "wrong",
    [
        ["--samples", "12"],
        ["--samples", "0"],
        ["--part", "2/2"],
        ["--part", "x"],
        ["--plot", "p.png"],
    ],
)
def test_arguments_that_make_no_sense_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture, wrong: list[str]
) -> None:
    assert study.main([*arguments(folder), *wrong]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (folder / "out.json").exists()


def test_a_missing_image_and_a_folder_that_cannot_be_written_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture
) -> None:
    missing = arguments(folder)
    missing[1] = str(folder / "none.fbit")
    assert study.main(missing) == 2
    unwritable = [*arguments(folder)[:4], str(folder / "no folder" / "out.json"), "--samples", "6"]
    assert study.main(unwritable) == 2
    assert capsys.readouterr().err.count("error:") == 2
