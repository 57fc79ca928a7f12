"""Count the instructions of an inference on 64-bit and 32-bit Arm Linux: with NEON kernels, and without.

  python docker/count_neon.py              the net of docker/digits.fbit
  python docker/count_neon.py resnet8.fbit

Without are the fastest kernels in plain C, those of microcontrollers. Every layer must come out with the same bits in
all four programs. Needs Debian's gcc-aarch64-linux-gnu, gcc-arm-linux-gnueabihf and qemu-user 7.2 (its plugin
interface; later ones count by other functions).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "firmware" / "core"
CPUS = {
    "aarch64": ("aarch64-linux-gnu-", "", "qemu-aarch64"),
    "armv7": ("arm-linux-gnueabihf-", "-march=armv7-a -mfpu=neon", "qemu-arm"),
}
# Compiled for the same CPU: only the choice of kernels differs.
VARIANTS = {"NEON": "", "plain C": "-U__ARM_NEON"}


class CountError(Exception):
    """Something could not be built, run or compared; the message says what."""


def run(*command: str | Path) -> str:
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise CountError(f"{command[0]} is missing: see --help for the packages") from None
    if done.returncode:
        raise CountError(f"{command[0]} failed with status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def count(cpu: str, variant: str, image: Path, folder: Path, plugin: Path) -> tuple[int, list[list[str]]]:
    """Instructions of one inference; CRC-32 and kernel of each layer."""
    prefix, flags, emulator = CPUS[cpu]
    program, out = folder / f"{cpu}-{variant}".replace(" ", "-"), folder / "counts"
    options = [*flags.split(), *VARIANTS[variant].split(), "-std=gnu11", "-O3", "-static", f"-I{CORE / 'include'}"]
    run(prefix + "gcc", *options, "-o", program, ROOT / "docker" / "count_neon.c", *sorted(CORE.rglob("*.c")))
    symbols = {
        name: address
        for address, _, name in (
            line.split() for line in run(prefix + "nm", program).splitlines() if len(line.split()) == 3
        )
    }
    begin, end = (int(symbols[f"count_run_{which}"], 16) & ~1 for which in ("begin", "end"))  # Thumb's bit off
    text = run(emulator, "-plugin", f"{plugin},out={out},region=run:{begin:#x}:{end:#x}", program, image)
    _, _, total = out.read_text().split("\n", 1)[0].split()
    return int(total), [line.split() for line in text.splitlines()]


def main() -> int:
    description, more = (__doc__ or "").split("\n\n", 1)
    p = argparse.ArgumentParser(
        description=description, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("image", nargs="?", type=Path, default=ROOT / "docker" / "digits.fbit", metavar="IMAGE")
    image = p.parse_args().image
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            plugin = folder / "libcount.so"
            run("cc", "-O2", "-shared", "-fPIC", "-o", plugin, ROOT / "firmware" / "count" / "count_plugin.c")
            print(f"{'CPU':<8} {'NEON':>12} {'plain C':>12} {'ratio':>6}   instructions of one inference, {image.name}")
            seen = set()
            for cpu in CPUS:
                totals = {}
                for variant in VARIANTS:
                    totals[variant], layers = count(cpu, variant, image, folder, plugin)
                    seen.add(tuple(crc for crc, _ in layers))
                    fast = any(kernel.endswith("_neon") for _, kernel in layers)
                    if fast != (variant == "NEON"):
                        raise CountError(f"{cpu}, {variant}: the kernels are {sorted({k for _, k in layers})}")
                ratio = totals["plain C"] / totals["NEON"]
                print(f"{cpu:<8} {totals['NEON']:>12,} {totals['plain C']:>12,} {ratio:>6.1f}")
            if len(seen) != 1:
                raise CountError("layers differ between the programs")
    except (CountError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("every layer has the same bits in all four")
    return 0


if __name__ == "__main__":
    sys.exit(main())
