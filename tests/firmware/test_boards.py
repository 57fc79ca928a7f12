"""Boards: every one builds; those that are emulated boot, work and compute what the host computes, layer by layer."""

from __future__ import annotations

import importlib.util
import os
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import board_tables
import counting
import make_image
import numpy as np
import pytest
import read_profile
import report_sizes
from board_toml import ProfileError

from flipbit.export.calibrate import calibrate
from flipbit.export.graph import AveragePool, Conv, Graph, Tensor
from flipbit.export.quantize import quantize_graph
from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime.image import reference
from flipbit.runtime.image.reader import read_image
from flipbit.runtime.simulate.power import load_device
from tests.nets.small_nets import bits_image, in_memory, newer_image, small_image
from tests.patience import PATIENCE
from tests.samples import BOARDS, sample

NAMES = read_profile.names()
EMULATED = [name for name in NAMES if read_profile.read(name).emulated]
ONLY_BUILT = [name for name in NAMES if name not in EMULATED]
OK, RANGE, ALIGN, VERIFY = 0, 1, 2, 4  # board_status


def needs(*programs: str) -> None:
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"needs {program}")


def toolchain(name: str) -> None:
    needs("make", "cc", read_profile.read(name).compiler + "gcc")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where everything is built; boards with the same compiler flags share the core there."""
    found = tmp_path_factory.getbasetemp() / "firmware-build"
    found.mkdir(exist_ok=True)
    return found


@pytest.fixture(scope="session")
def model(folder: Path) -> Path:
    """A net with every kind of operation that fits into 8 KB of RAM."""
    path = folder / "small.fbit"
    path.write_bytes(small_image())
    return path


def expected(net: bytes) -> list[int]:
    """CRC-32 of every layer's output, by the slow reference in NumPy."""
    image = read_image(net)
    source = image.tensors[image.input]
    tensors = reference.run(image, counting.bench_input(source.size).reshape(1, *source.shape))
    return [zlib.crc32(in_memory(tensors[op.output], image.tensors[op.output])) for op in image.operations]


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "-C", str(counting.FIRMWARE), f"PYTHON={sys.executable}", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def emulate_with_uart(name: str, elf: Path, boards: Path = read_profile.BOARDS) -> tuple[str, str]:
    """What a program wrote to the UART and over semihosting; it has to end by itself."""
    profile = read_profile.read(name, boards)
    needs(profile.facts["qemu"]["system"])
    uart = elf.with_suffix(".uart")
    command = profile.qemu_command(elf, "-serial", f"file:{uart}")
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return uart.read_text(encoding="ascii"), done.stdout


# ---- building ----


@pytest.mark.parametrize("name", sample(NAMES, BOARDS))
def test_every_board_builds_the_application_within_its_memory(name: str, folder: Path, model: Path) -> None:
    toolchain(name)
    elf = counting.build(name, folder, model, "app")
    profile = read_profile.read(name)
    sizes = report_sizes.measure(profile, elf)
    need = report_sizes.needs(folder / "host" / "arena_needs", model)
    assert sizes.model == len(small_image())
    assert sizes.free_flash >= 0
    assert need.total <= sizes.room < profile.ram.size
    # With learning, alone and in a fleet.
    largest = 57_500 if profile.small_code else 100_000 if profile.core == "cortex-m55" else 92_000
    assert 5_000 < sizes.core < largest
    for kind in profile.artifacts:
        assert elf.with_suffix(f".{kind}").stat().st_size > sizes.model


@pytest.mark.parametrize("name", EMULATED)
def test_every_emulated_board_boots_and_its_port_works(name: str, folder: Path) -> None:
    toolchain(name)
    profile = read_profile.read(name)
    uart, text = emulate_with_uart(name, counting.build(name, folder, None, "check"))
    found = dict(line.split() for line in text.splitlines() if " " in line)
    stores = OK if profile.facts["store"]["emulated"] else VERIFY  # never a silent loss
    assert uart == "flipbit\n"
    assert found.pop("variables") == "right"
    assert 0 < int(found.pop("arena")) < profile.ram.size
    ticks = found.pop("ticks")
    if profile.facts["tick_hz"] and "ticks_dwt" not in profile.facts["build"]["drivers"]:  # QEMU's DWT stands still
        assert ticks == "run"
    statuses = {key: int(value) for key, value in found.items()}
    writes = ("erase", "erase-last", "program", "program-unaligned-data", "program-last", "erase-again")
    assert statuses == {
        **dict.fromkeys(writes, stores), "program-other-bits": VERIFY,
        **dict.fromkeys(("range-erase", "range-program", "range-wraps"), RANGE),
        **dict.fromkeys(("align-erase", "align-program"), ALIGN),
    }  # fmt: skip
    assert text.endswith("reset\ndone\n")


