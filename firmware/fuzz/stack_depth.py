"""How deep the stack gets: the deepest chain of the call graph.

    python firmware/fuzz/stack_depth.py                      of the C core, for each call that a program makes, at -O3
    python firmware/fuzz/stack_depth.py microbit hifive1     of the firmware of these boards, from reset, as it is built

There is no recursion and there are no variable arrays, so that the sum along the worst chain is a bound and not a
sample. GCC gives the frames and the graph (-fcallgraph-info=su). What a call through a pointer may reach is in
POINTERS. For the core alone, hooks and the driver of a flash are the caller's own and come on top. Functions of libc
and libgcc (memcpy, division) count EXTERNAL bytes, divisions of 64 bits LONG_DIVISION.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

FIRMWARE = Path(__file__).parents[1]
CORE = FIRMWARE / "core"
EXTERNAL = 32
LONG_DIVISION = 112  # __aeabi_ldivmod of Cortex-M0 takes 108, by its disassembly; others take less
CORES = {
    "Cortex-M0": "arm-none-eabi-gcc -mthumb -mcpu=cortex-m0",
    "Cortex-M4": "arm-none-eabi-gcc -mthumb -mcpu=cortex-m4",
    "Cortex-M55": "arm-none-eabi-gcc -mthumb -mcpu=cortex-m55 -mfloat-abi=hard",
    "RV32IMAC": "riscv64-unknown-elf-gcc -march=rv32imac -mabi=ilp32 --specs=picolibc.specs",
}
CALLS = {
    "flipbit.h": ("fb_model_open", "fb_arena_size", "fb_arena_least", "fb_plan_layer", "fb_invoke"),
    "fb_train.h": (
        *("fb_train_state_size", "fb_train_arena_size", "fb_train_open"),
        *("fb_train_begin", "fb_train_sample", "fb_train_end_pass", "fb_train_drift"),
    ),
    "fb_exchange.h": ("fb_exchange_follow", "fb_exchange_flip"),
    "fb_store.h": (
        *("fb_store_open", "fb_store_read", "fb_store_begin", "fb_store_write"),
        *("fb_store_commit", "fb_store_save"),
    ),
    "fb_audio.h": ("fb_audio_check", "fb_audio_size", "fb_audio_open", "fb_audio_push"),
}
KERNELS, SCRATCH, LOOK_ON, WATCH = "kernels", "their _scratch functions", "after_layer", "look"
ADD_FILTERS = "add_filters_"
BINARY = "kernels of binary convolutions"
COMMANDS, AFTER, FLASH = "handlers of commands", "hooks of the application", "fb_ledger_flash.c"
POINTERS: dict[str, tuple[str, ...]] = {  # by function, or by file if all of its functions do the same
    "fb_invoke": (KERNELS,),
    "fb_conv_bits_mve.c": (ADD_FILTERS,),  # one for each number of vectors
    "fb_walk_run": (KERNELS, LOOK_ON, WATCH, AFTER),  # the hooks that fb_forward, fb_watch and run_net set
    "fb_grad_input": (BINARY,),  # it makes a binary convolution of the layer
    "fb_choose": (SCRATCH,),
    "fb_scratch_of": (SCRATCH,),
    "fb_recalibrating_work": (SCRATCH,),
    "run_maker": (KERNELS,),
    "look": (KERNELS, SCRATCH),  # of a sample that recalibrates
    "fb_walk_step": (SCRATCH,),
    "fb_walk_arena": (SCRATCH,),
    "fb_arena_size": (SCRATCH,),
    "fb_arena_least": (SCRATCH,),
    "fb_plan_layer": (SCRATCH,),
    "fb_finish_layer": (),  # on_gradient
    "fb_store.c": (FLASH,),  # the driver; outside the core
    # The application.
    "fb_app_answer": (COMMANDS,),
    "fb_frame.c": ("board_write",),
}
# It goes through the backward pass without running it (`dry`).
NEVER = {
    "fb_work_size": (
        *("fb_grad_input", "fb_grad_weights", "fb_grad_scale", "fb_grad_cuts_off", "fb_grad_halve", "fb_grad_count"),
        *("run_maker", "accumulate", "input_gradient", "scale_into", "spread", "fb_softmax_gradient"),
        *("saved_by", "fb_count_of", "fb_sum_count_of"),
    )
}


class StackError(Exception):
    """The depth has no bound, or it cannot be seen."""


@dataclass
class Function:
    frame: int = 0
    known: bool = False
    callees: set[str] = field(default_factory=set)
    file: str = ""


def call_graph(compiler: str) -> dict[str, Function]:
    """Every function of the core with its frame and whom it calls."""
    functions: dict[str, Function] = {}
    with tempfile.TemporaryDirectory() as folder:
        sources = [str(path) for path in sorted(CORE.rglob("*.c"))]
        options = ["-std=c99", "-O3", "-fcallgraph-info=su", "-c", *sources]
        subprocess.run([*compiler.split(), *options], cwd=folder, check=True)
        _read_all(Path(folder), functions)
    return functions


def firmware_graph(board: str) -> dict[str, Function]:
    """The same of a board's firmware, with the flags that it is built with."""
    functions: dict[str, Function] = {}
    with tempfile.TemporaryDirectory() as folder:
        options = [f"BOARD={board}", f"BUILD={folder}", f"PYTHON={sys.executable}", "WARNINGS=-fcallgraph-info=su"]
        command = ["make", "-C", str(FIRMWARE), "MODEL=", *options]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise StackError(f"{board} cannot be built: {done.stderr}")
        _read_all(Path(folder), functions)
    return functions


