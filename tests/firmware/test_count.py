"""Counting: the plugin counts what was executed, no more and no less, and the bench command says what it counted."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import bench
import counting
import cycles
import pytest
from counting import CORES, Count, Instruction

from tests.nets.small_nets import small_image
from tests.patience import PATIENCE

# 1 at begin, 1 to set up, then `turns` times two; the marker at the end is not counted. The turns cross a page.
ARM_LOOP = """
    .syntax unified
    .thumb
    .word 0x20001000, start + 1
    .space 4096 - 8 - 16
    .globl start, begin, end
start:
    movs r2, #7
begin:
    nop
    ldr r0, =TURNS
loop:
    subs r0, #1
    bne.w loop
end:
    nop
    subs r2, #1
    bne begin
    movs r0, #0x18
    ldr r1, =0x20026
    bkpt 0xab
"""
RISCV_LOOP = """
    .globl start, begin, end
start:
    li s0, 7
begin:
    nop
    li a0, TURNS
loop:
    addi a0, a0, -1
    bnez a0, loop
end:
    nop
    addi s0, s0, -1
    bnez s0, begin
    li t0, 0x100000
    li t1, 0x5555
    sw t1, 0(t0)
"""


def needs(*programs: str) -> None:
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"needs {program}")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.getbasetemp() / "firmware-build"
    found.mkdir(exist_ok=True)
    return found


@pytest.fixture(scope="session")
def plugin(folder: Path) -> Path:
    needs("cc")
    return counting.build_plugin(folder)


@pytest.fixture(scope="session")
def model(folder: Path) -> Path:
    path = folder / "small.fbit"
    path.write_bytes(small_image())
    return path


@pytest.fixture(scope="session")
def counted(folder: Path, plugin: Path, model: Path) -> dict[str, Count]:
    """A small net, counted on two cores."""
    needs("make", "arm-none-eabi-gcc", "qemu-system-arm")
    return {core.name: counting.count(core, model, folder, plugin) for core in CORES if core.name in ("M0", "M4")}


@pytest.mark.parametrize("turns", [1, 2, 1000])
@pytest.mark.parametrize("machine", ["arm", "riscv"])
def test_a_loop_is_counted_to_the_instruction(machine: str, turns: int, plugin: Path, tmp_path: Path) -> None:
    compiler = {"arm": "arm-none-eabi-", "riscv": "riscv64-unknown-elf-"}[machine]
    board = {"arm": "mps2-an385", "riscv": "rv32-virt"}[machine]
    flags = {"arm": ["-mcpu=cortex-m3", "-Wl,-Ttext=0"],
             "riscv": ["-march=rv32imac", "-mabi=ilp32", "-Wl,-Ttext=0x80000000"]}[machine]  # fmt: skip
    needs(compiler + "gcc", counting.read_profile.read(board).facts["qemu"]["system"])
    source = tmp_path / "loop.s"
    source.write_text({"arm": ARM_LOOP, "riscv": RISCV_LOOP}[machine].replace("TURNS", str(turns)))
    elf, out = tmp_path / "loop.elf", tmp_path / "counts"
    subprocess.run([compiler + "gcc", *flags, "-nostdlib", "-Wl,-estart", "-o", str(elf), str(source)], check=True)
    at = counting.report_sizes.symbols(counting.read_profile.read(board), elf)
    counting.emulate(board, elf, "-plugin", f"{plugin},out={out},region=loop:{at['begin']:#x}:{at['end']:#x}")
    regions = counting.parse_regions(out.read_text())
    assert [region.total for region in regions] == [2 + 2 * turns] * 7
    for region in regions:
        by_address = {item.address: item for item in region.instructions}
        branch = max(by_address)
        assert (by_address[branch].count, by_address[branch].taken) == (turns, turns - 1)
        assert sum(item.count for item in region.instructions) == region.total


def test_the_plugin_refuses_what_it_does_not_know(plugin: Path, tmp_path: Path) -> None:
    needs("qemu-system-arm")
    for arguments in ("region=a:1:2", f"out={tmp_path / 'x'},region=a", f"out={tmp_path / 'x'},speed=9"):
        command = ["qemu-system-arm", "-M", "mps2-an385", "-display", "none", "-plugin", f"{plugin},{arguments}"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode
        assert "count_plugin:" in done.stderr


def test_counts_are_the_same_each_time(counted: dict[str, Count], folder: Path, plugin: Path, model: Path) -> None:
    again = counting.count(next(core for core in CORES if core.name == "M4"), model, folder, plugin)
    assert again.whole.total == counted["M4"].whole.total
    assert [layer.total for layer in again.layers] == [layer.total for layer in counted["M4"].layers]


def test_layers_and_the_whole_agree(counted: dict[str, Count]) -> None:
    """The whole has the planning between layers, layers have the call of their hooks: both are small."""
    for count in counted.values():
        layers = sum(layer.total for layer in count.layers)
        assert all(layer.total > 20 for layer in count.layers)
        assert layers - 60 * len(count.layers) < count.whole.total < layers + 2000 * len(count.layers)


def test_code_for_the_m0_has_no_instruction_that_only_larger_cores_know(counted: dict[str, Count]) -> None:
    wide = [item for item in counted["M0"].whole.instructions if len(item.code) == 4]
    assert {item.code[1] >> 3 for item in wide} <= {0b11110}  # BL, and the few of its kind
    assert any(item.code[1] >> 3 in (0b11101, 0b11111) for item in counted["M4"].whole.instructions)


def test_a_device_that_differs_is_named_by_its_layer(counted: dict[str, Count]) -> None:
    crcs = counting.host_crcs(small_image())
    core = next(core for core in CORES if core.name == "M4")
    bench.compare(core, counted["M4"], crcs)
    crcs[3] ^= 1
    with pytest.raises(counting.CountError, match="layer 3 "):
        bench.compare(core, counted["M4"], crcs)


@pytest.mark.parametrize(
    ("core", "code", "taken", "cost"),
    [
        ("M0", "0068", 0, 20),  # ldr r0, [r0]
        ("M4", "0068", 0, 20),
        ("M0", "013a", 0, 10),  # subs r2, #1
        ("M0", "fcd1", 9, 28),  # bne, taken 9 times of 10
        ("M0+", "fcd1", 9, 19),
        ("M3", "fcd1", 9, 28),
        ("M0", "70bd", 0, 80),  # pop {r4, r5, r6, pc}
        ("M0+", "70bd", 0, 70),
        ("M0", "70b5", 0, 50),  # push {r4, r5, r6, lr}
        ("M0", "00f001f8", 0, 40),  # bl
        ("M0", "7047", 0, 30),  # bx lr
        ("M3", "82fb0023", 0, 40),  # smull r2, r3, r2, r0
        ("M4", "82fb0023", 0, 10),
        ("M3", "02fb0030", 0, 20),  # mla
        ("M7", "013a", 0, None),  # no published costs
    ],
)
def test_modelled_cycles_are_those_of_arms_manuals(core: str, code: str, taken: int, cost: int | None) -> None:
    pytest.importorskip("capstone", reason="needs capstone")
    assert cycles.modelled_cycles(core, [Instruction(0x100, bytes.fromhex(code), 10, taken)]) == cost


def test_loads_in_a_row_overlap_on_m3_unless_one_gives_the_address_of_the_next() -> None:
    pytest.importorskip("capstone", reason="needs capstone")
    ldr_r1_r0, ldr_r2_r0, ldr_r2_r1 = bytes.fromhex("0168"), bytes.fromhex("0268"), bytes.fromhex("0a68")
    pair = [Instruction(0, ldr_r1_r0, 1, 0), Instruction(2, ldr_r2_r0, 1, 0)]
    chain = [Instruction(0, ldr_r1_r0, 1, 0), Instruction(2, ldr_r2_r1, 1, 0)]
    assert cycles.modelled_cycles("M3", pair) == 3
    assert cycles.modelled_cycles("M3", chain) == 4
    assert cycles.modelled_cycles("M0", pair) == 4


def test_an_address_computed_right_before_its_use_takes_a_cycle_more_on_m4() -> None:
    pytest.importorskip("capstone", reason="needs capstone")
    add_r0_r1, add_r2_r1, ldr_r3_r0 = bytes.fromhex("4018"), bytes.fromhex("5218"), bytes.fromhex("0368")
    ldm_r0 = bytes.fromhex("90e8f000")  # ldm.w r0, {r4-r7}
    late = [Instruction(0, add_r0_r1, 1, 0), Instruction(2, ldr_r3_r0, 1, 0)]
    early = [Instruction(0, add_r0_r1, 1, 0), Instruction(2, add_r2_r1, 1, 0), Instruction(4, ldr_r3_r0, 1, 0)]
    several = [Instruction(0, add_r0_r1, 1, 0), Instruction(2, ldm_r0, 1, 0)]
    assert [cycles.modelled_cycles("M4", code) for code in (late, early, several)] == [4, 4, 7]
    assert cycles.modelled_cycles("M0", late) == 3


def test_a_store_takes_one_cycle_on_m4_unless_a_register_is_its_offset() -> None:
    pytest.importorskip("capstone", reason="needs capstone")
    str_r1_r0, str_r1_r0_r2, ldr_r3_r0 = bytes.fromhex("0160"), bytes.fromhex("8150"), bytes.fromhex("0368")
    assert cycles.modelled_cycles("M4", [Instruction(0, str_r1_r0, 1, 0)]) == 1
    assert cycles.modelled_cycles("M4", [Instruction(0, str_r1_r0_r2, 1, 0)]) == 2
    assert cycles.modelled_cycles("M4", [Instruction(0, ldr_r3_r0, 1, 0), Instruction(2, str_r1_r0_r2, 1, 0)]) == 3
    assert cycles.modelled_cycles("M0", [Instruction(0, str_r1_r0, 1, 0)]) == 2


def test_the_bench_command_prints_a_table_and_writes_json(
    folder: Path, model: Path, counted: dict[str, Count], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "counts.json"
    assert bench.main([str(model), "--cores", "M4", "--build", str(folder), "--json", str(target)]) == 0
    text = capsys.readouterr().out
    (result,) = json.loads(target.read_text())
    assert f"{counted['M4'].whole.total:,}" in text
    assert result["instructions"] == counted["M4"].whole.total
    assert [layer["instructions"] for layer in result["layers"]] == [layer.total for layer in counted["M4"].layers]
    assert result["cmsis_nn"] is None  # those numbers are of another net
    assert result["model"] == len(small_image())


@pytest.mark.parametrize(("board", "core"), [("microbit", "M0"), ("netduinoplus2", "M4"), ("hifive1", "RV32IMAC")])
def test_boards_are_compared_with_what_is_known_of_their_core(board: str, core: str) -> None:
    (chosen,) = bench.chosen(bench.parser().parse_args(["--boards", board]))
    assert bench.short_name(chosen) == core
    assert core in bench.CMSIS_NN


def test_the_bench_command_refuses_what_is_no_image_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.fbit"
    wrong.write_bytes(b"FBIT but not quite, and more than a header long")
    for path in (wrong, tmp_path / "missing.fbit"):
        assert bench.main([str(path)]) == 2
        assert capsys.readouterr().err.strip()