@pytest.mark.parametrize("name", EMULATED)
@pytest.mark.parametrize("net", [small_image, newer_image, bits_image])
def test_every_emulated_board_computes_every_layer_as_the_reference_does(
    net: Callable[[], bytes], name: str, folder: Path
) -> None:
    toolchain(name)
    needs(read_profile.read(name).facts["qemu"]["system"])
    path, crcs = folder / f"{net.__name__}.fbit", expected(net())
    path.write_bytes(net())
    elf = counting.build(name, folder, path, name=f"{name}-{net.__name__}")
    run = counting.parse_run(counting.emulate(name, elf))
    assert [layer.crc for layer in run.layers] == crcs
    assert run.output_crc == crcs[-1]
    assert run.model_crc == struct.unpack_from("<I", net(), 12)[0]
    assert 100 < run.stack < read_profile.read(name).facts["memory"]["stack"]


# ---- boards that nothing here emulates: what can be said of their files ----


@pytest.mark.parametrize("name", [name for name in NAMES if read_profile.read(name).compiler.startswith("arm")])
def test_the_vector_table_of_every_cortex_m_starts_the_program(name: str, folder: Path, model: Path) -> None:
    toolchain(name)
    profile = read_profile.read(name)
    elf = counting.build(name, folder, model, "app")
    data = elf.with_suffix(".bin").read_bytes()
    at = report_sizes.symbols(profile, elf)
    table = data[make_image.BOOT2_SIZE :] if name == "pico" else data
    stack, reset, *exceptions = struct.unpack_from("<16I", table)
    assert stack == profile.ram.end
    assert reset == at["start"] | 1
    assert {vector for vector in exceptions if vector} == {at["board_fault"] | 1}
    assert len(data) <= profile.code.size


def test_the_pico_image_is_complete_uf2_behind_a_boot_stage_with_the_right_crc(folder: Path, model: Path) -> None:
    toolchain("pico")
    elf = counting.build("pico", folder, model, "app")
    file, flat = elf.with_suffix(".uf2").read_bytes(), elf.with_suffix(".bin").read_bytes()
    blocks = [file[i : i + 512] for i in range(0, len(file), 512)]
    content = b""
    for i, block in enumerate(blocks):
        first, second, flags, address, size, number, count, family = struct.unpack_from("<8I", block)
        assert (first, second, block[-4:]) == (0x0A324655, 0x9E5D5157, struct.pack("<I", 0x0AB16F30))
        assert (flags, size, number, count, family) == (0x2000, 256, i, len(blocks), 0xE48BFF56)
        assert address == 0x10000000 + len(content)
        content += block[32 : 32 + size]
    assert content[: len(flat)] == flat
    assert make_image.boot2_crc(content[:252]) == struct.unpack_from("<I", content, 252)[0]
    assert make_image.boot2_crc(b"123456789") == 0x0376E6E7  # CRC-32/MPEG-2, which the ROM uses


def test_a_boot_stage_with_a_wrong_crc_is_refused(folder: Path, model: Path) -> None:
    toolchain("pico")
    elf = bytearray(counting.build("pico", folder, model, "app").read_bytes())
    _, parts = make_image.segments(bytes(elf))
    at = bytes(elf).index(parts[0].data[:252])
    elf[at] ^= 1
    with pytest.raises(make_image.ImageError, match="CRC"):
        make_image.uf2(bytes(elf), 0xE48BFF56)


def rp2040js() -> dict[str, str]:
    """The environment in which node finds rp2040js."""
    needs("node")
    candidates = [os.environ.get("NODE_PATH", ""), str(Path(sys.prefix) / "node_modules")]  # make test-all's
    if shutil.which("npm"):
        done = subprocess.run(["npm", "root", "-g"], check=False, capture_output=True, text=True)
        candidates.append(done.stdout.strip())
    for path in filter(None, candidates):
        if (Path(path) / "rp2040js").is_dir():
            return {**os.environ, "NODE_PATH": path}
    pytest.skip("needs rp2040js")


