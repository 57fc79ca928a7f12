"""The flipbit command."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime import Model
from flipbit.runtime.commands.cli import SHELLS, main, parser
from flipbit.runtime.data import load as data_files
from flipbit.runtime.image.reader import HEADER, OP, TENSOR
from tests.checkout import ROOT
from tests.nets.small_nets import photos, repaired, small_image
from tests.patience import PATIENCE

MODELS = ROOT / "models"


@pytest.fixture
def image(tmp_path: Path) -> str:
    (tmp_path / "m.fbit").write_bytes(small_image())
    return str(tmp_path / "m.fbit")


def flipbit(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(a) for a in arguments]) == 0
    return capsys.readouterr().out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What the command says on its way out with status 2: one line, to stderr alone."""
    assert main([str(a) for a in arguments]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    return printed.err


def save_picture(path: Path, pixels: np.ndarray) -> Path:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


VERBS = (
    "train export verify show run info profile compare serve bench cost fleet pareto finetune flash device reproduce "
    "study"
).split()


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", ["", "run", "info", "profile", "compare", "bench"])
def test_help_fits_a_screen_and_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys, *command.split())
    assert "examples:" in text
    assert text.count("\n") <= 40
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_in_its_own_name(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys, verb)
    assert text.startswith(f"usage: flipbit {verb} ")
    assert f"\n  flipbit {verb} " in text  # an example
    assert not re.search(r"(train|export)/\w+\.py", text)  # the scripts are aliases


def test_every_verb_is_listed_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    text = flipbit(capsys)  # alone: no error
    assert text == help_of(capsys)
    listed = re.findall(r"^    (\w+) +\S.*? +flipbit (\w+) \S", text, re.MULTILINE)
    assert sorted(listed) == sorted((verb, verb) for verb in VERBS)


def test_the_example_of_every_verb_is_a_command_line_it_takes() -> None:
    p = parser(whole=True)
    for example in re.findall(r"^    \w+ +\S.*?  flipbit (.*)$", parser().format_help(), re.MULTILINE):
        p.parse_args(example.split())


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"flipbit {metadata.version('flipbit')}\n"


def test_errors_of_every_verb_name_it(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in VERBS:
        with pytest.raises(SystemExit) as stop:
            main([verb, "--no-such-option", "x", "x"])
        assert stop.value.code == 2
        assert f"see: flipbit {verb}" in capsys.readouterr().err


def test_a_verb_of_another_package_is_not_imported_for_this_ones_own(image: str) -> None:
    code = f"import sys; from flipbit.runtime.commands.cli import main; main(['info', {image!r}]); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "flipbit.runtime.commands.info" in loaded
    assert not {name for name in loaded if re.match(r"flipbit\.(train|export|studies)", name)}


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_verbs_and_their_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    with pytest.raises(SystemExit) as stop:
        main(["--completion", shell])
    assert stop.value.code == 0
    script = capsys.readouterr().out
    for word in (*VERBS, "--buffer-bits", "--calibrate", "--supply"):
        assert word in script


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["ver"], "verify"), (["export", "--calib"], "--calibrate"), (["export", "--to", "tf"], "tflite")],
)
def test_bash_completes(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    with pytest.raises(SystemExit):
        main(["--completion", "bash"])
    ask = f"COMP_WORDS=(flipbit {' '.join(words)}); COMP_CWORD={len(words)}; _shtab_flipbit; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", f"{capsys.readouterr().out}\n{ask}"], capture_output=True, text=True)
    assert done.stdout.split() == [expected], done.stderr


def test_without_its_library_completion_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert "pip install 'flipbit[completion]'" in refusal(capsys, "--completion", "bash")


