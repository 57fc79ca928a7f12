"""Arduino libraries and Zephyr modules: they build as those systems build them, and compute what the host computes."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
START, BOARDS = ROOT / "firmware" / "start", ROOT / "firmware" / "boards"
sys.path[:0] = [str(BOARDS), str(ROOT / "tests" / "runtime")]
import read_profile  # noqa: E402
from small_nets import FORMULA, photos, small_graph  # noqa: E402

from flipbit.export import c_project  # noqa: E402
from flipbit.export.fbit import fbit_bytes  # noqa: E402
from flipbit.export.graph import ExportError  # noqa: E402
from flipbit.runtime.model import Model  # noqa: E402

WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror"]

# What Arduino's own core would bring, over semihosting; ends after the first loop().
ARDUINO_H = """
#include <stdint.h>
#include <stddef.h>
struct Port {
    void begin(unsigned long) {}
    explicit operator bool() const { return true; }
    void print(const char *text);
    void print(unsigned long value);
    void println(const char *text);
    void println(unsigned long value);
};
extern Port Serial;
void delay(unsigned long ms);
unsigned long micros();
void setup();
void loop();
"""
ARDUINO_CPP = """
#include "Arduino.h"
extern "C" {
#include "semihosting.h"
void uart_drain(void) {}
int main(void);
}
Port Serial;
void Port::print(const char *text) { semihosting_write(text); }
void Port::print(unsigned long value) {
    char text[12], *at = text + sizeof text - 1;
    *at = 0;
    do *--at = static_cast<char>('0' + value % 10); while (value /= 10);
    semihosting_write(at);
}
void Port::println(const char *text) { print(text), print("\\n"); }
void Port::println(unsigned long value) { print(value), print("\\n"); }
void delay(unsigned long ms) { if (ms == 1000) semihosting_exit(1); }
unsigned long micros() { return 0; }
int main(void) {
    setup();
    loop();
    semihosting_exit(0);
}
"""

# What Zephyr's build brings, as far as the module and its sample use it.
ZEPHYR_CONFIG = """
project(Zephyr-Kernel LANGUAGES C)
file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/prj.conf settings REGEX "^CONFIG_[A-Z_]+=y")
foreach(setting IN LISTS settings)
  string(REPLACE "=y" "" setting ${setting})
  set(${setting} y)
endforeach()
add_executable(app)
target_include_directories(app PRIVATE ${Zephyr_DIR}/include)
function(zephyr_library)
  add_library(module STATIC)
  target_compile_options(module PRIVATE -O1 -Wall -Wextra -Werror)
  target_link_libraries(app PRIVATE module)
endfunction()
function(zephyr_library_sources)
  target_sources(module PRIVATE ${ARGV})
endfunction()
function(zephyr_include_directories folder)
  target_include_directories(app PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/${folder})
endfunction()
foreach(module IN LISTS EXTRA_ZEPHYR_MODULES)
  if(NOT EXISTS ${module}/zephyr/module.yml)
    message(FATAL_ERROR "${module} is no module")
  endif()
  add_subdirectory(${module} module)
endforeach()
"""


def needs(*programs: str) -> None:
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"needs {program}")


def run(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def project(folder: Path, target: str) -> Path:
    c_project.write_project(small_graph(), folder, target, photos(1)[0], FORMULA)
    return folder


def host_class() -> str:
    model = Model(fbit_bytes(small_graph(), FORMULA))
    return model.labels[int(np.argmax(model.predict(photos(1)[0], raw=True)))]


@pytest.fixture(scope="module")
def arduino(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project(tmp_path_factory.mktemp("arduino") / "insects", "arduino")


@pytest.fixture(scope="module")
def zephyr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project(tmp_path_factory.mktemp("zephyr") / "insects", "zephyr")


@pytest.fixture(scope="module")
def objects(arduino: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Builds a library's sources for a CPU as the IDE does, all that lie below src/; each CPU once."""
    built: dict[str, Path] = {}

    def build(cpu: str) -> Path:
        needs("arm-none-eabi-gcc")
        if cpu not in built:
            built[cpu] = tmp_path_factory.mktemp(cpu)
            sources = sorted(path for path in arduino.joinpath("src").rglob("*") if path.suffix in (".c", ".cpp"))
            run(*compiler("gcc", cpu), "-std=gnu11", "-I", arduino / "src", "-c", *sources, cwd=built[cpu])
        return built[cpu]

    return build


