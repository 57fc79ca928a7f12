"""Writes a .fbit image as C: ``model.c`` with the image as an aligned constant array, ``model.h`` with all that a
program has to know of it: sizes, RAM, classes, and a function that makes the net's input of a camera's pixels.

Compile the pair into any project; on a device the array stays in flash. Every name begins with the model's, so that
several nets can be in one program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from flipbit.export.graph import Graph
from flipbit.export.write.fbit import fbit_bytes
from flipbit.runtime.core.model import Model
from flipbit.runtime.files import replacing, write_text
from flipbit.runtime.image.inputs import Pixels, to_planes


def write_c(graph: Graph, path: Path, input_formula: str | None = None) -> None:
    """Write ``path`` (.c) and the header beside it; names follow the file's."""
    write_c_image(fbit_bytes(graph, input_formula), path)


def write_c_image(image: bytes, path: Path) -> None:
    """The same for an image that is there already."""
    name = identifier(path.stem)
    beside = path.with_suffix(".h")
    with replacing(beside) as temporary:  # both or none
        temporary.write_text(header(image, name), encoding="utf-8")
        write_text(path, source(image, name, beside.name))


def identifier(stem: str) -> str:
    """A C identifier from a file's name."""
    word = re.sub(r"\W", "_", stem, flags=re.ASCII)
    return word if re.match(r"[A-Za-z_]", word) else f"model_{word}"


def header(image: bytes, name: str) -> str:
    model = Model(image)
    upper = name.upper()
    source, target = model.image.tensors[model.image.input], model.image.tensors[model.image.output]
    labels = "".join(f"\n *   {i}: {_plain(label)}" for i, label in enumerate(model.labels))
    meaning = f"the largest wins. Classes:{labels or ' not named'}"
    if model.values:
        meaning = f"values, each (output - {upper}_OUTPUT_ZERO_POINT) * {upper}_OUTPUT_SCALE."
    table = pixel_table(model)
    return f"""/* {name}: a net with one-bit weights as a .fbit image of {len(image)} bytes.
 *
 * Input: int8, plane by plane (channel, row, column). {_pixels_text(model, name, table)}
 * In real numbers: (value - {upper}_INPUT_ZERO_POINT) * {source.scale:.9g}.
 * Output: int8; {meaning}
 */
#ifndef {upper}_H
#define {upper}_H

#include <stdint.h>

#define {upper}_SIZE {len(image)}u
#define {upper}_INPUT_HEIGHT {source.height}
#define {upper}_INPUT_WIDTH {source.width}
#define {upper}_INPUT_CHANNELS {source.channels}
#define {upper}_INPUT_SIZE {source.size}
#define {upper}_INPUT_ZERO_POINT ({source.zero_point})
#define {upper}_OUTPUT_SIZE {target.size}
#define {upper}_OUTPUT_ZERO_POINT ({target.zero_point})
#define {upper}_OUTPUT_SCALE {_c_float(target.scale)}

/* Bytes of RAM beside input and output with which the net runs; with more, up to what fb_arena_size() answers on the
 * machine, layers run faster kernels. */
#define {upper}_ARENA_LEAST {model.arena_least}u

#ifdef __cplusplus
extern "C" {{
#endif

/* Aligned to 4 bytes, as the format requires. */
extern const uint32_t {name}[{upper}_SIZE / 4u];

/* Names of the {"values (UTF-8)" if model.values else "classes (UTF-8), by the place of their score"}. */
extern const char *const {name}_classes[{upper}_OUTPUT_SIZE];
{_pixels_declaration(name, upper, table)}
#ifdef __cplusplus
}}
#endif

#endif
"""


