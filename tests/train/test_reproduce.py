"""train/reproduce.py: every experiment end to end on tiny grids, stopping and going on, and wrong input.

A few epochs on a few hundred digits show no claim of the paper; what is tested is that the machinery computes,
compares and says what it found.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flipbit.train import loop, reproduce
from flipbit.train.bits.quantizers import Grid
from flipbit.train.commands import reproduce as command
from flipbit.train.commands.reproduce import TRAINED, parser
from flipbit.train.experiments import batch, buffer, changes, decay, recipes, table1
from flipbit.train.experiments.grid import GridWatcher, Result, Runner, cell_name
from flipbit.train.experiments.rules import FewBits, FewBitsTrainer, RuleSettings, float_state
from flipbit.train.experiments.scales import SCALES
from flipbit.train.experiments.sign_window import WINDOW
from flipbit.train.keras_larq import tf
from flipbit.train.settings import InputError, Settings
from flipbit.train.theory.outcome import Outcome

TINY = ["--epochs", "2", "--limit", "192", "--threads", "1"]
RULES = {
    "linear": {"buffer_bits": 2, "moves": "linear", "normalize": "layer", "pace": 0.1},
    "tail": {
        "buffer_bits": 3,
        "moves": "tail",
        "normalize": "channel",
        "hysteresis": 2,
        "parts": 4,
        "grow": 2,
        "pace": 0.1,
    },
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder and the printed text of ``reproduce.py all`` on grids cut to the bone."""
    import contextlib
    import io

    folder, printed = tmp_path_factory.mktemp("all"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "THEORY", ("markov",))
        patch.setattr(table1, "SIZES", {"quick": (table1.Column("digits", "vgg-small", 1),)})
        patch.setattr(buffer, "RULES", RULES)
        patch.setattr(buffer, "BITS", (0, 2, buffer.FLOAT))
        patch.setattr(buffer, "SIZES", {"quick": replace(buffer.SIZES["quick"], other_bits=(0, buffer.FLOAT))})
        with contextlib.redirect_stdout(printed):
            assert reproduce.main(["all", "-o", str(folder), *TINY]) == 0
    return folder, printed.getvalue()


NAMES = ("markov", *TRAINED)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_each_experiment_leaves_figures_numbers_and_a_verdict(name: str, everything: tuple[Path, str]) -> None:
    folder, printed = everything
    saved = json.loads((folder / f"{name}.json").read_text())
    assert saved["name"] == name and saved["claim"] and saved["summary"] and isinstance(saved["held"], bool)
    assert saved["figures"]
    for figure in saved["figures"]:
        assert (folder / figure).read_bytes().startswith(b"\x89PNG")
    said = "the claim held" if saved["held"] else "the claim did NOT hold"
    assert f"{name}: {said}: {saved['claim']}" in printed


@pytest.mark.slow
def test_the_report_needs_nothing_from_outside(everything: tuple[Path, str]) -> None:
    folder, _ = everything
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|<script|<link|@import", page)
    sources = re.findall(r'src="([^"]*)"', page)
    figures = [f for name in NAMES for f in json.loads((folder / f"{name}.json").read_text())["figures"]]
    assert len(sources) == len(figures) > 5
    assert all(source.startswith("data:image/png;base64,iVBOR") for source in sources)
    for name in NAMES:
        assert f'id="{name}"' in page


@pytest.mark.slow
def test_experiments_share_runs_with_the_same_settings(everything: tuple[Path, str]) -> None:
    folder, _ = everything
    runs = {path.name for path in (folder / "runs").iterdir()}
    # table1 5, changes +1 (spread start), batch +3 (SR at 64, 128; BC at 256) +3 at equal steps, decay +1,
    # buffer +1 (k = 2), +4 (SGD), +2 rules.
    assert len([name for name in runs if "holdout" not in name]) == 20
    assert len([name for name in runs if "holdout" in name]) == len(recipes.recipes("quick", 2)) + 4
    assert "digits-vgg-small-w0.5-bc-b32-e2-n192" in runs


