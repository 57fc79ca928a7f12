"""Exported projects: they build as Arduino, PlatformIO, ESP-IDF and Zephyr build them, compute what the host computes,
and several of them link into one program."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import read_profile

from flipbit.export.commands import c_source
from flipbit.export.graph import ExportError
from flipbit.export.write import c_file, c_project
from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime.core.model import Model
from tests.checkout import ROOT
from tests.nets.small_nets import FORMULA, photos, small_graph

START, BOARDS = ROOT / "firmware" / "start", ROOT / "firmware" / "boards"
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
    assert not list(arduino.rglob("*_x86.c")) and not list(arduino.rglob("*_neon.c"))


def test_every_core_file_is_copied_as_it_is_behind_what_makes_its_functions_weak(arduino: Path, zephyr: Path) -> None:
    for folder in (arduino, zephyr):
        core = folder / "src" / "core"
        copies = [path.relative_to(core) for path in core.rglob("*") if path.is_file() and path.name != "fb_names.h"]
        assert len(copies) > 30
        for path in copies:
            original = (c_project.CORE / path).read_text(encoding="utf-8")
            copy = (core / path).read_text(encoding="utf-8")
            assert copy.endswith(original)
            assert all(line.startswith(("#pragma weak fb_", "/* ", '#include "fb_names.h"'))
                       for line in copy.removesuffix(original).splitlines())  # fmt: skip


def test_a_project_has_what_runs_a_net_and_nothing_else(arduino: Path, zephyr: Path) -> None:
    for folder in (arduino, zephyr):
        core = folder / "src" / "core"
        assert sorted(path.name for path in core.iterdir()) == ["include", "kernels", "run"]
        assert sorted(path.name for path in (core / "include").iterdir()) == [
            "fb_audio.h", "fb_front_end.h", "fb_names.h", "flipbit.h",
        ]  # fmt: skip
        assert not (core / "kernels" / "gradient").exists()


def test_a_librarys_core_includes_its_own_files_whatever_else_is_on_the_path(zephyr: Path) -> None:
    """Another library of the same program may bring another version."""
    for path in (zephyr / "src" / "core").rglob("*.[ch]"):
        for name in re.findall(r'^#include "(.+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            assert (path.parent / name).is_file(), f"{path} includes {name}"


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
    body = "\n".join(f"puts({c_file.c_string(label)});" for label in labels)
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
    from flipbit.train.nets.model_file import save_model
    from tests.nets.random_nets import random_model

    monkeypatch.chdir(tmp_path)
    save_model(random_model("vgg-small", (8, 8, 1)), tmp_path / "net.h5")
    calibration = "--calibrate digits --samples 20 --pixel-offset 128 --pixel-scale 1/128".split()
    assert c_source.main(["net.h5", *calibration, "--for", "arduino"]) == 0
    assert "net_arduino: an Arduino library" in capsys.readouterr().out
    assert (tmp_path / "net_arduino" / "src" / "net_arduino.c").is_file()
    assert "#define NET_ARDUINO_ARENA_LEAST" in (tmp_path / "net_arduino" / "src" / "net_arduino.h").read_text()
    assert c_source.main(["net.h5", *calibration, "--for", "arduino"]) == 2
    assert "net_arduino: exists" in capsys.readouterr().err
    assert c_source.main(["net.h5", *calibration, "--for", "zephyr", "-o", "none/net"]) == 2
    assert c_source.main(["net.h5", *calibration]) == 0
    assert (tmp_path / "net.c").is_file()
    assert (tmp_path / "net.h").is_file()


# ---- PlatformIO and ESP-IDF ----


def test_the_platformio_example_builds_and_prints_the_hosts_class_and_scores(tmp_path: Path) -> None:
    """As the native platform does it: the library's src/ is compiled into an archive, the example's src/ against it."""
    needs("gcc", "g++", "ar")
    library = project(tmp_path / "insects", "platformio")
    build = tmp_path / "build"
    build.mkdir()
    sources = sorted((library / "src").rglob("*.c"))
    run("gcc", "-O1", "-std=gnu11", *WARNINGS, "-I", library / "src", "-c", *sources, cwd=build)
    run("ar", "rcs", "lib.a", *build.glob("*.o"), cwd=build)
    example = library / "examples" / "classify"
    flags = ["-std=gnu++11", "-Wall", "-Wextra", "-Werror", "-I", library / "src"]
    run("g++", *flags, example / "src" / "main.cpp", "-o", "classify", "lib.a", cwd=build)
    assert run(build / "classify") == f"{host_class()}\nscores as exported\n"


def test_the_platformio_description_names_files_that_are_there(tmp_path: Path) -> None:
    library = project(tmp_path / "insects", "platformio")
    found = json.loads((library / "library.json").read_text(encoding="utf-8"))
    assert found["name"] == "insects" and {"version", "description", "keywords", "license"} <= set(found)
    assert all((library / "src" / name).is_file() for name in found["headers"])
    (example,) = found["examples"]
    assert all((library / example["base"] / name).is_file() for name in example["files"])


def test_the_platformio_library_is_what_platformio_packs(tmp_path: Path) -> None:
    library = project(tmp_path / "insects", "platformio")
    if not shutil.which("pio"):
        pytest.skip("needs PlatformIO to pack it: pip install platformio")
    command = ["pio", "pkg", "pack", str(library), "-o", str(tmp_path / "insects.tar.gz")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if "Could not load SPDX licenses" in done.stdout + done.stderr:
        pytest.skip("PlatformIO looks licences up on the network, which is not there")
    assert done.returncode == 0, done.stdout + done.stderr
    with tarfile.open(tmp_path / "insects.tar.gz") as packed:
        assert {"library.json", "src/insects.c", "src/flipbit.h"} <= set(packed.getnames())


# What ESP-IDF's build brings, as far as the component and its example use it.
IDF_PROJECT = """
macro(project name)
  _project(${name} LANGUAGES C)
  include(${IDF_STAND_IN}/build.cmake)
