"""Small recordings in the official layouts, made for tests."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

from flipbit.runtime.recordings.words import NOISE, WORDS

Array = np.ndarray


def write_wav(path: Path, samples: Array, rate: int = 16_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.asarray(samples, "<i2").tobytes())
    return path


def tone(hertz: float, seconds: float = 1.0, loud: float = 8000, rate: int = 16_000) -> Array:
    return (loud * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.int16)


def speech_layout(folder: Path, speakers: int = 12) -> Path:
    """Every word by a dozen speakers, two other words, and noise of 20 seconds."""
    for number, word in enumerate([*WORDS, "bed", "cat"]):
        for speaker in range(speakers):
            write_wav(folder / word / f"{speaker:08x}_nohash_0.wav", tone(200 + 150 * number + 5 * speaker, 0.9))
    random = np.random.default_rng(1)
    write_wav(folder / NOISE / "hiss.wav", random.normal(0, 3000, 320_000).clip(-32768, 32767))
    return folder


def motion_layout(folder: Path, people: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 19, 20)) -> Path:
    """Two trials of every activity: other frequencies for each, 300 samples."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, activity in enumerate(("dws", "ups", "wlk", "jog", "sit", "std")):
        for person in people:
            t = np.arange(300)[:, None] + 10 * person
            values = 300 * np.sin(t * 0.1 * (number + 1) + np.arange(6))
            np.save(folder / f"{activity}_{number + 1:02d}_{person:02d}.npy", values.astype(np.int16))
    return folder


def published_motion(folder: Path, of: Path) -> Path:
    """The recordings of :func:`motion_layout` as MotionSense publishes them: gravity apart, a row number first."""
    names = ["attitude.roll", "attitude.pitch", "attitude.yaw"]
    names += [f"{what}.{axis}" for what in ("gravity", "rotationRate", "userAcceleration") for axis in "xyz"]
    random = np.random.default_rng(2)
    for path in of.glob("*.npy"):
        activity, trial, person = path.stem.split("_")
        values = np.load(path)
        gravity = random.normal(0, 0.5, (len(values), 3))
        user = values[:, :3] / 512 - gravity
        columns = np.concatenate([random.normal(size=(len(values), 3)), gravity, values[:, 3:] / 128, user], 1)
        lines = [",".join(["", *names])]
        lines += [",".join([str(i), *(f"{value:.6f}" for value in row)]) for i, row in enumerate(columns)]
        place = folder / "A_DeviceMotion_data" / f"{activity}_{int(trial)}" / f"sub_{int(person)}.csv"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("\n".join(lines) + "\n")
    return folder


def wand_layout(folder: Path) -> Path:
    """Gestures of three people between lines of dashes, with what a terminal left in the file."""
    for number, gesture in enumerate(("wing", "ring", "slope", "negative")):
        (folder / gesture).mkdir(parents=True, exist_ok=True)
        names = ("1", "2", "3") if gesture == "negative" else ("hyw", "lsj", "liucx")
        for name in names:
            text = "Script started on Tue\n\x1b[?1034hbash$\n -,-,-\r\n"
            for repeat in range(4):
                for i in range(60 + repeat):
                    text += f"{500 * np.sin(i * 0.1 * (number + 1)):.1f},{10.0 * i},-20.0\r\n"
                text += "-,-,-\r\n"
            (folder / gesture / f"output_{gesture}_{name}.txt").write_bytes(text.encode())
    return folder


def bearings_layout(folder: Path, samples: int = 12_000) -> Path:
    """All ten classes; loads 0 and 1 of the faults, load 0 of the faultless one; a fault that is not used."""
    folder.mkdir(parents=True, exist_ok=True)
    faults = ("B007", "B014", "B021", "IR007", "IR014", "IR021", "OR007@6", "OR014@6", "OR021@6", "B028")
    random = np.random.default_rng(0)
    np.save(folder / "Normal_0.npy", random.normal(0, 30, 2 * samples).astype(np.int16))
    for number, fault in enumerate(faults):
        for load in (0, 1):
            wave_ = 200 * np.sin(np.arange(samples) * 0.05 * (number + 1)) + random.normal(0, 20, samples)
            np.save(folder / f"{fault}_{load}.npy", wave_.astype(np.int16))
    return folder