@pytest.mark.slow
def test_changes_of_r_are_nothing_at_all(everything: tuple[Path, str]) -> None:
    numbers = json.loads((everything[0] / "changes.json").read_text())["numbers"]
    assert numbers["changed_percent"]["R-ADAM"] == [0, 0]
    assert numbers["changed_percent"]["BC-ADAM"][-1] > 0


@pytest.mark.slow
def test_batches_at_equal_steps_take_about_as_many_steps(everything: tuple[Path, str]) -> None:
    numbers = json.loads((everything[0] / "batch.json").read_text())["numbers"]
    assert [run["batch"] for run in numbers["equal_steps"]] == [32, 64, 128, 256]
    for run in (*numbers["runs"], *numbers["equal_steps"]):
        assert run["steps"] == run["epochs"] * -(-192 // run["batch"])
    assert [run["epochs"] for run in numbers["equal_steps"]] == [1, 1, 1, 2]


@pytest.mark.slow
def test_rules_keep_no_float_per_weight(everything: tuple[Path, str]) -> None:
    rows = json.loads((everything[0] / "buffer.json").read_text())["numbers"]["runs"]
    bits = {row["name"]: row["bits_per_weight"] for row in rows if row["optimizer"] in ("none", "adam")}
    assert bits["linear"] == {"weight": 1, "buffer": 2, "moments": 0, "total": 3}
    assert bits["tail"] == {"weight": 1, "buffer": 3, "moments": 0, "total": 4}
    assert bits["float"]["total"] == 97 and bits["k = 2"]["total"] == 67


class _StopAt(GridWatcher):
    """Ctrl-C in the middle of the second run's second epoch."""

    runs = 0

    def run_started(self, name: str, state: str) -> None:
        self.runs += 1

    def epoch_started(self, epoch: int) -> None:
        if self.runs == 2 and epoch == WINDOW:
            raise KeyboardInterrupt


class _States(GridWatcher):
    def __init__(self) -> None:
        self.states: list[str] = []

    def run_started(self, name: str, state: str) -> None:
        self.states.append(state)


def _cells() -> list[Settings]:
    rule = {"optimizer": "sgd", "lr": 0.01, "buffer_bits": 2, "moves": "tail", "epochs": WINDOW + 2}
    return [
        SCALES["quick"].settings("bc", 0, epochs=1),
        SCALES["quick"].settings("sr", 0, RuleSettings, **rule),
        SCALES["quick"].settings("sr", 0, epochs=1),
    ]


def _measured(result: Result) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k not in ("seconds", "images_per_second")} for r in result.history]


def test_a_stopped_grid_goes_on_and_measures_the_same(tmp_path: Path) -> None:
    stopped = Runner(tmp_path / "stopped", threads=1, limit=96, watch=_StopAt())
    with pytest.raises(KeyboardInterrupt):
        stopped.run(_cells())
    stopped.watch = states = _States()
    found = stopped.run(_cells())
    assert states.states == ["kept", "resumed", "new"]
    straight = Runner(tmp_path / "straight", threads=1, limit=96).run(_cells())
    for one, other in zip(found, straight):
        assert _measured(one) == _measured(other)
    epochs, _ = found[1].window_changes()
    assert epochs == [WINDOW, WINDOW + 1, WINDOW + 2]  # the signs from before the stop were still known


def test_ctrl_c_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def stop(*_: Any) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(decay, "run", stop)
    arguments = ["decay", "-o", str(tmp_path)]
    assert reproduce.main(arguments) == 130
    assert f"go on with: python train/reproduce.py {' '.join(arguments)}" in capsys.readouterr().err


