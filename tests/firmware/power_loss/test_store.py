"""The store in flash: the real C, with sanitizers, on a simulated flash whose power fails at every operation.

A case that fails prints its id. ``FLIPBIT_REPLAY=id pytest tests/firmware/power_loss/test_store.py -k replay -s`` runs
it again and shows each operation. ``FLIPBIT_LONG=1`` cuts at every operation of the long runs too, and samples 20,000
double and 20,000 triple losses instead of 500.
"""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipbit.runtime import errors
from flipbit.runtime.core import store
from flipbit.runtime.core.store import CHECKPOINT, IMAGE, Cut, FlashLostPower, SimulatedFlash, Store, Worn
from tests.checkout import ROOT

HERE = Path(__file__).parent
FIRMWARE = ROOT / "firmware"
CORE = FIRMWARE / "core"
STORE = CORE / "store" / "fb_store.c"
LONG = bool(os.environ.get("FLIPBIT_LONG"))
WARNINGS = "-std=c99 -Wall -Wextra -Wconversion -Wpedantic -Werror".split()
SCENARIOS = re.findall(r"^    SCENARIO\((\w+)\)", (HERE / "store_scenarios.c").read_text(), re.MULTILINE)
GEOMETRY = r"^    \{\d+, \d+, \d+, \d+, (?:true|false)"
GEOMETRIES = range(len(re.findall(GEOMETRY, (HERE / "store_power_loss.c").read_text(), re.MULTILINE)))


