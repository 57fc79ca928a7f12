"""Writes a folder that other build systems take as it is: an Arduino library or a Zephyr module.

::

    digits/                           digits/
      library.properties                zephyr/module.yml
      src/digits.h, digits.c            src/digits.h, digits.c         the net
      src/flipbit.h, fb_*.c, kernels/   src/flipbit.h, fb_*.c, …       the core, a copy of firmware/core
      examples/classify/                CMakeLists.txt, Kconfig
                                        samples/classify/              a program that runs the net

Names follow the folder's. The program runs the net on one image that it has built in, prints the class, and compares
the scores with those of the machine that exported it: both have to be the same integers.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from flipbit.export import command
from flipbit.export.c_file import header, identifier, source
from flipbit.export.fbit import fbit_bytes
from flipbit.export.graph import Array, ExportError, Graph

TARGETS = {"arduino": "an Arduino library", "zephyr": "a Zephyr module"}
CORE = Path(__file__).resolve().parent.parent / "firmware" / "core"
# Kernels of machines that no Arduino board is. Zephyr has boards of all kinds, and native_sim.
NOT_ARDUINO = ("_x86", "_neon", "fb_avx512")


def write_project(graph: Graph, folder: Path, target: str, image: Array, input_formula: str | None = None) -> None:
    """Write ``folder``, which must not exist yet.

    ``image`` is what the example classifies: one input as :meth:`flipbit.runtime.Model.predict` takes it.
    """
    name = identifier(folder.name)
    check_place(folder)
    files = project_files(graph, name, target, image, input_formula)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        made = Path(temporary) / folder.name
        for path, text in files.items():
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).write_text(text, encoding="utf-8")
        made.rename(folder)


def check_place(folder: Path) -> None:
    """Raise where a project cannot be written, before anything takes long."""
    core_sources()
    if folder.exists():
        raise ExportError(f"{folder}: exists; remove it, or name another folder with -o")
    if not folder.parent.is_dir():
        raise ExportError(f"{folder.parent}: no such folder to write to")
    name = identifier(folder.name)
    if name == "sample" or f"{name}.h" in {path.name for path in core_sources()}:
        raise ExportError(f"{folder}: a file of the core is called {name}.h; name another folder with -o")


def core_sources() -> list[Path]:
    """The files of the C core."""
    found = sorted(path for path in CORE.rglob("*") if path.suffix in (".c", ".h"))
    if not found:
        raise ExportError(
            f"{CORE}: the C core is not there, as it is not part of an installed package: run export/to_c.py of a "
            "source checkout, or leave out --for to write the net alone"
        )
    return found


def project_files(
    graph: Graph, name: str, target: str, image: Array, input_formula: str | None = None
) -> dict[str, str]:
    """Every file of a project, by its path in the folder."""
    core = [path for path in core_sources() if target != "arduino" or not _has(path.name, NOT_ARDUINO)]
    files = {f"src/{path.relative_to(CORE).as_posix()}": path.read_text(encoding="utf-8") for path in core}
    files[f"src/{name}.h"] = header(graph, name, input_formula)
    files[f"src/{name}.c"] = source(graph, name, f"{name}.h", input_formula)
    license_file = CORE.parents[1] / "LICENSE"
    if license_file.is_file():
        files["LICENSE"] = license_file.read_text(encoding="utf-8")
    words = {"name": name, "upper": name.upper(), "version": _version(files["src/flipbit.h"])}
    sample = sample_header(graph, image, input_formula)
    if target == "arduino":
        return {
            **files,
            "library.properties": _fill(LIBRARY_PROPERTIES, words),
            "examples/classify/classify.ino": _fill(SKETCH, words),
            "examples/classify/sample.h": sample,
        }
    sources = "\n".join(f"    {path}" for path in sorted(files) if path.endswith(".c"))
    return {
        **files,
        "zephyr/module.yml": _fill(MODULE_YML, words),
        "CMakeLists.txt": _fill(MODULE_CMAKE, {**words, "sources": sources}),
        "Kconfig": _fill(KCONFIG, words),
        "samples/classify/CMakeLists.txt": _fill(SAMPLE_CMAKE, words),
        "samples/classify/prj.conf": PRJ_CONF,
        "samples/classify/sample.yaml": _fill(SAMPLE_YAML, words),
        "samples/classify/src/main.c": _fill(ZEPHYR_MAIN, words),
        "samples/classify/src/sample.h": sample,
    }


def sample_header(graph: Graph, image: Array, input_formula: str | None = None) -> str:
    """The example's image as the net takes it, the scores that belong to it, the classes, and the RAM it needs."""
    from flipbit.runtime.core import Opened
    from flipbit.runtime.inputs import to_planes
    from flipbit.runtime.model import Model

    data = fbit_bytes(graph, input_formula)
    model = Model(data)
    planes, _ = to_planes(np.asarray(image), model.image.tensors[model.image.input], model.pixels)
    scores = np.asarray(model.predict(image, raw=True)).reshape(-1)
    labels = graph.labels or [str(i) for i in range(len(scores))]
    return f"""/* An image for the example, and what the net makes of it. */
#ifndef SAMPLE_H
#define SAMPLE_H

#include <stdint.h>

/* Bytes of RAM beside input and output with which the net runs; with more, layers run faster kernels. */
#define SAMPLE_ARENA_LEAST {Opened(data).arena_least}

static const char *const sample_classes[] = {{
{_lines(f"{_c_string(label)}," for label in labels)}
}};

/* Channel by channel, row by row. */
static const int8_t sample_input[] = {{
{_lines(f"{int(v)}," for v in planes.reshape(-1))}
}};

static const int8_t sample_scores[] = {{
{_lines(f"{int(v)}," for v in scores)}
}};

#endif
"""


