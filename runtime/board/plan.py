"""What a net would take on a board: RAM, flash, kernels, instructions. Asked of this machine, without a compiler.

Kernels and their RAM come from the C core's own planning, compiled once more for this machine with the kernels and the
pointers of microcontrollers (``_plan.so``). What the firmware itself takes of a board is in ``measured/programs.json``,
measured by ``firmware/boards/report_sizes.py --store``; instructions of kernels are in ``measured/inference.json``,
counted by ``firmware/count/bench.py --store``.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import threading
from ctypes import POINTER, byref, c_int, c_size_t, c_uint, c_void_p
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.board.estimate import fitted, layer_key
from flipbit.runtime.board.profile import (
    COUNTED,
    CYCLES_PER_INSTRUCTION,
    BoardError,
    Profile,
    board_names,
    load_profile,
)
from flipbit.runtime.core import library as core_library
from flipbit.runtime.core.library import ENVIRONMENT, CLayerPlan, CModel, aligned
from flipbit.runtime.core.model import ARENA_ALIGN, Layer, Model
from flipbit.runtime.errors import CoreError

MEASURED = Path(__file__).with_name("measured")
PROGRAMS = MEASURED / "programs.json"
INFERENCE = MEASURED / "inference.json"
RISCV, THUMB1, THUMB, DSP, HELIUM = range(5)  # FB_PLAN_… of fb_kernels.h
_one_at_a_time = threading.Lock()  # the library is told for which kind of board it plans


@dataclass(frozen=True)
class BoardLayer:
    """A layer on the board. ``instructions`` is None where nothing like it was counted."""

    name: str
    kernel: str
    live: int
    scratch: int
    instructions: int | None
    cycles: int | None
    counted: bool  # this very layer was counted, with this kernel on this core; else fitted to others


@dataclass(frozen=True)
class BoardPlan:
    """A net on a board. Bytes."""

    board: str
    title: str
    core: str
    clock_hz: int
    flash_free: int  # beside the firmware
    flash_needed: int  # by the image
    ram_free: int  # for input, output and arena
    ram_needed: int  # at least
    ram_fastest: int  # with which every layer has its fastest kernel
    layers: list[BoardLayer]  # empty if it does not fit

    @property
    def missing(self) -> list[str]:
        """What there is not enough of, in words."""
        parts = (("flash", self.flash_needed, self.flash_free), ("RAM", self.ram_needed, self.ram_free))
        return [f"needs {need:,} bytes of {what}, has {has:,}" for what, need, has in parts if need > has]

    @property
    def fits(self) -> bool:
        return not self.missing

    @property
    def instructions(self) -> int | None:
        found = [layer.instructions for layer in self.layers]
        return sum(n for n in found if n is not None) if found and None not in found else None

    @property
    def counted(self) -> bool:
        return all(layer.counted for layer in self.layers)

    @property
    def cycles(self) -> int | None:
        """By a model of the core where there is one, else at a mean of cycles per instruction."""
        found = [layer.cycles for layer in self.layers]
        if found and None not in found:
            return sum(n for n in found if n is not None)
        return None if self.instructions is None else round(self.instructions * CYCLES_PER_INSTRUCTION)

    @property
    def seconds(self) -> float | None:
        return None if self.cycles is None else self.cycles / self.clock_hz

    @property
    def source(self) -> str:
        """How instructions and time are known."""
        modelled = all(layer.cycles is not None for layer in self.layers)
        how = "counted in QEMU" if self.counted else "estimated from layers counted in QEMU"
        cycles = "cycles by Arm's tables, memory without wait states"
        return f"{how}; {cycles if modelled else f'cycles estimated at {CYCLES_PER_INSTRUCTION} per instruction'}"

    def facts(self) -> dict[str, Any]:
        """For scripts."""
        derived = ("fits", "missing", "instructions", "counted", "cycles", "seconds", "source")
        found = {**asdict(self), **{name: getattr(self, name) for name in derived}}
        return found if self.layers else {**found, "source": None, "counted": None}


def board_plan(model: Model, board: str | Profile) -> BoardPlan:
    """What ``model`` takes on a board that runs flipbit's firmware."""
    profile = board if isinstance(board, Profile) else load_profile(board)
    program = _programs().get(profile.name)
    if program is None:
        raise BoardError(
            f"{PROGRAMS.name} does not know what the firmware takes of {profile.name}: run "
            f"python firmware/boards/report_sizes.py --store {profile.name}"
        )
    core, image = profile.core, model.image
    with _one_at_a_time:
        planner = _Planner(image.data, _kind(core), profile.small_code)
        ends = sum(_rounded(image.tensors[i].size) for i in (image.input, image.output))
        in_ram = profile.facts["build"].get("link") == "link_ram.ld"  # the image lies in RAM
        ram_free = program["ram_free"] - (_rounded(len(image.data)) if in_ram else 0)
        room = ram_free - ends
        plans = [planner.layer(room, i) for i in range(len(model.layers))] if room >= planner.least else []
        least, fastest = planner.least, planner.fastest
    layers = [_layer(layer, plan, core, model) for layer, plan in zip(model.layers, plans)]
    flash_free = profile.code.size - program["flash"]
    flash_needed = 0 if in_ram else _rounded(len(image.data))
    return BoardPlan(
        profile.name, profile.title, core, profile.clock_hz, flash_free, flash_needed,
        max(0, ram_free), ends + least, ends + fastest, layers if flash_needed <= flash_free else [],
    )  # fmt: skip