def build(name: str, folder: Path, store_c: Path = STORE) -> Path:
    program = folder / name
    flags = [*WARNINGS, "-g", "-O2", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    folders = ["-I", STORE.parent, "-I", CORE / "include", "-I", FIRMWARE / "sim"]
    core = [store_c, CORE / "run" / "fb_crc32.c", CORE / "run" / "fb_status.c"]
    sources = [*core, FIRMWARE / "sim" / "fb_flash_sim.c", HERE / f"{name}.c"]
    subprocess.run([os.environ.get("CC", "cc"), *flags, *folders, *sources, "-o", program], check=True)
    return program


@pytest.fixture(scope="module")
def power_loss(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("store_power_loss", tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("store_scenarios", tmp_path_factory.mktemp("store"))


def run(program: Path, *arguments: object) -> str:
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenarios: Path, scenario: str) -> None:
    run(scenarios, scenario)


def test_all_scenarios_and_geometries_are_run(scenarios: Path, power_loss: Path) -> None:
    assert run(scenarios).split() == SCENARIOS
    assert len(run(power_loss, "geometries").splitlines()) == len(GEOMETRIES)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_power_loss_at_every_flash_operation_keeps_last_commit(power_loss: Path, geometry: int) -> None:
    """And the run goes on to the same end. Where a run has more than 700 operations, only with FLIPBIT_LONG at each."""
    found = re.search(r"cut at (\d+) of (\d+) operations", run(power_loss, "every", geometry, *([] if LONG else [700])))
    assert found
    cut, operations = map(int, found.groups())
    assert cut == operations or (not LONG and operations > 700 and cut > 60)


def test_power_loss_while_half_programmed_cells_are_settled_keeps_last_commit(power_loss: Path) -> None:
    assert int(run(power_loss, "settling", 5).split()[0]) > 10_000


@pytest.mark.parametrize("losses", [2, 3])
def test_several_power_losses_keep_last_commit(power_loss: Path, losses: int) -> None:
    count = 20_000 if LONG else 500
    assert run(power_loss, "sampled", count, 1, losses).startswith(f"{count} cases of {losses} losses")


def test_replay_of_a_case_passes(power_loss: Path) -> None:
    told = run(power_loss, "replay", os.environ.get("FLIPBIT_REPLAY", "3.7-40.3-2.2"))
    print(told)
    assert "power lost" in told
    assert told.endswith("passed\n")


def test_a_store_that_forgets_is_caught_and_its_id_replays_the_failure(tmp_path: Path) -> None:
    """The tests are worth something: without settling half-programmed marks, what is found changes."""
    right = STORE.read_text()
    wrong = right.replace("bool settle = first && flash->reprogram;", "bool settle = false;")
    assert wrong != right
    (tmp_path / "fb_store.c").write_text(wrong)
    program = build("store_power_loss", tmp_path, tmp_path / "fb_store.c")
    failed = subprocess.run([program, "every", "1"], capture_output=True, text=True)
    assert failed.returncode == 1
    line = re.search(r"^FAILED (\S+): .*", failed.stdout, re.MULTILINE)
    assert line
    again = subprocess.run([program, "replay", line[1]], capture_output=True, text=True)
    assert again.returncode == 1
    assert again.stdout.splitlines()[-1] == line[0]


@pytest.mark.skipif(not shutil.which("arm-none-eabi-gcc"), reason="needs gcc-arm-none-eabi")
def test_code_for_cortex_m0_stays_under_3_kilobytes(tmp_path: Path) -> None:
    object_file = tmp_path / "fb_store.o"
    flags = [*WARNINGS, "-mcpu=cortex-m0", "-mthumb", "-Os"]
    subprocess.run(["arm-none-eabi-gcc", *flags, "-c", STORE, "-o", object_file], check=True)
    sizes = subprocess.run(["arm-none-eabi-size", object_file], capture_output=True, text=True, check=True)
    text, data, bss = map(int, sizes.stdout.splitlines()[1].split()[:3])
    assert text <= 3072
    assert data == bss == 0


# Through the runtime: the same C, called from Python.


def test_the_example_in_the_documentation_works() -> None:
    assert doctest.testmod(store, optionflags=doctest.IGNORE_EXCEPTION_DETAIL).attempted >= 6
    assert doctest.testmod(store, optionflags=doctest.IGNORE_EXCEPTION_DETAIL).failed == 0


actions = st.lists(
    st.tuples(
        st.integers(0, 500),  # bytes
        st.one_of(st.none(), st.integers(0, 150)),  # operations until power fails
        st.sampled_from(list(Cut)),
        st.booleans(),  # restart before
    ),
    max_size=12,
)


@given(
    actions=actions,
    unit=st.sampled_from([1, 2, 4, 8, 16, 32]),
    slots=st.integers(2, 4),
    reprogram=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
)
def test_whatever_happens_the_store_holds_what_was_saved_last(
    actions: list[tuple[int, int | None, Cut, bool]], unit: int, slots: int, reprogram: bool, seed: int
) -> None:
    flash = SimulatedFlash(slots * 1024, 512, unit, slots, reprogram, seed)
    device = Store(flash)
    held: bytes | None = None
    for i, (length, cut, outcome, restart) in enumerate(actions):
        data = bytes((i * 7 + j) % 256 for j in range(length))
        if restart:
            flash.power_on()
            device = Store(flash)
        if cut is not None:
            flash.cut(cut, outcome)
        allowed = [held, data]
        try:
            device.save(data, CHECKPOINT, i)
            allowed = [data]
        except FlashLostPower:
            flash.power_on()
            device = Store(flash)
        held = None if device.current is None else device.read()
        assert held in allowed
        flash.power_on()
        again = Store(flash)
        assert again.current == device.current
        device = again if restart else device
    assert flash.violation == ""


def test_errors_of_the_store_are_exceptions_that_say_what_was_found() -> None:
    flash = SimulatedFlash(8192, 1024)
    device = Store(flash)
    with pytest.raises(errors.EmptyError, match="holds nothing"):
        device.check(IMAGE, 1)
    with pytest.raises(errors.EmptyError):
        device.read()
    with pytest.raises(errors.FullError, match="5000 bytes"):
        device.save(bytes(5000), IMAGE, 1)
    device.save(b"image", IMAGE, 1)
    device.check(IMAGE, 1)
    with pytest.raises(errors.OwnerError, match="0x00000001"):
        device.check(IMAGE, 2)
    with pytest.raises(errors.ArgumentError, match="record of 5"):
        device.read(3, 3)
    with pytest.raises(errors.OrderError):
        device.commit()
    assert device.read(1, 3) == b"mag"
    with pytest.raises(errors.ArgumentError, match="whole pages"):
        SimulatedFlash(1000, 300)


def test_a_record_is_written_in_pieces_and_counted() -> None:
    flash = SimulatedFlash(8192, 1024, unit=8)
    device = Store(flash)
    device.begin(100, CHECKPOINT, 5)
    for i in range(10):
        device.write(bytes([i] * 10))
    assert device.current is None
    device.commit()
    assert device.read() == bytes(i for i in range(10) for _ in range(10))
    # slot header 3, start 1, header 3, data 13, mark 1, seal 1 units
    assert (flash.counts.erased, flash.counts.programmed) == (4, 22)
    assert device.wear == [1, 0]
    assert flash.erases == [1, 1, 1, 1, 0, 0, 0, 0]


def test_a_watch_can_let_a_budget_of_energy_run_out() -> None:
    flash = SimulatedFlash(8192, 1024)
    device = Store(flash)
    device.save(b"old", CHECKPOINT, 5)
    budget = 20.0

    def fails(erase: bool, offset: int) -> bool:
        nonlocal budget
        budget -= 10.0 if erase else 1.0
        return budget < 0

    flash.watch(fails, Cut.NOTHING)
    with pytest.raises(FlashLostPower):
        device.save(bytes(500), CHECKPOINT, 5)
    flash.watch(None)
    flash.power_on()
    assert Store(flash).read() == b"old"


def test_a_worn_flash_ends_with_an_error_and_the_last_record() -> None:
    flash = SimulatedFlash(4096, 1024, slots=4)
    flash.endure(5, Worn.PROGRAM)
    device = Store(flash)
    saved = []
    for i in range(1000):
        try:
            device.save(bytes([i % 250] * 700), CHECKPOINT, 1)
        except errors.FlashError:
            break
        saved.append(i)
    assert 20 <= len(saved) < 1000
    assert Store(flash).read() == bytes([saved[-1] % 250] * 700)
