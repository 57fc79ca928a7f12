"""Signals: files, windows, the official layouts, a user's own folder; nothing is in two parts."""

from __future__ import annotations

import contextlib
import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from hypothesis import given
from hypothesis import strategies as st

from flipbit.runtime.data import sets
from flipbit.runtime.data.data_set import every_nth_group
from flipbit.runtime.data.load import load_data
from flipbit.runtime.errors import InputError
from flipbit.runtime.recordings.bearings import PUBLISHED
from flipbit.runtime.recordings.mat_files import parse_mat
from flipbit.runtime.recordings.motion import WAND, gestures, placed
from flipbit.runtime.recordings.signal_files import SignalError, read_signal
from flipbit.runtime.recordings.windows import cut, segments
from tests.runtime.recordings.made import bearings_layout, motion_layout, published_motion, tone, wand_layout, write_wav


def examples(path: Path, part: str):  # type: ignore[no-untyped-def]
    found = sets.open_arrays(str(path))
    assert found is not None and found.examples is not None
    return found, found.examples(part)


# ---- files ----


@pytest.mark.parametrize("text", [
    "1,2\n3,4\n", "x,y\n1,2\n3,4\n", "1;2\r\n3;4\r\n", "1 2\n3 4", "1\t2\n3\t4\n", "# made\ntime,x,y\n0,1,2\n1,3,4\n",
    "\ufefft, x, y\n0, 1, 2\n0.1, 3, 4\n", "accel x,accel y\n1,2\n3,4\n", '"x","y"\n"1","2"\n"3","4"\n',
    "x,y,\n1,2,\n3,4,\n", "x;y\n1,0;2\n3;4,0\n", "1,0\t2,0\n3,0\t4,0\n", ",x,y\n0,1,2\n1,3,4\n",
    '"Time (s)","x, in g","y (°/s)"\n0.0,1,2\n0.1,3,4\n', "timestamp_ns\tx\ty\n12:00\t1\t2\n12:01\t3\t4\n",
])  # fmt: skip
def test_a_csv_is_read_whatever_its_separator(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    assert read_signal(path).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(("text", "reason"), [
    ("", "empty"), ("a,b\n", "no samples"), ("1,2\n3\n", "line 2 has 1 numbers; expected 2"), ("1,2\n3,x\n", "line 2"),
    ("1,2\nnan,4\n", "sample 1 is no number"), ("# made\n\n1,2\n3\n", "line 4 has 1 numbers"),
    ("1,2,3\n4,,6\n", "line 2"), ("1,2,3\n4,5,\n", "line 2 has 2 numbers"), ("time\n1\n", "no column but time"),
    ("0,5 0,7\n0,6 0,8\n", "line 2"), ("1.000,5;2\n1.000,5;2\n", "line 2"),
])  # fmt: skip
def test_a_broken_csv_is_refused_with_its_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(SignalError, match=reason):
        read_signal(path)


def test_npy_of_one_channel_and_of_objects(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(5, dtype=np.int16))
    assert read_signal(tmp_path / "a.npy").shape == (5, 1)
    np.save(tmp_path / "b.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(SignalError, match=r"b\.npy"):
        read_signal(tmp_path / "b.npy")


def test_a_csv_of_wide_characters_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n", encoding="utf-16")
    assert read_signal(tmp_path / "a.csv").tolist() == [[1, 2], [3, 4]]


# ---- windows ----


def test_windows_stay_within_their_stretch() -> None:
    values = np.arange(103)[:, None]
    assert cut(values, 10, 5).shape == (19, 10, 1)
    assert cut(values, 10, 5)[1, :, 0].tolist() == list(range(5, 15))
    assert cut(values[:9], 10, 5).shape == (0, 10, 1)
    parts = segments(values, 10)
    assert {len(part) for part in parts} == {10, 11} and np.array_equal(np.concatenate(parts), values)


def test_groups_are_held_out_whole() -> None:
    labels, groups = np.array([0, 0, 1, 1, 0, 1, 0, 1]), np.array([1, 2, 1, 2, 3, 3, 4, 4])
    held = every_nth_group(labels, groups, 2)
    assert set(groups[held]) == {2, 4} and set(groups[~held]) == {1, 3}


# ---- official layouts ----


def test_motionsense_tests_on_people_it_has_not_seen(tmp_path: Path) -> None:
    folder = motion_layout(tmp_path / "motion")
    found, train = examples(folder, "train")
    _, test = examples(folder, "test")
    assert found.classes == ["downstairs", "upstairs", "walking", "jogging", "sitting", "standing"]
    assert train.x.shape[1:] == (1, 128, 6) and found.front_end.fits(train.x.shape[1:])
    assert set(train.groups) == {1, 2, 3, 4, 5, 6} and set(test.groups) == {19, 20}
    assert set(train.y) == set(test.y) == set(range(6))


def test_a_motion_file_of_other_channels_is_named_and_skipped(tmp_path: Path) -> None:
    folder = motion_layout(tmp_path / "motion")
    np.save(folder / "wlk_07_03.npy", np.zeros((300, 5), np.int16))
    _, train = examples(folder, "train")
    assert "1 of" in train.notes[0] and "wlk_07_03.npy: 5 channels; expected 6" in train.notes[0]


def test_motionsense_as_published_is_the_same_recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = motion_layout(tmp_path / "packed")
    folder = published_motion(tmp_path / "motionsense", packed)
    for part in ("train", "test"):
        (_, few), (_, all_columns) = examples(packed, part), examples(folder, part)
        assert not all_columns.notes
        assert sorted(zip(few.y.tolist(), few.groups.tolist(), (row.tobytes() for row in few.x))) == sorted(
            zip(all_columns.y.tolist(), all_columns.groups.tolist(), (row.tobytes() for row in all_columns.x))
        )
    monkeypatch.setenv("FLIPBIT_DATA", str(tmp_path))
    assert sets.open_arrays("motionsense").kind == "motionsense"  # type: ignore[union-attr]
    assert sets.open_arrays(str(folder / "A_DeviceMotion_data")).kind == "motionsense"  # type: ignore[union-attr]


def test_gestures_between_dashes_are_read_and_placed(tmp_path: Path) -> None:
    folder = wand_layout(tmp_path / "wand")
    read = gestures(folder / "wing" / "output_wing_hyw.txt")
    assert [len(gesture) for gesture in read] == [60, 61, 62, 63]
    (middle,) = placed(read[0], training=False)
    assert len(middle) == WAND.length and np.array_equal(middle[34:94], read[0]) and (middle[:34] == read[0][0]).all()
    assert len(placed(read[0], training=True)) > 1
    found, train = examples(folder, "train")
    _, test = examples(folder, "test")
    assert found.classes == ["wing", "ring", "slope", "negative"]
    assert len(test.y) == 4 * 4 and set(train.y) == set(test.y) == {0, 1, 2, 3}


def test_bearings_train_on_load_0_and_test_on_others(tmp_path: Path) -> None:
    folder = bearings_layout(tmp_path / "cwru")
    found, train = examples(folder, "train")
    _, test = examples(folder, "test")
    assert len(found.classes) == 10 and set(train.y) == set(test.y) == set(range(10))
    assert set(train.groups) == set(range(10))  # stretches in time, over which no window reaches
    seen = {window.tobytes() for window in train.x}
    assert not any(window.tobytes() in seen for window in test.x)
    (folder / "IR007_1.npy").unlink()
    _, test = examples(folder, "test")
    assert 4 not in set(test.y)


@pytest.mark.parametrize("compressed", [False, True])
def test_bearings_as_published_are_the_same_recordings(tmp_path: Path, compressed: bool) -> None:
    packed, folder = bearings_layout(tmp_path / "packed"), tmp_path / "cwru"
    folder.mkdir()
    for path in packed.glob("*.npy"):
        fault, load = path.stem.rsplit("_", 1)
        number = PUBLISHED.get(fault, 3005) + int(load)
        values = np.load(path)[:, None] / 400
        arrays = {f"X{number}_FE_time": values[::-1], f"X{number}_DE_time": values, f"X{number}RPM": 1797}
        scipy.io.savemat(folder / f"{number}.mat", {"note": "words", **arrays}, do_compression=compressed)
    for part in ("train", "test"):
        (_, few), (found, published) = examples(packed, part), examples(folder, part)
        assert found.kind == "cwru" and not published.notes
        assert sorted(row.tobytes() for row in few.x) == sorted(row.tobytes() for row in published.x)


def test_where_the_faultless_bearing_has_all_loads_it_is_divided_by_load(tmp_path: Path) -> None:
    folder = bearings_layout(tmp_path / "cwru")
    _, before = examples(folder, "train")
    np.save(folder / "Normal_2.npy", np.arange(12_000).astype(np.int16))
    (_, train), (_, test) = examples(folder, "train"), examples(folder, "test")
    assert (train.y == 0).sum() > (before.y == 0).sum()  # the whole of load 0
    assert (test.y == 0).sum() == (test.y == 4).sum()


@pytest.mark.parametrize(("damage", "reason"), [
    (lambda data: b"", "no MATLAB file of version 5"), (lambda data: data[:1000], "damaged MATLAB file"),
    (lambda data: b"MATLAB 7.3 MAT-file" + bytes(105) + b"\x00\x02IM", "version 7.3: save it with -v7"),
    (lambda data: data.replace(b"DE_time", b"XX_time"), "no array of the drive end"),
])  # fmt: skip
def test_a_broken_mat_file_is_named_and_skipped(tmp_path: Path, damage, reason: str) -> None:  # type: ignore[no-untyped-def]
    for number in (97, 105, 118):
        scipy.io.savemat(tmp_path / f"{number}.mat", {f"X{number:03d}_DE_time": np.ones((20_000, 1))})
    (tmp_path / "118.mat").write_bytes(damage((tmp_path / "118.mat").read_bytes()))
    _, train = examples(tmp_path, "train")
    (note,) = train.notes
    assert "1 of 3 recordings left out" in note and "118.mat: " in note and reason in note


def test_mat_files_of_any_type_and_byte_order_are_read(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "a.mat", {"f": np.float32([[1.5, 2], [3, 4]]), "i": np.int16([[-7]]), "c": {"x": 1}})
    found = parse_mat((tmp_path / "a.mat").read_bytes())
    assert {name: values.tolist() for name, values in found.items()} == {"f": [[1.5, 2], [3, 4]], "i": [[-7]]}
    element = struct.pack(">IIII", 6, 8, 6, 0) + struct.pack(">IIii", 5, 8, 1, 2) + struct.pack(">HH4s", 1, 1, b"v")
    element += struct.pack(">IIdd", 9, 16, 0.5, -2)
    data = bytes(124) + b"\x01\x00MI" + struct.pack(">II", 14, len(element)) + element
    assert parse_mat(data)["v"].tolist() == [[0.5, -2]]


@given(st.integers(0, 700), st.integers(0, 255))
def test_a_mat_file_with_any_byte_changed_is_read_or_refused(place: int, byte: int) -> None:
    file = io.BytesIO()
    scipy.io.savemat(file, {"X105_DE_time": np.arange(40.0)[:, None], "s": {"x": 1}})
    data = bytearray(file.getvalue())
    data[place % len(data)] = byte
    with contextlib.suppress(InputError):
        parse_mat(bytes(data))


def test_sets_are_found_by_name_in_the_folder_of_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIPBIT_DATA", str(tmp_path))
    for name in ("motionsense", "magic_wand", "cwru", "speech_commands"):
        with pytest.raises(sets.MissingError, match=f"{name}: not found"):
            sets.open_arrays(name)
    wand_layout(tmp_path / "magic-wand")
    data = load_data("magic_wand", (1, 128, 3), ["wing", "ring", "slope", "negative"])
    assert len(data.x) == 16 and data.labelled and not data.notes


# ---- a user's folder ----


def own_folder(folder: Path, recordings: int = 6, samples: int = 400) -> Path:
    for number, name in enumerate(("idle", "shake")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for take in range(recordings):
            t = np.arange(samples) + 7 * take
            columns = np.stack([np.sin(t * 0.1) * (1 + 5 * number), np.cos(t * 0.2)], 1)
            np.savetxt(folder / name / f"{take}.csv", columns, delimiter=",", header="x,y", comments="")
    return folder


def test_own_signals_are_cut_and_scaled_and_scales_are_kept(tmp_path: Path) -> None:
    folder = own_folder(tmp_path / "own")
    (folder / "front_end.json").write_text(json.dumps({"rate": 100, "length": 64, "hop": 32}))
    found, train = examples(folder, "train")
    _, test = examples(folder, "test")
    assert found.classes == ["idle", "shake"] and train.x.shape[1:] == (1, 64, 2)
    assert found.front_end.rate == 100 and found.front_end.hop == 32
    assert train.x.max() >= 250 and train.x.min() <= 5  # the range is used
    assert len(np.unique(test.groups)) == 2 and not set(test.groups) & set(train.groups)
    assert not train.notes


def test_few_recordings_are_divided_in_time_and_a_note_says_so(tmp_path: Path) -> None:
    _, train = examples(own_folder(tmp_path / "own", recordings=1, samples=4000), "train")
    assert any("flatters" in note for note in train.notes)
    assert any("front_end.json" in note for note in train.notes)


@pytest.mark.parametrize("text", ["{", "[]", '{"length": "x"}', '{"length": 0}', '{"lenght": 64}'])
def test_a_wrong_front_end_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (own_folder(tmp_path / "own") / "front_end.json").write_text(text)
    with pytest.raises(InputError, match=r"front_end\.json"):
        sets.open_arrays(str(tmp_path / "own"))


def test_a_recording_of_other_channels_than_most_is_named_and_skipped(tmp_path: Path) -> None:
    folder = own_folder(tmp_path / "own")
    _, before = examples(folder, "train")
    (folder / "idle" / "00.csv").write_text("1\n2\n3\n")  # the first that is read
    _, train = examples(folder, "train")
    assert np.array_equal(train.x, before.x)
    assert "1 of 13" in train.notes[0] and "00.csv: 1 channels; most have 2" in train.notes[0]


def test_recordings_of_as_many_channels_as_others_are_refused(tmp_path: Path) -> None:
    folder = own_folder(tmp_path / "own")
    for path in (folder / "idle").iterdir():
        path.write_text("1\n2\n3\n")
    with pytest.raises(InputError, match="1 and 2 channels"):
        sets.open_arrays(str(folder))


def test_a_class_of_broken_files_does_not_change_how_the_others_are_divided(tmp_path: Path) -> None:
    folder = own_folder(tmp_path / "own")
    _, before = examples(folder, "test")
    (folder / "torn").mkdir()
    (folder / "torn" / "1.csv").write_text("")
    found, test = examples(folder, "test")
    assert found.classes == ["idle", "shake", "torn"] and len(test.x) == len(before.x) and "1 of 13" in test.notes[0]


def test_folders_without_recordings_and_short_recordings_are_noted(tmp_path: Path) -> None:
    folder = own_folder(tmp_path / "own")
    (folder / "nothing").mkdir()
    np.savetxt(folder / "idle" / "00.csv", np.ones((20, 2)), delimiter=",")
    write_wav(folder / "idle" / "sound.wav", tone(300))
    _, train = examples(folder, "train")
    notes = " | ".join(train.notes)
    assert "no class: nothing/" in notes and ".wav files are left out" in notes
    assert "1 of 11 recordings or stretches of them have less than 128 samples" in notes


def test_words_with_a_list_of_them_are_words(tmp_path: Path) -> None:
    for word in ("hello", "stop"):
        for take in range(5):
            write_wav(tmp_path / word / f"{take}.wav", tone(300))
    (tmp_path / "hello" / "list.csv").write_text("file,who\n0.wav,me\n")
    (tmp_path / "hello" / "cover.ppm").write_bytes(b"P6 1 1 255 abc")
    found = sets.open_arrays(str(tmp_path))
    assert found is not None and found.kind == "words" and found.classes == ["hello", "stop"]


def test_values_that_no_sample_can_stand_for_are_refused(tmp_path: Path) -> None:
    folder = own_folder(tmp_path / "own")
    for path in folder.rglob("*.csv"):
        np.savetxt(path, 1e12 * np.random.default_rng(0).normal(size=(400, 2)), delimiter=",")
    with pytest.raises(InputError, match="use a larger unit"):
        sets.open_arrays(str(folder))


def test_a_channel_that_says_nothing_is_noted(tmp_path: Path) -> None:
    folder = own_folder(tmp_path / "own")
    for path in folder.rglob("*.csv"):
        values = np.loadtxt(path, delimiter=",", skiprows=1)
        np.savetxt(path, np.stack([values[:, 0], np.full(len(values), 3)], 1), delimiter=",")
    _, train = examples(folder, "train")
    assert "channel 2 of 2: always the same value, to what 8 bits can tell" in train.notes


def test_recordings_shorter_than_a_window_are_refused(tmp_path: Path) -> None:
    found = sets.open_arrays(str(own_folder(tmp_path / "own", samples=40)))
    assert found is not None
    with pytest.raises(InputError, match="no recording has 128 samples"):
        found.read("train")
