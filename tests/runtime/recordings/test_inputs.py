"""Recordings on their way into nets: the bits of training, and a line for each recording that is odd or broken."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime import Model
from flipbit.runtime.audio.config import AudioConfig
from flipbit.runtime.audio.features import features
from flipbit.runtime.commands.cli import main
from flipbit.runtime.data.load import load_data
from flipbit.runtime.errors import InputError
from flipbit.runtime.recordings.front_ends import AudioInput, FrontEndInput, SignalInput
from flipbit.runtime.recordings.inputs import read_samples
from flipbit.runtime.recordings.motion import WAND
from flipbit.runtime.recordings.words import KEYWORDS, speech_folder
from tests.nets.recorded_nets import recorded_graph
from tests.runtime.recordings.made import speech_layout, tone, write_wav

SIGNAL = SignalInput.scaled(50, 16, 8, [-1.0, -2.0, 0.0], [1.0, 2.0, 9.81])
AUDIO_SHAPE = (KEYWORDS.length, KEYWORDS.audio.bands, 1)


def wav(bits: int, channels: int, rate: int, frames: bytes, code: int = 1) -> bytes:
    width = bits // 8 * channels
    form = struct.pack("<HHIIHH", code, channels, rate, rate * width, width, bits)
    body = b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", len(frames)) + frames
    return b"RIFF" + struct.pack("<I", len(body)) + body


def loaded(source: Path, front_end: FrontEndInput, shape: tuple[int, int, int], labels: list[str] | None = None):  # type: ignore[no-untyped-def]
    return load_data(str(source), shape, labels or ["silence", "yes", "no"], front_end=front_end)


def test_a_clip_of_a_second_is_what_training_saw(tmp_path: Path) -> None:
    folder = speech_layout(tmp_path / "speech_commands")
    data_set = speech_folder(folder)
    assert data_set.examples is not None
    trained = data_set.examples("train")
    seen = {(row.tobytes(), int(label)) for row, label in zip(trained.x, trained.y)}
    words = [word for word in data_set.classes if (folder / word).is_dir()]
    for label, word in enumerate(words):
        found = loaded(folder / word / "00000001_nohash_0.wav", KEYWORDS, AUDIO_SHAPE)
        assert found.x.dtype == np.int8 and len(found.x) == 1
        as_pixels = (found.x[0].astype(np.int16) + 128).astype(np.uint8)
        held = data_set.examples("test")
        both = seen | {(row.tobytes(), int(y)) for row, y in zip(held.x, held.y)}
        assert (as_pixels.tobytes(), label) in both


def test_a_folder_gives_each_recording_the_label_of_its_folder(tmp_path: Path) -> None:
    for number, word in enumerate(("yes", "no", "maybe")):
        write_wav(tmp_path / word / "a.wav", tone(300 + 200 * number, 0.7))
        write_wav(tmp_path / word / "long.wav", np.concatenate([tone(50, 2, 10), tone(300 + 200 * number, 0.9)]))
    found = loaded(tmp_path, KEYWORDS, AUDIO_SHAPE)
    assert len(found.x) == 6  # one per recording: the loudest second of long ones
    assert sorted(found.y) == [-1, -1, 1, 1, 2, 2]
    assert any("maybe/ is no class of the net" in note for note in found.notes)
    rows = features(tone(300, 0.9)[:14_000], KEYWORDS.audio)
    ours = found.x[[name.endswith("yes/long.wav") for name in found.names].index(True)][:, :, 0]
    assert (np.abs(ours[10:20].astype(int) - rows[10:20].astype(int)) <= 8).mean() > 0.9  # the tone, not the hum


def test_a_long_recording_gets_an_answer_per_hop_with_times(tmp_path: Path) -> None:
    samples = tone(440, 3.0)
    path = write_wav(tmp_path / "long.wav", samples)
    found = loaded(path, KEYWORDS, AUDIO_SHAPE)
    rows = features(samples, KEYWORDS.audio)
    assert len(found.x) == 1 + (len(rows) - KEYWORDS.length) // KEYWORDS.hop
    np.testing.assert_array_equal(found.x[3, :, :, 0], rows[3 * KEYWORDS.hop :][: KEYWORDS.length])
    assert found.names[1].endswith("long.wav 0.10 … 1.08 s")


@pytest.mark.parametrize("shape", [(1, 16, 3), (16, 1, 3), (16, 3, 1)])
@pytest.mark.parametrize("suffix", [".csv", ".npy"])
def test_windows_of_a_signal_are_scaled_as_the_image_says(
    tmp_path: Path, suffix: str, shape: tuple[int, int, int]
) -> None:
    values = np.random.default_rng(1).uniform(-2, 9, (50, 3))
    path = tmp_path / f"walk{suffix}"
    if suffix == ".npy":
        np.save(path, values)
    else:
        lines = ["time,x,y,z", *(f"{i},{a},{b},{c}" for i, (a, b, c) in enumerate(values))]
        path.write_text("\n".join(lines), encoding="utf-8")
    found = loaded(path, SIGNAL, shape)
    expected = SIGNAL.int8(SIGNAL.samples(values))
    assert len(found.x) == 1 + (50 - 16) // 8
    np.testing.assert_array_equal(found.x[2].reshape(16, 3), expected[16:32])


def test_an_array_of_inputs_is_not_taken_for_a_recording(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((5, 16, 3, 1), np.int8))
    assert loaded(tmp_path / "x.npy", SIGNAL, (16, 3, 1)).x.shape == (5, 16, 3, 1)


SPEECH = tone(440)
ODD = {
    "stereo": (wav(16, 2, 16_000, np.stack([SPEECH, SPEECH], 1).astype("<i2").tobytes()), None),
    "8-bit": (wav(8, 1, 16_000, (SPEECH // 256 + 128).astype(np.uint8).tobytes()), None),
    "44.1 kHz": (wav(16, 1, 44_100, tone(440, 1.0, rate=44_100).astype("<i2").tobytes()), "resampled from 44,100"),
    "silent": (wav(16, 1, 16_000, bytes(32_000)), "silent"),
    "clipped": (wav(16, 1, 16_000, (SPEECH.astype(int) * 9).clip(-32768, 32767).astype("<i2").tobytes()), "clipped"),
    "truncated": (wav(16, 1, 16_000, SPEECH.astype("<i2").tobytes())[:-10_000], "cut short"),
}
BROKEN = {
    "empty file": (b"", "not a WAV file (empty)"),
    "no samples": (wav(16, 1, 16_000, b""), "holds no sample"),
    "compressed": (wav(16, 1, 16_000, bytes(64), code=85), "MP3"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(50), "not a WAV file"),
    "header alone": (wav(16, 1, 16_000, b"")[:20], "has a format of 0 bytes"),
}


@pytest.mark.parametrize("name", sorted(ODD))
def test_odd_recordings_are_taken_and_noted(tmp_path: Path, name: str) -> None:
    data, note = ODD[name]
    path = tmp_path / "odd.wav"
    path.write_bytes(data)
    found = loaded(path, KEYWORDS, AUDIO_SHAPE)
    assert len(found.x) == 1
    if note:
        assert any(note in said for said in found.notes), found.notes


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_broken_recordings_are_refused_with_a_line_that_names_them(tmp_path: Path, name: str) -> None:
    data, words = BROKEN[name]
    path = tmp_path / "broken.wav"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"broken\.wav") as error:
        loaded(path, KEYWORDS, AUDIO_SHAPE)
    assert words in str(error.value)


def test_of_a_folder_broken_recordings_are_left_out_and_counted(tmp_path: Path) -> None:
    write_wav(tmp_path / "yes" / "good.wav", SPEECH)
    (tmp_path / "yes" / "bad.wav").write_bytes(b"RIFF")
    found = loaded(tmp_path, KEYWORDS, AUDIO_SHAPE)
    assert len(found.x) == 1
    assert found.notes[0].startswith("1 of 2 recordings left out")


def test_what_is_odd_about_many_recordings_is_one_note(tmp_path: Path) -> None:
    for number in range(12):
        write_wav(tmp_path / "yes" / f"{number:02d}.wav", tone(300, rate=8000), 8000)
    write_wav(tmp_path / "yes" / "dead.wav", np.zeros(16_000))
    resampled, silent = loaded(tmp_path, KEYWORDS, AUDIO_SHAPE).notes
    assert resampled.startswith("12 recordings: resampled from 8,000 to 16,000 Hz (") and "and 7 more" in resampled
    assert silent.endswith("dead.wav: silent")


def test_a_sound_that_is_shorter_than_a_window_is_noted_where_it_is_named(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "yes" / "short.wav", tone(300, 0.5))
    (note,) = loaded(path, KEYWORDS, AUDIO_SHAPE).notes
    assert "lasts 0.50 s; followed by zeros, as a window takes 0.98" in note
    assert not loaded(tmp_path, KEYWORDS, AUDIO_SHAPE).notes  # as in training


@pytest.mark.parametrize("name", ["yes.mp3", "yes", "mp3s/", "face.png"])
def test_what_is_no_recording_is_refused_in_terms_of_recordings(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("/"):
        path.mkdir()
    else:
        path.write_bytes(b"ID3")
    with pytest.raises(InputError, match=r"recordings? \(\.wav\)"):
        loaded(path, KEYWORDS, AUDIO_SHAPE)


def test_a_signal_of_other_channels_or_too_short_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "two.npy", np.ones((50, 2)))
    with pytest.raises(InputError, match="2 channels; the net takes 3"):
        loaded(tmp_path / "two.npy", SIGNAL, (1, 16, 3))
    np.save(tmp_path / "short.npy", np.ones((15, 3)))
    with pytest.raises(InputError, match="15 samples; a window of the net takes 16"):
        loaded(tmp_path / "short.npy", SIGNAL, (1, 16, 3))


def test_values_far_outside_the_scale_are_noted(tmp_path: Path) -> None:
    np.save(tmp_path / "loud.npy", np.full((20, 3), 1e6))
    assert "100.0 % of a channel's values are outside" in read_samples(tmp_path / "loud.npy", SIGNAL)[1][0]


def test_a_net_with_another_front_end_than_the_data_set_is_not_fed_wrongly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speech_layout(tmp_path / "speech_commands")
    monkeypatch.setenv("FLIPBIT_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    other = AudioInput(AudioConfig(hop=400, bands=32, gain=100), 39, 4)
    with pytest.raises(InputError, match="name a folder of recordings instead"):
        load_data("speech_commands", AUDIO_SHAPE, [], front_end=other)


# ---- commands ----


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("words.fbit").write_bytes(fbit_bytes(recorded_graph(KEYWORDS, AUDIO_SHAPE), "(pixel - 128) * 0.0078125"))
    write_wav(tmp_path / "long.wav", np.concatenate([tone(300 + 100 * i, 0.5) for i in range(6)]))
    for word in ("yes", "no"):
        for i in range(6):
            write_wav(tmp_path / "own" / word / f"{i}.wav", tone(300 if word == "yes" else 900, loud=1000 * (i + 1)))
    return tmp_path


def test_run_prints_an_answer_per_hop(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "words.fbit", "long.wav"]) == 0
    said = capsys.readouterr().out
    assert "long.wav 0.00 … 0.98 s" in said and "long.wav 2.00 … 2.98 s" in said


def test_run_on_a_folder_of_words_measures_accuracy(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "words.fbit", "own"]) == 0
    assert "of 12 right" in capsys.readouterr().out


def test_info_says_what_the_net_hears(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "words.fbit"]) == 0
    said = capsys.readouterr().out
    assert "a flipbit image, version 2" in said
    assert "hears    sound at 16 kHz: 39 rows of 32 log mel bands within 20 … 7600 Hz" in said


def test_a_net_learns_from_recordings(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learn = ["finetune", "words.fbit", "--data", "own", "--target", "sim:nucleo-l4r5zi", "--steps", "2", "--json"]
    assert main(learn) == 0
    tuned = Model("words-tuned.fbit")
    assert tuned.image.front_end == KEYWORDS
    assert tuned.image.data != Path("words.fbit").read_bytes()


def test_drift_of_a_camera_is_not_for_recordings(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drifted = ["finetune", "words.fbit", "--data", "own", "--target", "sim:nucleo-l4r5zi", "--drift", "dim:1"]
    assert main(drifted) == 2
    assert "drift" in capsys.readouterr().err


def test_listening_here_prints_detections_with_times(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listen = ["device", "listen", "--port", "sim", "--model", "words.fbit", "long.wav", "--threshold", "0"]
    assert main([*listen, "--ignore", "no"]) == 0
    said = capsys.readouterr().out
    assert " s  yes  (margin" in said and "detections in 3.0 s" in said and "bytes of RAM for listening" in said


def test_a_recording_that_ends_before_anything_can_be_detected_is_noted(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listen = ["device", "listen", "--port", "sim", "--model", "words.fbit", "own/yes/0.wav", "--threshold", "0"]
    assert main(listen) == 0
    said = capsys.readouterr()
    assert "lasts 1.00 s; a detection takes 1.18: 3 windows (--average)" in said.err
    assert "0 detections in 1.0 s, 1 window, by" in said.out
    assert main([*listen, "--average", "1", "--ignore", "no"]) == 0
    said = capsys.readouterr()
    assert not said.err and "1 detection in 1.0 s, 1 window, by" in said.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.wav"], "nothing.wav"),
        (["words.fbit"], "expected a recording (.wav)"),
        (["long.wav", "--threshold", "-1"], "--threshold -1"),
        (["long.wav", "--threshold", "nan"], "--threshold nan"),
        (["long.wav", "--average", "17"], "average is 17"),
        (["long.wav", "--refractory", "-2"], "--refractory -2"),
        (["long.wav", "--stride", "-1"], "stride is -1"),
        (["long.wav", "--ignore", "maybe"], "--ignore maybe"),
    ],
)
def test_wrong_arguments_of_listening_get_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["device", "listen", "--port", "sim", "--model", "words.fbit", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1 and words in said


def test_a_channel_in_another_unit_is_noted_even_if_the_others_have_larger_values(tmp_path: Path) -> None:
    """Accelerations of the first channel in m/s², where training had multiples of g."""
    random = np.random.default_rng(1)
    values = random.uniform(-0.9, 0.9, (200, 3)) * [1.0, 2.0, 0.0] + [0.0, 0.0, 4.0]
    np.save(tmp_path / "right.npy", values)
    assert read_samples(tmp_path / "right.npy", SIGNAL)[1] == []
    np.save(tmp_path / "other.npy", values * [9.81, 1.0, 1.0])
    (note,) = read_samples(tmp_path / "other.npy", SIGNAL)[1]
    assert "of a channel's values are outside of what the net was scaled for" in note and "unit" in note


def test_a_sensor_that_says_nothing_is_noted(tmp_path: Path) -> None:
    (tmp_path / "silent.csv").write_text("0,0,9.81\n" * 40)
    (note,) = read_samples(tmp_path / "silent.csv", SIGNAL)[1]
    assert note.endswith("silent: each channel has the same value throughout")
    (tmp_path / "noise.csv").write_text("0,0,9.81\n" * 39 + "0.1,0,9.8\n")
    assert read_samples(tmp_path / "noise.csv", SIGNAL)[1] == []


def test_a_recording_in_a_much_larger_unit_is_noted(tmp_path: Path) -> None:
    """Multiples of g for a net that was trained on thousandths of it, as the magic wand's is."""
    random = np.random.default_rng(2)
    np.save(tmp_path / "g.npy", random.normal(0, 0.5, (200, 3)))
    (note,) = read_samples(tmp_path / "g.npy", WAND)[1]
    assert note.endswith("hardly moves on the net's scale: is the unit the same as in training?")
    np.save(tmp_path / "mg.npy", random.normal(0, 500, (200, 3)))
    assert read_samples(tmp_path / "mg.npy", WAND)[1] == []


def test_vibration_as_wav_at_another_rate_is_noted(tmp_path: Path) -> None:
    front_end = SignalInput.scaled(12_000, 16, 8, [-32768], [32767])
    (tmp_path / "motor.wav").write_bytes(wav(16, 1, 16_000, np.arange(0, 3200, 10, dtype="<i2").tobytes()))
    (note,) = read_samples(tmp_path / "motor.wav", front_end)[1]
    assert "read at 16,000 samples per second; the net was trained at 12,000" in note
