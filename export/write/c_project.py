"""Writes a folder that other build systems take as it is: an Arduino or PlatformIO library, an ESP-IDF component or a
Zephyr module.

::

    digits/
      src/digits.h, digits.c              the net
      src/flipbit.h                       leads to the core's header
      src/core/                           what runs a net: of firmware/core, without what learns and saves
      library.properties, examples/       Arduino
      library.json, examples/             PlatformIO
      CMakeLists.txt, idf_component.yml, examples/      ESP-IDF
      CMakeLists.txt, Kconfig, zephyr/module.yml, samples/      Zephyr

Names follow the folder's. The example runs the net on one image that it has built in, prints the class, and compares
the scores with those of the machine that exported it: both have to be the same integers.

Several such folders can be in one program. Each brings the core; its functions are weak, so that the linker keeps one
copy, and their names end in a mark of the core's source (``fb_names.h``), so that two versions do not meet.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from pathlib import Path

import numpy as np

from flipbit.export.graph import Array, ExportError, Graph
from flipbit.export.write.c_file import header, identifier, in_lines, source
from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime.core.model import Model
from flipbit.runtime.image.inputs import to_planes

TARGETS = {
    "arduino": "an Arduino library",
    "platformio": "a PlatformIO library",
    "esp-idf": "an ESP-IDF component",
    "zephyr": "a Zephyr module",
}
CORE = Path(__file__).resolve().parents[2] / "firmware" / "core"
# What runs a net: not what learns, nor what saves.
PUBLIC = "include/flipbit.h"
RUNS = (PUBLIC, "include/fb_front_end.h", "include/fb_audio.h", "run/", "kernels/")
NOT_RUNNING = ("kernels/gradient/",)
# Kernels of machines that no Arduino board is. The others have boards of all kinds, and run on computers as well.
NOT_ARDUINO = ("kernels/x86/", "kernels/neon/")
NAMES = "fb_names.h"
# A function of the core that other files may call: how its definition begins.
DEFINITION = re.compile(r"^(?!static\b|typedef\b)[A-Za-z][\w *]*?\b(fb_\w+)\([^;{]*\{", re.MULTILINE)


def write_project(graph: Graph, folder: Path, target: str, image: Array, input_formula: str | None = None) -> None:
    """Write ``folder``, which must not exist yet.

    ``image`` is what the example classifies: one input as :meth:`flipbit.runtime.Model.predict` takes it.
    """
    write_image_project(fbit_bytes(graph, input_formula), folder, target, image)


def write_image_project(data: bytes, folder: Path, target: str, image: Array) -> None:
    """The same for a .fbit image that is there already."""
    name = identifier(folder.name)
    check_place(folder)
    files = project_files(data, name, target, image)
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
    if name == "sample" or f"{name}.h" in {NAMES, *(path.name for path in core_sources())}:
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


def core_files(target: str) -> dict[str, str]:
    """What a project has of the core: every file as it is, behind lines that make its functions weak.

    The files find each other by relative paths, so that the folders are those of ``firmware/core``. Programs include
    ``flipbit.h``, which leads there.
    """
    texts = {path.relative_to(CORE).as_posix(): path.read_text(encoding="utf-8") for path in core_sources()}
    texts = {path: text for path, text in texts.items() if path.startswith(RUNS) and not path.startswith(NOT_RUNNING)}
    mark = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:8]
    defined = {name: DEFINITION.findall(text) for name, text in texts.items() if name.endswith(".c")}
    macros = "\n".join(
        f"#define {name} {name}_{mark}" for name in sorted({n for names in defined.values() for n in names})
    )
    files = {f"include/{NAMES}": _fill(NAMES_H, {"macros": macros})}
    for path, text in texts.items():
        if target == "arduino" and path.startswith(NOT_ARDUINO):
            continue
        weak = "".join(f"#pragma weak {name}_{mark}\n" for name in sorted(set(defined.get(path, []))))
        files[path] = (
            f"/* Every library that flipbit exports defines these: the linker keeps one. */\n{weak}" if weak else ""
        ) + text
    files[PUBLIC] = f'#include "{NAMES}"\n{files[PUBLIC]}'
    return {
        "src/flipbit.h": f'/* The manual is in core/{PUBLIC}. */\n#include "core/{PUBLIC}"\n',
        **{f"src/core/{path}": text for path, text in files.items()},
    }


def project_files(data: bytes, name: str, target: str, image: Array) -> dict[str, str]:
    """Every file of a project, by its path in the folder."""
    files = core_files(target)
    files[f"src/{name}.h"] = header(data, name)
    files[f"src/{name}.c"] = source(data, name, f"{name}.h")
    license_file = CORE.parents[1] / "LICENSE"
    if license_file.is_file():
        files["LICENSE"] = license_file.read_text(encoding="utf-8")
    answer = "largest output" if Model(data).values else "class"
    words = {
        "name": name, "upper": name.upper(), "version": _version(files[f"src/core/{PUBLIC}"]), "answer": answer,
    }  # fmt: skip
    sample = sample_header(data, image)
    sources = "\n".join(f"    {path}" for path in sorted(files) if path.endswith(".c"))
    if target == "arduino":
        return {
            **files,
            "library.properties": _fill(LIBRARY_PROPERTIES, words),
            "examples/classify/classify.ino": _fill(SKETCH, words),
            "examples/classify/sample.h": sample,
        }
    if target == "platformio":
        return {
            **files,
            "library.json": json.dumps(library_json(words), indent=2) + "\n",
            "examples/classify/platformio.ini": _fill(PLATFORMIO_INI, words),
            "examples/classify/src/main.cpp": _fill(PLATFORMIO_MAIN, words),
            "examples/classify/src/sample.h": sample,
        }
    if target == "esp-idf":
        return {
            **files,
            "CMakeLists.txt": _fill(IDF_COMPONENT_CMAKE, {**words, "sources": sources}),
            "idf_component.yml": _fill(IDF_COMPONENT_YML, words),
            "examples/classify/CMakeLists.txt": _fill(IDF_PROJECT_CMAKE, words),
            "examples/classify/main/CMakeLists.txt": _fill(IDF_MAIN_CMAKE, words),
            "examples/classify/main/main.c": _fill(IDF_MAIN, words),
            "examples/classify/main/sample.h": sample,
        }
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


def sample_header(data: bytes, image: Array) -> str:
    """The example's image as the net takes it, and the scores that belong to it."""
    model = Model(data)
    planes, _ = to_planes(np.asarray(image), model.image.tensors[model.image.input], model.pixels)
    scores = np.asarray(model.predict(image, raw=True)).reshape(-1)
    return f"""/* An image for the example, and what the net makes of it. */
#ifndef SAMPLE_H
#define SAMPLE_H

#include <stdint.h>

/* Channel by channel, row by row. */
static const int8_t sample_input[] = {{
{in_lines(f"{int(v)}," for v in planes.reshape(-1))}
}};

static const int8_t sample_scores[] = {{
{in_lines(f"{int(v)}," for v in scores)}
}};

#endif
"""