def _lines(words: Iterable[str], width: int = 116) -> str:
    """Words in indented lines."""
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return "\n".join(f"    {line}" for line in lines)


def _c_string(text: str) -> str:
    """A string literal of ASCII characters; others as octal escapes, which end after three digits."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in text.encode()) + '"'


def _version(flipbit_h: str) -> str:
    found = re.search(r'FB_VERSION "([^"]+)"', flipbit_h)
    return found.group(1) if found else "0.0.0"


def _has(name: str, parts: Iterable[str]) -> bool:
    return any(part in name for part in parts)


def _fill(template: str, words: dict[str, str]) -> str:
    """Replace @name@: braces and dollars mean something in the files that are written."""
    return re.sub(r"@(\w+)@", lambda match: words[match.group(1)], template)


# ---- Arduino ----

LIBRARY_PROPERTIES = """\
name=@name@
version=@version@
author=flipbit
maintainer=flipbit
sentence=A neural net with one-bit weights, and the flipbit core that runs it.
paragraph=Integers only, no allocation. For 32-bit boards; the net stays in flash. See the example classify.
category=Data Processing
architectures=sam,samd,mbed,mbed_nano,mbed_rp2040,mbed_nicla,mbed_portenta,renesas_uno,renesas_portenta,rp2040,stm32,nrf52,esp32,teensy
includes=@name@.h,flipbit.h
"""

SKETCH = """\
// Runs the net on an image that is built in, prints its class, and compares the scores with those of the computer that
// exported it. For an image of your own, pass another array instead of sample_input: see @name@.h.
#include <@name@.h>
#include <flipbit.h>

#include "sample.h"

alignas(FB_ALIGN) static uint8_t arena[SAMPLE_ARENA_LEAST];
static int8_t scores[@upper@_OUTPUT_SIZE];
static fb_model model;

static void fail(fb_status status) {
    Serial.println(fb_status_name(status));
    for (;;) delay(1000);
}

void setup() {
    Serial.begin(115200);
    while (!Serial) delay(10);
    fb_status status = fb_model_open(&model, @name@, @upper@_SIZE);
    if (status != FB_OK) fail(status);
    Serial.print("arena: ");
    Serial.print((unsigned long)sizeof arena);
    Serial.print(" bytes; fastest with ");
    Serial.println((unsigned long)fb_arena_size(&model));
}

void loop() {
    unsigned long start = micros();
    fb_status status = fb_invoke(&model, arena, sizeof arena, sample_input, scores, NULL);
    unsigned long took = micros() - start;
    if (status != FB_OK) fail(status);
    bool same = true;
    for (unsigned i = 0; i < @upper@_OUTPUT_SIZE; i++) same = same && scores[i] == sample_scores[i];
    Serial.print("class: ");
    Serial.println(sample_classes[fb_argmax(scores, @upper@_OUTPUT_SIZE)]);
    Serial.print("scores: ");
    Serial.println(same ? "as exported" : "differ from the exported");
    Serial.print("microseconds: ");
    Serial.println(took);
    delay(2000);
}
"""

# ---- Zephyr ----

MODULE_YML = """\
name: @name@
build:
  cmake: .
  kconfig: Kconfig
