"""Data sets: real ones, a user's own, and damaged ones."""

from __future__ import annotations

import gzip
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from flipbit.train.data import batches as data
from flipbit.train.settings import InputError
from tests.patience import PATIENCE


def test_digits_are_split_by_class_without_overlap() -> None:
    digits = data.load("digits")
    assert isinstance(digits, data.ImageArrays)
    assert (digits.train_size, digits.test_size, digits.shape) == (1442, 355, (8, 8, 1))
    assert np.bincount(digits.y_test).min() >= 34
    assert digits.x_train.dtype == np.uint8
    assert digits.x_train.max() == 255


def test_cifar10_is_read_from_its_official_files(cifar10: Path) -> None:
    found = data.load("cifar10", str(cifar10))
    assert isinstance(found, data.ImageArrays)
    assert found.x_train.shape == (50_000, 32, 32, 3)
    assert (np.bincount(found.y_train) == 5000).all()
    assert (np.bincount(found.y_test) == 1000).all()
    # The set's well-known channel means.
    assert found.x_train.mean((0, 1, 2)) / 255 == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
    assert isinstance(data.load("cifar10", str(cifar10 / "cifar-10-batches-py")), data.ImageArrays)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_files_are_read(cifar10: Path, name: str) -> None:
    if not (cifar10 / name).is_dir():
        pytest.skip(f"FLIPBIT_DATA has no {name}/")
    found = data.load(name, str(cifar10))
    assert isinstance(found, data.ImageArrays)
    assert found.x_train.shape == (60_000, 28, 28, 1)
    assert found.x_test.shape == (10_000, 28, 28, 1)
    assert set(np.unique(found.y_test)) == set(range(10))


