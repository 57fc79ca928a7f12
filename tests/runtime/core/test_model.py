"""flipbit.runtime.Model: the C core from Python, bit for bit the NumPy reference."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipbit.export import oracle
from flipbit.runtime import Model
from flipbit.runtime.core import library as core
from flipbit.runtime.errors import ArenaError, ArgumentError, CoreError, FileError, FlipbitError
from flipbit.runtime.image import reference
from flipbit.runtime.image.inputs import Pixels, quantize, to_planes
from flipbit.runtime.image.reader import Tensor
from tests.checkout import ROOT
from tests.nets.small_nets import newer_graph, newer_image, photos, small_graph, small_image

CORE = ROOT / "firmware/core"


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(small_image())


def planes(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, -1, 1) if x.ndim == 4 else x


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_every_tensor_has_the_bits_of_both_numpy_versions(newer: bool, seed: int) -> None:
    model, graph = (
        (Model(newer_image(seed)), newer_graph(seed)) if newer else (Model(small_image(seed)), small_graph(seed))
    )
    x = photos(10)
    found = model.tensors(x)
    mine = reference.run(model.image, planes(found["input"]))
    exported = oracle.run(graph, (x.astype(np.float64) - 128) / 128)
    assert list(found) == ["input", *(layer.name for layer in model.layers)]
    for layer in model.layers:
        assert (planes(found[layer.name]) == mine[layer.output]).all(), layer.name
        if layer.kind != "flatten":  # in another order on the device
            assert (found[layer.name] == exported[layer.name]).all(), layer.name
        assert found[layer.name].shape == (10, *layer.output_shape)
        assert found[layer.name].std() > 0


def test_one_input_and_a_batch_of_one_give_the_same(model: Model) -> None:
    x = photos(1)
    assert model.predict(x).shape == (1, 5)
    assert model.predict(x[0]).shape == (5,)
    assert (model.predict(x)[0] == model.predict(x[0])).all()
    assert model.tensors(x[0])["conv0"].shape == (9, 8, 16)
    assert model.predict(x[:0]).shape == (0, 5)
    assert model.tensors(x[:0])["conv0"].shape == (0, 9, 8, 16)


def test_pixels_real_numbers_and_int8_mean_the_same(model: Model) -> None:
    x = photos(6)
    expected = model.predict(x)
    assert (model.predict((x.astype(np.float32) - 128) / 128) == expected).all()
    assert (model.predict((x.astype(np.int16) - 128).astype(np.int8)) == expected).all()


def test_logits_are_the_raw_output_times_its_scale(model: Model) -> None:
    x, out = photos(6), model.image.tensors[model.image.output]
    raw = model.predict(x, raw=True)
    assert raw.dtype == np.int8
    assert model.predict(x).dtype == np.float32
    assert np.allclose(model.predict(x), (raw.astype(float) - out.zero_point) * out.scale)


def test_threads_change_nothing(model: Model) -> None:
    x = photos(23)
    expected = model.predict(x)
    for threads in (2, 3, 23, 40):
        assert (model.predict(x, threads=threads) == expected).all()


def test_a_model_may_be_used_from_many_threads_at_a_time(model: Model) -> None:
    batches = [photos(5, seed) for seed in range(16)]
    expected = [model.predict(x) for x in batches]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(model.predict, batches))
    assert all((a == b).all() for a, b in zip(found, expected))


def test_classify_gives_names_and_numbers_where_there_are_none(model: Model) -> None:
    x = photos(20)
    best = model.predict(x, raw=True).argmax(1)
    assert model.classify(x) == [model.labels[i] for i in best]
    assert model.classify(x[3]) == model.labels[best[3]]
    bare = Model(small_image())
    bare.image.metadata.clear()
    assert bare.classify(np.zeros((9, 8, 3), np.int8)) in range(5)


def test_the_image_outlives_the_bytes_it_came_from(tmp_path: Path) -> None:
    (tmp_path / "m.fbit").write_bytes(small_image())
    model = Model(str(tmp_path / "m.fbit"))
    expected = model.predict(photos(2))
    (tmp_path / "m.fbit").unlink()
    gc.collect()
    assert (model.predict(photos(2)) == expected).all()


def test_bytes_of_every_kind_make_a_model() -> None:
    for data in (small_image(), bytearray(small_image()), memoryview(small_image())):
        assert Model(data).labels[0] == "ant"


def test_memory_is_aligned_whatever_its_size() -> None:
    for size in range(1, 200):
        block = core.aligned(size)
        assert block.size == size
        assert block.ctypes.data % core.ALIGN == 0


def test_the_ram_a_layer_states_is_what_the_arena_must_have(model: Model) -> None:
    assert model.peak_layer.ram == model.arena_size
    assert model.peak_ram == model.arena_size + 9 * 8 * 3 + 5
    assert all(layer.ram <= model.peak_layer.ram for layer in model.layers)


def test_the_least_arena_gives_the_same_bits_and_one_byte_less_is_refused(model: Model) -> None:
    least = Model(small_image(), arena=model.arena_least)
    assert (least.predict(photos(5)) == model.predict(photos(5))).all()
    assert least.peak_layer.ram <= least.arena
    with pytest.raises(ArenaError, match=rf"needs {model.arena_least:,} at least.*FB_ERR_ARENA"):
        Model(small_image(), arena=model.arena_least - 1)


def test_layers_say_what_they_are(model: Model) -> None:
    first, *_, last = model.layers
    assert (first.description, first.bits, first.weights, first.macs) == ("3×3 conv + ReLU", 1, 432, 432 * 72)
    assert first.bytes == 2 * 2 * 16 + 6 * 16  # two words and a bias and multiplier for each filter
    assert (first.input_shape, first.output_shape) == ((9, 8, 3), (9, 8, 16))
    assert first.kernel.startswith("fb_conv_")
    assert (last.kind, last.bits, last.weights, last.macs) == ("dense", 8, 35, 35)
    assert sum(layer.bytes for layer in model.layers) < len(small_image())


def test_layers_with_equal_names_are_told_apart() -> None:
    model = Model(small_image())
    for op in model.image.operations:
        object.__setattr__(op, "name", "same")
    assert len({layer.name for layer in model.layers}) == len(model.layers)


def test_layer_times_are_positive_and_one_for_each_run(model: Model) -> None:
    times = model.time_layers(photos(3), repeats=2)
    assert times.shape == (6, len(model.layers))
    assert (times > 0).all()


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((9, 8, 4), np.uint8), "an array of 9×8×4: the net takes 9×8×3 or N×9×8×3"),
        (np.zeros((3, 9, 8), np.uint8), "these are planes"),
        (np.zeros((7, 3, 9, 8), np.int8), "these are planes"),
        (np.zeros((2, 2, 9, 8, 3)), "2×2×9×8×3"),
        (np.zeros((9, 8, 3), np.int32), "int32: expected uint8"),
        (np.zeros((9, 8, 3), bool), "bool: expected uint8"),
        (np.full((9, 8, 3), np.nan), "NaN"),
        (3.0, "one number"),
    ],
    ids=str,
)
def test_wrong_inputs_are_refused_with_what_is_right(model: Model, x: np.ndarray, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        model.predict(x)


def test_pixels_need_a_formula() -> None:
    model = Model(small_image())
    model.image.metadata["input"] = "(pixel - mean image) * 0.0078125"
    assert model.pixels is None
    with pytest.raises(ArgumentError, match="does not say how pixels become the net's input"):
        model.predict(photos(1))


@pytest.mark.parametrize("formula", [None, "", "pixel - 128", "(pixel - x) * 1", "(pixel - 1e) * 1", 7])
def test_other_formulas_are_not_guessed_at(formula: object) -> None:
    assert Pixels.parse(formula) is None


def test_a_grey_picture_may_leave_its_channel_out() -> None:
    grey = Tensor(9, 8, 1, zero_point=0, rank=3, scale=1.0)
    one, batched = to_planes(np.zeros((9, 8), np.int8), grey, None)
    assert (one.shape, batched) == ((1, 1, 9, 8), False)
    many, batched = to_planes(np.zeros((4, 9, 8), np.int8), grey, None)
    assert (many.shape, batched) == ((4, 1, 9, 8), True)


def test_a_sequence_may_leave_its_height_out() -> None:
    sequence = Tensor(1, 9, 2, zero_point=0, rank=3, scale=1.0)
    values = np.arange(18, dtype=np.int8).reshape(9, 2)
    one, batched = to_planes(values, sequence, None)
    assert (one.shape, batched) == ((1, 2, 1, 9), False)
    many, batched = to_planes(np.stack([values, values]), sequence, None)
    assert (many.shape, batched) == ((2, 2, 1, 9), True)
    assert (many[1] == to_planes(values[None], sequence, None)[0]).all() and (one[0, :, 0].T == values).all()


@given(st.floats(-1e9, 1e9), st.floats(2**-20, 2**20), st.integers(-128, 127))
def test_quantization_is_to_nearest_with_ties_away_from_zero(real: float, scale: float, zero: int) -> None:
    found = int(quantize(np.array([real]), Tensor(1, 1, 1, zero, 1, scale))[0])
    steps = real / scale
    nearest = int(steps + 0.5) if steps >= 0 else -int(-steps + 0.5)
    assert found == max(-128, min(127, nearest + zero))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"none\.fbit: No such file.*FB_ERR_IO"):
        Model(tmp_path / "none.fbit")
    with pytest.raises(FileError, match="Is a directory"):
        Model(tmp_path)
    (tmp_path / "bad.fbit").write_bytes(b"FBIT")
    with pytest.raises(FlipbitError, match=rf"^{tmp_path}/bad.fbit: 4 bytes are too few"):
        Model(tmp_path / "bad.fbit")


def test_a_missing_core_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    core.library.cache_clear()
    monkeypatch.setenv(core.ENVIRONMENT, str(tmp_path / "none.so"))
    with pytest.raises(CoreError, match="pip install -e"):
        Model(small_image())
    monkeypatch.undo()
    core.library.cache_clear()
    assert Model(small_image())
