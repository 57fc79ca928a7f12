"""Spoken words: the Speech Commands data set, and a user's folder of ``word/recording.wav``.

A clip is one second at 16 kHz. Shorter ones are followed by zeros; of longer ones the loudest second is taken. Features
are those of ``fb_audio``, so that a device sees what was trained on.

The official split: SHA-1 of the speaker, which is a file's name up to ``_nohash_``. All clips of a speaker are in one
part. Silence is cut from ``_background_noise_``: the first 80 % of each recording for training, then 10 % for
validation, the last 10 % for testing; training mixes words with noise of its own part only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.audio.config import RATE, AudioConfig
from flipbit.runtime.audio.front_end import FrontEnd
from flipbit.runtime.audio.wav import WavError, read_wav
from flipbit.runtime.data.data_set import DataSet, Examples, every_nth_group, home_of, of_recordings
from flipbit.runtime.errors import InputError
from flipbit.runtime.recordings.cache import cached, counted
from flipbit.runtime.recordings.front_ends import AudioInput
from flipbit.runtime.recordings.windows import left_out, no_recordings

Array = np.ndarray
NAME = "speech_commands"
WORDS = tuple("yes no up down left right on off stop go".split())
UNKNOWN, SILENCE, NOISE = "unknown", "silence", "_background_noise_"
# 39 rows of 32 bands: widths that halve to 8, the width in which one-bit convolutions are computed.
KEYWORDS = AudioInput(AudioConfig(hop=400, bands=32), length=39, hop=4)
CLIP = RATE  # samples
SHARE = 0.1  # of unknown words and of silence, per clip of a known word, in tests: the official share
SHARE_TRAINED = 0.25  # of each in training: there is more to be told from words than words
VARIANTS = 3  # changed copies of every training clip
SHIFT = 1600  # samples: 100 ms
VOLUME = (0.3, 1.8)
NOISE_LEAST = 10  # seconds, of which the last tenth is a clip to test on
NOISY, NOISE_VOLUME = 0.8, 0.15  # share of copies with noise, and its largest volume
WAVS_MOST = 2**27 - 1  # the official constant, MAX_NUM_WAVS_PER_CLASS


def percentage(name: str) -> float:
    """Where the official split puts a file: below 10 validation, below 20 testing, else training."""
    speaker = name.partition("_nohash_")[0].removesuffix(".wav")
    digest = int(hashlib.sha1(speaker.encode("utf-8", "surrogateescape")).hexdigest(), 16)
    return digest % (WAVS_MOST + 1) * (100.0 / WAVS_MOST)


def part_of(name: str) -> str:
    found = percentage(name)
    return "validation" if found < 10 else "test" if found < 20 else "train"


@dataclass(frozen=True)
class Clip:
    """A second to compute features of: a recording, or with no ``path`` a cut of the noise of ``part``."""

    path: Path | None
    label: int
    group: int
    part: str  # train, validation or test


@dataclass
class WordClips:
    """All clips of a folder, by part, and the noise recordings of it."""

    classes: list[str]
    clips: list[Clip]
    noise: list[Path] = field(default_factory=list)
    notes: Sequence[str] = ()


def speech_commands(data_dir: str | None = None) -> DataSet:
    """Ten words, unknown, silence: the 12 classes."""
    return speech_folder(home_of(NAME, (NAME, "speech_commands_v0.01", "speech_commands_v0.02"), data_dir, is_speech))


def is_speech(folder: Path) -> bool:
    return (folder / NOISE).is_dir() and all((folder / word).is_dir() for word in WORDS)


def speech_folder(folder: Path) -> DataSet:
    return _data_set(NAME, NAME, folder, _official_clips(folder))


def own_words(folder: Path) -> DataSet | None:
    """A user's folder with a folder of .wav per class; None if there are no such files."""
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", "_")))
    found = {name: _wavs(folder / name) for name in names}
    if not any(found.values()):
        return None
    names = [name for name in names if found[name]]
    if len(names) < 2:
        raise InputError(f"{folder}: {len(names)} folder of .wav files; expected one per class, two or more")
    speakers = sorted({_speaker(path) for name in names for path in found[name]})
    number = {speaker: i for i, speaker in enumerate(speakers)}
    rows = [(path, label, number[_speaker(path)]) for label, name in enumerate(names) for path in found[name]]
    test = every_nth_group(np.array([row[1] for row in rows]), np.array([row[2] for row in rows]), 5)
    if not test.any():
        raise InputError(
            f"{folder}: no class has five recordings (or speakers); every fifth one is kept for testing: record more"
        )
    clips = [Clip(path, label, group, "test" if held else "train") for (path, label, group), held in zip(rows, test)]
    made = WordClips(names, clips, _wavs(folder / NOISE), no_recordings(folder, names, (".wav",)))
    if made.noise:
        made.classes = [*names, SILENCE]
        made.clips += _silence(made.clips, len(names), len(names), len(speakers))
    return _data_set(folder.name, "words", folder, made)