def test_the_pico_computes_every_layer_as_the_reference_does(folder: Path, model: Path) -> None:
    environment = rp2040js()
    toolchain("pico")
    image = counting.build("pico", folder, model).with_suffix(".uf2")
    script = read_profile.BOARDS / "pico" / "emulate.cjs"
    done = subprocess.run(
        ["node", str(script), str(image)], check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    run = counting.parse_run(done.stderr)
    assert [layer.crc for layer in run.layers] == expected(small_image())


def test_the_esp32_image_has_what_its_rom_checks(folder: Path, model: Path) -> None:
    toolchain("esp32-c3")
    profile = read_profile.read("esp32-c3")
    elf = counting.build("esp32-c3", folder, model, "app")
    file = elf.with_suffix(".esp").read_bytes()
    magic, count, _, _, entry = struct.unpack_from("<BBBBI", file)
    assert (magic, struct.unpack_from("<H", file, 12)[0]) == (0xE9, 5)
    assert profile.code.base <= entry < profile.code.end
    at, checksum = 24, 0xEF
    for _ in range(count):
        address, size = struct.unpack_from("<II", file, at)
        assert any(r.base <= address and address + size <= r.end for r in (profile.code, profile.ram))
        for byte in file[at + 8 : at + 8 + size]:
            checksum ^= byte
        at += 8 + size
    assert at // 16 * 16 + 16 + 32 == len(file)
    assert file[-33] == checksum


def test_esptool_finds_the_esp32_image_valid(folder: Path, model: Path) -> None:
    toolchain("esp32-c3")
    if not shutil.which("esptool") and not importlib.util.find_spec("esptool"):
        pytest.skip("needs esptool: pip install esptool")
    esptool = ["esptool"] if shutil.which("esptool") else [sys.executable, "-m", "esptool"]
    file = counting.build("esp32-c3", folder, model, "app").with_suffix(".esp")
    done = subprocess.run([*esptool, "image-info", str(file)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ESP32-C3" in done.stdout
    assert done.stdout.count("(valid)") == 2  # checksum and hash


# ---- what goes wrong is said in numbers and names ----


def test_an_unknown_board_names_the_known_ones() -> None:
    needs("make")
    done = make("BOARD=commodore64")
    assert done.returncode
    assert "commodore64" in done.stderr
    assert all(name in done.stderr for name in NAMES)


def test_a_model_that_does_not_fit_the_flash_fails_with_numbers(folder: Path, tmp_path: Path) -> None:
    toolchain("stm32vldiscovery")
    large = tmp_path / "large.fbit"
    large.write_bytes(small_image() + bytes(70_000))
    done = make("BOARD=stm32vldiscovery", f"MODEL={large}", f"BUILD={folder}", f"OUT={tmp_path / 'out'}")
    assert done.returncode
    assert "overflowed by" in done.stderr
    assert str(large.stat().st_size) in done.stderr


def test_a_model_that_needs_more_ram_fails_with_numbers(folder: Path, tmp_path: Path) -> None:
    toolchain("stm32vldiscovery")
    wide = tmp_path / "wide.fbit"
    wide.write_bytes(wide_image())
    done = make("BOARD=stm32vldiscovery", f"MODEL={wide}", f"BUILD={folder}", f"OUT={tmp_path / 'out'}")
    need = report_sizes.needs(folder / "host" / "arena_needs", wide)
    sizes = report_sizes.measure(read_profile.read("stm32vldiscovery"), tmp_path / "out" / "flipbit.elf")
    assert done.returncode
    assert f"has {sizes.room} bytes of RAM free, this model needs {need.total}" in done.stderr
    assert f"({need.total - sizes.room} more)" in done.stderr


def wide_image() -> bytes:
    """One convolution and an average: 32×32 pixels, 16 KB of activations between the two."""
    random = np.random.default_rng(0)
    weights = random.choice([-1, 1], (3, 3, 3, 16)).astype(np.int8)
    scale, bias = np.full(16, 0.1), np.zeros(16)
    conv = Conv("conv", ("x",), "conv", weights=weights, scale=scale, bias=bias, binary=True, padding=(1, 1, 1, 1))
    average = AveragePool("average", ("conv",), "average", size=(32, 32), stride=(32, 32))
    shapes = {"x": (32, 32, 3), "conv": (32, 32, 16), "average": (16,)}
    tensors = {name: Tensor(name, shape) for name, shape in shapes.items()}
    graph = Graph("x", "average", [conv, average], tensors, [])
    images = random.uniform(-1, 1, (2, 32, 32, 3))
    return fbit_bytes(quantize_graph(graph, calibrate(graph, images), (1 / 128, 0)))


def test_a_damaged_model_is_not_built_in(folder: Path, tmp_path: Path) -> None:
    toolchain("stm32vldiscovery")
    damaged = tmp_path / "damaged.fbit"
    damaged.write_bytes(small_image()[:-1] + bytes([small_image()[-1] ^ 1]))
    done = make("BOARD=stm32vldiscovery", f"MODEL={damaged}", f"BUILD={folder}", f"OUT={tmp_path / 'out'}")
    assert done.returncode
    assert "FB_ERR_CRC" in done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("base = 0x3_0000", "base = 0x2_0000"), "overlaps"),
        (("page = 1024", "page = 1000"), "power of two"),
        (("unit = 4", "unit = 3"), "unit"),
        (("reprogram = true", ""), "reprogram"),
        (("reprogram = true", "reprogram = 2"), "true or false"),
        (('kind = "flash"', 'kind = "tape"'), "tape"),
        (("stack = 1536", ""), "stack"),
        (("stack = 1536", "stack = 99999"), "memory.stack"),
        (('"bin", "hex"', '"bin", "s19"'), "s19"),
        (("[store]", "[store"), "board.toml"),
        (("brown_out", "brown"), "power.voltage.brown_out missing"),
        (('value = 4.4, unit = "mA"', 'value = 4.4, unit = "A"'), "power.current.active: expected"),
        (("value = 1.8,", ""), "power.voltage.brown_out: expected"),
    ],
)
def test_a_wrong_profile_is_refused_with_the_key(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    text = (read_profile.BOARDS / "microbit" / "board.toml").read_text(encoding="utf-8")
    assert change[0] in text
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "board.toml").write_text(text.replace(*change), encoding="utf-8")
    with pytest.raises(ProfileError, match=said):
        read_profile.read("mine", tmp_path)