def compiler(name: str, cpu: str) -> list[object]:
    flags = ["-mthumb", "-Os", "-ffunction-sections", "-fdata-sections", "-ffreestanding"]
    return [f"arm-none-eabi-{name}", f"-mcpu={cpu}", *flags, *WARNINGS, "-isystem", START]


def run_sketch(example: Path, library: Path, objects: Path, out: Path, board: str, cpu: str) -> str:
    """What the sketch prints, built as C++ with Arduino.h before it, and linked to the start-up code of a board."""
    needs("arm-none-eabi-g++", "qemu-system-arm")
    run(sys.executable, BOARDS / "read_profile.py", "generate", board, out)
    (out / "Arduino.h").write_text(ARDUINO_H, encoding="utf-8")
    (out / "arduino.cpp").write_text(ARDUINO_CPP, encoding="utf-8")
    sketch = (example / "classify.ino").read_text(encoding="utf-8")
    (out / "classify.cpp").write_text(f'#include <Arduino.h>\n#line 1 "classify.ino"\n{sketch}', encoding="utf-8")
    shutil.copy(example / "sample.h", out)
    cpp = ["-std=gnu++11", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"]
    includes = [f"-I{path}" for path in (out, library / "src", START, BOARDS, BOARDS / "drivers")]
    run(*compiler("g++", cpu), *cpp, *includes, "-c", "classify.cpp", "arduino.cpp", cwd=out)
    start = [START / f"{name}.c" for name in ("cortex_m", "program", "semihosting", "string")]
    loops = "-fno-tree-loop-distribute-patterns"  # or memcpy would call itself
    run(*compiler("gcc", cpu), "-std=gnu99", loops, *includes, "-c", *start, cwd=out)
    link = ["-nostdlib", "-static", "-Wl,--gc-sections", "-Wl,--no-warn-rwx-segments"]
    scripts = ["-T", out / "memory.ld", "-T", START / "link.ld"]
    run(*compiler("g++", cpu), *link, *scripts, "-o", "classify.elf", *out.glob("*.o"), *objects.glob("*.o"), "-lgcc",
        cwd=out)  # fmt: skip
    return run(*read_profile.read(board).qemu_command(out / "classify.elf", "-serial", "null"))


@pytest.mark.parametrize(("board", "cpu"), [("mps2-an385", "cortex-m0plus"), ("mps2-an386", "cortex-m4")])
def test_the_arduino_example_prints_the_hosts_class_and_scores(
    board: str, cpu: str, arduino: Path, objects: Callable[[str], Path], tmp_path: Path
) -> None:
    said = run_sketch(arduino / "examples" / "classify", arduino, objects(cpu), tmp_path, board, cpu)
    assert f"class: {host_class()}\nscores: as exported\n" in said
    assert said.startswith("arena: ")


def test_the_arduino_example_says_when_its_scores_are_others(
    arduino: Path, objects: Callable[[str], Path], tmp_path: Path
) -> None:
    example = shutil.copytree(arduino / "examples" / "classify", tmp_path / "classify")
    head, values = (example / "sample.h").read_text(encoding="utf-8").split("sample_scores[] = {")
    (example / "sample.h").write_text(f"{head}sample_scores[] = {{1 + {values.strip()}\n", encoding="utf-8")
    said = run_sketch(example, arduino, objects("cortex-m4"), tmp_path, "mps2-an386", "cortex-m4")
    assert "scores: differ from the exported" in said


def test_the_arduino_library_has_what_the_library_specification_asks_for(arduino: Path) -> None:
    lines = (arduino / "library.properties").read_text(encoding="utf-8").splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert found["name"] == "insects"
    assert {"version", "author", "maintainer", "sentence", "paragraph", "category", "architectures"} <= set(found)
    assert all((arduino / "src" / name).is_file() for name in found["includes"].split(","))
    assert not list(arduino.rglob("*_x86.c"))


def test_every_core_file_is_copied_as_it_is(arduino: Path, zephyr: Path) -> None:
    core = sorted(path for path in c_project.CORE.rglob("*") if path.suffix in (".c", ".h"))
    for path in core:
        copy = zephyr / "src" / path.relative_to(c_project.CORE)
        assert copy.read_bytes() == path.read_bytes()
    for copy in (arduino / "src").rglob("fb_*"):
        assert copy.read_bytes() == (c_project.CORE / copy.relative_to(arduino / "src")).read_bytes()


def test_the_zephyr_sample_builds_and_prints_the_hosts_class_and_scores(zephyr: Path, tmp_path: Path) -> None:
    needs("cmake", "cc")
    stand_in = tmp_path / "zephyr"
    (stand_in / "include" / "zephyr" / "sys").mkdir(parents=True)
    (stand_in / "ZephyrConfig.cmake").write_text(ZEPHYR_CONFIG, encoding="utf-8")
    kernel, printk = stand_in / "include" / "zephyr" / "kernel.h", stand_in / "include" / "zephyr" / "sys" / "printk.h"
    kernel.write_text("#define __aligned(bytes) __attribute__((aligned(bytes)))\n", encoding="utf-8")
    printk.write_text("#include <stdio.h>\n#define printk printf\n", encoding="utf-8")
    sample, build = zephyr / "samples" / "classify", tmp_path / "build"
    run("cmake", "-S", sample, "-B", build, f"-DZephyr_DIR={stand_in}")
    run("cmake", "--build", build, "-j2")
    said = run(build / "app")
    assert f"class: {host_class()}\nscores: as exported\n" in said


def test_the_zephyr_module_lists_every_source_and_defines_every_setting_it_uses(zephyr: Path) -> None:
    text = (zephyr / "CMakeLists.txt").read_text(encoding="utf-8")
    listed = [line.strip() for line in text.splitlines() if line.strip().endswith(".c")]
    assert sorted(listed) == sorted(str(path.relative_to(zephyr)) for path in (zephyr / "src").rglob("*.c"))
    module = (zephyr / "zephyr" / "module.yml").read_text(encoding="utf-8")
    assert "  cmake: .\n  kconfig: Kconfig\n" in module
    assert "if(CONFIG_FLIPBIT)" in text
    assert "config FLIPBIT\n" in (zephyr / "Kconfig").read_text(encoding="utf-8")
    assert "CONFIG_FLIPBIT=y" in (zephyr / "samples" / "classify" / "prj.conf").read_text(encoding="utf-8")


def test_labels_become_c_strings_whatever_is_in_them(tmp_path: Path) -> None:
    needs("cc")
    labels = ['say "no"', "back\\slash", "čmelák 1", "what??/", "*/", "new\nline", "7"]
    body = "\n".join(f"puts({c_project._c_string(label)});" for label in labels)
    (tmp_path / "a.c").write_text(f"#include <stdio.h>\nint main(void) {{\n{body}\nreturn 0; }}\n", encoding="utf-8")
    run("cc", "-std=c99", "-trigraphs", *WARNINGS, "a.c", "-o", "a", cwd=tmp_path)
    assert run(tmp_path / "a") == "\n".join(labels) + "\n"


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep", encoding="utf-8")
    with pytest.raises(ExportError, match="mine: exists; remove it, or name another"):
        project(tmp_path / "mine", "arduino")
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "notes.txt"]


