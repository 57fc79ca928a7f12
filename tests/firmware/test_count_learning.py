"""Counting of learning: reports are read as they are meant, and an emulated core learns the host's bits."""

from __future__ import annotations

import shutil
from pathlib import Path

import counting
import learn
import pytest
from counting import CORES, CountError, Region

from tests.nets.small_nets import small_image

REPORT = """model 100 7
ram 10 20 30 5
arena 25
pass 0 0 0 0
sample 3 65536
pass 4 4 0 8
sample 3 65536
pass 4 1 8 2
sample 3 65536
pass 4 4 0 8
sample 3 65536
pass 4 1 8 2
sample 3 65536
step 12 99
stack 640
done
"""


def regions(*totals: int) -> list[Region]:
    return [Region("sample" if i % 2 == 0 else "pass", total, []) for i, total in enumerate(totals)]


def test_passes_are_told_apart_by_what_they_are_for() -> None:
    words, (run,) = learn.parse(REPORT, regions(*range(1, 11)), "M7")
    assert words == {"model": [100, 7], "ram": [10, 20, 30, 5], "image": [99], "stack": [640]}
    assert [(p.phase, p.sample, p.end) for p in run.passes] == [
        ("scale", 1, 2), ("measure", 3, 4), ("measure", 5, 6), ("update", 7, 8), ("update", 9, 10),
    ]  # fmt: skip
    assert (run.passes[2].high_op, run.passes[2].low_op, run.passes[2].first_filter, run.passes[2].end_filter) == (
        4, 1, 8, 2,
    )  # fmt: skip
    assert (run.arena, run.flips) == (25, 12)


def test_what_a_program_says_when_it_fails_is_passed_on() -> None:
    with pytest.raises(CountError, match="FB_ERR_ARENA"):
        learn.parse("failed FB_ERR_ARENA\n", [], "M7")


def test_new_counts_replace_those_of_the_same_core_and_net() -> None:
    def counted(core: str, net: str, stack: int) -> learn.CoreCount:
        return learn.CoreCount(core, net, "sr", net, 1, 1, 1, 1, 1, stack)

    first = learn.merge({}, [counted("M0", "a", 1), counted("M4", "a", 1)], "c", "x")
    second = learn.merge(first, [counted("M4", "a", 2), counted("M4", "b", 3)], "c", "y")
    assert [(c["core"], c["model"], c["stack"], c["commit"]) for c in second["counts"]] == [
        ("M0", "a", 1, "x"), ("M4", "a", 2, "y"), ("M4", "b", 3, "y"),
    ]  # fmt: skip


@pytest.mark.slow
def test_an_emulated_core_learns_the_bits_of_this_machine_in_any_arena(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for program in ("qemu-system-arm", "arm-none-eabi-gcc", "make"):
        if not shutil.which(program):
            pytest.skip(f"needs {program}")
    model = tmp_path / "net.fbit"
    model.write_bytes(small_image())
    core = next(core for core in CORES if core.name == "M3")
    folder = tmp_path_factory.getbasetemp() / "firmware-build"  # the core is compiled once for all tests
    plugin = counting.build_plugin(folder)
    found = learn.count(core, model, "small", [12_000], folder, plugin)  # raises where bits differ
    whole, less = found.runs
    assert [p.phase for p in whole.passes] == ["scale", "measure", "update"]
    assert len(less.of("measure")) > 1 and not less.of("update")
    assert sum(p.sample for p in less.of("measure")) > whole.of("measure")[0].sample > found.macs
    assert sum(p.end for p in whole.of("update")) > found.weights
