"""The runtime's ctypes structures are those of the C headers: sizes and offsets, asked of a compiler."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from flipbit.runtime.audio import front_end
from flipbit.runtime.core import learner, store
from flipbit.runtime.core import library as core
from flipbit.runtime.core.model import ARENA_ALIGN
from tests.checkout import ROOT

FIRMWARE = ROOT / "firmware"
HEADERS = ("stdio.h", "stddef.h", "flipbit.h", "fb_train.h", "fb_store.h", "fb_audio.h", "fb_flash_sim.h")

# What a structure is called in C. Of fb_flash only the first fields are read; all others are whole.
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
}
PARTIAL = {store._CFlash}


def test_every_structure_of_the_runtime_is_looked_at() -> None:
    here = {
        kind for module in (core, learner, store, front_end) for kind in vars(module).values() if _is_structure(kind)
    }
    assert here == set(STRUCTURES)
    sources = (ROOT / "runtime").rglob("*.py")
    places = {path.name for path in sources if "(ctypes.Structure)" in path.read_text()}
    assert places == {"library.py", "learner.py", "store.py", "front_end.py"}


def _is_structure(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, ctypes.Structure)


def test_structures_are_laid_out_as_the_headers_say(tmp_path: Path) -> None:
    asked, expected = ["FB_ALIGN"], [ARENA_ALIGN]
    for kind in STRUCTURES:
        for field, *_ in kind._fields_:
            c_field = field.rstrip("_")  # pass is a word of Python's
            here = getattr(kind, field)
            asked += [f"offsetof(T_{kind.__name__}, {c_field})", f"sizeof(((T_{kind.__name__} *)0)->{c_field})"]
            expected += [here.offset, here.size]
        if kind not in PARTIAL:
            asked.append(f"sizeof(T_{kind.__name__})")
            expected.append(ctypes.sizeof(kind))
    types = "".join(f"typedef {name} T_{kind.__name__};\n" for kind, name in STRUCTURES.items())
    prints = "".join(f'printf("%zu\\n", (size_t)({line}));\n' for line in asked)
    source = tmp_path / "layout.c"
    includes = "".join(f"#include <{header}>\n" for header in HEADERS)
    source.write_text(f"{includes}{types}int main(void) {{\n{prints}return 0;\n}}\n")
    folders = [f"-I{FIRMWARE / folder}" for folder in ("core/include", "sim")]
    subprocess.run(["cc", "-std=gnu99", *folders, str(source), "-o", str(tmp_path / "layout")], check=True)
    found = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout.split()
    wrong = {a: (int(f), e) for a, f, e in zip(asked, found, expected) if int(f) != e}
    assert not wrong, f"C's and Python's: {wrong}"
    assert core.ALIGN % ARENA_ALIGN == 0