@pytest.mark.slow
def test_a_finished_experiment_is_drawn_again_without_training(
    everything: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    folder, _ = everything
    before = json.loads((folder / "decay.json").read_text())["numbers"]
    monkeypatch.setattr(loop, "train", lambda *_, **__: pytest.fail("trained again"))
    assert reproduce.main(["decay", "-o", str(folder), *TINY]) == 0
    assert json.loads((folder / "decay.json").read_text())["numbers"] == before
    assert "runs finished before: 2" in capsys.readouterr().out


def test_a_folder_with_another_run_of_that_name_is_refused(tmp_path: Path) -> None:
    settings = Settings(method="bc", net="vgg-small", epochs=1, batch=32).resolve()
    folder = tmp_path / cell_name(settings)
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"status": "finished", "settings": {**settings.to_json(), "lr": 0.5}}))
    with pytest.raises(InputError, match=r"other settings \(lr 0\.5 there, 0\.01 here\)"):
        Runner(tmp_path).run([Settings(method="bc", net="vgg-small", epochs=1, batch=32)])
    (folder / "run.json").write_text("{")
    with pytest.raises(InputError, match="not readable"):
        Runner(tmp_path).run([Settings(method="bc", net="vgg-small", epochs=1, batch=32)])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "invalid choice"),
        (["toy", "--scale", "huge"], "invalid choice"),
        (["toy", "--seed", "-1"], "--seed -1: must be"),
        (["decay", "--epochs", "0"], "--epochs 0: must be at least 1"),
        (["decay", "--limit", "0"], "--limit 0: must be at least 1"),
        (["decay", "--threads", "-2"], "--threads -2: must be at least 0"),
        (["decay", "--scale", "long"], "--scale long is for table1 alone"),
        (["decay", "--scale", "small", "--data-dir", "/nowhere"], "cifar10: not found"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input_is_explained(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    try:
        status = reproduce.main([*arguments, "-o", str(tmp_path / "out")])
    except SystemExit as stop:  # argparse's own
        status = int(stop.code or 0)
    assert status == 2
    assert said in capsys.readouterr().err


def test_a_file_in_place_of_the_folder_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "out").write_text("")
    assert reproduce.main(["toy", "-o", str(tmp_path / "out")]) == 2
    assert "is a file" in capsys.readouterr().err


def test_help_fits_a_screen() -> None:
    lines = parser().format_help().splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 110


def test_an_order_that_differs_is_named() -> None:
    column = table1.Column("cifar10", "resnet8", 1)
    errors = {(column, method): [value] for method, value in zip(table1.METHODS, (8.0, 10.0, 24.0, 23.0, 30.0))}
    assert list(table1._out_of_order([column], errors)) == ["resnet8: Big SR-ADAM (24.00) is not below SR-ADAM (23.00)"]


def test_a_column_of_two_methods_leaves_the_others_out() -> None:
    pair = table1.SIZES["long"][0]
    assert (pair.net, pair.seeds, pair.methods) == ("resnet8", 3, ("Big SR-ADAM", "SR-ADAM"))
    settings = [table1._settings(SCALES["long"], pair, method, 0).resolve() for method in pair.methods]
    assert [(s.method, s.epochs, s.batch) for s in settings] == [("sr", 60, 512), ("sr", 60, 64)]
    errors = {(pair, "Big SR-ADAM"): [30.0, 31.0], (pair, "SR-ADAM"): [29.0, 30.0]}
    assert list(table1._out_of_order([pair], errors)) == ["resnet8: Big SR-ADAM (30.50) is not below SR-ADAM (29.50)"]
    rows = [row[1] for row in table1._table([pair], errors)["rows"]]
    assert rows == ["–", "–", "30.50 ± 0.71", "29.50 ± 0.71", "–"]
    assert table1._column_numbers(pair, errors)["mean"] == {"Big SR-ADAM": 30.5, "SR-ADAM": 29.5}


def test_each_recipe_is_a_run_of_its_own(tmp_path: Path) -> None:
    cells: list[Settings] = []

    class Planned(Runner):
        def run(self, asked: Any) -> list[Result]:
            prepared = [self.prepared(settings) for settings in asked]
            cells.extend(prepared)
            history = [{"epoch": 1, "error": 0.5, "validation_error": 0.4 + 0.01 * i} for i in range(len(prepared))]
            return [Result(s, tmp_path / cell_name(s), [h], {}) for s, h in zip(prepared, history)]

    found = recipes.run("small", Planned(tmp_path), tmp_path)
    assert len(cells) == len(recipes.recipes("small", 8)) + 4  # full precision, none, and the two that start from it
    assert len({cell_name(settings) for settings in cells}) == len(cells)
    assert all(s.holdout == 0.1 and s.keep == "last" and s.net == "resnet8" and s.epochs == 8 for s in cells)
    assert not found.held and found.numbers["held_out_error"]["--standardize"] == pytest.approx(41)
    in_float = str(tmp_path / cell_name(cells[0]) / "model.h5")
    assert [s.init_from or s.teacher for s in cells[-2:]] == [in_float, in_float]


def test_paper_scale_is_the_papers_recipe() -> None:
    scale = SCALES["paper"]
    columns = {column.net: column for column in table1.SIZES["paper"] if column.data != "cifar100"}
    one = table1._settings(scale, columns["vgg9"], "SR-ADAM", 0).resolve()
    assert (one.epochs, one.lr_drops, one.lr, one.batch, one.input) == (160, (82, 122), 0.01, 128, "mean")
    for net, size in {"vgg9": 1024, "vgg-bc": 1024, "resnet56": 1024, "wrn-56-2": 512, "resnet18": 512}.items():
        assert table1._settings(scale, columns[net], "Big SR-ADAM", 0).batch == size
    image_net = table1._settings(scale, columns["resnet18"], "ADAM", 0).resolve()
    assert (image_net.epochs, image_net.lr_drops) == (90, (30, 60))
    assert (changes.NETS["paper"], batch.NETS["paper"], decay.NETS["paper"]) == ("vgg-bc", "resnet56", "vgg-bc")


# The rules without float state.


def _rule(kernel: Any, **chosen: Any) -> FewBits:
    settings: dict[str, Any] = {"moves": "linear", "pace": 0.1, "hysteresis": 0, "buffer_bits": 3} | chosen
    rule = FewBits(learning_rate=0.01, rule="buffer", grid=Grid.binary(), kernels=[kernel], **settings)
    rule.build([kernel])
    rule.start_from([kernel.read_value()])
    return rule


def _kernel(filters: int = 32) -> Any:
    return tf.Variable(np.random.default_rng(0).normal(0, 0.05, (3, 3, 32, filters)).astype(np.float32))


def _normal(shape: Any, seed: int) -> Any:
    return tf.constant(np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32))


