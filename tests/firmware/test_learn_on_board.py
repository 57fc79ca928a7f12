"""Learning on boards: the bits of the host, on emulated microcontrollers and through the protocol."""

from __future__ import annotations

import importlib.util
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime import Model
from flipbit.runtime.board.profile import Profile, build, load_profile
from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.core.library import status_name
from flipbit.runtime.core.store import DEVICE, Store
from flipbit.runtime.core.target import Target, TargetLostPower
from flipbit.runtime.errors import ArenaError, ArgumentError, FlashError, OwnerError, StateError
from flipbit.runtime.link.device import BUILT_IN, RefusedError, open_device
from flipbit.runtime.link.learn_device import DeviceTarget
from flipbit.runtime.link.protocol import LEARNING, Command, Status
from flipbit.runtime.simulate.power import load_device
from flipbit.runtime.simulate.simulator import SimulatedDevice
from tests.checkout import ROOT
from tests.firmware.host_app import HostApp, build_app
from tests.nets.small_nets import referenced_image, small_image
from tests.nets.tiny_net import tiny_image
from tests.patience import PATIENCE

BOTH = LearnerConfig(seed=3, bits=True, bias=True)


def exported(name: str, folder: Path) -> bytes:
    """A trained net of models/."""
    for module in ("tensorflow", "tf_keras"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"exporting {name} needs {module}")
    path = folder / f"{name}.fbit"
    command = [sys.executable, "export/to_fbit.py", f"models/{name}/model.h5", "-o", str(path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return path.read_bytes()


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return exported("digits-vgg-small", tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("builds")


def firmware_tools(board: str) -> Profile:
    """Skip if the board cannot be built for and emulated here."""
    profile = load_profile(board)
    for tool in (f"{profile.facts['build']['compiler']}gcc", "make", *(profile.qemu or [])[:1]):
        if not shutil.which(tool):
            pytest.skip(f"{board} needs {tool}")
    return profile


def firmware(board: str, image: bytes, builds: Path) -> Path:
    profile = firmware_tools(board)
    path = builds / f"{board}.fbit"
    path.write_bytes(image)
    return build(profile, path, builds).elf


def samples(image: bytes, count: int) -> tuple[np.ndarray, np.ndarray]:
    model = Model(image)
    random = np.random.default_rng(0)
    x = random.integers(-128, 128, (count, int(np.prod(model.input_shape)))).astype(np.int8)
    return x, random.integers(0, int(np.prod(model.output_shape)), count)


def step(target: Target, x: np.ndarray, y: np.ndarray, rate: float) -> int:
    """One step; how many passes it took."""
    target.begin(len(x), rate, rate)
    for passes in range(1, 10_000):
        for sample, label in zip(x, y):
            target.sample(sample, int(label))
        if not target.end_pass():
            return passes
    raise AssertionError("a step without end")


# ---- emulated boards ----

NETS = {"microbit": "small", "hifive1": "small", "netduinoplus2": "digits", "mps2-an385": "digits"}
RAM = {
    "microbit": 7_640,
    "hifive1": 7_640,
    "netduinoplus2": 26_288,
    "mps2-an385": 26_288,
}  # least, with input and output


@pytest.mark.parametrize("board", NETS)
def test_an_emulated_board_learns_the_bits_of_the_host(
    board: str, builds: Path, request: pytest.FixtureRequest
) -> None:
    image = small_image(0) if NETS[board] == "small" else request.getfixturevalue("digits")
    x, y = samples(image, 3)
    with open_device(f"qemu:{board}", firmware(board, image, builds)) as device:
        target = DeviceTarget(device, BOTH)
        assert abs(target.memory.needed - RAM[board]) < 32
        host = Learner(
            image, BOTH, target.memory.arena
        )  # how many passes that makes depends on kernels, the bits do not
        for rate in (0.05, 0.02):
            step(target, x, y, rate)
            told = host.step(x, y, rate, rate)
            assert target.flips == told.flips > 0
        assert (target.image, target.state) == (host.image, host.state)
        assert device.info().model_crc == int.from_bytes(host.image[12:16], "little")
        assert device.verify(np.zeros(Model(image).input_shape, np.int8), Model(host.image)) is None


@pytest.mark.parametrize("board", ["netduinoplus2", "hifive1"])
def test_an_emulated_board_recalibrates_and_moves_gains_as_the_host_does(board: str, builds: Path) -> None:
    image, config = (
        referenced_image(),
        LearnerConfig(4, 0, 0, False, True, gain=True, recalibrate=1, prior=9, augment=17),
    )
    x, y = samples(image, 4)
    with open_device(f"qemu:{board}", firmware(board, image, builds), timeout=PATIENCE) as device:
        target, host = DeviceTarget(device, config), Learner(image, config)
        for rate in (0.0, 0.3, 0.1):
            step(target, x, y, rate)
            host.step(x, y, rate, rate)
            assert (target.image, target.state) == (host.image, host.state)
        target.forget()  # undo
        assert target.image == image


@pytest.mark.slow
def test_resnet8_learns_on_128_kilobytes(cifar10: object, builds: Path, tmp_path: Path) -> None:
    """Of RAM in all: 13 KB of image, 10 KB of state, the rest an arena in which a step takes twenty passes."""
    image = exported("cifar10-resnet8", tmp_path)
    config = LearnerConfig(seed=1, bits=True)
    x, y = samples(image, 1)
    with open_device("qemu:netduinoplus2", firmware("netduinoplus2", image, builds)) as device:
        target = DeviceTarget(device, config, save="close")
        assert target.memory.available < 128 * 1024
        host = Learner(image, config)
        assert step(target, x, y, 0.05) > 10
        assert host.step(x, y, 0.05, 0.05).passes < 10
        assert (target.image, target.state) == (host.image, host.state)


LAST_BIASES = LearnerConfig(bits=False, bias=True, first_op=9)


def test_a_microbit_learns_the_biases_of_the_digits_nets_last_layer(builds: Path, digits: bytes) -> None:
    """12 KB of net in 16 KB of RAM: as a simulated board does, and as a host."""
    x, y = samples(digits, 3)
    simulated = SimulatedDevice(load_device("microbit"), digits, LAST_BIASES)
    with open_device("qemu:microbit", firmware("microbit", digits, builds)) as device:
        target, host = DeviceTarget(device, LAST_BIASES), Learner(digits, LAST_BIASES)
        assert target.memory.needed <= target.memory.available < target.memory.needed + 64
        assert abs(simulated.memory.arena - target.memory.arena) < 16
        for rate in (0.5, 0.2):
            for each in (target, simulated):
                step(each, x, y, rate)
            host.step(x, y, rate, rate)
            assert target.image == simulated.image == host.image != digits
            assert target.state == simulated.state == host.state
        device.reset()  # it was saved after each step
        assert device.read_image() == host.image


def test_a_board_says_how_much_memory_is_missing(builds: Path, digits: bytes) -> None:
    """The digits net with its 12 KB does not learn bits in a micro:bit's 16."""
    with open_device("qemu:microbit", firmware("microbit", digits, builds)) as device:
        for config in (BOTH, LearnerConfig(bits=False, bias=True)):
            with pytest.raises(
                ArenaError, match=r"it needs [\d,]+ bytes of RAM .* the board has [\d,]+; [\d,]+ are missing"
            ):
                DeviceTarget(device, config)
        assert device.info().learns is False
        assert device.verify(np.zeros(Model(digits).input_shape, np.int8)) is None  # still runs


def test_flash_that_cannot_be_written_is_said_and_learning_goes_on(builds: Path, digits: bytes) -> None:
    """QEMU does not model the flash controller of this board."""
    x, y = samples(digits, 1)
    with open_device("qemu:netduinoplus2", firmware("netduinoplus2", digits, builds)) as device:
        target = DeviceTarget(device, LearnerConfig(bits=False, bias=True, first_op=9))
        step(target, x, y, 0.1)
        assert "does not hold what was written" in target.unsaved
        with pytest.raises(FlashError, match="could not save a checkpoint"):
            target.save()
        step(target, x, y, 0.1)
        assert target.steps == 2


# ---- the application on this machine ----


@pytest.fixture
def app(tmp_path: Path) -> Iterator[HostApp]:
    with HostApp(build_app(tiny_image()), tmp_path / "flash") as running:
        running.device.hello()
        yield running


X, Y = np.random.default_rng(1).integers(-128, 128, (3, 32)).astype(np.int8), np.array([0, 1, 2])


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def refused(app: HostApp, command: Command, payload: bytes = b"") -> tuple[int, int]:
    with pytest.raises(RefusedError) as error:
        app.device.request(command, payload)
    return error.value.code, error.value.detail


def test_requests_that_come_twice_have_the_effect_of_one(app: HostApp) -> None:
    target, host = DeviceTarget(app.device, BOTH), Learner(tiny_image(), BOTH)
    request = app.device.request

    def twice(command: int, payload: bytes = b"", *more: object, **named: object) -> bytes:
        first = request(command, payload, *more, **named)  # type: ignore[arg-type]
        second = request(command, payload, *more, **named)  # type: ignore[arg-type]
        ticks = 4 if command in (Command.LEARN_SAMPLE, Command.LEARN_END) else 0
        assert first[: len(first) - ticks] == second[: len(second) - ticks]
        return first

    app.device.request = twice  # type: ignore[method-assign]
    for _ in range(2):
        step(target, X, Y, 0.2)
        host.step(X, Y, 0.2, 0.2)
    assert (target.image, target.state) == (host.image, host.state)


def test_requests_out_of_order_are_refused_with_what_was_expected(app: HostApp) -> None:
    assert refused(app, Command.LEARN_SAMPLE, words(0, 0)) == (Status.STATE, 8)
    assert refused(app, Command.LEARN_SAVE) == (Status.STATE, 8)
    target = DeviceTarget(app.device, BOTH)
    assert refused(app, Command.LEARN_SAMPLE, words(0, 0)) == (Status.STATE, 9)
    assert refused(app, Command.LEARN_END, words(0, 0)) == (Status.STATE, 9)
    assert refused(app, Command.LEARN_BEGIN, words(1, 3, 0, 0)) == (Status.ORDER, 0)
    target.begin(3, 0.1, 0.1)
    assert refused(app, Command.LEARN_SAMPLE, words(0, 0)) == (Status.STATE, 2)  # no input yet
    target.sample(X[0], 0)
    assert refused(app, Command.LEARN_SAMPLE, words(2, 0)) == (Status.ORDER, 1)
    assert refused(app, Command.LEARN_SAMPLE, words(1, 3)) == (Status.RANGE, 3)
    assert refused(app, Command.LEARN_SAMPLE, words(3, 0)) == (Status.RANGE, 3)
    assert refused(app, Command.LEARN_END, words(0, 0)) == (Status.ORDER, 1)
    assert refused(app, Command.LEARN_SAVE) == (Status.STATE, 10)
    assert refused(app, Command.INFER) == (Status.STATE, 10)
    assert refused(app, Command.LEARN_READ, words(4, 0, 1)) == (Status.RANGE, 3)
    assert refused(app, Command.LEARN_READ, words(0, 0, 241)) == (Status.RANGE, 240)
    assert refused(app, Command.LEARN_READ, words(0, 352, 1)) == (Status.RANGE, 352)


def test_a_device_runs_what_it_has_learned_and_still_does_after_a_restart(app: HostApp) -> None:
    target, host = DeviceTarget(app.device, BOTH), Learner(tiny_image(), BOTH)
    step(target, X, Y, 0.3)
    host.step(X, Y, 0.3, 0.3)
    pixels = np.random.default_rng(2).integers(-128, 128, (4, 4, 2), np.int8)
    assert host.image != tiny_image()
    for _ in range(2):
        assert app.device.info().learns
        assert app.device.read_image() == host.image
        assert app.device.read_image(BUILT_IN) == tiny_image()
        assert app.device.verify(pixels, Model(host.image)) is None
        app.device.reset()
    again = DeviceTarget(app.device, BOTH)
    assert (again.steps, again.memory.resumed, again.state) == (1, True, host.state)
    again.forget()
    assert (again.steps, again.image) == (0, tiny_image())
    app.device.reset()
    assert not app.device.info().learns
    assert app.device.read_image() == tiny_image()


def test_a_restart_in_the_middle_of_a_step_is_told_and_the_end_is_the_same(app: HostApp) -> None:
    target, host = DeviceTarget(app.device, BOTH, save="pass"), Learner(tiny_image(), BOTH)
    for _ in range(2):
        step(target, X, Y, 0.2)
        host.step(X, Y, 0.2, 0.2)
    target.begin(3, 0.1, 0.1)
    target.sample(X[0], 0)
    app.device.request(Command.RESET)
    with pytest.raises(TargetLostPower, match="went on from step 2"):
        target.sample(X[1], 1)
    step(target, X, Y, 0.1)
    host.step(X, Y, 0.1, 0.1)
    assert (target.image, target.state) == (host.image, host.state)


def test_another_image_is_not_selected_over_what_is_not_saved(app: HostApp) -> None:
    device = app.device
    slot = device.upload(tiny_image(1))
    target = DeviceTarget(device, BOTH, save="close")
    step(target, X, Y, 0.3)
    learned = target.image
    with pytest.raises(RefusedError, match="not saved"):
        device.select(slot)
    assert target.image == learned
    target.save()
    info = device.select(slot)
    assert (info.learns, info.checkpoint) == (False, 26)  # FB_ERR_OWNER: of another model
    with pytest.raises(
        OwnerError, match=f"another model \\(CRC {int.from_bytes(tiny_image()[12:16], 'little'):08x}\\)"
    ):
        DeviceTarget(device, BOTH)
    device.select(BUILT_IN)
    assert (device.info().learns, device.read_image()) == (True, learned)
    device.select(slot)
    other = DeviceTarget(device, BOTH, fresh=True)  # replaces the checkpoint, as asked
    other.save()
    device.select(BUILT_IN)
    assert device.read_image() == tiny_image()


def test_other_settings_are_refused_and_nothing_is_lost(app: HostApp) -> None:
    target = DeviceTarget(app.device, BOTH, save="close")
    step(target, X, Y, 0.3)
    learned = target.image, target.state
    with pytest.raises(StateError, match="learned with other settings"):
        DeviceTarget(app.device, LearnerConfig(seed=4, bits=True, bias=True))
    with pytest.raises(ArgumentError, match="nothing in that range is trainable"):
        DeviceTarget(app.device, LearnerConfig(bits=False, bias=False))
    assert (target.image, target.state) == learned
    assert DeviceTarget(app.device, BOTH).steps == 1


def opened(app: HostApp, payload: bytes) -> str:
    """The core's status in an answer to LEARN_OPEN."""
    return status_name(LEARNING.unpack_from(app.device.request(Command.LEARN_OPEN, payload))[0])


def test_a_configuration_of_a_later_or_an_earlier_version_is_refused(app: HostApp) -> None:
    packed = BOTH.pack()
    assert opened(app, packed[:4] + b"\1" + packed[5:] + bytes(4)) == "FB_ERR_ARGUMENT"  # a rule to come
    assert opened(app, packed[:15] + b"\1" + bytes(4)) == "FB_ERR_ARGUMENT"
    assert refused(app, Command.LEARN_OPEN, packed) == (Status.LENGTH, 16)  # as long as it was in version 1
    assert refused(app, Command.LEARN_OPEN, packed + b"\2\0\0\0") == (Status.RANGE, 1)
    assert not app.device.info().learns
    assert opened(app, packed + bytes(4)) == "FB_OK"


@pytest.mark.parametrize("every_pass", [False, True])
def test_a_simulated_device_saves_the_record_of_a_board(app: HostApp, tmp_path: Path, every_pass: bool) -> None:
    board = DeviceTarget(app.device, BOTH)
    simulated = SimulatedDevice(load_device("nrf52840-dk"), tiny_image(), BOTH, every_pass=every_pass)
    for rate in (0.3, 0.2):
        step(board, X, Y, rate)
        step(simulated, X, Y, rate)
    simulated.save()
    flash = (tmp_path / "flash").read_bytes()
    on_board = flash[flash.rindex(b"FBDV") :][: len(simulated.record)]
    store = Store(simulated.flash)
    assert store.read() == simulated.record == on_board
    assert store.current and store.current.kind == DEVICE
    assert store.current.owner == DeviceTarget(app.device, BOTH).memory.owner != 0
    assert len(on_board) == 24 + board.memory.record
    other = SimulatedDevice(load_device("nrf52840-dk"), tiny_image(), BOTH)
    other.restore(on_board, simulated.place)
    assert (other.steps, other.image, other.state) == (2, board.image, board.state)


def test_a_board_without_storage_learns_and_says_that_it_cannot_save(tmp_path: Path) -> None:
    with HostApp(build_app(tiny_image(), "-DBOARD_STORE_SIZE=0u"), tmp_path / "flash") as bare:
        bare.device.hello()
        target = DeviceTarget(bare.device, BOTH)
        assert target.memory.record_room == 0
        step(target, X, Y, 0.2)
        assert "no storage" in target.unsaved
        assert target.steps == 1