def test_a_damaged_file_is_named(cifar10: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    shutil.copytree(cifar10 / "cifar-10-batches-py", folder)
    content = bytearray((folder / "data_batch_3").read_bytes())
    content[1000] ^= 1
    (folder / "data_batch_3").write_bytes(content)
    with pytest.raises(InputError, match=r"data_batch_3: damaged \(MD5 .*download it again"):
        data.load("cifar10", str(tmp_path))


def test_a_missing_data_set_says_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"cifar10: not found: put the official files into {tmp_path}"):
        data.load("cifar10", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    with pytest.raises(InputError, match="mnist: files are missing"):
        data.load("mnist", str(tmp_path))
    with pytest.raises(InputError, match="no such data set or folder; known are digits, "):
        data.load("cifar11")
    with pytest.raises(InputError, match="has no train/ folder"):
        data.load("imagenet", str(tmp_path))


def test_a_truncated_gz_is_named(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    for name in data.MD5["mnist"]:
        (tmp_path / "mnist" / f"{name}.gz").write_bytes(gzip.compress(bytes(1000))[:-10])
    with pytest.raises(InputError, match="train-images-idx3-ubyte: cannot be read"):
        data.load("mnist", str(tmp_path))


def npz(path: Path, **arrays: np.ndarray) -> str:
    np.savez(path / "own.npz", **arrays)
    return str(path / "own.npz")


def test_a_users_npz_with_and_without_test_images(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (50, 9, 7, 3), np.uint8)
    y = np.arange(50) % 4
    own = data.load(npz(tmp_path, x_train=x, y_train=y))
    assert (own.train_size, own.test_size, len(own.classes), own.shape) == (42, 8, 4, (9, 7, 3))
    own = data.load(npz(tmp_path, x_train=x[..., 0] / 255, y_train=y, x_test=x[:5, ..., 0] / 255, y_test=y[:5]))
    assert isinstance(own, data.ImageArrays)
    assert (own.train_size, own.test_size, own.shape) == (50, 5, (9, 7, 1))
    assert (own.x_train[..., 0] == x[..., 0]).all()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros(3)}, "lacks x_train and y_train; expected .* found x"),
        ({"x_train": np.zeros((5, 4)), "y_train": np.zeros(5, int)}, r"x_train has shape \(5, 4\)"),
        ({"x_train": np.zeros((5, 4, 4)) - 7, "y_train": np.zeros(5, int)}, "holds -7 to -7; expected 0 to 255"),
        ({"x_train": np.zeros((5, 4, 4)), "y_train": np.zeros(4, int)}, "4 labels for 5 images"),
        ({"x_train": np.zeros((5, 4, 4)), "y_train": np.array(list("abcde"))}, "must be class numbers"),
        ({"x_train": np.zeros((5, 4, 4)), "y_train": np.arange(5)}, "no class has five images"),
    ],
)
def test_a_wrong_npz_says_what_is_wrong(tmp_path: Path, arrays: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        data.load(npz(tmp_path, **arrays))


def test_something_else_called_npz_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.npz").write_bytes(b"not a zip")
    with pytest.raises(InputError, match=r"not a readable \.npz"):
        data.load(str(tmp_path / "own.npz"))
    np.savez(tmp_path / "own.npz", x_train=np.array([{}], object))
    with pytest.raises(InputError, match=r"not a readable \.npz"):
        data.load(str(tmp_path / "own.npz"))


def image_folder(path: Path, mode: str, parts: tuple[str, ...] = ("",), count: int = 6) -> Path:
    random = np.random.default_rng(0)
    for part in parts:
        for name in ("cat", "dog"):
            (path / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = random.integers(0, 256, (20, 30) if mode == "L" else (20, 30, 3), np.uint8)
                Image.fromarray(pixels).save(path / part / name / f"{i}.png")
    return path


def test_a_folder_of_images_per_class(tmp_path: Path) -> None:
    own = data.load(str(image_folder(tmp_path / "a", "RGB")), image_size=16)
    assert (own.train_size, own.test_size, own.shape, own.classes) == (10, 2, (16, 16, 3), ["cat", "dog"])
    own = data.load(str(image_folder(tmp_path / "b", "L", ("train", "test"))))
    assert (own.train_size, own.test_size, own.shape) == (12, 12, (32, 32, 1))


def test_a_training_says_what_is_odd_about_its_data_and_finds_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    from flipbit.train import run

    monkeypatch.chdir(tmp_path)
    x, y = np.random.default_rng(0).integers(0, 256, (60, 8, 8), np.uint8), np.arange(60) % 2 * 2
    np.savez("[bold]\x1b[2J.npz", x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
    options = ["--no-plot", "--no-tensorboard", "--net", "vgg-small", "--width", "0.25"]
    assert run.main(["--method", "bc", "--data", "[bold]\x1b[2J.npz", "--epochs", "1", "-o", "run", *options]) == 0
    said = capsys.readouterr().out
    assert "on [bold]\\x1b[2J: 60 + 4 images" in said and "\x1b" not in said
    assert "note: class 1: no images" in said and "note: 4 of 4 test images are training images, too" in said
    assert json.loads(Path("run/run.json").read_text())["settings"]["data"] == str(tmp_path / "[bold]\x1b[2J.npz")


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_broken_image_is_left_out_and_named(mode: str, tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "a", mode)
    whole = data.load(str(folder))
    (folder / "dog" / "3.png").write_bytes(b"nothing")
    found = data.load(str(folder))
    assert found.shape == whole.shape
    assert found.train_size + found.test_size == whole.train_size + whole.test_size - 1
    (note,) = [note for note in found.notes if "left out" in note]
    assert note.startswith(f"1 of {whole.train_size + whole.test_size} pictures left out: ")
    assert "3.png: not a readable picture" in note


def test_a_folder_of_broken_images_is_refused(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "a", "RGB")
    for picture in folder.rglob("*.png"):
        picture.write_bytes(b"nothing")
    with pytest.raises(
        InputError, match=r"none of \d+ pictures could be read; the first: .*png: not a readable picture"
    ):
        data.load(str(folder))


def test_a_folder_without_classes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found 0 classes, 0 training and 0 test images"):
        data.load(str(tmp_path))


def test_imagenet_streams_from_disk_the_same_way_each_time(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "imagenet", "RGB", ("train", "val"))
    for _ in range(2):
        found = data.load("imagenet", str(tmp_path), image_size=14)
        assert isinstance(found, data.ImageFiles)
        batches = [list(found.train_batches(5, seed=1, epoch=e)) for e in (0, 0, 1)]
        assert [x.shape for x, _ in batches[0]] == [(5, 14, 14, 3), (5, 14, 14, 3), (2, 14, 14, 3)]
        assert all((a[0] == b[0]).all() and (a[1] == b[1]).all() for a, b in zip(batches[0], batches[1]))
        assert any((a[0] != b[0]).any() for a, b in zip(batches[0], batches[2]))
        assert sum(len(y) for _, y in found.test_batches(5)) == 12
        assert found.mean_image().shape == (14, 14, 3)
    assert folder.is_dir()


def test_batches_depend_on_seed_and_epoch_alone() -> None:
    digits = data.load("digits")

    def first(seed: int, epoch: int) -> np.ndarray:
        return next(digits.train_batches(32, seed, epoch))[0]

    assert (first(0, 0) == first(0, 0)).all()
    assert (first(0, 0) != first(0, 1)).any()
    assert (first(0, 0) != first(1, 0)).any()


def test_an_epoch_shows_each_image_once() -> None:
    digits = data.load("digits", augment="none")
    assert isinstance(digits, data.ImageArrays)
    shown = np.concatenate([x for x, _ in digits.train_batches(100, 0, 0)])
    assert sorted(image.tobytes() for image in shown) == sorted(image.tobytes() for image in digits.x_train)


@given(st.integers(0, 3), st.booleans(), st.integers(0, 99))
def test_augmentation_shifts_within_the_padding_and_mirrors(pad: int, flip: bool, seed: int) -> None:
    x = np.random.default_rng(seed).integers(1, 256, (6, 5, 7, 2), np.uint8)
    out = data.Augment(pad, flip)(x, np.random.default_rng(seed))
    assert out.shape == x.shape
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    for image, canvas in zip(out, padded):
        candidates = [
            canvas[top : top + 5, left : left + 7][:, ::step]
            for top in range(2 * pad + 1)
            for left in range(2 * pad + 1)
            for step in ((1, -1) if flip else (1,))
        ]
        assert any((image == candidate).all() for candidate in candidates)


def test_augmentation_uses_every_shift_and_both_sides() -> None:
    x = np.tile(np.arange(1, 26, dtype=np.uint8).reshape(1, 5, 5, 1), (2000, 1, 1, 1))
    out = data.Augment(1, True)(x, np.random.default_rng(0))
    assert len({image.tobytes() for image in out}) == 9 * 2


def test_the_prefetching_thread_ends_with_its_reader_and_passes_errors_on() -> None:
    import threading

    def endless() -> object:
        while True:
            yield np.zeros(1), np.zeros(1)

    reader = data.prefetch(endless())  # type: ignore[arg-type]
    next(reader)
    reader.close()
    end = time.monotonic() + PATIENCE
    while any(t.name == "prefetch" for t in threading.enumerate()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(t.name == "prefetch" for t in threading.enumerate())

    def broken() -> object:
        yield np.zeros(1), np.zeros(1)
        raise InputError("no more")

    with pytest.raises(InputError, match="no more"):
        list(data.prefetch(broken()))  # type: ignore[arg-type]