def _moved(rule: FewBits, kernel: Any, seeds: range) -> float:
    """The share of weights that moved in the last of many steps with random gradients."""
    step = tf.function(lambda gradient: rule.apply_gradients([(gradient, kernel)]))
    for seed in seeds:
        before = rule.latent(0)
        step(_normal(kernel.shape, seed))
    return float(np.mean(before.numpy() != rule.latent(0).numpy()))


@pytest.mark.parametrize("moves", ["linear", "clipped", "tail"])
def test_the_share_of_weights_that_move_follows_the_pace(moves: str) -> None:
    kernel = _kernel()
    rule = _rule(kernel, moves=moves, pace=0.05)
    assert 0.02 < _moved(rule, kernel, range(100)) < 0.06  # some are at the end of their buffer and cannot
    rule.learning_rate = 0.005
    assert 0.012 < _moved(rule, kernel, range(100, 200)) < 0.032


def test_cooling_is_a_power_of_the_learning_rate() -> None:
    kernel = _kernel()
    rule = _rule(kernel, pace=0.2, cooling=2.0)
    rule.learning_rate = 0.005  # half, so a quarter of the pace
    assert 0.03 < _moved(rule, kernel, range(50)) < 0.06


def test_linear_moves_are_right_on_average() -> None:
    kernel = tf.Variable(tf.fill((3, 3, 64, 64), 0.01))
    rule = _rule(kernel, buffer_bits=4, pace=0.25)
    gradient = tf.where(tf.random.stateless_uniform(kernel.shape, (1, 2)) < 0.5, 0.5, 1.5)
    start = rule.latent(0)
    rule.apply_gradients([(gradient, kernel)])
    step = 2 / 31
    for size, expected in ((0.5, 0.125), (1.5, 0.375)):
        moved = tf.boolean_mask((start - rule.latent(0)) / step, gradient == size)
        assert float(tf.reduce_mean(moved)) == pytest.approx(expected, abs=0.015)


