"""How deep the stack of the C core gets, for each call that a program makes: the deepest chain of its call graph.

    python firmware/fuzz/stack_depth.py

The core has no recursion and no variable arrays, so that the sum along the worst chain is a bound and not a sample. GCC
gives the frames and the graph (-fcallgraph-info=su). Calls through pointers are those to kernels and their _scratch
functions; a hook, and the driver of a flash, are the caller's own. Functions of libc and libgcc (memcpy, division)
count EXTERNAL bytes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

CORE = Path(__file__).parents[1] / "core"
EXTERNAL = 32
CORES = {
    "Cortex-M0": "arm-none-eabi-gcc -mthumb -mcpu=cortex-m0",
    "Cortex-M4": "arm-none-eabi-gcc -mthumb -mcpu=cortex-m4",
    "Cortex-M55": "arm-none-eabi-gcc -mthumb -mcpu=cortex-m55 -mfloat-abi=hard",
    "RV32IMAC": "riscv64-unknown-elf-gcc -march=rv32imac -mabi=ilp32 --specs=picolibc.specs",
}
CALLS = ("fb_model_open", "fb_arena_size", "fb_arena_least", "fb_plan_layer", "fb_invoke")
RUN = ("fb_invoke", "fb_walk_run", "fb_grad_input")  # what calls kernels, and what asks them for their scratch
ASK = ("fb_choose", "least_scratch", "arena_for", "fb_walk_arena", "fb_arena_size", "fb_arena_least", "fb_plan_layer")
OUTSIDE = ("fb_store.c",)  # whose calls through pointers leave the core


class StackError(Exception):
    """The depth has no bound, or it cannot be seen."""


@dataclass
class Function:
    frame: int = 0
    known: bool = False
    callees: set[str] = field(default_factory=set)


def call_graph(compiler: str) -> dict[str, Function]:
    """Every function of the core with its frame and whom it calls."""
    functions: dict[str, Function] = {}
    with tempfile.TemporaryDirectory() as folder:
        sources = [str(path) for path in sorted(CORE.rglob("*.c"))]
        options = ["-std=c99", "-O3", "-fcallgraph-info=su", "-c", *sources]
        subprocess.run([*compiler.split(), *options], cwd=folder, check=True)
        for path in Path(folder).glob("*.ci"):
            for line in path.read_text().splitlines():
                _read(line, functions)
    return functions


def _read(line: str, functions: dict[str, Function]) -> None:
    if node := re.match(r'node: { title: "([^"]+)" label: "([^"]*)"', line):
        if frame := re.search(r"\\n(\d+) bytes \(([\w,]+)\)", node[2]):
            if frame[2] != "static":
                raise StackError(f"{node[1]} has a frame of changing size")
            function = functions.setdefault(node[1], Function())
            function.frame, function.known = int(frame[1]), True
    elif edge := re.match(r'edge: { sourcename: "([^"]+)" targetname: "([^"]+)"', line):
        functions.setdefault(edge[1], Function()).callees.add(edge[2])


def deepest(name: str, functions: dict[str, Function], above: tuple[str, ...] = ()) -> tuple[int, tuple[str, ...]]:
    """Bytes of the worst chain from a function down, and the chain."""
    if name in above:
        raise StackError(f"{name} calls itself, by way of {' → '.join(above)}")
    function = functions.get(name, Function())
    if not function.known:
        return EXTERNAL, (name,)
    worst: tuple[int, tuple[str, ...]] = (0, ())
    for callee in function.callees:
        targets = _pointed(name, functions) if callee == "__indirect_call" else [callee]
        for target in targets:
            worst = max(worst, deepest(target, functions, (*above, name)))
    return function.frame + worst[0], (name, *worst[1])


def _pointed(name: str, functions: dict[str, Function]) -> list[str]:
    """What a call through a pointer may reach."""
    if any(source in name for source in OUTSIDE):
        return []
    listed = "".join(path.read_text() for path in [CORE / "fb_kernels.c", *CORE.glob("fb_kernels_*.h")])
    kernels = [kernel for kernel in set(re.findall(r"FB_ENTRY\((\w+)\)", listed)) if kernel in functions]
    plain = name.split(":")[-1].split(".")[0]
    if plain in RUN:
        return kernels
    if plain in ASK:
        return [f"{kernel}_scratch" for kernel in kernels]
    raise StackError(f"{name} calls through a pointer: say in RUN or ASK what it may reach")


def depths(compiler: str) -> dict[str, tuple[int, tuple[str, ...]]]:
    functions = call_graph(compiler)
    return {call: deepest(call, functions) for call in CALLS}


def main() -> None:
    found = {core: depths(compiler) for core, compiler in CORES.items() if shutil.which(compiler.split()[0])}
    print("| bytes of stack |", " | ".join(found), "|")
    print("|---" * (len(found) + 1) + "|")
    for call in CALLS:
        print(f"| `{call}` |", " | ".join(str(found[core][call][0]) for core in found), "|")
    for core in found:
        print(f"{core}: {' → '.join(found[core]['fb_invoke'][1])}")


if __name__ == "__main__":
    main()