def _wavs(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.suffix.lower() == ".wav" and not p.name.startswith("."))


def _speaker(path: Path) -> str:
    """The official part of a name; else each recording stands for itself."""
    speaker, mark, _ = path.name.partition("_nohash_")
    return speaker if mark else f"{path.parent.name}/{path.name}"


def _official_clips(folder: Path) -> WordClips:
    clips: list[Clip] = []
    speakers: dict[str, int] = {}

    def clip(path: Path, label: int) -> Clip:
        group = speakers.setdefault(_speaker(path), len(speakers))
        return Clip(path, label, group, part_of(path.name))

    for label, word in enumerate(WORDS):
        clips += [clip(path, label) for path in _wavs(folder / word)]
    others = sorted(p for p in folder.iterdir() if p.is_dir() and p.name not in WORDS and p.name[0] not in "_.")
    unknown = [clip(path, len(WORDS)) for other in others for path in _wavs(other)]
    # In an order that has nothing to do with words or speakers, so that a part of them has all words.
    unknown.sort(key=lambda c: hashlib.sha1(str(c.path and c.path.relative_to(folder)).encode()).digest())
    for part, share in (("train", SHARE_TRAINED), ("validation", SHARE), ("test", SHARE)):
        of_part = [c for c in unknown if c.part == part]
        clips += of_part[: round(share * sum(c.part == part and c.label < len(WORDS) for c in clips))]
    noise = _wavs(folder / NOISE)
    clips += _silence(clips, len(WORDS), len(WORDS) + 1, len(speakers))
    return WordClips([*WORDS, UNKNOWN, SILENCE], clips, noise)


def _silence(clips: list[Clip], words: int, label: int, group: int) -> list[Clip]:
    """Cuts of noise, as many as a share of the words of each part; a group of its own for each part."""
    made = []
    for number, part in enumerate(("train", "validation", "test")):
        share = SHARE_TRAINED if part == "train" else SHARE
        count = round(share * sum(c.part == part and c.label < words for c in clips))
        made += [Clip(None, label, group + number, part)] * count
    return made


def _data_set(name: str, kind: str, folder: Path, found: WordClips) -> DataSet:
    def examples(part: str) -> Examples:
        parts = ("test",) if part == "test" else ("train", "validation")
        chosen = [c for c in found.clips if c.part in parts]
        order = np.random.default_rng(0).permutation(len(chosen))  # all classes among the first few
        chosen = [chosen[i] for i in order]
        made = _computed(name, folder, chosen, found.noise, [0])
        keep = made["kept"]
        notes = [*found.notes, *left_out(list(made["broken"]), len(chosen)), *_noise_notes(found.noise)]
        clips = [clip for clip, good in zip(chosen, keep) if good]
        official = np.array([c.part == "validation" for c in clips])
        return Examples(
            made["x"][0],
            np.array([c.label for c in clips], np.int64),
            np.array([c.group for c in clips], np.int64),
            official if official.any() else None,
            lambda: _computed(name, folder, chosen, found.noise, range(1, 1 + VARIANTS))["x"],
            notes,
        )

    return of_recordings(name, kind, found.classes, KEYWORDS, examples)


def _computed(
    name: str, folder: Path, clips: Sequence[Clip], noise: Sequence[Path], copies: Sequence[int] | range
) -> dict[str, Array]:
    """Features [copies, clips, rows, bands, 1] of the readable clips; copy 0 is the recording as it is."""
    settings: Any = [
        "words", KEYWORDS.to_json(), list(copies), SHIFT, VOLUME, NOISY, NOISE_VOLUME,
        [(c.label, c.part) for c in clips],
    ]  # fmt: skip
    files = [*(c.path for c in clips if c.path), *noise]
    return cached(f"{name}-{len(copies)}", settings, files, lambda: _compute(clips, noise, copies))


