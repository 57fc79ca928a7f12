"""CIFAR's files: read without running them, whatever is in them."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipbit.runtime.commands.cli import main
from flipbit.runtime.data.cifar_files import FlatPickleError, read_cifar
from flipbit.runtime.data.load import load_data
from flipbit.runtime.data.sets import open_arrays
from flipbit.runtime.errors import InputError
from tests.checkout import ROOT
from tests.nets.small_nets import small_image

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 3072), np.uint8)


def batch(protocol: int = 2, **more: object) -> bytes:
    content = {b"batch_label": b"testing", b"labels": [7, 0, 9], b"data": PIXELS, b"filenames": [b"a", b"b", b"c"]}
    content.update({key.encode(): value for key, value in more.items()})
    return pickle.dumps(content, protocol=protocol)


def official() -> bytes:
    """As Python 2 wrote the published files: byte strings, and the old name of NumPy's module."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x06cnumpy\nndarray\nq\x07K\x00\x85q\x08U\x01bq\t\x87Rq\n(K\x01K\x03"
        b"M\x00\x0c\x86cnumpy\ndtype\nq\x0cU\x02u1q\rK\x00K\x01\x87Rq\x0e(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89T\x00\x24\x00\x00" + PIXELS.tobytes() + b"tb"
    )
    return b"\x80\x02}q\x01(U\x06labelsq\x04]q\x05(K\x07K\x00K\te" + b"U\x04dataq\x06" + array + b"u."


@pytest.mark.parametrize("content", [official(), *(batch(n) for n in (2, 3, 4, 5)), batch(labels=np.array([7, 0, 9]))])
def test_every_way_such_files_are_written_is_read(content: bytes) -> None:
    x, y = read_cifar(content, "labels", 10)
    assert (x == PIXELS.reshape(3, 3, 32, 32).transpose(0, 2, 3, 1)).all() and y.tolist() == [7, 0, 9]
    with pytest.raises(FlatPickleError):
        read_cifar(content, "fine_labels", 100)


def test_the_official_files_hold_what_they_are_known_for(cifar10: Path) -> None:
    found = load_data(str(cifar10 / "cifar-10-batches-py"), (32, 32, 3), [])
    assert np.bincount(found.y).tolist() == [1000] * 10
    assert found.y[:5].tolist() == [3, 8, 8, 0, 6] and found.x[0, 0, 0].tolist() == [158, 112, 49]


class Evil:
    def __init__(self, *call: object):
        self.call = call

    def __reduce__(self) -> tuple:
        return self.call[0], self.call[1:]  # type: ignore[return-value]


def test_no_name_in_a_file_is_called(tmp_path: Path) -> None:
    for content in (
        batch(data=Evil(os.mkdir, str(tmp_path / "evil"))),
        batch(labels=Evil(eval, "1")),
        pickle.dumps(Evil(os.system, "true")),
    ):
        with pytest.raises(FlatPickleError, match=r"it calls [a-z_]+\.|instruction"):
            read_cifar(content, "labels", 10)
    assert not (tmp_path / "evil").exists()


def test_arrays_of_objects_cannot_be_made() -> None:
    """A pointer of the file's choice, as an object array's content: the way to crash an unpickler of arrays only."""
    forged = official().replace(b"U\x02u1", b"U\x02O8").replace(b"M\x00\x0c\x86", b"M\x80\x01\x86")
    with pytest.raises(FlatPickleError, match="another type"):
        read_cifar(forged, "labels", 10)
    for array in (np.array([None] * 3), np.zeros(3, [("a", "u1")]), np.zeros((3, 3072)), np.array(["a", "b", "c"])):
        with pytest.raises(FlatPickleError):
            read_cifar(batch(data=array), "labels", 10)


@pytest.mark.parametrize(
    "more",
    [
        {"labels": [7, 0]},
        {"labels": [7, 0, 10]},
        {"labels": [7, 0, -1]},
        {"labels": [7, 0, 2**62]},
        {"labels": [7, 0, None]},
        {"labels": {}},
        {"labels": np.array([7.0, 0, 9])},
        {"data": PIXELS[:, :-1]},
        {"data": PIXELS.T.copy().T},
        {"data": b"x"},
    ],
)
def test_what_does_not_fit_is_refused(more: dict) -> None:
    with pytest.raises(FlatPickleError):
        read_cifar(batch(**more), "labels", 10)


@given(st.data())
def test_mutated_files_are_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from([official(), *(batch(n) for n in (2, 3, 4, 5))])))
    # Pixels are most of the file and mean nothing to the parser: change the rest of it.
    start = content.find(PIXELS.tobytes()[:16])
    places = [i for i in range(len(content)) if start < 0 or not start <= i < start + PIXELS.size]
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.sampled_from(places))
        if at < len(content):
            content[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(content))))
    try:
        x, y = read_cifar(bytes(content[:cut]), "labels", 10)
    except FlatPickleError:
        return
    assert x.dtype == np.uint8 and x.shape == (len(y), 32, 32, 3) and set(y) <= set(range(10))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_and_nothing_else(content: bytes) -> None:
    with pytest.raises(FlatPickleError):
        read_cifar(b"\x80\x02" + content, "labels", 10)


def test_a_short_file_cannot_ask_for_much_memory() -> None:
    text = "a" * 100_000
    encode = (
        b"\x80\x02c_codecs\nencode\nq\x00X"
        + len(text).to_bytes(4, "little")
        + text.encode()
        + b"q\x01X\x06\0\0\0latin1q\x02"
    )
    content = encode + b"h\x00h\x01h\x02\x86R" * 20_000 + b"."
    with pytest.raises(FlatPickleError, match="copies more"):
        read_cifar(content, "labels", 10)


def test_a_forged_batch_is_one_line_and_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.fbit").write_bytes(small_image())
    (tmp_path / "set").mkdir()
    (tmp_path / "set/test_batch").write_bytes(official().replace(b"U\x02u1", b"U\x02O8"))
    assert main(["run", str(tmp_path / "m.fbit"), str(tmp_path / "set")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "test_batch: not laid out as CIFAR's official file" in said


def test_cifar_100_folders_have_fine_labels(tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / name).write_bytes(batch(fine_labels=[3, 99, 0], coarse_labels=[1, 2, 3]))
    found = open_arrays(str(tmp_path))
    assert found is not None and found.kind == "cifar100" and len(found.classes) == 100
    assert found.read("train")[1].tolist() == found.read("test")[1].tolist() == [3, 99, 0]
    (tmp_path / "test").write_bytes(b"")
    with pytest.raises(InputError, match=re.escape("cut short")):
        found.read("test")


def test_no_unpickler_is_left_in_the_packages() -> None:
    for folder in ("runtime", "train", "export"):
        for file in (ROOT / folder).rglob("*.py"):
            assert not re.search(r"pickle\.(Unpickler|loads?)\b|allow_pickle=True", file.read_text()), file