def _version(flipbit_h: str) -> str:
    found = re.search(r'FB_VERSION "([^"]+)"', flipbit_h)
    return found.group(1) if found else "0.0.0"


def _fill(template: str, words: dict[str, str]) -> str:
    """Replace @name@: braces and dollars mean something in the files that are written."""
    return re.sub(r"@(\w+)@", lambda match: words[match.group(1)], template)


NAMES_H = """\
/* Names of the core's functions, with a mark of its source: libraries with the same core share it, libraries with
 * another version have their own. Programs call fb_invoke() and do not notice. */
#ifndef FB_NAMES_H
#define FB_NAMES_H

@macros@

#endif
"""

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
// exported it. For a picture of your own: @name@_from_pixels(), in @name@.h.
#include <@name@.h>
#include <flipbit.h>

#include "sample.h"

alignas(FB_ALIGN) static uint8_t arena[@upper@_ARENA_LEAST];
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
    Serial.print("@answer@: ");
    Serial.println(@name@_classes[fb_argmax(scores, @upper@_OUTPUT_SIZE)]);
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
\t  Other modules of this kind can be in the same program: they share the core.
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
 * exported it. For a picture of your own: @name@_from_pixels(), in @name@.h. */
#include <string.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#include "@name@.h"
#include "flipbit.h"
#include "sample.h"

static uint8_t arena[@upper@_ARENA_LEAST] __aligned(FB_ALIGN);
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
    printk("@answer@: %s\\n", @name@_classes[fb_argmax(scores, @upper@_OUTPUT_SIZE)]);
    printk("scores: %s\\n", memcmp(scores, sample_scores, sizeof scores) ? "differ from the exported" : "as exported");
    return 0;
}
"""

# ---- PlatformIO ----


def library_json(words: dict[str, str]) -> dict[str, object]:
    """library.json: any framework, any 32-bit board."""
    name = words["name"]
    return {
        "name": name,
        "version": words["version"],
        "description": "A neural net with one-bit weights, and the flipbit core that runs it in integers.",
        "keywords": ["neural network", "binary neural network", "tinyml", "inference"],
        "license": "Apache-2.0",
        "frameworks": "*",
        "platforms": "*",
        "headers": [f"{name}.h", "flipbit.h"],
        "examples": [
            {
                "name": "classify",
                "base": "examples/classify",
                "files": ["platformio.ini", "src/main.cpp", "src/sample.h"],
            }
        ],
    }


PLATFORMIO_INI = """\
; pio run -d examples/classify -e native -t exec        on this computer
; pio run -d examples/classify -e pico -t upload        on a board; add your own
[env]
lib_deps = @name@=symlink://../..