def _compute(clips: Sequence[Clip], noise: Sequence[Path], copies: Sequence[int] | range) -> dict[str, Array]:
    sounds, _ = NoiseCuts.read(noise)
    x = np.empty((len(copies), len(clips), KEYWORDS.length, KEYWORDS.audio.bands, 1), np.uint8)
    broken: dict[int, str] = {}
    show = counted("features", len(clips))

    def work(numbers: range) -> None:
        stream = FrontEnd(KEYWORDS.audio)
        for number in numbers:
            try:
                second = clip_samples(clips[number].path)
            except WavError as error:
                broken[number] = error.message
                continue
            for at, copy in enumerate(copies):
                random = np.random.default_rng([copy, number])
                stream.reset()
                rows = stream.push(changed(second, clips[number], copy > 0, sounds, random))
                x[at, number] = (rows.astype(np.int16) + 128).astype(np.uint8)[..., None]
            if numbers.start == 0:
                show(min(number + numbers.step, len(clips)))

    with ThreadPoolExecutor(2) as pool:  # the C core lets go of Python's lock
        list(pool.map(work, [range(0, len(clips), 2), range(1, len(clips), 2)]))
    kept = np.array([number not in broken for number in range(len(clips))], bool)
    if not kept.any():
        raise InputError(f"none of {len(clips)} recordings could be read; the first: {broken[min(broken)]}")
    return {"x": x[:, kept], "kept": kept, "broken": np.array([broken[i] for i in sorted(broken)], str)}


def _noise_notes(files: Sequence[Path]) -> list[str]:
    if not files:
        return []
    noise, unread = NoiseCuts.read(files)
    notes = [f"noise: {note}" for note in left_out(unread, len(files))]
    without = [part for part, sounds in noise.parts.items() if not sounds]
    if without:
        notes.append(
            f"no noise lasts {NOISE_LEAST} s, so that there is none for {' and '.join(without)}: "
            f"{SILENCE} is made of zeros there"
        )
    return notes


def clip_samples(path: Path | None) -> Array:
    """One second of a recording: the loudest one; zeros behind a shorter one. Zeros if there is no recording."""
    if path is None:
        return np.zeros(CLIP, np.int16)
    return loudest(read_wav(path).samples, CLIP)


def loudest(samples: Array, size: int) -> Array:
    """The loudest stretch of so many samples; zeros behind a shorter recording."""
    if len(samples) <= size:
        return np.pad(samples, (0, size - len(samples)))
    energy = np.concatenate([[0.0], np.cumsum(samples.astype(np.float64) ** 2)])
    start = int(np.argmax(energy[size:] - energy[:-size]))
    return samples[start : start + size]


@dataclass(frozen=True)
class NoiseCuts:
    """Background noise, divided by time: what is heard in training is never heard in a test."""

    parts: dict[str, list[Array]]

    @classmethod
    def read(cls, files: Sequence[Path]) -> tuple[NoiseCuts, list[str]]:
        """Of the files that can be read, and why the others cannot."""
        parts: dict[str, list[Array]] = {"train": [], "validation": [], "test": []}
        unread = []
        for path in files:
            try:
                samples = read_wav(path).samples
            except WavError as error:
                unread.append(error.message)
                continue
            ends = [0, int(0.8 * len(samples)), int(0.9 * len(samples)), len(samples)]
            for part, start, end in zip(parts, ends, ends[1:]):
                if end - start >= CLIP:
                    parts[part].append(samples[start:end])
        return cls(parts), unread

    def draw(self, part: str, random: np.random.Generator) -> Array:
        sounds = self.parts[part]
        if not sounds:
            return np.zeros(CLIP)
        sound = sounds[int(random.integers(len(sounds)))]
        start = int(random.integers(len(sound) - CLIP + 1))
        return sound[start : start + CLIP].astype(np.float64)


def changed(second: Array, clip: Clip, augment: bool, noise: NoiseCuts, random: np.random.Generator) -> Array:
    """A clip as it is, silence cut from noise, or with ``augment`` shifted, louder or quieter, and in noise."""
    if clip.path is None:
        mixed = noise.draw(clip.part, random) * random.uniform(0, 1)
    elif not augment:
        return second
    else:
        shift = int(random.integers(-SHIFT, SHIFT + 1))
        moved = np.zeros(CLIP)
        moved[max(0, shift) : CLIP + min(0, shift)] = second[max(0, -shift) : CLIP - max(0, shift)]
        low, high = np.log(VOLUME)
        mixed = moved * np.exp(random.uniform(low, high))
        if random.random() < NOISY:
            mixed += noise.draw("train", random) * random.uniform(0, NOISE_VOLUME)
    return np.clip(np.rint(mixed), -32768, 32767).astype(np.int16)
