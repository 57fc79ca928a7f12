"""Listening in the C core: the windows that it makes, and what it decides, held to NumPy."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime import Model
from flipbit.runtime.audio.config import AudioConfig
from flipbit.runtime.audio.features import features
from flipbit.runtime.core.library import status_name
from flipbit.runtime.errors import ArgumentError, InputError
from flipbit.runtime.recordings.front_ends import AudioInput, FrontEndInput, SignalInput
from flipbit.runtime.recordings.listener import (
    Detection,
    ListenConfig,
    Listener,
    _CDetection,
    _CListen,
    _CListenConfig,
    _core,
)
from tests.nets.recorded_nets import recorded_graph
from tests.nets.small_nets import small_image

AUDIO = AudioInput(AudioConfig(window=100, hop=60, fft=128, bands=8), length=9, hop=2)
SIGNAL = SignalInput.scaled(50, 12, 4, [-1.0, -2.0, 0.0], [1.0, 2.0, 9.81])
NETS: dict[str, tuple[FrontEndInput, tuple[int, int, int]]] = {
    "audio": (AUDIO, (9, 8, 1)),
    "planes": (SIGNAL, (1, 12, 3)),
    "interleaved": (SIGNAL, (12, 3, 1)),
}
MODELS = {name: Model(fbit_bytes(recorded_graph(*net))) for name, net in NETS.items()}


def stream(count: int, channels: int, seed: int = 1) -> np.ndarray:
    """Samples that are loud and quiet in turns, so that the net's answers differ."""
    random = np.random.default_rng(seed)
    loudness = np.repeat(random.integers(1, 32768, count // 200 + 1), 200)[:count]
    samples = np.clip(random.normal(0, 1, (count, channels)) * loudness[:, None], -32768, 32767)
    return samples.astype(np.int16).reshape(-1 if channels == 1 else (count, channels))


def windows(model: Model, samples: np.ndarray, stride: int) -> np.ndarray:
    """int8 inputs, height × width × channels, made by NumPy."""
    front_end = model.image.front_end
    if isinstance(front_end, AudioInput):
        rows = features(samples, front_end.audio)[:, :, None]
    else:
        assert front_end is not None
        rows = front_end.int8(samples)[:, :, None]
    made = [rows[at : at + front_end.length] for at in range(0, len(rows) - front_end.length + 1, stride)]
    if model.input_shape[0] == 1:
        made = [window.transpose(2, 0, 1) for window in made]
    return np.array(made).reshape(-1, *model.input_shape)


def decided(front_end: FrontEndInput, scores: np.ndarray, config: ListenConfig, stride: int) -> list[Detection]:
    """docs/listening.md in NumPy."""
    found, quiet = [], 0
    for number in range(len(scores)):
        if quiet:
            quiet -= 1
            continue
        if number + 1 < config.average:
            continue
        sums = scores[number + 1 - config.average : number + 1].astype(int).sum(0)
        label = int(np.argmax(sums))
        margin = sums[label] - np.delete(sums, label).max()
        if margin >= config.threshold * config.average and not config.ignored >> label & 1:
            found.append(Detection.of(front_end, stride, number, label, int(margin // config.average)))
            quiet = config.refractory
    return found


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("stride", [0, 1, 3, 9, 12, 17])
def test_the_net_sees_the_windows_that_numpy_cuts(name: str, stride: int) -> None:
    model = MODELS[name]
    front_end = model.image.front_end
    assert front_end is not None
    samples = stream(12_000, front_end.channels)
    config = ListenConfig(stride, threshold=6, average=2, refractory=3, ignored=1)
    listener = Listener(model, config)
    found = listener.push(samples)
    expected = model.predict(windows(model, samples, stride or front_end.hop), raw=True)
    np.testing.assert_array_equal(np.array(listener.scores), expected)
    assert listener.windows == len(expected) > 5
    assert found == decided(front_end, expected, config, stride or front_end.hop)


@given(st.lists(st.integers(1, 700), min_size=1, max_size=12), st.sampled_from(sorted(NETS)))
@settings(max_examples=30)
def test_pieces_of_any_size_are_heard_alike(sizes: list[int], name: str) -> None:
    model = MODELS[name]
    assert model.image.front_end is not None
    samples = stream(sum(sizes), model.image.front_end.channels).reshape(-1)
    whole, parts = Listener(model, ListenConfig(threshold=4)), Listener(model, ListenConfig(threshold=4))
    expected, at = whole.push(samples), 0
    found: list[Detection] = []
    for size in [*sizes, samples.size]:  # the rest at last; values, not samples: a piece may end between two channels
        found += parts.push(samples[at : at + size])
        at += size
    assert (found, parts.crc, parts.windows) == (expected, whole.crc, whole.windows)


@given(st.integers(0, 2**32), st.integers(0, 255), st.integers(1, 16), st.integers(0, 30), st.integers(0, 7))
@settings(max_examples=200)
def test_decisions_are_those_of_numpy(seed: int, threshold: int, average: int, refractory: int, ignored: int) -> None:
    random = np.random.default_rng(seed)
    config = ListenConfig(0, threshold, average, refractory, ignored)
    listener = Listener(MODELS["audio"], config)
    scores = np.clip(random.normal(0, random.integers(1, 100), (60, 3)), -128, 127).astype(np.int8)
    scores = np.repeat(scores, random.integers(1, 4), axis=0)  # words last for some windows
    found = []
    for number, row in enumerate(scores):
        detection = _CDetection()
        listener._listen.windows = number + 1
        row = np.ascontiguousarray(row)
        if _core().fb_listen_decide(ctypes.byref(listener._listen), row.ctypes.data, ctypes.byref(detection)):
            found.append(Detection.of(AUDIO, AUDIO.hop, detection.window, detection.label, detection.margin))
    assert found == decided(AUDIO, scores, config, AUDIO.hop)


def test_something_is_detected_and_a_rest_follows() -> None:
    model = MODELS["audio"]
    samples = stream(20_000, 1)
    often = Listener(model, ListenConfig(threshold=0, average=1, refractory=0)).push(samples)
    seldom = Listener(model, ListenConfig(threshold=0, average=1, refractory=9)).push(samples)
    assert len(often) > 100 and 0 < len(seldom) <= len(often) // 10 + 1
    assert min(np.diff([d.window for d in seldom])) >= 10


def test_after_a_reset_it_hears_as_at_first() -> None:
    model = MODELS["audio"]
    samples, listener = stream(5000, 1), Listener(model, ListenConfig(threshold=0))
    first, crc = listener.push(samples), listener.crc
    listener.push(stream(777, 1, seed=4))
    listener.reset()
    assert (listener.push(samples), listener.crc) == (first, crc)


def test_times_are_those_of_the_window_s_last_sample() -> None:
    found = Listener(MODELS["audio"], ListenConfig(threshold=0, average=1, refractory=0)).push(stream(2000, 1))
    assert found[0].samples == 100 + 8 * 60  # the first window of features, then a hop per row
    assert found[1].samples - found[0].samples == AUDIO.hop * 60


def test_a_net_of_pictures_does_not_listen() -> None:
    with pytest.raises(InputError, match="does not say how recordings become its input"):
        Listener(Model(small_image()))


@pytest.mark.parametrize(("field", "value"), [("threshold", 256), ("average", 0), ("average", 17), ("stride", -1)])
def test_settings_outside_their_limits_are_named(field: str, value: int) -> None:
    with pytest.raises(ArgumentError, match=f"{field} is {value}"):
        ListenConfig(**{field: value})


def test_the_core_refuses_what_python_refuses_and_memory_that_is_too_small() -> None:
    model = MODELS["audio"]
    core, opened = _core(), model._core.model
    for wrong in ((0, 256, 3, 8, 0), (0, 16, 0, 8, 0), (0, 16, 17, 8, 0)):
        assert core.fb_listen_size(ctypes.byref(opened), ctypes.byref(_CListenConfig(*wrong))) == 0
    listener = Listener(model)
    packed, memory = _CListenConfig(0, 16, 3, 8, 0), listener._memory
    size = core.fb_listen_size(ctypes.byref(opened), ctypes.byref(packed))

    def status(address: int, room: int) -> int:
        place = listener._input.ctypes.data
        return int(
            core.fb_listen_open(
                ctypes.byref(_CListen()), ctypes.byref(opened), ctypes.byref(packed), place, address, room
            )
        )

    assert status(memory.ctypes.data, size) == 0
    assert status_name(status(memory.ctypes.data, size - 1)) == "FB_ERR_ARENA"
    assert status_name(status(memory.ctypes.data + 1, size)) == "FB_ERR_ALIGN"
    assert status_name(status(0, size)) == "FB_ERR_ARGUMENT"


def test_the_memory_for_keywords_is_what_the_header_says() -> None:
    labels = tuple(f"word{i}" for i in range(12))
    graph = recorded_graph(AudioInput(), (49, 40, 1), labels)
    assert Listener(Model(fbit_bytes(graph)), ListenConfig()).size == 3116


def test_classes_called_silence_or_unknown_are_ignored_unless_others_are_named() -> None:
    model = MODELS["audio"]  # silence, yes, no
    assert ListenConfig.for_model(model).ignored == 0b001
    assert ListenConfig.for_model(model, ignored=("no", "yes")).ignored == 0b110
    with pytest.raises(ArgumentError, match="--ignore maybe: the net's classes are silence, yes, no"):
        ListenConfig.for_model(model, ignored=("maybe",))