def test_info_names_layers_kernels_and_the_layer_that_sets_the_ram(
    image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, model = flipbit(capsys, "info", image), Model(image)
    for layer in model.layers:
        assert layer.name in text
        assert layer.kernel in text
    assert f"{model.peak_ram:,} bytes" in text
    assert f"{model.peak_layer.name} sets it" in text
    assert "ant, bee, čmelák, dragonfly, earwig" in text
    assert "(pixel - 128) * 0.0078125" in text


def test_info_as_json_accounts_for_every_byte(image: str, capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(flipbit(capsys, "info", image, "--json"))
    parts = dict(facts["flash"])
    assert parts.pop("total") == len(small_image()) == sum(parts.values())
    assert 0 <= parts["filling"] < 4 * 2 * len(facts["layers"])
    assert facts["ram"]["arena_least"] <= facts["ram"]["arena_size"] <= facts["ram"]["peak"]
    assert facts["metadata"]["labels"][0] == "ant"
    assert len(facts["tensors"]) == len(facts["layers"]) + 1


def test_a_short_arena_is_planned_for_or_refused(image: str, capsys: pytest.CaptureFixture[str]) -> None:
    least = Model(image).arena_least
    assert json.loads(flipbit(capsys, "info", image, "--json", "--arena", least))["ram"]["arena"] == least
    assert f"needs {least:,} at least" in refusal(capsys, "info", image, "--arena", least - 1)


def test_run_classifies_pictures(image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = photos(3)
    files = [save_picture(tmp_path / f"{i}.png", x[i]) for i in range(3)]
    text = flipbit(capsys, "run", image, *files)
    for file, answer in zip(files, Model(image).classify(x)):
        assert f"{file}  {answer} " in text
    found = json.loads(flipbit(capsys, "run", image, *files, "--json", "--top", 5))
    for one in found:
        (picture,) = one["each"]
        assert sum(c["share"] for c in picture["classes"]) == pytest.approx(1)
        assert [c["logit"] for c in picture["classes"]] == sorted(
            (c["logit"] for c in picture["classes"]), reverse=True
        )


def test_pictures_in_folders_named_after_classes_have_labels(
    image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = photos(6)
    answers = Model(image).classify(x)
    for i, answer in enumerate(answers[:5]):
        save_picture(tmp_path / "set" / answer / f"{i}.png", x[i])
    wrong = next(name for name in Model(image).labels if name != answers[5])
    save_picture(tmp_path / "set" / wrong / "wrong.png", x[5])
    text = flipbit(capsys, "run", image, tmp_path / "set")
    assert "5 of 6 right, 83.33 %" in text
    assert f"{wrong}/wrong.png" in text


def test_plain_pictures_need_no_pillow(
    image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = photos(1)[0]
    (tmp_path / "a.ppm").write_bytes(b"P6\n# a comment\n8 9\n255\n" + x.tobytes())
    png = save_picture(tmp_path / "a.png", x)
    expected = flipbit(capsys, "run", image, png).replace("a.png", "a.ppm")
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert flipbit(capsys, "run", image, tmp_path / "a.ppm") == expected
    assert "pip install pillow" in refusal(capsys, "run", image, png)
    (tmp_path / "a.ppm").write_bytes(b"P6\n8 9\n255\n" + x.tobytes()[:-1])
    assert "cut short" in refusal(capsys, "run", image, tmp_path / "a.ppm")
    (tmp_path / "a.ppm").write_bytes(b"P3\n8 9\n255\n")
    assert "not a binary .ppm" in refusal(capsys, "run", image, tmp_path / "a.ppm")


def test_arrays_with_labels_give_an_accuracy(image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = photos(40)
    y = Model(image).predict(x).argmax(1)
    y[:10] = (y[:10] + 1) % 5
    np.savez(tmp_path / "d.npz", x_test=x, y_test=y)
    assert "30 of 40 right, 75.00 %" in flipbit(capsys, "run", image, tmp_path / "d.npz", "--threads", 2)
    assert "0 of 10 right" in flipbit(capsys, "run", image, tmp_path / "d.npz", "--limit", 10)
    np.savez(tmp_path / "d.npz", x_test=x / np.float32(255), y_test=y)  # as training reads such sets
    assert "30 of 40 right" in flipbit(capsys, "run", image, tmp_path / "d.npz")
    np.savez(tmp_path / "d.npz", x=(x.astype(np.float32) - 128) / 128, y=y)
    assert "30 of 40 right" in flipbit(capsys, "run", image, tmp_path / "d.npz")
    np.save(tmp_path / "d.npy", x)
    text = flipbit(capsys, "run", image, tmp_path / "d.npy")
    assert "40 images" in text
    assert text.count("\n") == 1
    assert flipbit(capsys, "run", image, tmp_path / "d.npy", "--each").count("\n") == 43
    np.save(tmp_path / "one.npy", x[0])
    assert "1 images" in flipbit(capsys, "run", image, tmp_path / "one.npy", "--limit", 2)


def test_official_folders_are_read_as_they_are(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (7, 3, 32, 32), np.uint8)
    (tmp_path / "cifar").mkdir()
    batch = {b"data": x.reshape(7, -1), b"labels": list(range(7))}
    (tmp_path / "cifar/test_batch").write_bytes(pickle.dumps(batch, protocol=2).replace(b"numpy._core", b"numpy.core"))
    found = data_files.load_data(str(tmp_path / "cifar"), (32, 32, 3), [])
    assert (found.x == x.transpose(0, 2, 3, 1)).all()
    assert found.y.tolist() == list(range(7))
    (tmp_path / "mnist").mkdir()
    grey = random.integers(0, 256, (5, 28, 28), np.uint8)
    header = struct.pack(">IIII", 0x803, 5, 28, 28)
    (tmp_path / "mnist/t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + grey.tobytes()))
    (tmp_path / "mnist/t10k-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, 5) + bytes(range(5)))
    found = data_files.load_data(str(tmp_path / "mnist"), (28, 28, 1), [])
    assert (found.x[..., 0] == grey).all()
    assert found.y.tolist() == list(range(5))


def test_a_pickle_that_would_run_code_is_refused(
    image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "evil"),)

    (tmp_path / "test_batch").write_bytes(pickle.dumps(Evil()))
    assert "it calls posix.mkdir" in refusal(capsys, "run", image, tmp_path)
    assert not (tmp_path / "evil").exists()


def test_profile_gives_each_layer_its_share(image: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = json.loads(flipbit(capsys, "profile", image, "--runs", 5, "--json"))
    assert [row["layer"] for row in result["layers"]] == [layer.name for layer in Model(image).layers]
    assert sum(row["share"] for row in result["layers"]) == pytest.approx(1)
    assert result["runs"] == 5
    text = flipbit(capsys, "profile", image, "--runs", 3)
    assert "conv0" in text
    assert "fb_conv_" in text


def counts_of(model: Model, **more: object) -> list[dict[str, object]]:
    """As firmware/count/bench.py writes them, as far as they are read here."""
    layers = [{"kind": a.kind, "macs": a.macs, "instructions": 1000 + i} for i, a in enumerate(model.layers)]
    return [{"core": core, "layers": layers, **more} for core in ("M0", "M4")]


def test_profile_shows_counted_instructions(image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = tmp_path / "counts.json"
    counts.write_text(json.dumps(counts_of(Model(image))))
    result = json.loads(flipbit(capsys, "profile", image, "--runs", 3, "--counts", counts, "--json"))
    assert [row["instructions"] for row in result["layers"]] == [{"M0": 1000 + i, "M4": 1000 + i} for i in range(13)]
    assert "M4: 13,078 instructions" in flipbit(capsys, "profile", image, "--runs", 3, "--counts", counts)
    counts.write_text(json.dumps(counts_of(Model(image), layers=[])))
    assert "counts of another net" in refusal(capsys, "profile", image, "--counts", counts)
    for text in ("{", "[1]", '[{"core": 1}]'):
        counts.write_text(text)
        assert "not written by firmware/count/bench.py" in refusal(capsys, "profile", image, "--counts", counts)


def flipped(count: int) -> bytes:
    """The small image with ``count`` bits of its second convolution turned over."""
    data = bytearray(small_image())
    tensors = HEADER.unpack_from(data)[5]
    weights = OP.unpack_from(data, HEADER.size + tensors * TENSOR.size + OP.size)[-2]
    for i in range(count):
        data[weights + i] ^= 1 << i % 8
    return repaired(data)


def test_compare_counts_the_bits_that_differ(image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.fbit").write_bytes(flipped(23))
    text = flipbit(capsys, "compare", image, tmp_path / "b.fbit")
    total = sum(layer.weights for layer in Model(image).layers if layer.bits == 1)
    assert f"23 of {total:,} bits flipped" in text
    result = json.loads(flipbit(capsys, "compare", image, tmp_path / "b.fbit", "--json"))
    assert [row["differ"] for row in result["layers"]] == [0, 23] + [0] * 11
    assert not any(row["parameters"] for row in result["layers"])
    x = np.random.default_rng(0).integers(-128, 128, (100, 9, 8, 3)).astype(np.int8)
    one, other = Model(image).predict(x), Model(tmp_path / "b.fbit").predict(x)
    assert result["outputs"]["same_answer"] == np.sum(one.argmax(1) == other.argmax(1))
    assert result["outputs"]["largest_difference"] == pytest.approx(np.abs(one - other).max())
    assert result["outputs"]["largest_difference"] > 0


def test_compare_says_when_images_are_the_same_or_different_nets(
    image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "are the same, byte for byte" in flipbit(capsys, "compare", image, image)
    other = Model(image)
    metadata_at, size = HEADER.unpack_from(other.image.data)[-2:]
    renamed = bytearray(other.image.data)
    renamed[metadata_at : metadata_at + size] = renamed[metadata_at : metadata_at + size].replace(b'"bee"', b'"fly"')
    (tmp_path / "b.fbit").write_bytes(repaired(renamed))
    text = flipbit(capsys, "compare", image, tmp_path / "b.fbit")
    assert "metadata labels" in text
    assert "0 of " in text


def test_compare_runs_both_on_given_data(image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.fbit").write_bytes(flipped(100))
    x = photos(30)
    np.savez(tmp_path / "d.npz", x=x, y=Model(image).predict(x).argmax(1))
    text = flipbit(capsys, "compare", image, tmp_path / "b.fbit", "--data", tmp_path / "d.npz")
    share = np.mean(Model(image).predict(x).argmax(1) == Model(flipped(100)).predict(x).argmax(1))
    assert f"right: 100.00 % and {100 * share:.2f} %" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "none.fbit"], "none.fbit: No such file"),
        (["info", "{folder}"], "Is a directory"),
        (["info", "{folder}/cut.fbit"], "FB_ERR_LENGTH"),
        (["run", "{image}", "none.png"], "no such file, folder or data set"),
        (["run", "{image}", "{folder}/empty"], "no pictures in this folder"),
        (["run", "{image}", "{folder}/bad.npy"], "not a readable .npy"),
        (["run", "{image}", "{folder}/bad.png"], "not a readable picture"),
        (["run", "{image}", "{folder}/names.npz"], "holds a, b; expected x_test"),
        (["run", "{image}", "{folder}/labels.npz"], "3 labels for 2 images"),
        (["run", "{image}", "{folder}/shape.npy"], "shape.npy: an array of 4×4"),
        (["run", "{image}", "{folder}/a.txt"], "expected a picture"),
        (["run", "{image}", "{folder}/shape.npy", "--threads", "0"], "--threads 0: at least 1"),
        (["profile", "{image}", "--runs", "0"], "--runs 0: at least 1"),
        (["profile", "{image}", "--counts", "none.json"], "none.json"),
        (["bench", "{image}"], "nothing to compare"),
        (["compare", "{image}", "{image}", "--limit", "0"], "--limit 0: at least 1"),
        (["compare", "{image}", "{folder}/bad.npy"], "FB_ERR_TRUNCATED"),
    ],
    ids=lambda value: "-" if isinstance(value, str) else " ".join(value).replace("{folder}/", ""),
)
def test_bad_input_is_one_line_and_status_2(
    arguments: list[str], message: str, image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.fbit").write_bytes(small_image()[:-4])
    for name in ("bad.npy", "bad.png", "a.txt"):
        (tmp_path / name).write_bytes(b"what")
    np.savez(tmp_path / "names.npz", a=np.zeros(1), b=np.zeros(1))
    np.savez(tmp_path / "labels.npz", x=photos(2), y=np.zeros(3, np.int64))
    np.save(tmp_path / "shape.npy", np.zeros((4, 4), np.uint8))
    assert message in refusal(capsys, *(a.format(image=image, folder=tmp_path) for a in arguments))


def test_bad_usage_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["info"], ["dance"], ["run", "x.fbit"], ["info", "x", "--arena", "many"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2
    assert "see: flipbit" in capsys.readouterr().err


def test_control_c_ends_with_130_and_one_line(tmp_path: Path) -> None:
    pipe = tmp_path / "m.fbit"
    os.mkfifo(pipe)  # reading it waits for a writer: the command is then where it can be interrupted
    process = subprocess.Popen([sys.executable, "-m", "flipbit.runtime", "info", str(pipe)], stderr=subprocess.PIPE)
    with pipe.open("wb"):
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert said == b"\nstopped\n"


def test_a_closed_pipe_is_no_error(image: str) -> None:
    command = f"{sys.executable} -m flipbit.runtime info {image} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.slow
def test_the_trained_digits_model_keeps_its_accuracy_on_the_c_core(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from flipbit.export.commands.convert import main as export

    path = tmp_path / "digits.fbit"
    assert export("fbit", [str(MODELS / "digits-vgg-small/model.h5"), "-o", str(path)]) == 0
    capsys.readouterr()
    (result,) = json.loads(flipbit(capsys, "run", path, "digits", "--json"))
    assert result["images"] == 355
    assert result["accuracy"] >= 0.985  # 99.15 % in real numbers