[env:native]
platform = native

[env:pico]
platform = raspberrypi
board = pico
framework = arduino
"""

PLATFORMIO_MAIN = """\
// Runs the net on an image that is built in, prints its class, and compares the scores with those of the computer that
// exported it. For a picture of your own: @name@_from_pixels(), in @name@.h.
#include <@name@.h>
#include <flipbit.h>
#include <string.h>

#include "sample.h"

#ifdef ARDUINO
#include <Arduino.h>
static void say(const char *text) { Serial.println(text); }
#else
#include <stdio.h>
static void say(const char *text) { puts(text); }
#endif

alignas(FB_ALIGN) static uint8_t arena[@upper@_ARENA_LEAST];
static int8_t scores[@upper@_OUTPUT_SIZE];
static fb_model model;

static void classify() {
    fb_status status = fb_model_open(&model, @name@, @upper@_SIZE);
    if (status == FB_OK) status = fb_invoke(&model, arena, sizeof arena, sample_input, scores, NULL);
    if (status != FB_OK) {
        say(fb_status_name(status));
        return;
    }
    say(@name@_classes[fb_argmax(scores, @upper@_OUTPUT_SIZE)]);
    say(memcmp(scores, sample_scores, sizeof scores) ? "scores differ from the exported" : "scores as exported");
}

#ifdef ARDUINO
void setup() {
    Serial.begin(115200);
    while (!Serial) delay(10);
}

void loop() {
    classify();
    delay(2000);
}
#else
int main() {
    classify();
    return 0;
}
#endif
"""

# ---- ESP-IDF ----

IDF_COMPONENT_CMAKE = """\
# The net and the core that runs it. Kernels of other machines than the chip's are empty.
idf_component_register(
  SRCS
@sources@
  INCLUDE_DIRS src
)
target_compile_options(${COMPONENT_LIB} PRIVATE -O2)
"""

IDF_COMPONENT_YML = """\
version: "@version@"
description: A neural net with one-bit weights, and the flipbit core that runs it
license: Apache-2.0
dependencies:
  idf: ">=4.4"
"""

IDF_PROJECT_CMAKE = """\
# idf.py set-target esp32c3 build flash monitor
cmake_minimum_required(VERSION 3.16)

# The component this example lies in.
get_filename_component(@name@_component ${CMAKE_CURRENT_SOURCE_DIR}/../.. ABSOLUTE)
set(EXTRA_COMPONENT_DIRS ${@name@_component})

include($ENV{IDF_PATH}/tools/cmake/project.cmake)
project(classify)
"""

IDF_MAIN_CMAKE = """\
idf_component_register(SRCS main.c INCLUDE_DIRS . REQUIRES @name@)
"""

IDF_MAIN = """\
/* Runs the net on an image that is built in, prints its class, and compares the scores with those of the computer that
 * exported it. For a picture of your own: @name@_from_pixels(), in @name@.h. */
#include <stdio.h>
#include <string.h>

#include "@name@.h"
#include "flipbit.h"
#include "sample.h"

static uint8_t arena[@upper@_ARENA_LEAST] __attribute__((aligned(FB_ALIGN)));
static int8_t scores[@upper@_OUTPUT_SIZE];
static fb_model model;

void app_main(void) {
    fb_status status = fb_model_open(&model, @name@, @upper@_SIZE);
    if (status == FB_OK) {
        printf("arena: %u bytes; fastest with %u\\n", (unsigned)sizeof arena, (unsigned)fb_arena_size(&model));
        status = fb_invoke(&model, arena, sizeof arena, sample_input, scores, NULL);
    }
    if (status != FB_OK) {
        printf("%s\\n", fb_status_name(status));
        return;
    }
    printf("@answer@: %s\\n", @name@_classes[fb_argmax(scores, @upper@_OUTPUT_SIZE)]);
    printf("scores: %s\\n", memcmp(scores, sample_scores, sizeof scores) ? "differ from the exported" : "as exported");
}
"""
