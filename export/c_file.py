"""Writes a .fbit image as C: ``model.c`` with the image as an aligned constant array, ``model.h`` with its sizes.

Compile the pair into any project; on a device the array stays in flash.
"""

from __future__ import annotations

import re
from pathlib import Path

from flipbit.export.fbit import fbit_bytes
from flipbit.export.graph import Graph
from flipbit.train.files import write_text


def write_c(graph: Graph, path: Path, input_formula: str | None = None) -> None:
    """Write ``path`` (.c) and the header beside it; names follow the file's."""
    name = identifier(path.stem)
    write_text(path.with_suffix(".h"), header(graph, name, input_formula))
    write_text(path, source(graph, name, path.with_suffix(".h").name, input_formula))


def identifier(stem: str) -> str:
    """A C identifier from a file's name."""
    word = re.sub(r"\W", "_", stem, flags=re.ASCII)
    return word if re.match(r"[A-Za-z_]", word) else f"model_{word}"


def header(graph: Graph, name: str, input_formula: str | None = None) -> str:
    image = fbit_bytes(graph, input_formula)
    upper = name.upper()
    source, target = graph.tensors[graph.input], graph.tensors[graph.output]
    height, width, channels = source.shape if len(source.shape) == 3 else (1, 1, source.shape[0])
    labels = "".join(f"\n *   {i}: {_plain(label)}" for i, label in enumerate(graph.labels))
    return f"""/* {name}: a net with one-bit weights as a .fbit image of {len(image)} bytes.
 * Input: int8, plane by plane (channel, row, column); real = (value - zero point) * {source.scale:.9g}.
 * Output: int8; the largest wins. Classes:{labels or " not named"}
 */
#ifndef {upper}_H
#define {upper}_H

#include <stdint.h>

#define {upper}_SIZE {len(image)}u
#define {upper}_INPUT_HEIGHT {height}
#define {upper}_INPUT_WIDTH {width}
#define {upper}_INPUT_CHANNELS {channels}
#define {upper}_INPUT_SIZE {source.size}
#define {upper}_INPUT_ZERO_POINT ({source.zero_point})
#define {upper}_OUTPUT_SIZE {target.size}
#define {upper}_OUTPUT_ZERO_POINT ({target.zero_point})

#ifdef __cplusplus
extern "C" {{
#endif

/* Aligned to 4 bytes, as the format wants it. */
extern const uint32_t {name}[{upper}_SIZE / 4u];

#ifdef __cplusplus
}}
#endif

#endif
"""


def source(graph: Graph, name: str, header_name: str, input_formula: str | None = None) -> str:
    image = fbit_bytes(graph, input_formula)
    # As 32-bit words: aligned without compiler extensions. The format is little-endian, as its devices are.
    words = [int.from_bytes(image[i : i + 4], "little") for i in range(0, len(image), 4)]
    lines = ["    " + " ".join(f"0x{w:08x}u," for w in words[i : i + 8]) for i in range(0, len(words), 8)]
    return (
        f'#include "{header_name}"\n\nconst uint32_t {name}[{name.upper()}_SIZE / 4u] = {{\n'
        + "\n".join(lines)
        + "\n};\n"
    )


def _plain(label: str) -> str:
    """A label that cannot end the comment it stands in."""
    return label.replace("*/", "* /").replace("\n", " ")
