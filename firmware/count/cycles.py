"""A model of cycles: what counted instructions would take on Cortex-M0, M0+, M3 and M4.

Costs are those of Arm's Technical Reference Manuals (M0 DDI 0432C table 3-1, M0+ DDI 0484C table 3-1, M3 DDI 0337H
table 3-1, M4 DDI 0439B table 3-1), for memory without wait states. Where a manual gives a range, the choice is stated
below. It is a model, not a measurement: flash wait states, caches and bus conflicts are not in it. For M7, M33 and M55
Arm publishes no such table, and none is guessed here.

Needs capstone (pip install capstone).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from counting import Instruction


@dataclass(frozen=True)
class Costs:
    """Cycles. A taken branch refills the pipeline (1 to 3 cycles on M3 and M4: 2 taken)."""

    taken: int  # a branch that is taken, in all
    call: int  # BL
    pop_pc: int  # POP with PC, beside 1 + registers
    long_multiply: int = 1  # SMULL and the like: 3 to 5 on M3
    multiply_add: int = 1  # MLA, MLS: 2 on M3
    divide: int = 0  # 2 to 12 on M3 and M4
    pipelined: bool = False  # loads and stores that follow each other overlap


COSTS = {
    "M0": Costs(taken=3, call=4, pop_pc=3),
    "M0+": Costs(taken=2, call=3, pop_pc=2),
    "M3": Costs(taken=3, call=3, pop_pc=2, long_multiply=4, multiply_add=2, divide=6, pipelined=True),
    "M4": Costs(taken=3, call=3, pop_pc=2, divide=6, pipelined=True),
}
SEVERAL = re.compile(r"(ldm|stm|push|pop)")
ACCESS = re.compile(r"(ldr|str)")
BRANCH = re.compile(r"(cbn?z|b(eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le|al)?)$")
LONG_MULTIPLY = re.compile(r"[us](mull|mlal)")


@dataclass(frozen=True)
class Decoded:
    """An instruction as text: ``ldr``, ``r0, [r1, #4]``."""

    name: str
    operands: str

    @property
    def target(self) -> str:
        return self.operands.split(",")[0]

    @property
    def registers(self) -> int:
        listed = self.operands[self.operands.find("{") :]
        return listed.count(",") + 1

    def follows(self, before: Decoded | None) -> bool:
        """Whether an access overlaps with the one before it: not if that loads this one's address."""
        if before is None or not ACCESS.match(before.name) or before.name.startswith(("ldrd", "strd")):
            return False
        address = self.operands[self.operands.find("[") :]
        return not (before.name.startswith("ldr") and re.search(rf"\b{before.target}\b", address))


def cycles_of(costs: Costs, this: Decoded, before: Decoded | None, count: int, taken: int) -> int:
    """Cycles of ``count`` executions, of which ``taken`` branched."""
    name = this.name
    if SEVERAL.match(name):
        return count * (1 + this.registers + (costs.pop_pc if "pc" in this.operands else 0))
    if name.startswith(("ldrd", "strd")):
        return count * 3
    if ACCESS.match(name):
        if this.target == "pc":
            return count * (1 + costs.taken)
        if costs.pipelined and (name.startswith("str") or this.follows(before)):
            return count  # a store goes to the write buffer
        return count * 2
    if BRANCH.match(name):
        return count + taken * (costs.taken - 1)
    if name == "bl":
        return count * costs.call
    if name.startswith("b") and name[1:2] in ("x", "l") and not name.startswith("bls"):
        return count * costs.taken  # BX, BLX
    if name in ("tbb", "tbh"):
        return count * (1 + costs.taken)
    if LONG_MULTIPLY.match(name):
        return count * costs.long_multiply
    if name.startswith(("mla", "mls")):
        return count * costs.multiply_add
    if name.startswith(("sdiv", "udiv")):
        return count * costs.divide
    return count


def available() -> bool:
    try:
        import capstone  # noqa: F401
    except ImportError:
        return False
    return True


def modelled_cycles(core: str, instructions: Iterable[Instruction]) -> int | None:
    """Cycles on a core of COSTS, None for another."""
    if core not in COSTS:
        return None
    import capstone

    reader = capstone.Cs(capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB | capstone.CS_MODE_MCLASS)
    total, before, end = 0, None, -1
    for item in sorted(instructions, key=lambda found: found.address):
        decoded = next(reader.disasm_lite(item.code, item.address), None)
        this = Decoded(decoded[2].split(".")[0], decoded[3]) if decoded else Decoded("?", "")
        total += cycles_of(COSTS[core], this, before if end == item.address else None, item.count, item.taken)
        before, end = this, item.address + len(item.code)
    return total
