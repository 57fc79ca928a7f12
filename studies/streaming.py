"""How well a keyword net listens: words in a row in background noise, words it does not know, and noise alone.

The recordings are made here, from the test part of Speech Commands (clips of speakers that training never heard) and
from ``_background_noise_``, and written nowhere. A word is detected if the first detection between its start and 0.75 s
after its end has its class. Any other detection is a false alarm.

examples:
  python -m flipbit.studies.streaming kws.fbit --words 200
  python -m flipbit.studies.streaming kws.fbit --words 12 --port qemu:netduinoplus2 --plot timeline.png
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.audio.config import RATE
from flipbit.runtime.audio.wav import read_wav
from flipbit.runtime.board.profile import build, load_profile
from flipbit.runtime.core.model import Model
from flipbit.runtime.data.data_set import home_of
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.exits import CommandParser, guarded
from flipbit.runtime.files import check_place, replacing
from flipbit.runtime.link.device import open_device
from flipbit.runtime.link.listen_device import DeviceListener
from flipbit.runtime.recordings.listener import MARGIN, Detection, ListenConfig, Listener, front_end_of
from flipbit.runtime.recordings.words import NAME, NOISE, WORDS, is_speech, part_of
from flipbit.runtime.shown import shown_json
from flipbit.runtime.text_table import text_table
from flipbit.runtime.tune.plot import pyplot

Array = np.ndarray
LATE = 0.75  # seconds after a word's end in which it may be detected


@dataclass(frozen=True)
class Spoken:
    """A word in a recording, from sample to sample."""

    word: str
    start: int
    end: int


@dataclass(frozen=True)
class Scene:
    """A recording, and what is said in it."""

    name: str
    samples: Array
    words: list[Spoken]

    @property
    def hours(self) -> float:
        return len(self.samples) / RATE / 3600


def noise_of(folder: Path, first: float, last: float) -> Array:
    """A part of every noise recording, one after the other."""
    sounds = [read_wav(path).samples for path in sorted((folder / NOISE).glob("*.wav"))]
    return np.concatenate([s[int(first * len(s)) : int(last * len(s))] for s in sounds])


def said_in_noise(
    folder: Path, words: tuple[str, ...], count: int, volume: float, random: np.random.Generator, name: str
) -> Scene:
    """Test clips in random order, 0.5 to 2 s apart, in noise that training did not hear."""
    clips = [path for word in words for path in sorted((folder / word).glob("*.wav")) if part_of(path.name) == "test"]
    pieces: list[Array] = []
    spoken: list[Spoken] = []
    at = 0
    for number in random.permutation(len(clips))[:count]:
        gap, sound = int(random.uniform(0.5, 2) * RATE), read_wav(clips[number]).samples
        pieces += [np.zeros(gap), sound]
        spoken.append(Spoken(clips[number].parent.name, at + gap, at + gap + len(sound)))
        at += gap + len(sound)
    clean = np.concatenate([*pieces, np.zeros(RATE)])
    noise = np.resize(noise_of(folder, 0.9, 1.0), len(clean))
    mixed = np.clip(np.rint(clean + volume * noise), -32768, 32767).astype(np.int16)
    return Scene(name, mixed, spoken)


def judged(scene: Scene, found: list[Detection], labels: list[str]) -> dict[str, Any]:
    """Detections, misses and false alarms."""
    known = [word for word in scene.words if word.word in labels]
    hits, wrong, taken = 0, 0, set()
    delays = []
    for detection in found:
        near = [w for w in scene.words if w.start < detection.samples <= w.end + LATE * RATE and w not in taken]
        if near and near[0].word == labels[detection.label]:
            hits += 1
            delays.append((detection.samples - near[0].end) / RATE)
        else:
            wrong += 1
        taken |= set(near[:1])
    return {
        "recording": scene.name,
        "seconds": len(scene.samples) / RATE,
        "words": len(known),
        "detected": hits,
        "missed": len(known) - hits,
        "false_alarms": wrong,
        "false_alarms_per_hour": wrong / scene.hours,
        "median_delay": float(np.median(delays)) if delays else None,
    }


def draw(scene: Scene, found: list[Detection], scores: Array, model: Model, config: ListenConfig, path: Path) -> None:
    """A timeline: the sound, what the net says, and what was detected."""
    plt = pyplot("--plot")
    front_end = front_end_of(model)
    figure, (top, bottom) = plt.subplots(2, 1, sharex=True, figsize=(11, 5), height_ratios=[1, 2])
    seconds = np.arange(len(scene.samples)) / RATE
    top.plot(seconds[::20], scene.samples[::20] / 32768, linewidth=0.4, color="grey")
    for word in scene.words:
        top.axvspan(word.start / RATE, word.end / RATE, alpha=0.15)
        top.text(word.start / RATE, 1.05, word.word, fontsize=8)
    top.set_ylim(-1, 1)
    top.set_ylabel("sound")
    ends = (front_end.window + np.arange(len(scores)) * front_end.step) / RATE
    logits = scores.astype(np.float64) * model.image.tensors[model.image.output].scale
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    for label in range(len(model.labels)):
        if not config.ignored >> label & 1:
            bottom.plot(ends, shares[:, label], linewidth=1)
    for detection in found:
        at = detection.samples / RATE
        bottom.axvline(at, linestyle=":", color="black", linewidth=0.8)
        bottom.text(at, 1.03, model.labels[detection.label], fontsize=8, ha="center")
    bottom.set_ylim(0, 1.12)
    bottom.set_ylabel("share of each word")
    bottom.set_xlabel("seconds")
    figure.tight_layout()
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)


def listened(model: Model, config: ListenConfig, scene: Scene, port: str | None, image: Path) -> dict[str, Any]:
    """Detections on this machine, and at ``port`` the same by a board: they must be equal."""
    here = Listener(model, config)
    found = here.push(scene.samples)
    report: dict[str, Any] = {"found": found, "scores": np.array(here.scores), "crc": f"{here.crc:08x}"}
    if port is None:
        return report
    kind, _, board = port.partition(":")
    with tempfile.TemporaryDirectory(prefix="flipbit-") as folder:
        firmware = build(load_profile(board), image, Path(folder)).elf if kind == "qemu" else None
        with open_device(port, firmware, timeout=60.0) as device:
            device.use(model)
            begin = time.perf_counter()
            there = DeviceListener(device, config)
            detected = there.push(scene.samples)
            report["board"] = {
                "board": device.info().board, "equal": detected == found and there.crc == here.crc,
                "crc": f"{there.crc:08x}", "memory": there.ram, "arena": there.arena,
                "minutes": (time.perf_counter() - begin) / 60,
            }  # fmt: skip
    return report


def command(given: argparse.Namespace, say: Callable[[str], None] = print) -> int:
    if given.words < 1:
        raise ArgumentError(f"--words {given.words}: at least 1")
    check_place(given.plot)
    model = Model(given.image)
    config = ListenConfig.for_model(model, given.threshold)
    folder = home_of(NAME, (NAME, "speech_commands_v0.01", "speech_commands_v0.02"), given.data_dir, is_speech)
    random = np.random.default_rng(given.seed)
    words = said_in_noise(folder, WORDS, given.words, given.noise, random, "words in noise")
    others = tuple(sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name not in (*WORDS, NOISE)))
    scenes = [words]
    if not given.port:
        scenes += [
            said_in_noise(folder, others, given.words, given.noise, random, "other words in noise"),
            Scene("noise, not heard in training", noise_of(folder, 0.9, 1.0), []),
            Scene("noise, all of it", noise_of(folder, 0.0, 1.0), []),
        ]
    results = []
    for scene in scenes:
        heard = listened(model, config, scene, given.port, given.image)
        results.append({**judged(scene, heard["found"], model.labels), "crc": heard["crc"], **heard.get("board", {})})
        if given.plot and scene is words:
            draw(scene, heard["found"], heard["scores"], model, config, given.plot)
    if given.json:
        say(shown_json({"config": config.__dict__, "results": results}))
    else:
        head = ("recording", ">seconds", ">words", ">detected", ">missed", ">false alarms", ">per hour", ">delay s")
        rows = [
            (r["recording"], f"{r['seconds']:.1f}", r["words"], r["detected"], r["missed"], r["false_alarms"],
             f"{r['false_alarms_per_hour']:.0f}", "" if r["median_delay"] is None else f"{r['median_delay']:.2f}")
            for r in results
        ]  # fmt: skip
        say(f"{config}\n\n{text_table(head, rows)}")
        for r in results:
            if "board" in r:
                same = "as this machine, bit for bit" if r["equal"] else "OTHERWISE than this machine"
                say(f"{r['board']}: {same}; {r['memory']:,} bytes of RAM for listening, {r['minutes']:.1f} minutes")
    return 0 if all(r.get("equal", True) for r in results) else 1


def main(argv: list[str] | None = None) -> int:
    def run() -> int:
        p = CommandParser(
            prog="python -m flipbit.studies.streaming", description=__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        p.add_argument("image", type=Path, metavar="IMAGE", help="a keyword net (.fbit)")
        p.add_argument("--data-dir", metavar="DIR", help="folder of Speech Commands (FLIPBIT_DATA)")
        p.add_argument("--words", type=int, default=200, metavar="N", help="test clips in the recording (200)")
        p.add_argument("--noise", type=float, default=0.1, metavar="X", help="volume of the background noise (0.1)")
        p.add_argument(
            "--threshold", type=float, default=MARGIN, metavar="NATS", help=f"threshold of detections ({MARGIN:g})"
        )
        p.add_argument("--seed", type=int, default=1, help="seed of clips and pauses (1)")
        p.add_argument("--port", help="also listen on a board there, and compare (qemu:BOARD or a serial port)")
        p.add_argument("--plot", type=Path, metavar="PNG", help="draw the words and what was heard")
        p.add_argument("--json", action="store_true", help="print JSON")
        return command(p.parse_args(sys.argv[1:] if argv is None else argv))

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
