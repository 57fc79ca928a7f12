"""The firmware's application: the real C, compiled for this machine, against noise, nonsense and loss of power."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipbit.runtime import Model
from flipbit.runtime.core import library as core
from flipbit.runtime.link.device import BUILT_IN, Device, DeviceError, RefusedError, RestartedError
from flipbit.runtime.link.line import LineError
from flipbit.runtime.link.protocol import LINE_MAX, NO_SLOT, PAYLOAD_MAX, PIECE_MAX, Command, Frame, Status, encode
from tests.firmware.host_app import BOARD, FIRMWARE, POWER_LOST, STORE_SIZE, HostApp, build_app
from tests.nets.small_nets import photos, small_image

IMAGE, OTHER = small_image(0), small_image(1)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostApp]:
    with HostApp(build_app(IMAGE), tmp_path_factory.mktemp("app") / "flash") as running:
        running.device.hello()
        yield running


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[HostApp]:
    """With flash that nobody has written."""
    with HostApp(build_app(IMAGE), tmp_path / "flash") as running:
        running.device.hello()
        yield running


def _refused(device: Device, command: int, payload: bytes = b"") -> RefusedError:
    with pytest.raises(RefusedError) as error:
        device.request(command, payload)
    return error.value


# ---- frames ----


def test_every_length_of_payload_comes_back(app: HostApp) -> None:
    source = random.Random(0)
    for length in range(PAYLOAD_MAX + 1):
        data = bytes(source.choice((0, 0, 1, 255, source.randrange(256))) for _ in range(length))
        assert app.talk(b"", Command.ECHO, data)[0].payload == data


@given(st.binary(max_size=PAYLOAD_MAX))
@settings(max_examples=300)
def test_any_payload_comes_back(app: HostApp, data: bytes) -> None:
    assert app.talk(b"", Command.ECHO, data)[0].payload == data


@given(st.binary(max_size=3000))
@settings(max_examples=400)
def test_a_request_after_any_noise_is_answered(app: HostApp, noise: bytes) -> None:
    reply, before = app.talk(noise)
    assert reply.payload == b"still there?"
    assert all(frame.is_complaint for frame in before)


def requests() -> st.SearchStrategy[bytes]:
    """Well-formed frames with any command, and payloads that are nearly right."""
    numbers = st.sampled_from([0, 1, 2, 4, 8, 63, 240, 2112, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]) | st.integers(0, 3000)
    payload = st.binary(max_size=PAYLOAD_MAX) | st.builds(
        lambda words, tail: b"".join(struct.pack("<I", word) for word in words) + tail,
        st.lists(numbers, max_size=4),
        st.binary(max_size=60),
    )
    command = st.sampled_from([c for c in Command if c != Command.RESET]) | st.integers(5, 127)
    return st.builds(
        lambda i, c, s, p: encode(Frame(i, c, s, p)), *[st.integers(0, 999), command, st.integers(0, 9)], payload
    )


@given(st.lists(requests(), min_size=1, max_size=6))
@settings(max_examples=400)
def test_no_request_makes_it_crash_hang_or_write_outside(app: HostApp, frames: list[bytes]) -> None:
    reply, before = app.talk(b"".join(frames))
    assert reply.payload == b"still there?"
    assert len(before) == len(frames)  # each was answered, once


@given(requests(), st.data())
@settings(max_examples=300)
def test_damaged_frames_are_complained_about_and_forgotten(app: HostApp, frame: bytes, data: st.DataObject) -> None:
    how = data.draw(st.sampled_from(["flip", "cut", "double", "insert"]))
    at = data.draw(st.integers(0, len(frame) - 2))
    if how == "flip":
        damaged = bytearray(frame)
        damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    elif how == "cut":
        damaged = frame[:at]
    elif how == "double":
        damaged = frame[:at] + frame
    else:
        damaged = frame[:at] + data.draw(st.binary(min_size=1, max_size=300)) + frame[at:]
    reply, before = app.talk(bytes(damaged))
    assert reply.payload == b"still there?"
    assert all(f.is_complaint or f.id < 1000 for f in before)


def test_no_flip_of_one_bit_gets_through(app: HostApp) -> None:
    whole = encode(Frame(7, Command.ECHO, 0, b"\0\1\2\0data"))[:-1]
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        _, before = app.talk(bytes(damaged))
        assert before and all(frame.is_complaint for frame in before), bit


def test_complaints_say_what_was_wrong(app: HostApp) -> None:
    good = encode(Frame(1, Command.ECHO, 0, b"x"))[:-1]
    cases = [
        (b"\x01" * (LINE_MAX + 1), Status.LONG, LINE_MAX),
        (b"\xff" * 100_000, Status.LONG, LINE_MAX),
        (b"\x09abc", Status.COBS, 8),
        (b"\x03ab", Status.COBS, 8),
        (good[:-1] + bytes([good[-1] ^ 1]), Status.CRC, zlib.crc32(b"\1\0\3\0x")),
    ]
    for noise, status, detail in cases:
        _, before = app.talk(noise)
        assert [(frame.id, frame.command, frame.status, frame.detail) for frame in before] == [
            (0, 0x80, status, detail)
        ]


def test_noise_is_counted_and_silence_between_frames_is_not(app: HostApp) -> None:
    before = app.device.counters()
    app.talk(bytes(50) + b"noise" + bytes(50) + b"more")
    after = app.device.counters()
    assert after["bad"] - before["bad"] == 2
    assert after["good"] - before["good"] == 2


def test_an_echo_of_its_own_replies_is_not_answered(app: HostApp) -> None:
    reply = encode(Frame(5, Command.ECHO | 0x80, 0, b"mine"))
    assert app.talk(reply * 3)[1] == []


# ---- requests ----

LENGTHS = {
    Command.IDENTIFY: (0, 0), Command.COUNTERS: (0, 0), Command.RESET: (0, 0), Command.LOAD: (4, PAYLOAD_MAX),
    Command.INFER: (0, 0), Command.READ_OUTPUT: (8, 8), Command.LAYERS: (4, 4), Command.PLAN: (4, 4),
    Command.STOP: (4, 4), Command.READ_LAYER: (8, 8), Command.LOOK: (1, 1), Command.BEGIN: (12, 12),
    Command.PIECE: (4, PAYLOAD_MAX), Command.FINISH: (0, 0), Command.SELECT: (1, 1), Command.READ_IMAGE: (12, 12),
}  # fmt: skip


@pytest.mark.parametrize("command", LENGTHS, ids=lambda command: command.name)
def test_payloads_of_a_wrong_length_are_refused(app: HostApp, command: Command) -> None:
    least, most = LENGTHS[command]
    for length in {*range(least), most + 1, PAYLOAD_MAX} - {*range(least, most + 1)} - {PAYLOAD_MAX + 1}:
        error = _refused(app.device, command, bytes(length))
        assert (error.code, error.detail) == (Status.LENGTH, length)


def test_unknown_commands_are_refused(app: HostApp) -> None:
    for command in {*range(128)} - {*Command}:
        error = _refused(app.device, command)
        assert (error.code, error.detail) == (Status.COMMAND, command)


def _words(*words: int, head: bytes = b"") -> bytes:
    return head + struct.pack(f"<{len(words)}I", *words)


def test_numbers_out_of_range_are_refused_with_the_limit(app: HostApp) -> None:
    device = app.device
    size, layers, length = 9 * 8 * 3, 13, len(IMAGE)
    device.load(np.zeros(size, np.int8))
    cases = [
        (Command.LOAD, _words(size) + b"x", size),
        (Command.LOAD, _words(0xFFFFFFFF) + b"xx", size),
        (Command.READ_OUTPUT, _words(0, 6), 5),
        (Command.READ_OUTPUT, _words(6, 0), 5),
        (Command.READ_OUTPUT, _words(0xFFFFFFFF, 2), 5),
        (Command.READ_OUTPUT, _words(0, PIECE_MAX + 1), PIECE_MAX),
        (Command.READ_OUTPUT, _words(0, 0xFFFFFFFF), PIECE_MAX),
        (Command.LAYERS, _words(layers), layers),
        (Command.PLAN, _words(layers), layers),
        (Command.STOP, _words(0xFFFFFFFF), layers),
        (Command.LOOK, b"\x02", 2),
        (Command.SELECT, b"\xfe", 2),
        (Command.BEGIN, _words(100, 0, head=b"\2\0\0\0"), 2),
        (Command.BEGIN, _words(0, 0, head=bytes(4)), 0x8000),
        (Command.BEGIN, _words(101, 0, head=bytes(4)), 0x8000),
        (Command.BEGIN, _words(0x8000 + 4, 0, head=bytes(4)), 0x8000),
        (Command.READ_IMAGE, _words(length, 1, head=b"\xff\0\0\0"), length),
        (Command.READ_IMAGE, _words(0xFFFFFFFF, 1, head=b"\xff\0\0\0"), length),
        (Command.READ_IMAGE, _words(0, PIECE_MAX + 1, head=b"\xff\0\0\0"), PIECE_MAX),
    ]
    for command, payload, limit in cases:
        error = _refused(device, command, payload)
        assert (error.code, error.detail) == (Status.RANGE, limit), (command.name, payload.hex())


def test_nothing_runs_before_the_whole_input_is_there(fresh: HostApp) -> None:
    device = fresh.device
    for command, payload in ((Command.INFER, b""), (Command.LAYERS, bytes(4)), (Command.STOP, bytes(4))):
        assert _refused(device, command, payload).detail == 2
    assert _refused(device, Command.LOAD, _words(4) + b"x").code == Status.ORDER
    device.request(Command.LOAD, _words(0) + bytes(215))
    assert _refused(device, Command.INFER).code == Status.STATE
    device.request(Command.LOAD, _words(200) + bytes(16))  # overlaps what came: that is fine
    device.request(Command.INFER)


def test_results_and_every_layer_are_the_hosts(app: HostApp) -> None:
    model, device = Model(IMAGE), app.device
    for x in photos(3):
        result = device.infer(x)
        assert (result.values == model.predict(x, raw=True)).all()
        assert result.index == model.predict(x, raw=True).argmax()
        assert result.label == model.classify(x)
        for report in device.layers():
            values = model.tensors(x)[report.name]
            planes = np.moveaxis(values, -1, 0).reshape(-1)
            assert report.crc == zlib.crc32(planes.tobytes())
            assert (device.read_layer(report.index) == planes).all()
    assert device.verify(photos(3)) is None


def test_layers_are_told_from_any_on(app: HostApp) -> None:
    device = app.device
    device.infer(photos(1)[0])
    everything = device.layers(plans=False)
    payload = device.request(Command.LAYERS, _words(5))
    assert [crc for crc, _, _ in struct.iter_unpack("<3I", payload)] == [layer.crc for layer in everything[5:]]


def test_a_net_that_stands_still_goes_on_at_any_other_request(app: HostApp) -> None:
    device = app.device
    expected = device.infer(photos(1)[0]).values
    device.request(Command.STOP, _words(4))
    assert _refused(device, Command.READ_LAYER, _words(0, 241)).code == Status.RANGE
    assert len(device.request(Command.READ_LAYER, _words(10, 20))) == 20
    assert (device.run().values == expected).all()
    assert _refused(device, Command.READ_LAYER, _words(0, 1)).detail == 6
    device.request(Command.STOP, _words(12))
    app.talk(b"noise\0noise")  # noise does not end it, the request does
    assert _refused(device, Command.READ_LAYER, _words(0, 1)).detail == 6


def test_verify_names_the_first_layer_that_differs(tmp_path: Path) -> None:
    """A core whose shortcut is off by one at its last value."""
    options = (str(BOARD / "faulty_shortcut.c"), f"-I{FIRMWARE / 'core'}", "-Wl,--wrap=fb_shortcut")
    with HostApp(build_app(IMAGE, *options), tmp_path / "flash") as faulty:
        faulty.device.hello()
        difference = faulty.device.verify(photos(2))
        assert difference is not None
        assert (difference.input, difference.name, difference.count) == (0, "padshortcut3", 1)
        assert difference.place == (18, 4, 3)
        assert difference.device == difference.host ^ 1
        assert "padshortcut3" in str(difference)


# ---- images ----


def test_an_uploaded_image_is_selectable_and_stays_selected(fresh: HostApp) -> None:
    device = fresh.device
    x = photos(1)[0]
    slot = device.upload(OTHER)
    assert (device.infer(x).values == Model(IMAGE).predict(x, raw=True)).all()  # not in use yet
    assert device.select(slot).slot == slot
    assert (device.infer(x).values == Model(OTHER).predict(x, raw=True)).all()
    assert device.reset().slot == slot
    assert device.read_image() == OTHER
    assert device.verify(photos(2), Model(OTHER)) is None
    assert device.select(BUILT_IN).slot == BUILT_IN
    assert device.reset().slot == BUILT_IN
    assert [(s.name, s.size, s.in_use) for s in device.slots()] == [
        ("built-in", len(IMAGE), True), ("0", len(OTHER), False), ("1", 0, False)
    ]  # fmt: skip


def _begin(device: Device, image: bytes, slot: int = 0) -> None:
    device.request(Command.BEGIN, struct.pack("<B3xI", slot, len(image)) + image[12:16])


def _pieces(device: Device, image: bytes) -> None:
    for at in range(0, len(image), 100):
        device.request(Command.PIECE, _words(at) + image[at : at + 100])


def _unit(unit: int) -> list[str]:
    """Units of 256 bytes are those of serial NOR."""
    again = ["-DBOARD_STORE_REPROGRAM=1"] if unit > 32 else []
    return [f"-DBOARD_STORE_UNIT={unit}u", *again] if unit != 4 else []


@pytest.mark.parametrize("unit", [2, 8, 256])
def test_images_are_stored_whole_whatever_the_unit_of_the_flash(tmp_path: Path, unit: int) -> None:
    with HostApp(build_app(IMAGE, *_unit(unit)), tmp_path / "flash") as running:
        running.device.hello()
        _begin(running.device, OTHER)
        _pieces(running.device, OTHER)
        running.device.request(Command.FINISH)
        assert running.device.read_image(0) == OTHER
        assert running.device.select(0).model_crc == int.from_bytes(OTHER[12:16], "little")


def test_every_upload_request_may_come_twice(fresh: HostApp) -> None:
    device = fresh.device
    for _ in range(2):
        _begin(device, OTHER)
    for at in range(0, len(OTHER), 99):
        for _ in range(2):
            device.request(Command.PIECE, _words(at) + OTHER[at : at + 99])
    for _ in range(2):
        device.request(Command.FINISH)
    for _ in range(2):
        device.request(Command.SELECT, b"\0")
    assert device.read_image() == OTHER


def test_pieces_that_do_not_fit_together_are_refused(fresh: HostApp) -> None:
    device = fresh.device
    assert _refused(device, Command.PIECE, _words(0) + b"x").detail == 3
    assert _refused(device, Command.FINISH).detail == 3
    _begin(device, OTHER)
    device.request(Command.PIECE, _words(0) + OTHER[:10])
    gap = _refused(device, Command.PIECE, _words(11) + b"x")
    assert (gap.code, gap.detail) == (Status.ORDER, 10)
    overlap = _refused(device, Command.PIECE, _words(9) + OTHER[9:12])
    assert (overlap.code, overlap.detail) == (Status.ORDER, 10)
    other = _refused(device, Command.PIECE, _words(0) + b"FBIx")
    assert (other.code, other.detail) == (Status.DIFFERS, 3)
    assert _refused(device, Command.PIECE, _words(len(OTHER)) + b"x").code == Status.RANGE
    assert _refused(device, Command.FINISH).detail == 4


def test_a_damaged_image_does_not_become_selectable(fresh: HostApp) -> None:
    device = fresh.device
    damaged = bytearray(OTHER)
    damaged[1000] ^= 4
    _begin(device, OTHER)
    _pieces(device, bytes(damaged))
    error = _refused(device, Command.FINISH)
    assert error.code == Status.MODEL and "FB_ERR_CRC" in str(error)
    assert _refused(device, Command.SELECT, b"\0").detail == 5
    assert device.info().slot == BUILT_IN
    _begin(device, IMAGE)  # announces another CRC than the image has
    _pieces(device, OTHER if len(OTHER) == len(IMAGE) else OTHER[: len(IMAGE)])
    assert _refused(device, Command.FINISH).code == Status.MODEL


def test_the_slot_in_use_is_not_overwritten(fresh: HostApp) -> None:
    device = fresh.device
    device.select(device.upload(OTHER))
    error = _refused(device, Command.BEGIN, struct.pack("<B3x2I", 0, len(IMAGE), 0))
    assert (error.code, error.detail) == (Status.IN_USE, 0)
    assert device.upload(IMAGE) == 1


def test_uploading_over_the_note_of_a_selection_keeps_the_selection(fresh: HostApp) -> None:
    device = fresh.device
    device.select(device.upload(OTHER, 0))
    device.select(device.upload(OTHER, 1))
    device.select(BUILT_IN)
    for slot in (0, 1):
        device.upload(IMAGE, slot)
        assert device.reset().slot == BUILT_IN


def test_selections_never_run_out(fresh: HostApp) -> None:
    device = fresh.device
    device.upload(OTHER, 0)
    for i in range(200):
        device.select(BUILT_IN if i % 2 else 0)
    assert device.reset().slot == BUILT_IN
    device.select(0)
    device.upload(IMAGE, 1)
    assert device.reset().slot == 0


def test_a_device_without_storage_or_model_says_so(tmp_path: Path) -> None:
    with HostApp(build_app(None, "-DBOARD_STORE_SIZE=0u"), tmp_path / "flash") as bare:
        info = bare.device.hello()
        assert (info.slots, info.slot, info.layers, info.refused) == (0, NO_SLOT, 0, 0)
        assert _refused(bare.device, Command.INFER).detail == 1
        assert _refused(bare.device, Command.LOAD, bytes(10)).detail == 1
        assert _refused(bare.device, Command.BEGIN, bytes(12)).detail == 7
        with pytest.raises(DeviceError, match="has no model; upload one"):
            bare.device.infer(photos(1)[0])
        with pytest.raises(DeviceError, match="no storage"):
            bare.device.upload(OTHER)


def test_a_model_that_does_not_fit_the_ram_is_refused_and_named(tmp_path: Path) -> None:
    with HostApp(build_app(IMAGE, "-DHOST_ARENA=1024"), tmp_path / "flash") as small:
        info = small.device.hello()
        assert (info.slot, info.ram_free) == (NO_SLOT, 1024)
        assert core.status_name(info.refused) == "FB_ERR_ARENA"
        slot = small.device.upload(OTHER)
        assert "FB_ERR_ARENA" in str(_refused(small.device, Command.SELECT, bytes([slot])))


def _upload_and_select(app: HostApp, slot: int) -> bool:
    """Whether power lasted."""
    try:
        app.device.hello()
        app.device.select(app.device.upload(OTHER, slot))
        return True
    except LineError:
        assert app.process.wait(10) == POWER_LOST
        return False


def _operations(unit: int) -> int:
    """Flash operations of an upload and a selection, at most: pages erased, units of the image; and three notes, of
    which the first erases a slot of the ledger anew, as this board programs a unit once."""
    step = max(8, min(32, unit))
    units = -(-step // unit)
    note = sum(-(-part // step) for part in (step, 24, 24, 8, step)) * units
    ledger_slot = STORE_SIZE // 2 // 2 // 1024 + -(-24 // step) * units
    return -(-len(OTHER) // 1024) + -(-len(OTHER) // unit) + 3 * note + ledger_slot


@pytest.mark.parametrize("new", [0, 1])
@pytest.mark.parametrize(("unit", "step"), [(256, 1), (4, 41)])
def test_power_loss_at_any_flash_operation_of_an_upload_keeps_a_whole_model(
    tmp_path: Path, unit: int, step: int, new: int
) -> None:
    """One slot is in use, the other holds an older image; a new one is uploaded over that, and selected. Every
    operation with a large unit; with a small one a sample, and all around the records at the end."""
    program = build_app(IMAGE, *_unit(unit))
    store = tmp_path / "flash"
    with HostApp(program, store) as running:
        running.device.hello()
        for slot in (new, 1 - new):
            running.device.select(running.device.upload(IMAGE, slot))
    before, total = store.read_bytes(), _operations(unit)
    slots = {int.from_bytes(image[12:16], "little"): slot for image, slot in ((IMAGE, 1 - new), (OTHER, new))}
    lasted = {}
    for cut in sorted({*range(0, total, step), *range(total - 20, total + 2)} - {*range(-20, 0)}):
        store.write_bytes(before)
        with HostApp(program, store, cut) as running:
            lasted[cut] = _upload_and_select(running, new)
        with HostApp(program, store) as again:
            info = again.device.hello()
            assert slots[info.model_crc] == info.slot, f"cut {cut}"
            assert info.slot == new or not lasted[cut], f"cut {cut}"
            assert again.device.verify(photos(1)) is None
            if info.slot != new:  # it can be done again
                assert _upload_and_select(again, new)
                assert again.device.reset().slot == new
    assert not lasted[0]
    assert lasted[total + 1]


# ---- lines that lose and change bytes ----


class BadLine:
    """Damages or drops a part of what passes."""

    name = "bad line"

    def __init__(self, line: object, rate: float, seed: int):
        self._line, self._rate, self._random = line, rate, random.Random(seed)

    def _damage(self, data: bytes) -> bytes:
        out = bytearray()
        for byte in data:
            if self._random.random() < self._rate:
                kind = self._random.randrange(3)
                out += [b"", bytes([byte ^ 1 << self._random.randrange(8)]), bytes([byte, 0x55])][kind]
            else:
                out.append(byte)
        return bytes(out)

    def read(self, timeout: float) -> bytes:
        data = self._line.read(timeout)  # type: ignore[attr-defined]
        return self._damage(data)

    def write(self, data: bytes) -> None:
        self._line.write(self._damage(data))  # type: ignore[attr-defined]

    def close(self) -> None: ...


@pytest.mark.parametrize("seed", range(3))
def test_a_line_that_loses_and_changes_bytes_gives_the_same_results(tmp_path: Path, seed: int) -> None:
    with HostApp(build_app(IMAGE), tmp_path / "flash") as running:
        running.device.hello()
        device = Device(BadLine(running.line, 1 / 1500, seed), timeout=0.1, slow_timeout=0.5, retries=200)
        slot = device.upload(OTHER)
        device.select(slot)
        assert device.read_image() == OTHER
        for x in photos(4):
            assert (device.infer(x).values == Model(OTHER).predict(x, raw=True)).all()
        assert device.verify(photos(4)) is None
        assert device.retried > 3


def test_a_restart_in_the_middle_is_noticed(app: HostApp) -> None:
    app.line.write(encode(Frame(9, Command.RESET)))
    with pytest.raises(RestartedError, match="start over"):
        app.device.run(Model(IMAGE))
    app.device.hello()