def test_a_flipped_weight_starts_at_the_distance_of_the_hysteresis() -> None:
    kernel = _kernel()
    rule = _rule(kernel, buffer_bits=3, hysteresis=3, pace=1.0)
    before = kernel.numpy() > 0
    rule.apply_gradients([(_normal(kernel.shape, 1), kernel)])
    flipped = before != (kernel.numpy() > 0)
    assert flipped.mean() > 0.1
    assert (rule.buffers[0].numpy()[flipped] == 3).all()
    assert int(rule.flips[0]) == flipped.sum()


def test_channels_are_normalised_apart() -> None:
    kernel = _kernel(filters=2)
    rule = _rule(kernel, pace=0.2, channels=True)
    for seed in range(30):
        rule.apply_gradients([(_normal(kernel.shape, seed) * tf.constant([1e-6, 1e3]), kernel)])
    quiet, loud = (float(np.mean(np.abs(rule.latent(0).numpy()[..., i]))) for i in range(2))
    assert quiet == pytest.approx(loud, rel=0.15)
    assert float_state(rule, [kernel]) == []


def test_a_batch_in_parts_has_the_gradient_of_the_whole() -> None:
    model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(3)])  # no BatchNorm: exactly equal
    model.build((None, 4, 4, 1))
    fake = SimpleNamespace(model=model, normalize=lambda images: tf.cast(images, tf.float32) / 128)
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (11, 4, 4, 1)), random.integers(0, 3, 11)
    whole = FewBitsTrainer._mean_gradients(fake, images, labels, 1)  # type: ignore[arg-type]
    parts = FewBitsTrainer._mean_gradients(fake, images, labels, 4)  # type: ignore[arg-type]
    for a, b in zip(whole, parts):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-6)


def test_a_growing_batch_doubles_from_the_first_to_the_last_epoch() -> None:
    settings = RuleSettings(method="sr", batch=32, epochs=10, grow=8)
    fake = SimpleNamespace(settings=settings)
    sizes = [FewBitsTrainer.batch_of(fake, epoch) for epoch in range(10)]  # type: ignore[arg-type]
    assert sizes[0] == 32 and sizes[-1] == 256
    assert set(sizes) == {32, 64, 128, 256} and sizes == sorted(sizes)


def test_the_pace_grows_with_the_batch() -> None:
    kernel = _kernel()
    rule = _rule(kernel, pace=0.05)
    rule.growth.assign(4.0)
    assert 0.08 < _moved(rule, kernel, range(50)) < 0.22


def test_float_state_is_found() -> None:
    kernel = _kernel()
    adam = tf.keras.optimizers.Adam()
    adam.build([kernel])
    assert len(float_state(adam, [kernel])) == 2


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"buffer_bits": 5}, "at most 4 buffer bits"),
        ({"pace": 0.0}, "pace 0"),
        ({"buffer_bits": 2, "hysteresis": 4}, "hysteresis 4"),
        ({"moves": "sideways"}, "choose from linear"),
        ({"parts": 0}, "at least 1"),
    ],
)
def test_rules_that_make_no_sense_are_refused(chosen: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        RuleSettings(method="sr", **chosen).resolve()