def source(image: bytes, name: str, header_name: str) -> str:
    model, upper = Model(image), name.upper()
    # As 32-bit words: aligned without compiler extensions. The format is little-endian, as its devices are.
    words = [int.from_bytes(image[i : i + 4], "little") for i in range(0, len(image), 4)]
    labels = model.labels or [str(i) for i in range(int(np.prod(model.output_shape)))]
    lines = [
        f'#include "{header_name}"\n',
        f"const uint32_t {name}[{upper}_SIZE / 4u] = {{\n{in_lines(f'0x{word:08x}u,' for word in words)}\n}};\n",
        f"const char *const {name}_classes[{upper}_OUTPUT_SIZE] = {{\n{in_lines(map(_entry, labels))}\n}};\n",
    ]
    table = pixel_table(model)
    if table is not None:
        lines.append(_pixels_function(name, upper, table))
    return "\n".join(lines)


def _c_float(value: float) -> str:
    """A float constant; nine digits tell all float32 apart."""
    text = f"{value:.9g}"
    return f"{text if set(text) & set('.e') else text + '.0'}f"


def pixel_table(model: Model) -> np.ndarray | None:
    """The int8 value of each pixel value 0 … 255; None where the image does not say, or it differs by place."""
    tensor = model.image.tensors[model.image.input]
    if tensor.rank != 3 or not isinstance(model.pixels, Pixels):
        return None
    shades = np.arange(256, dtype=np.uint8).repeat(tensor.size).reshape(256, *model.input_shape)
    planes, _ = to_planes(shades, tensor, model.pixels)
    return planes.reshape(256, -1)[:, 0]


def plain_pixels(table: np.ndarray) -> bool:
    """Whether the net's input is pixel − 128."""
    return bool((table == np.arange(256) - 128).all())


def _pixels_text(model: Model, name: str, table: np.ndarray | None) -> str:
    said = model.image.metadata.get("input")
    if table is None:
        return f"It was trained on {_plain(str(said))}." if said else "The image does not say what was made of pixels."
    value = "value = pixel - 128" if plain_pixels(table) else f"it was trained on {_plain(str(said))}"
    return f"Of pixels 0 ... 255: {value};\n * {name}_from_pixels() does that."


def _pixels_declaration(name: str, upper: str, table: np.ndarray | None) -> str:
    if table is None:
        return ""
    return f"""
/* The net's input of pixels as cameras give them: {upper}_INPUT_SIZE bytes, row by row, the channels of a pixel side by
 * side (RGBRGB...). */
void {name}_from_pixels(const uint8_t *pixels, int8_t *input);
"""


def _pixels_function(name: str, upper: str, table: np.ndarray) -> str:
    if plain_pixels(table):
        values, value = "", "(int8_t)(*pixels++ - 128)"
    else:
        words = in_lines(f"{int(v)}," for v in table)
        values, value = f"static const int8_t {name}_values[256] = {{\n{words}\n}};\n\n", f"{name}_values[*pixels++]"
    return f"""{values}void {name}_from_pixels(const uint8_t *pixels, int8_t *input) {{
    const uint32_t plane = (uint32_t){upper}_INPUT_HEIGHT * {upper}_INPUT_WIDTH;
    uint32_t at, channel;
    for (at = 0; at < plane; at++) {{
        for (channel = 0; channel < {upper}_INPUT_CHANNELS; channel++) {{
            input[channel * plane + at] = {value};
        }}
    }}
}}
"""


def in_lines(words: Iterable[str], width: int = 116) -> str:
    """Words in indented lines."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return "\n".join(f"    {line}" for line in lines)


def c_string(text: str) -> str:
    """A string literal of ASCII characters; others as octal escapes, which end after three digits."""
    data = text.encode("utf-8", "replace")
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in data) + '"'


def _entry(label: str) -> str:
    return f"{c_string(label)},"


def _plain(text: str) -> str:
    """Text that can neither end the comment it stands in nor begin another, nor join lines."""
    return re.sub(r"[\x00-\x1f\x7f\\]", " ", text).replace("*/", "* /").replace("/*", "/ *").replace("??/", "?? /")
