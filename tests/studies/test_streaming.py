"""The study of listening: recordings made from a small copy of the official layout, heard by a small net."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime.recordings.listener import Detection
from flipbit.runtime.recordings.words import KEYWORDS, UNKNOWN, WORDS
from flipbit.studies.streaming import Scene, Spoken, judged, main
from tests.nets.recorded_nets import recorded_graph
from tests.runtime.recordings.made import speech_layout


def test_the_first_detection_of_a_word_counts_and_all_others_are_false_alarms() -> None:
    words = [Spoken("yes", 16_000, 32_000), Spoken("no", 64_000, 80_000), Spoken("up", 96_000, 112_000)]
    scene = Scene("a scene", np.zeros(160_000, np.int16), words)
    found = [
        Detection(0, 0, 9, 30_000),  # yes, in time
        Detection(1, 0, 9, 33_000),  # yes, again
        Detection(2, 0, 9, 70_000),  # yes for no
        Detection(3, 2, 9, 125_000),  # up, too late
    ]
    said = judged(scene, found, ["yes", "no", "up"])
    assert (said["words"], said["detected"], said["missed"], said["false_alarms"]) == (3, 1, 2, 3)
    assert said["false_alarms_per_hour"] == pytest.approx(3 * 360)
    assert said["median_delay"] == pytest.approx(-0.125)


def test_words_other_words_and_noise_are_heard_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    speech_layout(tmp_path / "speech_commands", speakers=40)
    image = tmp_path / "words.fbit"
    labels = (*WORDS, UNKNOWN, "silence")
    image.write_bytes(fbit_bytes(recorded_graph(KEYWORDS, (39, 32, 1), labels)))
    plot = tmp_path / "timeline.png"
    given = [str(image), "--data-dir", str(tmp_path), "--words", "5", "--threshold", "0", "--plot", str(plot), "--json"]
    assert main(given) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [r["recording"] for r in results][:2] == ["words in noise", "other words in noise"]
    assert results[0]["words"] == 5 and results[1]["words"] == 0
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("extra", "words"), [(["--words", "0"], "--words 0"), (["--data-dir", "nowhere"], "speech_commands: not found")]
)
def test_wrong_arguments_get_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], words: str
) -> None:
    image = tmp_path / "words.fbit"
    image.write_bytes(fbit_bytes(recorded_graph(KEYWORDS, (39, 32, 1))))
    assert main([str(image), *extra]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1 and words in said
