"""What a net takes, before it is trained: as counted where it was, close to it where it was not."""

from __future__ import annotations

import json
from pathlib import Path

import bench
import pytest

from flipbit.runtime.board.estimate import TILE, fitted, parts
from flipbit.runtime.board.plan import INFERENCE
from flipbit.runtime.commands.cli import main
from flipbit.studies.cost import net_cost, untrained
from tests.firmware.test_count import needs

NEAR = 0.05
# Of one layer, and of one whose rows do not fill tiles, of which few were counted (docs/results/cost-model.md).
ALONE, CUT = 0.07, 0.2


def rows(core: str, kernel: str) -> list[tuple[str, float]]:
    found = json.loads(INFERENCE.read_text(encoding="utf-8"))["layers"]
    return [(row["layer"], row["instructions"]) for row in found if (row["core"], row["kernel"]) == (core, kernel)]


@pytest.mark.parametrize("core", ["M0", "M3", "M4", "M7", "M33", "RV32IMAC"])
def test_each_counted_3x3_layer_is_estimated_from_the_others(core: str) -> None:
    counted = rows(core, "fb_conv_bin_3x3_full")
    large = [row for row in counted if row[1] > 300_000]
    assert len(large) >= 8
    for row in large:
        others = [other for other in counted if other is not row]
        width = int(row[0].split()[-1].split("×")[1])
        assert fitted(others, row[0]) == pytest.approx(row[1], rel=CUT if width % TILE else ALONE), row[0]


def test_work_is_counted_in_tiles_of_eight_pixels() -> None:
    assert parts("1 3×3 conv 8×8×16 8×8×32")[0] == 8 * 8 * 9 * 16 * 32
    assert parts("1 3×3 conv 9×9×16 9×9×32")[0] == 9 * 16 * 9 * 16 * 32
    assert parts("add 4×4×16 4×4×16")[0] == 4 * 4 * 16
    assert parts("8 dense 64 10")[0] == 8 * 64 * 10


def test_no_part_of_a_layer_takes_less_than_nothing() -> None:
    counted = rows("M4", "fb_conv_bin_3x3_full")
    for size in (1, 3, 9, 65, 300):
        assert fitted(counted, f"1 3×3 conv {size}×{size}×16 {size}×{size}×16") > 0


def test_a_net_of_the_tool_has_a_cost_on_every_core(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "vgg-small", "--width", "0.5", "--shape", "16x16x1", "--classes", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [core["core"] for core in found["cores"]] == [
        "cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55", "rv32imac",
    ]  # fmt: skip
    assert all(core["instructions"] > 0 for core in found["cores"])
    assert main(["cost", "vgg-small", "--shape", "16x16x1"]) == 0
    assert "multiply-accumulates" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("core", ["M4", "RV32IMAC"])
def test_the_estimate_is_within_five_percent_of_the_count(core: str, tmp_path: Path) -> None:
    needs("make", {"M4": "arm-none-eabi-gcc", "RV32IMAC": "riscv64-unknown-elf-gcc"}[core])
    needs({"M4": "qemu-system-arm", "RV32IMAC": "qemu-system-riscv32"}[core], "cc")
    image = untrained("flip-s", (48, 48, 1))
    file = tmp_path / "net.fbit"
    file.write_bytes(image)
    assert bench.main([str(file), "--cores", core, "--json", str(tmp_path / "counts.json")]) == 0
    counted = json.loads((tmp_path / "counts.json").read_text(encoding="utf-8"))[0]
    name = {"M4": "cortex-m4", "RV32IMAC": "rv32imac"}[core]
    (estimate,) = [found for found in net_cost(image).cores if found.core == name]
    assert estimate.instructions == pytest.approx(sum(layer["instructions"] for layer in counted["layers"]), rel=NEAR)