endmacro()
"""
IDF_BUILD = """
function(idf_component_register)
  cmake_parse_arguments(given "" "" "SRCS;INCLUDE_DIRS;REQUIRES" ${ARGN})
  get_filename_component(name ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  set(COMPONENT_LIB lib_${name} PARENT_SCOPE)
  add_library(lib_${name} STATIC ${given_SRCS})
  target_include_directories(lib_${name} PUBLIC ${given_INCLUDE_DIRS})
  target_compile_options(lib_${name} PRIVATE -Wall -Wextra -Werror)
  foreach(other IN LISTS given_REQUIRES)
    target_link_libraries(lib_${name} PRIVATE lib_${other})
  endforeach()
endfunction()
foreach(folder IN LISTS EXTRA_COMPONENT_DIRS)
  if(NOT EXISTS ${folder}/idf_component.yml)
    message(FATAL_ERROR "${folder} is no component")
  endif()
  get_filename_component(name ${folder} NAME)
  add_subdirectory(${folder} ${name})
endforeach()
add_subdirectory(main)
file(WRITE ${CMAKE_BINARY_DIR}/start.c "void app_main(void); int main(void) { app_main(); return 0; }")
add_executable(app ${CMAKE_BINARY_DIR}/start.c)
target_link_libraries(app PRIVATE lib_main)
"""


def test_the_esp_idf_example_builds_and_prints_the_hosts_class_and_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("cmake", "cc")
    component = project(tmp_path / "insects", "esp-idf")
    stand_in = tmp_path / "idf"
    (stand_in / "tools" / "cmake").mkdir(parents=True)
    (stand_in / "tools" / "cmake" / "project.cmake").write_text(
        f'set(IDF_STAND_IN "{stand_in}")\n{IDF_PROJECT}', encoding="utf-8"
    )
    (stand_in / "build.cmake").write_text(IDF_BUILD, encoding="utf-8")
    monkeypatch.setenv("IDF_PATH", str(stand_in))
    run("cmake", "-S", component / "examples" / "classify", "-B", tmp_path / "build")
    run("cmake", "--build", tmp_path / "build", "-j2")
    assert f"class: {host_class()}\nscores: as exported\n" in run(tmp_path / "build" / "app")


def test_the_esp_idf_component_compiles_for_risc_v_and_has_a_valid_manifest(tmp_path: Path) -> None:
    component = project(tmp_path / "insects", "esp-idf")
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    manifest = yaml.safe_load((component / "idf_component.yml").read_text(encoding="utf-8"))
    assert re.fullmatch(r"\d+\.\d+\.\d+", manifest["version"])
    assert manifest["dependencies"] == {"idf": ">=4.4"}
    needs("riscv64-unknown-elf-gcc")
    flags = ["-march=rv32imc", "-mabi=ilp32", "-O2", "-ffreestanding", "-isystem", START]
    sources = sorted((component / "src").rglob("*.c"))
    (tmp_path / "o").mkdir()
    run("riscv64-unknown-elf-gcc", *flags, *WARNINGS, "-I", component / "src", "-c", *sources, cwd=tmp_path / "o")


# ---- several in one program ----

TWO = """
#include <stdio.h>
#include "ants.h"
#include "bees.h"
#include "flipbit.h"

static uint64_t arena[65536];

static void run(const char *name, const uint32_t *image, uint32_t size, const int8_t *input, unsigned count,
                const char *const *classes) {
    fb_model model;
    int8_t scores[16];
    fb_status status = fb_model_open(&model, image, size);
    if (status == FB_OK) status = fb_invoke(&model, arena, sizeof arena, input, scores, NULL);
    printf("%s %s %s\\n", name, fb_status_name(status), classes[fb_argmax(scores, count)]);
}

int main(void) {
    static const uint8_t pixels[] = {@pixels@};
    int8_t input[ANTS_INPUT_SIZE];
    ants_from_pixels(pixels, input);
    run("ants", ants, ANTS_SIZE, input, ANTS_OUTPUT_SIZE, ants_classes);
    bees_from_pixels(pixels, input);
    run("bees", bees, BEES_SIZE, input, BEES_OUTPUT_SIZE, bees_classes);
    return 0;
}
"""
OTHER_FORMULA = "(pixel - 100.5) * 0.0078125"  # no pixel is pixel - 128: values come from a table


def write_two(folder: Path, target: str) -> tuple[list[Path], str]:
    """Two libraries, and what a program that has both must print for one picture of pixels."""
    photo, expected = photos(1)[0], []
    for name, seed, formula in (("ants", 0, FORMULA), ("bees", 1, OTHER_FORMULA)):
        data = fbit_bytes(small_graph(seed), formula)
        c_project.write_image_project(data, folder / name, target, photo)
        expected.append(f"{name} FB_OK {Model(data).classify(photo)}\n")
    pixels = ", ".join(str(v) for v in photo.reshape(-1))
    (folder / "main.c").write_text(TWO.replace("@pixels@", pixels), encoding="utf-8")
    return [folder / "ants", folder / "bees"], "".join(expected)


@pytest.mark.parametrize("archives", [False, True])
def test_two_libraries_link_into_one_program_and_share_the_core(archives: bool, tmp_path: Path) -> None:
    """As object files (Arduino) and as archives (PlatformIO, ESP-IDF, Zephyr)."""
    needs("gcc", "ar", "nm")
    libraries, expected = write_two(tmp_path, "zephyr")
    linked: list[Path] = []
    for library in libraries:
        build = tmp_path / f"{library.name}-o"
        build.mkdir()
        sources = sorted((library / "src").rglob("*.c"))
        run("gcc", "-O1", "-std=gnu99", *WARNINGS, "-I", library / "src", "-c", *sources, cwd=build)
        if archives:
            run("ar", "rcs", build / "lib.a", *build.glob("*.o"))
        linked += [build / "lib.a"] if archives else sorted(build.glob("*.o"))
    includes = [f"-I{library / 'src'}" for library in libraries]
    run("gcc", "-std=gnu99", *WARNINGS, *includes, "main.c", *linked, "-o", "two", cwd=tmp_path)
    assert run(tmp_path / "two") == expected
    functions = [line.split()[-1] for line in run("nm", tmp_path / "two").splitlines() if " fb_invoke" in line]
    assert len(functions) == 1


def test_every_function_of_an_exported_core_is_weak_and_has_the_mark_of_its_source(
    arduino: Path, objects: Callable[[str], Path], zephyr: Path, tmp_path: Path
) -> None:
    needs("nm", "gcc")
    sources = sorted((zephyr / "src").rglob("*.c"))
    run("gcc", "-O1", "-std=gnu99", "-I", zephyr / "src", "-c", *sources, cwd=tmp_path)
    mark = re.search(r"fb_invoke_([0-9a-f]{8})", (zephyr / "src/core/include/fb_names.h").read_text(encoding="utf-8"))
    assert mark
    for nm, folder in (("nm", tmp_path), ("arm-none-eabi-nm", objects("cortex-m4"))):
        for line in run(nm, "--defined-only", "--extern-only", *folder.glob("fb_*.o")).splitlines():
            if len(line.split()) == 3:
                _, kind, name = line.split()
                assert kind in "WVi" and f"_{mark[1]}" in name, line


def test_libraries_of_different_cores_keep_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = fbit_bytes(small_graph(), FORMULA)
    c_project.write_image_project(data, tmp_path / "ants", "zephyr", photos(1)[0])
    core = shutil.copytree(c_project.CORE, tmp_path / "firmware" / "core")
    (core / "run/fb_plan.c").write_text((core / "run/fb_plan.c").read_text() + "/* newer */\n")
    monkeypatch.setattr(c_project, "CORE", core)
    c_project.write_image_project(data, tmp_path / "bees", "zephyr", photos(1)[0])
    assert (tmp_path / "ants" / "src/core/include/fb_names.h").read_text() != (
        tmp_path / "bees" / "src/core/include/fb_names.h"
    ).read_text()


# ---- the header ----


def test_the_header_says_what_a_program_needs(tmp_path: Path) -> None:
    text = c_file.header(fbit_bytes(small_graph(), FORMULA), "insects")
    assert "value = pixel - 128" in text
    assert f"#define INSECTS_ARENA_LEAST {Model(fbit_bytes(small_graph(), FORMULA)).arena_least}u" in text
    assert "extern const char *const insects_classes[INSECTS_OUTPUT_SIZE];" in text
    unknown = c_file.header(fbit_bytes(small_graph()), "insects")
    assert "does not say what was made of pixels" in unknown and "from_pixels" not in unknown


# ---- .fbit files ----


def test_an_image_becomes_c_or_a_project_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    data = fbit_bytes(small_graph(), FORMULA)
    (tmp_path / "tuned.fbit").write_bytes(data)
    assert c_source.main([str(tmp_path / "tuned.fbit")]) == 0
    words = re.findall(r"0x([0-9a-f]{8})u", (tmp_path / "tuned.c").read_text(encoding="utf-8"))
    assert b"".join(bytes.fromhex(word)[::-1] for word in words) == data
    np.save(tmp_path / "x.npy", photos(2))
    for target in c_project.TARGETS:
        out = tmp_path / target.replace("-", "_")
        arguments = [str(tmp_path / "tuned.fbit"), "--for", target, "-o", str(out)]
        assert c_source.main([*arguments, "--calibrate", str(tmp_path / "x.npy")]) == 0
        assert c_project.TARGETS[target] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1], "FB_ERR|bytes"),
        (lambda data: b"no image at all", "FB_ERR|bytes"),
        (None, "No such file"),
    ],
)
def test_a_bad_image_gets_a_sentence(
    damage: Callable[[bytes], bytes] | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "bad.fbit"
    if damage:
        path.write_bytes(damage(fbit_bytes(small_graph(), FORMULA)))
    assert c_source.main([str(path), "--for", "arduino"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and re.search(said, error)
