"""What --data means: the same to training, exporting, running and learning."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from flipbit.runtime.commands.cli import main
from flipbit.runtime.data import sets as data_sets
from flipbit.runtime.data.load import load_data
from flipbit.runtime.data.traps import label_traps, repeats
from flipbit.runtime.errors import InputError
from flipbit.train.data import batches as training
from flipbit.train.settings import Settings
from tests.nets.small_nets import photos, small_image

SHAPE = (9, 8, 3)
LABELS = ["ant", "bee", "čmelák", "dragonfly", "earwig"]


def npz(path: Path, **arrays: np.ndarray) -> str:
    np.savez(path / "own.npz", **arrays)
    return str(path / "own.npz")


def labels(count: int) -> np.ndarray:
    return np.arange(count) % 5


def write_idx(path: Path, values: np.ndarray, packed: bool = False) -> None:
    content = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()
    Path(f"{path}{'.gz' * packed}").write_bytes(gzip.compress(content) if packed else content)


@pytest.mark.parametrize("name", ["cifar10", "mnist", "fashion-mnist", "digits"])
def test_names_that_training_knows_are_known_to_running(cifar10: Path, name: str) -> None:
    trained, run = training.load(name), load_data(name, (), [])
    assert isinstance(trained, training.ImageArrays)
    assert (run.x == trained.x_test).all() and (run.y == trained.y_test).all()
    assert run.name == f"{name}, test part"


def test_a_folder_of_official_files_is_the_set(cifar10: Path) -> None:
    folder = cifar10 / "mnist"
    trained, run = training.load(str(folder)), load_data(str(folder), (28, 28, 1), [])
    assert isinstance(trained, training.ImageArrays)
    assert trained.x_train.shape == (60_000, 28, 28, 1) and (run.x == trained.x_test).all()
    assert trained.augment == training.AUGMENT["mnist"]


def test_official_files_are_found_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLIPBIT_DATA", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(data_sets.MissingError, match=r"mnist: not found: put the official files into .*FLIPBIT_DATA"):
        load_data("mnist", (28, 28, 1), [])
    (tmp_path / "mnist").mkdir()
    for name in data_sets.MD5["mnist"]:
        (tmp_path / "mnist" / name).write_bytes(b"\0\0\x08\x01\0\0\0\0")
    with pytest.raises(InputError, match="damaged"):
        load_data("mnist", (28, 28, 1), [])


def test_an_npz_with_only_a_training_part_gives_what_training_holds_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = npz(tmp_path, x_train=photos(50), y_train=labels(50))
    trained, run = training.load(own), load_data(own, SHAPE, LABELS)
    assert isinstance(trained, training.ImageArrays)
    assert len(run.x) == 10 and (run.x == trained.x_test).all() and (run.y == trained.y_test).all()
    (tmp_path / "m.fbit").write_bytes(small_image())
    assert main(["run", str(tmp_path / "m.fbit"), own]) == 0
    printed = capsys.readouterr()
    assert "of 10 right" in printed.out and "no x_test; these are the images that training holds back" in printed.err


def test_a_divided_folder_is_run_on_its_test_part(tmp_path: Path) -> None:
    for part, count in (("train", 3), ("val", 2)):
        for name in ("ant", "bee"):
            (tmp_path / part / name / "deep").mkdir(parents=True)
            for i in range(count):
                Image.fromarray(photos(1, i)[0]).save(tmp_path / part / name / "deep" / f"{i}.png")
    run, trained = load_data(str(tmp_path), SHAPE, LABELS), training.load(str(tmp_path))
    assert run.y.tolist() == [0, 0, 1, 1] and "test part" in run.name
    assert (trained.train_size, trained.test_size) == (6, 4)


def test_pixels_in_an_npz_are_read_alike(tmp_path: Path) -> None:
    x, y = photos(30), labels(30)
    for same in (x, x.astype(np.int64), x / np.float32(255), x.astype(np.float64)):
        own = npz(tmp_path, x_train=x, y_train=y, x_test=same, y_test=y)
        trained = training.load(own)
        assert isinstance(trained, training.ImageArrays)
        assert (trained.x_test == x).all() and (load_data(own, SHAPE, LABELS).x == x).all()


def test_what_run_json_names_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    np.savez(tmp_path / "here" / "own.npz", x_train=photos(30), y_train=labels(30))
    monkeypatch.chdir(tmp_path / "here")
    settings = Settings(data="own.npz", data_dir="sets").resolve()
    monkeypatch.chdir(tmp_path / "there")
    saved = Settings.from_json(json.loads(json.dumps(settings.to_json())))
    assert saved.data == str(tmp_path / "here" / "own.npz") and saved.data_dir == str(tmp_path / "here" / "sets")
    assert saved.resolve().data == saved.data and saved.name().startswith("own-")
    # One that was written with a relative path, beside the model.
    assert data_sets.located("own.npz", tmp_path / "here") == str(tmp_path / "here" / "own.npz")
    assert data_sets.located("digits", tmp_path / "here") == "digits"
    assert Settings(data="digits").resolve().data == "digits"


def test_calibration_finds_data_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flipbit.export.conversion import Pixels, Source, sample_images

    np.savez(tmp_path / "own.npz", x_train=photos(30), y_train=labels(30))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    source = Source(None, tmp_path / "model.h5", Pixels(128.0, 1 / 128), {"settings": {"data": "own.npz"}})
    assert sample_images(source, None, 8).shape == (8, *SHAPE)


# Damaged and hostile files


def hostile(path: Path) -> dict[str, bytes]:
    np.savez_compressed(path / "good.npz", x_train=photos(30), y_train=labels(30))
    good = (path / "good.npz").read_bytes()
    np.savez(path / "objects.npz", x_train=np.array([{}], object))
    np.save(path / "array.npy", photos(3))
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (2**40, 9, 8, 3)})
    huge = io.BytesIO()
    with zipfile.ZipFile(huge, "w") as file:
        file.writestr("x_train.npy", head.getvalue())
        file.writestr("y_train.npy", head.getvalue())
    flipped = bytearray(good)
    flipped[200:260] = bytes(60)
    return {
        "objects": (path / "objects.npz").read_bytes(),
        "npy": (path / "array.npy").read_bytes(),
        "deflate": bytes(flipped),
        "huge": huge.getvalue(),
        "cut": good[: len(good) // 2],
        "empty": b"",
        "text": b"x_train",
    }


@pytest.mark.parametrize("case", ["objects", "npy", "deflate", "huge", "cut", "empty", "text"])
def test_a_hostile_npz_is_one_line(tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.npz").write_bytes(hostile(tmp_path)[case])
    with pytest.raises(InputError, match=r"own\.npz: "):
        training.load(str(tmp_path / "own.npz"))
    (tmp_path / "m.fbit").write_bytes(small_image())
    data = str(tmp_path / "own.npz")
    for command in (["run", str(tmp_path / "m.fbit"), data],
                    ["finetune", str(tmp_path / "m.fbit"), "--data", data, "--target", "sim:nrf52840-dk"],
                    ["compare", str(tmp_path / "m.fbit"), str(tmp_path / "m.fbit"), "--data", data]):  # fmt: skip
        assert main(command) == 2
        said = capsys.readouterr()
        assert said.err.count("\n") == 1 and "own.npz: " in said.err and not said.out


@given(st.data())
def test_a_mutated_npz_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    saved = io.BytesIO()
    (np.savez_compressed if data.draw(st.booleans()) else np.savez)(saved, x_train=photos(10), y_train=labels(10) % 2)
    content = bytearray(saved.getvalue())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("npz") / "own.npz"
    path.write_bytes(content)
    for read in (lambda: data_sets.own_npz(path).read("test"), lambda: load_data(str(path), SHAPE, LABELS)):
        try:
            read()
        except InputError:
            continue


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"y_train": np.arange(20) % 2**3 + 2**32}, "class numbers"),
        ({"y_train": np.array([0, 1] * 9 + [0, 255])}, "3 different labels .* 256 classes; number them from 0 to 2"),
        ({"y_train": np.eye(20, dtype=int)}, r"20 numbers per image; expected one, the class"),
        ({"y_train": np.array(["a"] * 20)}, "class numbers"),
        ({"x_train": np.array(["a"] * 20)}, "shape"),
        ({"x_train": np.zeros((20, 9, 8, 3), complex)}, "holds complex128; expected pixels"),
        ({"x_train": np.full((20, 9, 8, 3), np.nan)}, "holds nan to nan"),
        ({"x_train": np.zeros((20, 0, 8, 3))}, "shape"),
    ],
)
def test_arrays_that_cannot_be_meant_are_refused(tmp_path: Path, arrays: dict, says: str) -> None:
    given = {"x_train": photos(20), "y_train": np.arange(20) % 2, **arrays}
    with pytest.raises(InputError, match=says):
        training.load(npz(tmp_path, **given))


def test_idx_files_are_checked(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    images, names = tmp_path / "mnist/t10k-images-idx3-ubyte", tmp_path / "mnist/t10k-labels-idx1-ubyte"
    write_idx(images, np.zeros((4, 28, 28), np.uint8), packed=True)
    write_idx(names, np.zeros(3, np.uint8))
    with pytest.raises(InputError, match="3 labels for 4 images"):
        load_data(str(tmp_path / "mnist"), (28, 28, 1), [])
    for content, says in ((b"", "not an IDX file"), (b"\0\0\x08\x01\xff\xff\xff\xff", "its head says 4294967295")):
        names.write_bytes(content)
        with pytest.raises(InputError, match=says):
            load_data(str(tmp_path / "mnist"), (28, 28, 1), [])


# Traps


def test_a_single_class_cannot_be_trained_on_but_calibrated_with(tmp_path: Path) -> None:
    own = training.load(npz(tmp_path, x_train=photos(20), y_train=np.zeros(20, int)))
    with pytest.raises(InputError, match="own: all 16 training images are of class 0: a net needs two to learn"):
        training.require_classes(own)
    training.require_classes(training.load("digits"))


def test_traps_in_labels_are_said_aloud() -> None:
    train = [0] * 40 + [1] * 3 + [3] * 40
    notes = label_traps(train, [0, 1, 2, 2], ["cat", "dog", "owl", "fox", "elk"])
    assert notes == [
        "class owl: 2 test images, but no training images; the net cannot get them right",
        "class elk: no images",
        "class fox: no test images",
        "unbalanced: 40 training images of cat, 3 of dog",
    ]
    assert label_traps([1, 2], [1, 2], ["0", "1", "2"]) == [
        "class 0: no images; do labels count from 1? they should from 0"
    ]
    assert not label_traps([0, 1], [0, 1], ["a", "b"])


def test_images_in_both_parts_are_counted() -> None:
    x = photos(10)
    assert repeats(x, x[:3]) == ["3 of 3 test images are training images, too"]
    assert repeats(x[:5], x[5:]) == []


def test_training_says_what_is_odd_about_own_data_but_not_about_the_standard_sets(tmp_path: Path) -> None:
    x, y = photos(40), np.arange(40) % 2 * 2
    notes = training.load(npz(tmp_path, x_train=x, y_train=y, x_test=x[:4], y_test=np.array([0, 1, 2, 0]))).notes
    assert len(notes) == 2 and "class 1: 1 test images, but no training" in notes[0] and "4 of 4 test" in notes[1]
    assert not training.load("digits").notes


def test_a_folder_with_empty_classes_and_strays_is_named(tmp_path: Path) -> None:
    for name, count in (("cat", 10), ("dog", 10), ("owl", 0)):
        (tmp_path / name).mkdir()
        for i in range(count):
            Image.fromarray(photos(1, hash(name) % 1000 + i)[0]).save(tmp_path / name / f"{i}.png")
    Image.fromarray(photos(1, 7)[0]).save(tmp_path / "stray.png")
    (tmp_path / "cat" / "._0.png").write_bytes(b"macOS")
    own = training.load(str(tmp_path))
    assert (own.train_size, own.test_size) == (16, 4)
    assert "class owl: no images" in own.notes
    assert "left out, as they are in no class's folder: stray.png" in own.notes


def test_running_says_which_folders_are_no_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.fbit").write_bytes(small_image())
    for name in ("ant", "Bee", "c\u030cmela\u0301k"):  # another case; and letters as macOS stores them
        (tmp_path / "set" / name).mkdir(parents=True)
        Image.fromarray(photos(1)[0]).save(tmp_path / "set" / name / "a.png")
    assert load_data(str(tmp_path / "set"), SHAPE, LABELS).y.tolist() == [-1, 0, 2]
    assert main(["run", str(tmp_path / "m.fbit"), str(tmp_path / "set")]) == 0
    printed = capsys.readouterr()
    assert "of 2 with a label right" in printed.out
    assert "1 pictures without a label, as Bee/ is no class of the net (ant, bee" in printed.err


def test_labels_the_net_does_not_have_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.fbit").write_bytes(small_image())
    own = npz(tmp_path, x_test=photos(3), y_test=np.array([0, 7, 9]))
    assert main(["run", str(tmp_path / "m.fbit"), own]) == 0
    assert "2 labels of 5 and above; the net has 5 classes" in capsys.readouterr().err


def test_a_folder_without_pictures_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "a.HEIC").write_bytes(b"x")
    with pytest.raises(InputError, match=r"no pictures in this folder \(.*\); found 1 \.heic"):
        load_data(str(tmp_path), SHAPE, LABELS)


def test_a_limit_reads_no_more_than_that(tmp_path: Path) -> None:
    for i in range(4):
        Image.fromarray(photos(1, i)[0]).save(tmp_path / f"{i}.png")
    (tmp_path / "3.png").write_bytes(b"never read")
    found = load_data(str(tmp_path), SHAPE, LABELS, limit=2)
    assert found.names == ["0.png", "1.png"] and not found.notes
    shutil.rmtree(tmp_path)