def every_board(model: Model) -> list[BoardPlan]:
    """The net on all boards, those with the least RAM first."""
    plans = [board_plan(model, name) for name in board_names() if name in _programs()]
    return sorted(plans, key=lambda plan: (plan.ram_free, plan.flash_free))


def _rounded(size: int) -> int:
    return -(-size // ARENA_ALIGN) * ARENA_ALIGN


def _kind(core: str) -> int:
    if core in ("cortex-m55", "cortex-m85"):
        return HELIUM
    if core in ("cortex-m4", "cortex-m7", "cortex-m33"):
        return DSP
    if core.startswith("cortex-m0"):
        return THUMB1
    return THUMB if core.startswith("cortex-m") else RISCV


class _Planner:
    """The core's planning for one image."""

    def __init__(self, data: bytes, kind: int, small_code: bool):
        self._library = _library()
        c_int.in_dll(self._library, "fb_plan_core").value = kind
        c_int.in_dll(self._library, "fb_plan_small_code").value = small_code
        self._memory = aligned(len(data))
        self._memory[:] = np.frombuffer(data, np.uint8)
        self._model = CModel()
        if self._library.fb_model_open(byref(self._model), self._memory.ctypes.data, len(data)):
            raise CoreError("an image that the core runs cannot be planned: _plan.so is of another version")

    @property
    def least(self) -> int:
        return int(self._library.fb_arena_least(byref(self._model)))

    @property
    def fastest(self) -> int:
        return int(self._library.fb_arena_size(byref(self._model)))

    def layer(self, arena: int, op: int) -> CLayerPlan:
        found = CLayerPlan()
        if self._library.fb_plan_layer(byref(self._model), arena, op, byref(found)):
            raise CoreError(f"layer {op} cannot be planned in {arena:,} bytes")
        return found


@functools.cache
def _library() -> ctypes.CDLL:
    places = [Path(core_library.__file__).with_name("_plan.so")]
    if os.environ.get(ENVIRONMENT):
        places.insert(0, Path(os.environ[ENVIRONMENT]).with_name("_plan.so"))
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        raise CoreError(f"{places[-1]} is missing: install flipbit again (pip install -e .)")
    library = ctypes.CDLL(str(found))
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "fb_model_open": (c_int, [POINTER(CModel), c_void_p, c_size_t]),
        "fb_arena_size": (c_size_t, [POINTER(CModel)]),
        "fb_arena_least": (c_size_t, [POINTER(CModel)]),
        "fb_plan_layer": (c_int, [POINTER(CModel), c_size_t, c_uint, POINTER(CLayerPlan)]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


@functools.cache
def _programs() -> dict[str, dict[str, int]]:
    return dict(_read(PROGRAMS)["boards"])


@functools.cache
def _counts() -> list[dict[str, Any]]:
    return list(_read(INFERENCE)["layers"])


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BoardError(f"{path}: cannot be read ({error})") from None


def _layer(layer: Layer, plan: CLayerPlan, core: str, model: Model) -> BoardLayer:
    kernel = plan.kernel.decode()
    if not kernel:  # nothing to do
        return BoardLayer(layer.name, kernel, plan.live, plan.scratch, 0, 0, True)
    counts, model_of_cycles = COUNTED.get(core, ("", ""))
    of_kernel = [c for c in _counts() if c["core"] == counts and c["kernel"] == kernel]
    key = layer_key(layer)
    same = next((c for c in of_kernel if c["layer"] == key), None)
    instructions = cycles = None
    if same:
        instructions, cycles = same["instructions"], same["cycles"].get(model_of_cycles)
    elif of_kernel:
        instructions = fitted([(c["layer"], c["instructions"]) for c in of_kernel], key)
        modelled = [(c["layer"], c["cycles"][model_of_cycles]) for c in of_kernel if model_of_cycles in c["cycles"]]
        cycles = fitted(modelled, key) if modelled else None
    return BoardLayer(layer.name, kernel, plan.live, plan.scratch, instructions, cycles, same is not None)
