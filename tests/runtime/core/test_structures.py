"""The runtime's ctypes structures are those of the C headers: sizes and offsets, asked of a compiler."""

from __future__ import annotations

import ast
import ctypes
import re
import subprocess
from pathlib import Path

from flipbit.runtime.audio import front_end
from flipbit.runtime.core import learner, learner_config, store
from flipbit.runtime.core import library as core
from flipbit.runtime.core.model import ARENA_ALIGN
from flipbit.runtime.recordings import core_front_end, listener
from tests.checkout import ROOT

FIRMWARE = ROOT / "firmware"
HEADERS = ("stdio.h", "stddef.h", "flipbit.h", "fb_train.h", "fb_store.h", "fb_listen.h", "fb_flash_sim.h")

# What a structure is called in C. Of fb_flash only the first fields are read; of fb_train_config none is: it is filled
# by C. All others are whole.
STRUCTURES: dict[type[ctypes.Structure], str] = {
    core.CModel: "fb_model",
    core.CLayerPlan: "fb_layer_plan",
    core.CHooks: "fb_hooks",
    learner._CConfig: "fb_train_config",
    learner._CPass: "__typeof__(((fb_train *)0)->pass)",
    learner._CTrain: "fb_train",
    learner._CResult: "fb_train_result",
    store._CCounts: "fb_flash_counts",
    store._CRecord: "fb_record",
    store._CStore: "fb_store",
    store._CFlash: "fb_flash",
    front_end._CAudioConfig: "fb_audio_config",
    front_end._CAudio: "fb_audio",
    core_front_end._CSignalConfig: "fb_signal_config",
    core_front_end._CFrontEnd: "fb_front_end",
    listener._CListenConfig: "fb_listen_config",
    listener._CDetection: "fb_detection",
    listener._CListen: "fb_listen",
}
FOLDERS = ("runtime", "train", "export", "studies", "firmware", "docker")
BASE = re.compile(r"(Structure|Union)$")
PARTIAL = {store._CFlash}
OPAQUE = {learner._CConfig}


def test_every_structure_of_the_runtime_is_looked_at() -> None:
    here = {
        kind
        for module in (core, learner, store, front_end, core_front_end, listener)
        for kind in vars(module).values()
        if _is_structure(kind)
    }
    assert here == set(STRUCTURES)
    names = {name for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") for name in _defined(path)}
    assert names == {kind.__name__ for kind in STRUCTURES}


def _defined(path: Path) -> list[str]:
    """Classes of a file that are structures or unions, whichever way their base was imported."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [n.name for n in nodes if isinstance(n, ast.ClassDef) for base in n.bases if BASE.search(ast.unparse(base))]


def _is_structure(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, ctypes.Structure)


def test_structures_are_laid_out_as_the_headers_say(tmp_path: Path) -> None:
    asked, expected = ["FB_ALIGN"], [ARENA_ALIGN]
    for kind in STRUCTURES:
        asked.append(f"offsetof(struct {{ char first; T_{kind.__name__} it; }}, it)")  # C99 has no _Alignof
        expected.append(ctypes.alignment(kind))
        for field, *_ in () if kind in OPAQUE else kind._fields_:
            c_field = field.rstrip("_")  # pass is a word of Python's
            here = getattr(kind, field)
            asked += [f"offsetof(T_{kind.__name__}, {c_field})", f"sizeof(((T_{kind.__name__} *)0)->{c_field})"]
            expected += [here.offset, here.size]
        if kind not in PARTIAL:
            asked.append(f"sizeof(T_{kind.__name__})")
            expected.append(ctypes.sizeof(kind))
    types = "".join(f"typedef {name} T_{kind.__name__};\n" for kind, name in STRUCTURES.items())
    found = _asked_of_c(asked, types, tmp_path)
    wrong = {a: (f, e) for a, f, e in zip(asked, found, expected) if f != e}
    assert not wrong, f"C's and Python's: {wrong}"
    assert core.ALIGN % ARENA_ALIGN == 0


def test_numbers_that_go_into_structures_and_records_are_those_of_the_headers(tmp_path: Path) -> None:
    numbers = {
        "FB_TRAIN_CONFIG_SIZE": learner_config.PACKED.size,
        "FB_BUFFER_BITS_MAX": learner_config.BUFFER_BITS_MAX,
        "FB_RULE_STOCHASTIC": learner_config.RULES[-1],
        "FB_RATE_MAX": learner.RATE_ONE,
        "FB_KIND_IMAGE": store.IMAGE,
        "FB_KIND_CHECKPOINT": store.CHECKPOINT,
        "FB_KIND_DEVICE": store.DEVICE,
    }
    assert dict(zip(numbers, _asked_of_c(list(numbers), "", tmp_path))) == numbers


def _asked_of_c(asked: list[str], types: str, folder: Path) -> list[int]:
    """What a compiler makes of expressions."""
    prints = "".join(f'printf("%zu\\n", (size_t)({line}));\n' for line in asked)
    source = folder / "layout.c"
    includes = "".join(f"#include <{header}>\n" for header in HEADERS)
    source.write_text(f"{includes}{types}int main(void) {{\n{prints}return 0;\n}}\n")
    folders = [f"-I{FIRMWARE / place}" for place in ("core/include", "sim")]
    subprocess.run(["cc", "-std=gnu99", *folders, str(source), "-o", str(folder / "layout")], check=True)
    said = subprocess.run([folder / "layout"], check=True, capture_output=True, text=True).stdout
    return [int(number) for number in said.split()]
