"""Build wheels of flipbit for x86-64, 64-bit Arm and 32-bit Arm, on an x86-64 or Arm machine with Debian's compilers.

  python docker/wheels.py                   all three, into dist/
  python docker/wheels.py aarch64 -o /tmp   one of them

A wheel serves every Python 3 of its platform: the C core knows nothing of Python. It must need nothing newer than
glibc 2.17 (manylinux 2014), which auditwheel checks: pip install auditwheel.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [
    *"pyproject.toml setup.py MANIFEST.in README.md LICENSE train export runtime studies".split(),
    *"firmware/core firmware/sim firmware/boards docs/try".split(),
]
GLIBC = "2_17"


@dataclass(frozen=True)
class Target:
    machine: str  # as in `uname -m` and in the name of the wheel
    compiler: str
    packages: str  # of Debian
    flags: str = ""


TARGETS = (
    Target("x86_64", "x86_64-linux-gnu-gcc", "gcc libc6-dev"),
    Target("aarch64", "aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
    # Debian's own floor is a CPU without NEON. With it: Raspberry Pi 2 and later, BeagleBone Black; not Pi 1 and Zero.
    Target(
        "armv7l",
        "arm-linux-gnueabihf-gcc",
        "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross",
        "-march=armv7-a -mfpu=neon",
    ),
)


class WheelError(Exception):
    """A wheel could not be made; the message says why."""


@dataclass(frozen=True)
class Built:
    path: Path
    seconds: float
    core: int  # bytes of the compiled core
    checked: str  # what auditwheel says


def build(target: Target, folder: Path) -> Path:
    """One wheel. From a copy of the sources: a build folder would mix the objects of several CPUs."""
    if not shutil.which(target.compiler):
        raise WheelError(f"{target.machine} needs {target.compiler}: on Debian, apt install {target.packages}")
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        for source in SOURCES:
            (copy / source).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.so", "build")
                shutil.copytree(ROOT / source, copy / source, ignore=ignored)
            else:
                shutil.copy(ROOT / source, copy / source)
        made = copy / "wheels"
        tag = f"manylinux_{GLIBC}_{target.machine}"
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += [f"--config-settings=--build-option=--plat-name={tag}", "-w", str(made), str(copy)]
        environment = {**os.environ, "CC": f"{target.compiler} {target.flags} -s".replace("  ", " ")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise WheelError(f"{target.machine}: the build failed\n{done.stdout}{done.stderr}")
        (wheel,) = made.iterdir()
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, folder))


def audit(wheel: Path) -> str:
    """The oldest platform that auditwheel finds the wheel fit for; an error if that is newer than its name says."""
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(wheel)], capture_output=True, text=True, check=False
    )
    if "No module named auditwheel" in done.stderr:
        return "not checked: pip install auditwheel"
    text = " ".join(done.stdout.split())
    found = re.search(r'consistent with the following platform tag: "([^"]+)"', text)
    fit = re.fullmatch(r"manylinux_2_(\d+)_(\w+)", found[1]) if found else None
    if done.returncode or not fit or int(fit[1]) > int(GLIBC.split("_")[1]) or not wheel.stem.endswith(fit[2]):
        raise WheelError(f"{wheel.name} is not what it says; auditwheel:\n{done.stdout}{done.stderr}")
    return fit[0]


def make(target: Target, folder: Path) -> Built:
    begin = time.monotonic()
    wheel = build(target, folder)
    with zipfile.ZipFile(wheel) as archive:
        core = archive.getinfo("flipbit/runtime/core/_core.so").file_size
    return Built(wheel, time.monotonic() - begin, core, audit(wheel))


def main(arguments: list[str] | None = None) -> int:
    description, more = (__doc__ or "").split("\n\n", 1)
    p = argparse.ArgumentParser(
        description=description, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    machines = [target.machine for target in TARGETS]
    p.add_argument("machine", nargs="*", metavar="MACHINE", help=f"of: {', '.join(machines)} (all)")
    p.add_argument("-o", "--output", type=Path, default=ROOT / "dist", metavar="DIR", help="where to (dist)")
    given = p.parse_args(arguments)
    unknown = sorted(set(given.machine) - set(machines))
    if unknown:
        p.error(f"no machine {', '.join(unknown)}; there are: {', '.join(machines)}")
    try:
        print(f"{'wheel':<50} {'bytes':>9} {'core':>9} {'auditwheel':<24} {'s':>5}")
        for target in TARGETS:
            if not given.machine or target.machine in given.machine:
                b = make(target, given.output)
                print(f"{b.path.name:<50} {b.path.stat().st_size:>9,} {b.core:>9,} {b.checked:<24} {b.seconds:>5.0f}")
    except (WheelError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
