"""A board that listens hears what this machine hears: with noise and repetitions on the line, after restarts, and
emulated."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime import Model
from flipbit.runtime.audio.config import AudioConfig
from flipbit.runtime.board.profile import build, load_profile
from flipbit.runtime.link.device import Device, RefusedError, open_device
from flipbit.runtime.link.listen_device import CONFIG, DeviceError, DeviceListener
from flipbit.runtime.link.protocol import Command, Status
from flipbit.runtime.recordings.front_ends import AudioInput, SignalInput
from flipbit.runtime.recordings.listener import ListenConfig, Listener
from tests.firmware.host_app import HostApp, build_app
from tests.nets.recorded_nets import recorded_graph
from tests.nets.small_nets import small_image
from tests.patience import PATIENCE

AUDIO = AudioInput(AudioConfig(window=100, hop=60, fft=128, bands=8), length=9, hop=2)
SIGNAL = SignalInput.scaled(50, 12, 4, [-1.0, -2.0, 0.0], [1.0, 2.0, 9.81])
IMAGES = {
    "audio": fbit_bytes(recorded_graph(AUDIO, (9, 8, 1))),
    "signal": fbit_bytes(recorded_graph(SIGNAL, (1, 12, 3))),
}
# The front end of keyword nets.
WORDS = fbit_bytes(recorded_graph(AudioInput(AudioConfig(hop=400, bands=32), 39, 4), (39, 32, 1)))
CONFIG_OFTEN = ListenConfig(threshold=2, average=2, refractory=3)


def recording(count: int, channels: int = 1, seed: int = 2) -> np.ndarray:
    random = np.random.default_rng(seed)
    loudness = np.repeat(random.integers(1, 20_000, count // 300 + 1), 300)[:count]
    made = np.clip(random.normal(0, 1, (count, channels)) * loudness[:, None], -32768, 32767).astype(np.int16)
    return made[:, 0] if channels == 1 else made


@pytest.fixture(params=sorted(IMAGES))
def listening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[HostApp, Model]]:
    image = IMAGES[request.param]
    with HostApp(build_app(image), tmp_path / "flash") as running:
        running.device.hello()
        yield running, Model(image)


def test_the_application_hears_what_this_machine_hears(listening: tuple[HostApp, Model]) -> None:
    app, model = listening
    assert model.image.front_end is not None
    samples = recording(4000, model.image.front_end.channels)
    here, there = Listener(model, CONFIG_OFTEN), DeviceListener(app.device, CONFIG_OFTEN)
    expected = here.push(samples)
    assert len(expected) > 5
    assert there.push(samples) == expected
    assert (there.crc, there.windows) == (here.crc, here.windows)


def test_a_piece_that_comes_twice_is_heard_once(listening: tuple[HostApp, Model]) -> None:
    app, model = listening
    assert model.image.front_end is not None
    samples = recording(1500, model.image.front_end.channels).reshape(-1)
    here = Listener(model, CONFIG_OFTEN)
    here.push(samples)
    app.device.request(Command.LISTEN_OPEN, _config(CONFIG_OFTEN))
    at, reply = 0, b""
    while at < samples.size:
        payload = struct.pack("<I", at) + samples[at : at + 120].tobytes()
        reply = app.device.request(Command.LISTEN_PUSH, payload)
        assert app.device.request(Command.LISTEN_PUSH, payload) == reply
        at = int.from_bytes(reply[:4], "little")
    assert struct.unpack_from("<II", reply, 4) == (here.windows, here.crc)


def _config(given: ListenConfig) -> bytes:
    return CONFIG.pack(given.stride, given.threshold, given.average, given.refractory, given.ignored)


def _refused(device: Device, command: Command, payload: bytes) -> tuple[int, int]:
    with pytest.raises(RefusedError) as error:
        device.request(command, payload)
    return error.value.code, error.value.detail


def test_pieces_out_of_order_odd_lengths_and_samples_before_opening_are_refused(
    listening: tuple[HostApp, Model],
) -> None:
    device = listening[0].device
    assert _refused(device, Command.LISTEN_PUSH, bytes(8)) == (Status.STATE, 12)
    device.request(Command.LISTEN_OPEN, _config(CONFIG_OFTEN))
    device.request(Command.LISTEN_PUSH, struct.pack("<I", 0) + bytes(20))
    assert _refused(device, Command.LISTEN_PUSH, struct.pack("<I", 11) + bytes(20)) == (Status.ORDER, 10)
    assert _refused(device, Command.LISTEN_PUSH, struct.pack("<I", 10) + bytes(21)) == (Status.LENGTH, 25)
    assert _refused(device, Command.LISTEN_OPEN, CONFIG.pack(0, 256, 3, 8, 0))[0] == Status.MODEL


def test_another_command_ends_listening_and_the_net_has_its_memory_again(listening: tuple[HostApp, Model]) -> None:
    app, model = listening
    before = app.device.infer(np.zeros(model.input_shape, np.int8)).values
    plans = [report.kernel for report in app.device.layers()]
    listener = DeviceListener(app.device, CONFIG_OFTEN)
    listener.push(recording(200, listener.front_end.channels))
    app.device.counters()  # this one leaves the net alone
    listener.push(recording(200, listener.front_end.channels))
    after = app.device.infer(np.zeros(model.input_shape, np.int8)).values
    np.testing.assert_array_equal(after, before)
    assert [report.kernel for report in app.device.layers()] == plans
    assert _refused(app.device, Command.LISTEN_PUSH, bytes(8)) == (Status.STATE, 12)


def test_a_net_of_pictures_is_asked_to_listen(tmp_path: Path) -> None:
    with HostApp(build_app(small_image()), tmp_path / "flash") as app:
        app.device.hello()
        assert _refused(app.device, Command.LISTEN_OPEN, _config(ListenConfig())) == (Status.MODEL, 25)  # FB_ERR_EMPTY


def test_noise_on_the_line_changes_nothing(listening: tuple[HostApp, Model]) -> None:
    app, model = listening
    assert model.image.front_end is not None
    samples = recording(1200, model.image.front_end.channels)
    here, there = Listener(model, CONFIG_OFTEN), DeviceListener(app.device, CONFIG_OFTEN)
    random, found = np.random.default_rng(3), []
    for at in range(0, len(samples), 200):
        app.line.write(random.integers(0, 256, int(random.integers(1, 400)), dtype=np.uint8).tobytes() + b"\0")
        found += there.push(samples[at : at + 200])
    assert found == here.push(samples)
    assert there.crc == here.crc


def test_after_a_loss_of_power_it_listens_anew_from_there(tmp_path: Path) -> None:
    model = Model(IMAGES["audio"])
    samples = recording(3000)
    with HostApp(build_app(IMAGES["audio"]), tmp_path / "flash") as app:
        app.device.hello()
        told: list[int] = []
        there = DeviceListener(app.device, CONFIG_OFTEN, told.append)
        first = there.push(samples[:1230])
        app.device.reset()  # as when power fails: RAM is gone, the board is ready again
        rest = there.push(samples[1230:])
        assert (there.restarts, told) == (1, [1230])
    assert first == Listener(model, CONFIG_OFTEN).push(samples[:1230])
    anew = Listener(model, CONFIG_OFTEN).push(samples[1230:])
    assert [(d.window, d.label, d.samples - 1230) for d in rest] == [(d.window, d.label, d.samples) for d in anew]


def test_a_board_that_restarts_again_and_again_is_given_up(tmp_path: Path) -> None:
    with HostApp(build_app(IMAGES["audio"]), tmp_path / "flash") as app:
        app.device.hello()
        there = DeviceListener(app.device, CONFIG_OFTEN)
        for _ in range(5):
            app.device.reset()
            there.push(recording(10))
        app.device.reset()
        with pytest.raises(DeviceError, match="restarted 6 times"):
            there.push(recording(10))


@pytest.mark.parametrize("board", ["mps2-an386", "microbit"])
def test_an_emulated_board_hears_what_this_machine_hears(board: str, tmp_path: Path) -> None:
    """A Cortex-M4, and a Cortex-M0 with 16 KB of RAM."""
    profile = load_profile(board)
    for tool in (f"{profile.facts['build']['compiler']}gcc", "make", *(profile.qemu or [])[:1]):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    image = tmp_path / "words.fbit"
    image.write_bytes(WORDS)
    samples, model = recording(20_000), Model(WORDS)
    elf = build(profile, image, tmp_path).elf
    here = Listener(model, CONFIG_OFTEN)
    expected = here.push(samples)
    assert expected
    with open_device(f"qemu:{board}", elf, timeout=PATIENCE) as device:
        there = DeviceListener(device, CONFIG_OFTEN)
        assert there.push(samples) == expected
        assert (there.crc, there.windows) == (here.crc, here.windows)