@pytest.mark.parametrize(
    ("chain", "compiler"), [("arm-none-eabi", "arm-none-eabi-"), ("riscv32-unknown-elf", "riscv64-unknown-elf-")]
)
def test_cmake_builds_the_core_for_projects_with_their_own_boards(chain: str, compiler: str, tmp_path: Path) -> None:
    needs("cmake", compiler + "gcc")
    options = [f"-DCMAKE_TOOLCHAIN_FILE=cmake/{chain}.cmake"]
    command = ["cmake", "-S", str(counting.FIRMWARE), "-B", str(tmp_path), *options]
    subprocess.run(command, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", str(tmp_path), "-j2"], check=True, capture_output=True)
    listed = subprocess.run([compiler + "nm", str(tmp_path / "libflipbit.a")], capture_output=True, text=True).stdout
    assert " T fb_invoke\n" in listed


# ---- adding a board ----


def test_a_board_made_from_the_template_builds_boots_and_can_be_simulated(
    tmp_path: Path, folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of docs/boards.md, "Add a board", in a copy of the firmware."""
    needs("make", "cc", "arm-none-eabi-gcc", "qemu-system-arm")
    firmware = tmp_path / "firmware"
    shutil.copytree(counting.FIRMWARE, firmware, ignore=shutil.ignore_patterns("build"))
    mine = firmware / "boards" / "mine"
    shutil.copytree(firmware / "boards" / "template", mine)
    (mine / "profile.toml").rename(mine / "board.toml")
    for program in ("check", "bench"):
        command = ["make", "-C", str(firmware), "BOARD=mine", f"PROGRAM={program}", f"BUILD={folder}", f"MODEL={model}"]
        subprocess.run([*command, f"OUT={tmp_path / 'out'}"], check=True, capture_output=True)
        uart, text = emulate_with_uart("mine", tmp_path / "out" / f"{program}.elf", firmware / "boards")
        assert uart == ("flipbit\n" if program == "check" else "")
        assert text.endswith("done\n")
    monkeypatch.setenv("FLIPBIT_FIRMWARE", str(firmware))
    assert load_device("mine").title == read_profile.read("mine", firmware / "boards").title
    assert "| `mine` | Netduino 2 |" in board_tables.markdown("boards", firmware / "boards")
