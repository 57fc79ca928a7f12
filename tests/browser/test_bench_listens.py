"""The page plays recordings and the microphone to a board that listens, and shows what it heard."""

from __future__ import annotations

import functools
import json
import os
import struct
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime import Model
from flipbit.runtime.audio.config import AudioConfig
from flipbit.runtime.audio.wav import parse_wav, read_wav
from flipbit.runtime.commands.cli import main
from flipbit.runtime.link.protocol import Command, Reader
from flipbit.runtime.recordings.front_ends import AudioInput
from flipbit.runtime.recordings.listener import ListenConfig, Listener
from tests.browser.bench import BOARD, board_at, connect, firmware
from tests.browser.chromium import Page
from tests.browser.test_page import trouble
from tests.checkout import ROOT
from tests.nets.recorded_nets import recorded_graph

WORDS = ROOT / "models" / "words-word-s" / "model.fbit"
RATE = 16_000
SMALL = functools.cache(
    lambda: fbit_bytes(recorded_graph(AudioInput(AudioConfig(hop=400, bands=32), 39, 4), (39, 32, 1)))
)  # with the front end of nets of words
Save = Callable[[str, bytes], Path]


@pytest.fixture
def page(bench: Page) -> Page:
    return bench


def wav(values: np.ndarray, rate: int = RATE, channels: int = 1, bits: int = 16, code: int = 1) -> bytes:
    data = values.tobytes()
    width = bits // 8 * channels
    form = struct.pack("<HHIIHH", code, channels, rate, rate * width, width, bits)
    body = b"WAVE" + b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def noise(seconds: float, seed: int = 2) -> np.ndarray:
    """As loud as chance has it, every 300 samples."""
    random, count = np.random.default_rng(seed), int(seconds * RATE)
    loudness = np.repeat(random.integers(1, 20_000, count // 300 + 1), 300)[:count]
    return np.clip(random.normal(0, 1, count) * loudness, -32768, 32767).astype(np.int16)


def clips() -> list[Path]:
    """Three spoken words."""
    folder = Path(os.environ.get("FLIPBIT_DATA", "")) / "speech_commands"
    if not (folder / "yes").is_dir():
        pytest.skip("needs speech_commands in FLIPBIT_DATA")
    return [sorted((folder / word).glob("*.wav"))[7] for word in ("yes", "stop", "left")]


def heard(page: Page) -> tuple[list[tuple[str, str]], str]:
    """Detections (time, class), and the CRC of all outputs."""
    page.until("document.getElementById('board-result').innerText.includes('CRC of all outputs')")
    rows = page.evaluate(
        "[...document.querySelectorAll('#detections li')]"
        ".map(({ children }) => [children[0].innerText, children[1].innerText])"
    )
    return [(time, name) for time, name in rows], page.text("board-result").split("outputs ")[1][:8]


def expected(net: Path | bytes, samples: np.ndarray, margin: float) -> tuple[list[tuple[str, str]], str]:
    model = Model(net)
    listener = Listener(model, ListenConfig.for_model(model, margin))
    found = listener.push(samples)
    return [(f"{d.samples / RATE:.2f} s", model.labels[d.label]) for d in found], f"{listener.crc:08x}"


def test_a_recording_is_heard_as_by_this_machine(page: Page, builds: Path, saved: Save) -> None:
    image, samples = SMALL(), noise(3)
    wanted = expected(image, samples, 0)
    assert len(wanted[0]) > 0
    with board_at(page, BOARD, firmware(BOARD, image, builds)):
        connect(page)
        page.evaluate("document.getElementById('listen-threshold').value = 0")
        page.choose_file("#listen-file", saved("noise.wav", wav(samples)))
        assert heard(page) == wanted
        assert not page.evaluate("document.getElementById('board-infer').disabled")


@pytest.mark.slow
def test_real_words_are_heard_as_by_flipbit_device_listen(
    page: Page, builds: Path, saved: Save, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = np.concatenate([read_wav(clip).samples for clip in clips()])
    path = saved("words.wav", wav(samples))
    assert main(["device", "listen", "--port", "sim", "--model", str(WORDS), str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    wanted = [(f"{one['seconds']:.2f} s", one["class"]) for one in told["detections"]]
    assert {name for _, name in wanted} & {"yes", "stop", "left"}
    with board_at(page, BOARD, firmware(BOARD, WORDS.read_bytes(), builds)):
        connect(page)
        page.choose_file("#listen-file", path)
        assert heard(page) == (wanted, told["crc"])


@pytest.mark.slow
def test_the_microphone_is_heard_until_it_is_stopped(page: Page, builds: Path) -> None:
    """Chromium's fake microphone beeps. What went over the line is what this machine hears, too."""
    reader, frames = Reader(), []
    elf = firmware(BOARD, WORDS.read_bytes(), builds)
    with board_at(page, BOARD, elf, seen=lambda data: frames.extend(reader.feed(data))):
        connect(page)
        page.evaluate("document.getElementById('listen-threshold').value = 0.5")
        page.click("#listen-microphone")
        page.until("parseFloat(document.getElementById('listen-status').innerText) > 1.3")
        assert page.evaluate("document.getElementById('board-infer').disabled")
        page.click("#listen-microphone")
        shown = heard(page)
        page.until("document.getElementById('listen-microphone').getAttribute('aria-pressed') === 'false'")
    sent: dict[int, bytes] = {}
    for frame in frames:
        if frame.command == Command.LISTEN_PUSH:
            sent[int.from_bytes(frame.payload[:4], "little")] = frame.payload[4:]
    samples = bytearray()
    for at in sorted(sent):
        samples[2 * at :] = sent[at]
    values = np.frombuffer(bytes(samples), np.int16)
    assert len(values) > RATE and np.abs(values.astype(int)).max() > 1_000
    assert shown == expected(WORDS, values, 0.5)


def test_without_a_microphone_the_page_says_what_to_do(page: Page, builds: Path) -> None:
    with board_at(page, BOARD, firmware(BOARD, WORDS.read_bytes(), builds)):
        connect(page)
        page.evaluate("navigator.mediaDevices.getUserMedia = () => Promise.reject(new Error('Permission denied'))")
        page.click("#listen-microphone")
        assert "No microphone: Permission denied" in trouble(page) and ".wav" in trouble(page)
        page.until("!document.getElementById('board-verify').disabled")
        assert page.evaluate("document.getElementById('listen-microphone').getAttribute('aria-pressed')") == "false"


BROKEN = {
    "empty": (b"", "not a WAV file"),
    "a text": (b"hello, this is a text and no sound", "not a WAV file"),
    "without samples": (wav(np.zeros(0, np.int16)), "holds no sample"),
    "compressed": (wav(np.zeros(9, np.int16), code=85), "is compressed"),
    "cut in its format": (wav(np.zeros(9, np.int16))[:30], "has a format of 10 bytes"),
    "no rate": (wav(np.zeros(9, np.int16), rate=0), "0 samples per second"),
    "channels": (wav(np.zeros(9, np.int16), channels=0), "0 channels"),
    "not a number": (wav(np.full(4, np.nan, np.float32), bits=32, code=3), "no numbers"),
    "hours": (wav(np.zeros(3_700_000, np.uint8), rate=1_000, bits=8), "cut it into pieces"),
}


def read_in_page(page: Page, path: Path) -> dict[str, object]:
    page.evaluate(
        "void document.body.append(Object.assign(document.createElement('input'), {type: 'file', id: 'probe'}))"
    )
    page.choose_file("#probe", path)
    found: dict[str, object] = page.evaluate(
        "(async () => { const { readWav } = await import('/js/wav.js');"
        " const [file] = document.getElementById('probe').files;"
        " try { const { samples, note } = readWav(new Uint8Array(await file.arrayBuffer()), file.name);"
        " return { samples: [...samples], note }; }"
        " catch (error) { return { error: error.message, kind: error.constructor.name }; }"
        " finally { document.getElementById('probe').remove(); } })()"
    )
    return found


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_recording_gets_a_message(page: Page, saved: Save, what: str) -> None:
    data, says = BROKEN[what]
    found = read_in_page(page, saved("broken.wav", data))
    assert found["kind"] == "Error" and "broken.wav: " in str(found["error"]) and says in str(found["error"])


def test_recordings_of_all_kinds_become_the_samples_of_the_host(page: Page, saved: Save) -> None:
    random = np.random.default_rng(8)
    stereo = random.integers(-32768, 32768, (300, 2)).astype(np.int16)
    exact = {
        "16": wav(random.integers(-32768, 32768, 500).astype(np.int16)),
        "stereo": wav(stereo, channels=2),
        "8": wav(random.integers(0, 256, 500).astype(np.uint8), bits=8),
        "24": wav(random.integers(0, 256, 1500).astype(np.uint8), bits=24),
        "32": wav(random.integers(-(2**31), 2**31, 500).astype(np.int32), bits=32),
        "float": wav(random.normal(0, 0.6, 500).astype(np.float32), bits=32, code=3),
        "double": wav(np.arange(-40, 40) / 65536, bits=64, code=3),  # halves of steps: ties
        "cut short": wav(random.integers(-99, 99, 500).astype(np.int16))[:-100],
        "44,100 Hz": wav(random.integers(-30000, 30000, 3000).astype(np.int16), rate=44_100),
        "8,000 Hz": wav(random.integers(-30000, 30000, 1000).astype(np.int16), rate=8_000),
    }
    for name, data in exact.items():
        found = read_in_page(page, saved("kind.wav", data))
        here = parse_wav(data)
        assert found["samples"] == here.samples.tolist(), name
        assert bool(found["note"]) == any("cut" in note for note in here.notes), name


def test_silence_is_noted(page: Page, saved: Save) -> None:
    assert read_in_page(page, saved("silence.wav", wav(np.zeros(50, np.int16))))["note"] == "it is silent"


def test_sound_without_a_board_gets_a_message(page: Page) -> None:
    page.evaluate(
        "(() => { const data = new DataTransfer();"
        " data.items.add(new File([new Uint8Array(9)], 'a.wav', {type: 'audio/wav'}));"
        " document.dispatchEvent(new DragEvent('drop', { dataTransfer: data, cancelable: true })); })()"
    )
    assert "a.wav: sound is for a board" in trouble(page)


def test_the_module_wave_reads_what_these_tests_write(saved: Save) -> None:
    with wave.open(str(saved("check.wav", wav(noise(0.1)))), "rb") as file:
        assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (RATE, 1, 1600)
