"""The audio front end on emulated cores, and what it must not change."""

from __future__ import annotations

import shutil
import subprocess
import wave
from pathlib import Path

import audio
import audio_precision
import counting
import numpy as np
import pytest
from counting import CORES, CountError

from flipbit.runtime.audio.config import AudioConfig
from tests.checkout import ROOT

CORE = {core.name: core for core in CORES}


def needs(*programs: str) -> None:
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"needs {program}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp() / "firmware-build"  # the core is compiled once for all tests


@pytest.mark.parametrize(
    ("core", "config"),
    [
        ("M0", AudioConfig()),
        ("M4", AudioConfig()),
        pytest.param("M4", AudioConfig(window=1000, hop=333, fft=1024, bands=64, high_hz=8000), marks=pytest.mark.slow),
        pytest.param("M55", AudioConfig(window=99, hop=50, fft=128, bands=11), marks=pytest.mark.slow),
        pytest.param("RV32IMAC", AudioConfig(), marks=pytest.mark.slow),
    ],
)
def test_an_emulated_core_computes_the_rows_of_this_machine(core: str, config: AudioConfig, folder: Path) -> None:
    needs("make", "cc", *(["riscv64-unknown-elf-gcc", "qemu-system-riscv32"] if core == "RV32IMAC" else []))
    needs("arm-none-eabi-gcc", "qemu-system-arm")
    found = audio.count(CORE[core], config, folder, counting.build_plugin(folder))  # raises where bits differ
    assert found.memory > 2 * config.fft + 2 * config.window
    assert found.second > found.row * (config.rows(16_000) - 1) * 0.8
    assert 1_000 < found.flash < 8_000 and found.stack < 512


def test_rows_that_differ_are_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("make", "cc", "arm-none-eabi-gcc", "qemu-system-arm")
    right = audio.host_rows
    monkeypatch.setattr(audio, "host_rows", lambda config: right(config) ^ 1)
    with pytest.raises(CountError, match="differ from the host's"):
        audio.count(CORE["M4"], AudioConfig(), folder, counting.build_plugin(folder))


def test_a_program_without_sound_has_nothing_of_the_front_end(folder: Path) -> None:
    needs("make", "cc", "arm-none-eabi-gcc")
    elf = counting.build("mps2-an386", folder, None, "bench", name="without-sound")
    said = subprocess.run(["arm-none-eabi-nm", str(elf)], check=True, capture_output=True, text=True).stdout
    assert "fb_invoke" in said and "fb_audio" not in said


def test_the_front_end_calls_nothing_but_memcpy_memset_and_the_compilers_own(tmp_path: Path) -> None:
    needs("arm-none-eabi-gcc")
    sources = sorted((ROOT / "firmware/core/audio").glob("*.c"))
    flags = ["-std=c99", "-O2", "-mthumb", "-mcpu=cortex-m4", "-c"]
    subprocess.run(["arm-none-eabi-gcc", *flags, *map(str, sources)], check=True, cwd=tmp_path)
    said = subprocess.run(["arm-none-eabi-nm", *map(str, tmp_path.glob("*.o"))], capture_output=True, text=True).stdout
    symbols = [line.split()[-2:] for line in said.splitlines() if len(line.split()) >= 2]
    outside = {name for kind, name in symbols if kind == "U" and not name.startswith(("fb_audio", "__aeabi"))}
    assert outside <= {"memcpy", "memset", "fb_front_end_takes_audio"}  # the limits, which images are held to as well
    assert not [name for kind, name in symbols if kind in "dDbB"], "variables"


def test_settings_are_read_and_wrong_ones_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert audio.parser().parse_args(["--set", "bands=20"]).set == [("bands", 20)]
    for wrong in ("bands", "colour=3", "bands=x"):
        with pytest.raises(SystemExit, match="2"):
            audio.main(["--set", wrong])
        assert "expected NAME=NUMBER" in capsys.readouterr().err
    assert audio.main(["--set", "bands=99"]) == 2
    assert "audio bands is 99; expected 1 … 64" in capsys.readouterr().err


def test_precision_is_reported_for_every_size_and_loudness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "noise.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(np.random.default_rng(1).integers(-20_000, 20_000, 40_000).astype("<i2").tobytes())
    assert audio_precision.main([str(path)]) == 0
    said = capsys.readouterr().out
    assert said.count(" dB") == 12 and "2 clips:" in said