def firmware_depth(board: str) -> tuple[int, tuple[str, ...]]:
    """Bytes of stack that a board's firmware takes at most, from reset, and the chain."""
    functions = firmware_graph(board)
    return deepest("start" if "start" in functions else "start_program", functions)


def _read_all(folder: Path, functions: dict[str, Function]) -> None:
    for path in folder.rglob("*.ci"):
        for line in path.read_text().splitlines():
            _read(line, functions)


def _read(line: str, functions: dict[str, Function]) -> None:
    if node := re.match(r'node: { title: "([^"]+)" label: "([^"]*)"', line):
        if frame := re.search(r"([\w.]+):\d+:\d+\\n(\d+) bytes \(([\w,]+)\)", node[2]):
            if frame[3] != "static":
                raise StackError(f"{node[1]} has a frame of changing size")
            function = functions.setdefault(node[1], Function())
            function.frame, function.known, function.file = int(frame[2]), True, frame[1]
    elif edge := re.match(r'edge: { sourcename: "([^"]+)" targetname: "([^"]+)"', line):
        functions.setdefault(edge[1], Function()).callees.add(edge[2])


def deepest(name: str, functions: dict[str, Function], above: tuple[str, ...] = ()) -> tuple[int, tuple[str, ...]]:
    """Bytes of the worst chain from a function down, and the chain."""
    if name in above:
        raise StackError(f"{name} calls itself, by way of {' → '.join(above)}")
    function = functions.get(name, Function())
    if not function.known:
        return LONG_DIVISION if re.search("ldivmod|[di]vdi3|moddi[34]", name) else EXTERNAL, (name,)
    worst: tuple[int, tuple[str, ...]] = (0, ())
    never = {callee for caller in above for callee in NEVER.get(caller, ())}
    for callee in function.callees:
        if _plain(callee) in never:
            continue
        targets = _pointed(name, functions, above) if callee == "__indirect_call" else [callee]
        for target in targets:
            worst = max(worst, deepest(target, functions, (*above, name)))
    return function.frame + worst[0], (name, *worst[1])


def _plain(name: str) -> str:
    """Without the file, and what the optimizer adds."""
    return name.split(":")[-1].split(".")[0]


def _pointed(name: str, functions: dict[str, Function], above: tuple[str, ...]) -> list[str]:
    """What a call through a pointer may reach, in a chain of calls."""
    reached = POINTERS.get(_plain(name), POINTERS.get(functions[name].file))
    if reached is None:
        raise StackError(f"{name} calls through a pointer: say in POINTERS what it may reach")
    listed = "".join(path.read_text() for path in (CORE / "kernels").glob("fb_kernels*.[ch]"))
    named = set(re.findall(r"FB_(?:ENTRY|LEAN_ENTRY|LARGE_ENTRY|LARGE)\((\w+)[,)]", listed))
    kernels = [kernel for kernel in named if kernel in functions]
    binary = [kernel for kernel in kernels if kernel.startswith("fb_conv_bin_")]
    backward = any(_plain(name) in ("fb_grad_input", "fb_grad_input_scratch") for name in above)
    targets = {
        KERNELS: kernels,
        BINARY: binary,
        SCRATCH: [f"{kernel}_scratch" for kernel in (binary if backward else kernels)],
        LOOK_ON: [static for static in functions if static.endswith(f":{LOOK_ON}") and "fb_forward" in above],
        ADD_FILTERS: [static for static in functions if _plain(static).startswith(ADD_FILTERS)],
        WATCH: [static for static in functions if static.endswith(f":{WATCH}") and "fb_watch" in above],
        FLASH: [driver for driver in functions if re.search(f"{FLASH}:(read|program|erase)_", driver)],
        **_of_application(functions, above),
    }
    return [target for what in reached for target in targets.get(what, [what])]


def _of_application(functions: dict[str, Function], above: tuple[str, ...]) -> dict[str, list[str]]:
    """What calls through pointers reach in firmware/app."""
    text = "".join(path.read_text() for path in (FIRMWARE / "app").glob("*.c"))
    handlers = set(re.findall(r"\{FB_COMMAND_[^{}]*, (\w+)\}", text))
    statics = {name: _plain(name) for name in functions if ".c:" in name}
    hooked = any(_plain(name) == "run_net" for name in above)
    return {
        COMMANDS: [name for name, plain in statics.items() if plain in handlers],
        AFTER: [name for name, plain in statics.items() if hooked and re.search(rf"run_net\([^)]*, {plain}\)", text)],
    }


def depths(compiler: str) -> dict[str, tuple[int, tuple[str, ...]]]:
    functions = call_graph(compiler)
    return {call: deepest(call, functions) for calls in CALLS.values() for call in calls}


def main() -> None:
    if boards := sys.argv[1:]:
        for board in boards:
            depth, chain = firmware_depth(board)
            print(f"{board}: {depth} bytes: {' → '.join(name.split('/')[-1] for name in chain)}")
        return
    found = {core: depths(compiler) for core, compiler in CORES.items() if shutil.which(compiler.split()[0])}
    print("| bytes of stack |", " | ".join(found), "|")
    print("|---" * (len(found) + 1) + "|")
    for call in [call for calls in CALLS.values() for call in calls]:
        print(f"| `{call}` |", " | ".join(str(found[core][call][0]) for core in found), "|")
    for core in found:
        for call in ("fb_invoke", "fb_train_sample"):
            print(f"{core}: {' → '.join(name.split('/')[-1] for name in found[core][call][1])}")


if __name__ == "__main__":
    main()
