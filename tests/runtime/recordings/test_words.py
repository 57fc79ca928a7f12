"""Spoken words: the official split, silence and noise, features, a user's own folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flipbit.runtime.audio.features import features
from flipbit.runtime.data import sets
from flipbit.runtime.data.load import load_data
from flipbit.runtime.errors import InputError
from flipbit.runtime.recordings import words
from flipbit.runtime.recordings.words import KEYWORDS, NoiseCuts, clip_samples, part_of
from tests.runtime.recordings.made import speech_layout, tone, write_wav


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIPBIT_CACHE", str(tmp_path / "cache"))


def test_the_split_is_the_official_one() -> None:
    # bed/026290a7_nohash_0.wav is in validation_list.txt, right/bb05582b_nohash_3.wav in testing_list.txt.
    assert part_of("026290a7_nohash_0.wav") == part_of("026290a7_nohash_1.wav") == "validation"
    assert part_of("bb05582b_nohash_3.wav") == "test"
    parts = [part_of(f"{i:08x}_nohash_0.wav") for i in range(2000)]
    shares = {part: parts.count(part) / len(parts) for part in set(parts)}
    assert shares["validation"] == pytest.approx(0.1, abs=0.03)
    assert shares["test"] == pytest.approx(0.1, abs=0.03)


def test_a_speaker_is_in_one_part_and_all_twelve_classes_are_there(tmp_path: Path) -> None:
    found = sets.open_arrays(str(speech_layout(tmp_path / "speech", 40)))
    assert found is not None and found.examples is not None
    train, test = found.examples("train"), found.examples("test")
    assert found.classes == [*words.WORDS, "unknown", "silence"]
    assert found.front_end == KEYWORDS and KEYWORDS.fits(train.x.shape[1:])
    assert set(train.y.tolist()) == set(range(12))
    assert train.groups is not None and test.groups is not None
    assert not set(train.groups.tolist()) & set(test.groups.tolist())
    assert train.validation is not None and 0 < train.validation.sum() < len(train.y)
    spoken = train.groups[train.validation]
    assert not set(spoken.tolist()) & set(train.groups[~train.validation].tolist())


def test_features_are_those_of_the_numpy_twin(tmp_path: Path) -> None:
    folder = speech_layout(tmp_path / "speech", 20)
    found = sets.open_arrays(str(folder))
    assert found is not None and found.examples is not None
    x, y = found.read("test")
    number = int(np.flatnonzero(y == 0)[0])
    clips = [features(clip_samples(path), KEYWORDS.audio) for path in sorted((folder / "yes").iterdir())]
    assert any(np.array_equal(clip, x[number, ..., 0].astype(np.int16) - 128) for clip in clips)


def test_variants_differ_from_the_recording_and_come_again(tmp_path: Path) -> None:
    found = sets.open_arrays(str(speech_layout(tmp_path / "speech")))
    assert found is not None and found.examples is not None
    train = found.examples("train")
    assert train.variants is not None
    variants = train.variants()
    assert variants.shape == (words.VARIANTS, *train.x.shape)
    assert all((copy != train.x).any((1, 2, 3)).all() for copy in variants)
    assert np.array_equal(variants, train.variants())


def test_noise_of_a_test_is_not_heard_in_training(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "count.wav", np.arange(400_000) % 32_000)
    cuts, unread = NoiseCuts.read([path])
    assert not unread
    ends = {part: (sounds[0][0], len(sounds[0])) for part, sounds in cuts.parts.items()}
    assert ends["train"][1] == 320_000 and ends["validation"][1] == ends["test"][1] == 40_000
    assert ends["test"][0] == 360_000 % 32_000


def test_a_long_recording_gives_its_loudest_second(tmp_path: Path) -> None:
    quiet = tone(300, 1.0, 100)
    path = write_wav(tmp_path / "long.wav", np.concatenate([quiet, tone(300, 1.0, 9000), quiet]))
    assert np.abs(clip_samples(path).astype(int)).max() > 8900
    assert len(clip_samples(path)) == 16_000


def test_own_words_with_broken_files_named_and_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "my_words"
    for number, word in enumerate(("hello", "stop")):
        for take in range(6):
            write_wav(folder / word / f"{take}.wav", tone(300 + 400 * number, 0.8), 44_100 if take == 1 else 16_000)
    (folder / "stop" / "torn.wav").write_bytes(b"RIFF\0\0")
    found = sets.open_arrays(str(folder))
    assert found is not None and found.examples is not None and found.classes == ["hello", "stop"]
    train, test = found.examples("train"), found.examples("test")
    assert len(train.y) + len(test.y) == 12
    (note,) = [*train.notes, *test.notes]
    assert "1 of" in note and "torn.wav" in note
    data = load_data(str(folder), train.x.shape[1:], ["hello", "stop"])
    assert np.array_equal(data.x, test.x) and data.labelled


def test_own_words_without_enough_recordings_are_refused(tmp_path: Path) -> None:
    for word in ("a", "b"):
        write_wav(tmp_path / word / "x.wav", tone(300))
    with pytest.raises(InputError, match="every fifth"):
        sets.open_arrays(str(tmp_path))


def test_without_a_readable_recording_the_first_is_named(tmp_path: Path) -> None:
    for word in ("a", "b"):
        for take in range(5):
            (tmp_path / word).mkdir(exist_ok=True)
            (tmp_path / word / f"{take}.wav").write_bytes(b"")
    found = sets.open_arrays(str(tmp_path))
    assert found is not None
    with pytest.raises(InputError, match=r"none of 2 recordings could be read; the first: .*4\.wav: not a WAV"):
        found.read("test")


def test_broken_noise_and_links_to_nowhere_are_named_and_skipped(tmp_path: Path) -> None:
    for word in ("hello", "stop"):
        for take in range(6):
            write_wav(tmp_path / word / f"{take}.wav", tone(300, 0.8))
    (tmp_path / "stop" / "gone.wav").symlink_to(tmp_path / "nowhere.wav")
    (tmp_path / "mp3s").mkdir()
    write_wav(tmp_path / words.NOISE / "hiss.wav", tone(100, 20))
    (tmp_path / words.NOISE / "torn.wav").write_bytes(b"RIFF")
    found = sets.open_arrays(str(tmp_path))
    assert found is not None and found.examples is not None and found.classes == ["hello", "stop", "silence"]
    train, test = found.examples("train"), found.examples("test")
    notes = " | ".join([*train.notes, *test.notes])
    assert "gone.wav: No such file" in notes and "no class: mp3s/" in notes
    assert "noise: 1 of 2 recordings left out" in notes and "torn.wav" in notes
    assert (train.x[train.y == 2] > 0).any()  # of the noise that could be read


def test_noise_that_is_too_short_to_be_divided_is_noted(tmp_path: Path) -> None:
    for word in ("hello", "stop"):
        for take in range(6):
            write_wav(tmp_path / word / f"{take}.wav", tone(300, 0.8))
    write_wav(tmp_path / words.NOISE / "hiss.wav", tone(100, 5))
    found = sets.open_arrays(str(tmp_path))
    assert found is not None and found.examples is not None
    (note,) = found.examples("test").notes
    assert "no noise lasts 10 s, so that there is none for validation and test" in note
