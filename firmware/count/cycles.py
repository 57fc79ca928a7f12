"""A model of cycles: what counted instructions would take on Cortex-M0, M0+, M3 and M4.

Costs are those of Arm's Technical Reference Manuals (M0 DDI 0432C table 3-1, M0+ DDI 0484C table 3-1, M3 DDI 0337I
table 3-1, M4 DDI 0439B table 3-1), for memory without wait states. Where a manual gives a range, the choice is stated
below. On M3 and M4 also their section "Load/store timings":

- a single load or store right behind a single load takes a cycle less, unless that one loads its address;
- a single store takes one cycle, but two with a register as offset unless it follows a load;
- LDM, STM, LDRD and STRD take 1 + registers, and overlap with nothing;
- a load or store takes a cycle more if the instruction before it computes its address.

It is a model, not a measurement: flash wait states, caches and bus conflicts are not in it. For M7, M33 and M55 Arm
publishes no such table, and none is guessed here.

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
    pipelined: bool = False  # the rules for loads and stores of M3 and M4 hold


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
NO_RESULT = re.compile(r"(ldr|str|ldm|stm|push|pop|b|cb|tb|cmp|cmn|tst|teq|it|nop)")  # in no register, or loaded


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

    @property
    def address(self) -> str:
        """The registers that an access is addressed by."""
        return self.target if SEVERAL.match(self.name) else self.operands[self.operands.find("[") :]

    def addressed_by(self, before: Decoded) -> bool:
        return bool(re.search(rf"\b{before.target}\b", self.address))

    def follows(self, before: Decoded | None) -> bool:
        """Whether an access overlaps with a load before it: not if that loads this one's address."""
        if before is None or not before.name.startswith("ldr") or before.name.startswith("ldrd"):
            return False
        return not self.addressed_by(before)

    def waits(self, before: Decoded | None) -> bool:
        """Whether an access waits for its address from the data processing before it."""
        if before is None or (NO_RESULT.match(before.name) and not before.name.startswith("bic")):
            return False
        return not self.name.startswith(("push", "pop")) and self.addressed_by(before)


def _access(costs: Costs, this: Decoded, before: Decoded | None) -> int:
    if SEVERAL.match(this.name):
        return 1 + this.registers + (costs.pop_pc if "pc" in this.operands else 0)
    if this.name.startswith(("ldrd", "strd")):
        return 3
    if this.target == "pc":
        return 1 + costs.taken
    if costs.pipelined and this.follows(before):
        return 1
    by_register = re.search(r"\[\w+, [a-z]", this.operands)
    return 1 if costs.pipelined and this.name.startswith("str") and not by_register else 2


def cycles_of(costs: Costs, this: Decoded, before: Decoded | None, count: int, taken: int) -> int:
    """Cycles of ``count`` executions, of which ``taken`` branched."""
    name = this.name
    if SEVERAL.match(name) or ACCESS.match(name):
        return count * (_access(costs, this, before) + (costs.pipelined and this.waits(before)))
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
