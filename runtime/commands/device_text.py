"""What a device is and how long its runs took, for people and for scripts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from flipbit.runtime.board.plan import BoardPlan
from flipbit.runtime.core.library import status_name
from flipbit.runtime.link.protocol import LOCK_BUILT, LOCK_KEY, Identity
from flipbit.runtime.link.reports import Inference, slot_name
from flipbit.runtime.shown import shown


def identity_facts(info: Identity) -> dict[str, Any]:
    """For scripts."""
    return {**asdict(info), "slot": slot_name(info.slot), "model_crc": f"{info.model_crc:08x}"}


def identity_text(info: Identity) -> str:
    """For people."""
    ticks = f"counter at {info.tick_hz / 1e6:g} MHz" if info.tick_hz else "no counter"
    lines = [
        f"board    {shown(info.board)}: {shown(info.chip)}, {shown(info.core)} at {info.clock_hz / 1e6:g} MHz, {ticks}",
        f"firmware flipbit {shown(info.version)}, protocol {info.protocol}",
        f"flash    {info.flash:,} bytes; {info.slots} slots for images, {info.slot_room:,} bytes each"
        + (" (in RAM: lost without power)" if info.store_is_ram and info.slots else ""),
        f"RAM      {info.ram:,} bytes, {info.ram_free:,} of them for the net",
    ]
    if info.layers:
        used = info.input_size + info.output_size
        lines += [
            f"model    CRC {info.model_crc:08x}, {info.model_size:,} bytes, {info.layers} layers, "
            f"from slot {slot_name(info.slot)}",
            f"         {info.input_size:,} bytes in, {info.output_size:,} out; arena {info.ram_free - used:,} bytes, "
            f"the least is {info.arena_least:,}, fastest with {info.arena_size:,}",
        ]
    else:
        lines.append("model    none: upload one, or flash one with the firmware")
    if info.lock & LOCK_BUILT:
        how = "its key (--key FILE)" if info.lock & LOCK_KEY else "its button or jumper"
        lines.append(
            f"lock     locked: answers info and infer only; all else needs {how}"
            if info.locked
            else "lock     open for now: somebody has consented"
        )
    if info.refused:
        lines.append(f"warning  the selected image could not be used: {status_name(info.refused)}")
    return "\n".join(lines)


def timing_text(results: list[Inference], modelled: BoardPlan | None = None, emulated: bool | None = None) -> str:
    """The median of some runs; of a real board what an emulated one would take."""
    if not results:
        return "no inputs"
    on_host = f"{1e3 * float(np.median([r.round_trip for r in results])):.2f} ms with the line"
    seconds = [r.seconds for r in results if r.seconds is not None]
    if modelled is not None or emulated:
        spent = f"{1e3 * float(np.median(seconds)):.3f} ms, " if seconds else ""
        text = f"a run took the emulator {spent}{on_host}: not the time of a real board"
        if modelled is not None and modelled.seconds is not None and modelled.instructions is not None:
            text += (
                f"\na real {modelled.board} takes about {1e3 * modelled.seconds:,.1f} ms: modelled, "
                f"{modelled.instructions:,} instructions ({modelled.source})"
            )
        return text
    if not seconds:
        return f"a run took {on_host}; the board has no counter that runs"
    return f"a run took {1e3 * float(np.median(seconds)):.3f} ms by the board's counter, {on_host}"