samples:
  - samples
"""

MODULE_CMAKE = """\
# The net and the core that runs it. Kernels of other machines than the board's are empty.
if(CONFIG_FLIPBIT)
  zephyr_include_directories(src)
  zephyr_library()
  zephyr_library_sources(
@sources@
  )
endif()
"""

KCONFIG = """\
config FLIPBIT
\tbool "flipbit: runs the net @name@"
\thelp
\t  A neural net with one-bit weights, and the core that runs it in integers, without allocation.
\t  A second net is one more .c and .h in your own sources: the core must be there only once.
"""

SAMPLE_CMAKE = """\
cmake_minimum_required(VERSION 3.20.0)

# The module this sample lies in; not needed where a west manifest names it.
get_filename_component(@name@_module ${CMAKE_CURRENT_SOURCE_DIR}/../.. ABSOLUTE)
list(APPEND EXTRA_ZEPHYR_MODULES ${@name@_module})

find_package(Zephyr REQUIRED HINTS $ENV{ZEPHYR_BASE})
project(classify LANGUAGES C)
target_sources(app PRIVATE src/main.c)
"""

PRJ_CONF = """\
CONFIG_FLIPBIT=y
CONFIG_SPEED_OPTIMIZATIONS=y
CONFIG_MAIN_STACK_SIZE=4096
"""

SAMPLE_YAML = """\
sample:
  name: @name@
tests:
  sample.flipbit.@name@:
    harness: console
    harness_config:
      type: one_line
      regex:
        - "scores: as exported"
"""

ZEPHYR_MAIN = """\
/* Runs the net on an image that is built in, prints its class, and compares the scores with those of the computer that
 * exported it. For an image of your own, pass another array instead of sample_input: see @name@.h. */
#include <string.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#include "@name@.h"
#include "flipbit.h"
#include "sample.h"

static uint8_t arena[SAMPLE_ARENA_LEAST] __aligned(FB_ALIGN);
static int8_t scores[@upper@_OUTPUT_SIZE];
static fb_model model;

int main(void) {
    fb_status status = fb_model_open(&model, @name@, @upper@_SIZE);
    if (status == FB_OK) {
        printk("arena: %u bytes; fastest with %u\\n", (unsigned)sizeof arena, (unsigned)fb_arena_size(&model));
        status = fb_invoke(&model, arena, sizeof arena, sample_input, scores, NULL);
    }
    if (status != FB_OK) {
        printk("%s\\n", fb_status_name(status));
        return 0;
    }
    printk("class: %s\\n", sample_classes[fb_argmax(scores, @upper@_OUTPUT_SIZE)]);
    printk("scores: %s\\n", memcmp(scores, sample_scores, sizeof scores) ? "differ from the exported" : "as exported");
    return 0;
}
"""

# ---- the command: what export/to_c.py does with --for ----


def main(argv: list[str] | None = None) -> int:
    """``export/to_c.py``: C source, or with ``--for`` a project."""
    p = command.parser("c")
    p.add_argument("--for", dest="target", choices=TARGETS, help="a whole folder: an Arduino library, a Zephyr module")
    given = p.parse_args(argv)
    if given.target is None:
        return command.main("c", argv)
    return command.guarded(given, lambda: _export(given.target, given))


def _export(target: str, given: argparse.Namespace) -> None:
    from flipbit.export.table import print_table, rows, sizes
    from flipbit.train.files import write_json

    folder = given.output or given.model.with_name(f"{given.model.stem}_{target}")
    check_place(folder)
    console, begin = command.a_console(), time.perf_counter()
    source, graph, images = command.read_graph(given, console)
    write_project(graph, folder, target, source.pixels(images[0]), source.pixels.formula)
    print_table(console, graph)
    size = len(fbit_bytes(graph, source.pixels.formula))
    console.print(
        f"{folder}: {TARGETS[target]}, image {size:,} bytes, {time.perf_counter() - begin:.1f} s",
        style="bold",
        highlight=False,
    )
    if given.json:
        write_json(given.json, {"folder": str(folder), "bytes": size, "sizes": sizes(graph), "layers": rows(graph)})