@pytest.mark.parametrize("name", ["flipbit", "fb_train", "sample"])
def test_a_name_that_the_core_uses_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=f"{name}.h; name another folder"):
        project(tmp_path / name, "zephyr")


def test_without_the_cores_source_the_error_says_where_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_project, "CORE", tmp_path / "firmware" / "core")
    with pytest.raises(ExportError, match="source checkout"):
        project(tmp_path / "net", "arduino")
    assert not list(tmp_path.iterdir())


def test_the_command_writes_a_project_with_for_and_c_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    if not importlib.util.find_spec("tensorflow"):
        pytest.skip("needs tensorflow")
    from random_nets import random_model

    from flipbit.train.model_file import save_model

    monkeypatch.chdir(tmp_path)
    save_model(random_model("vgg-small", (8, 8, 1)), tmp_path / "net.h5")
    calibration = ["--calibrate", "digits", "--samples", "20"]
    assert c_project.main(["net.h5", *calibration, "--for", "arduino"]) == 0
    assert "net_arduino: an Arduino library" in capsys.readouterr().out
    assert (tmp_path / "net_arduino" / "src" / "net_arduino.c").is_file()
    assert "#define SAMPLE_ARENA_LEAST" in (tmp_path / "net_arduino" / "examples" / "classify" / "sample.h").read_text()
    assert c_project.main(["net.h5", *calibration, "--for", "arduino"]) == 2
    assert "net_arduino: exists" in capsys.readouterr().err
    assert c_project.main(["net.h5", *calibration, "--for", "zephyr", "-o", "none/net"]) == 2
    assert c_project.main(["net.h5", *calibration]) == 0
    assert (tmp_path / "net.c").is_file()
    assert (tmp_path / "net.h").is_file()
