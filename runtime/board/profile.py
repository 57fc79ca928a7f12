"""Boards the firmware runs on: finding their profiles (:mod:`board_toml` reads them), and building for one.

The firmware is C source and not part of the installed package: its folder is ``$FLIPBIT_FIRMWARE``, else the one beside
this package in a checkout, else ``firmware`` where you stand. The profiles of its boards are in the package, too.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flipbit.runtime.board.board_toml import NoBoardError, Profile, ProfileError, profile_names, read_profile
from flipbit.runtime.errors import ArgumentError, FlipbitError
from flipbit.runtime.image.reader import read_image
from flipbit.runtime.stopping import run_child

# Cores whose counts and whose model of cycles (firmware/count/cycles.py; "" without) apply to a core.
COUNTED = {"cortex-m0": ("M0", "M0"), "cortex-m0plus": ("M0", "M0+"), "cortex-m3": ("M3", "M3"),
           "cortex-m4": ("M4", "M4"), "cortex-m7": ("M7", ""), "cortex-m33": ("M33", ""), "cortex-m55": ("M55", ""),
           "rv32imac": ("RV32IMAC", ""), "rv32imc": ("RV32IMAC", "")}  # fmt: skip
CYCLES_PER_INSTRUCTION = 1.25  # estimate, of cores without a published table of cycles

ENVIRONMENT = "FLIPBIT_FIRMWARE"
SHIPPED = Path(__file__).with_name("profiles")  # setup.py puts them into wheels


class BoardError(FlipbitError):
    """Something a board needs is missing: a tool, a probe, the firmware's source."""

    status = "FB_ERR_BOARD"

    def __str__(self) -> str:
        return self.message


def firmware_folder() -> Path:
    """Where the firmware's source is."""
    beside = Path(__file__).resolve().parents[2] / "firmware"
    given = os.environ.get(ENVIRONMENT)
    candidates = [Path(given)] if given else [beside, Path("firmware")]
    for folder in candidates:
        if profile_names(folder / "boards"):
            return folder.resolve()
    looked = ", ".join(str(folder) for folder in candidates)
    raise BoardError(
        f"no firmware source in {looked}: check out flipbit's repository and set {ENVIRONMENT} to firmware/"
    )


def boards_folder() -> Path:
    """Where the profiles are: with the firmware's source, or without it those that came with this package."""
    try:
        return firmware_folder() / "boards"
    except BoardError:
        if SHIPPED.is_dir() and not os.environ.get(ENVIRONMENT):
            return SHIPPED
        raise


def board_names() -> list[str]:
    """Every board there is."""
    return profile_names(boards_folder())


def load_profile(name: str) -> Profile:
    """The facts of a board."""
    try:
        return read_profile(name, boards_folder())
    except NoBoardError as error:
        raise ArgumentError(str(error)) from None
    except ProfileError as error:
        raise BoardError(str(error)) from None


@dataclass(frozen=True)
class Built:
    """Files a build made."""

    elf: Path
    log: str = ""

    def file(self, ending: str) -> Path:
        return self.elf.with_suffix(f".{ending}")


@dataclass(frozen=True)
class Made:
    """What make did. ``command`` is what a person would type for the same."""

    status: int
    out: str
    err: str
    command: str

    @property
    def last_words(self) -> str:
        return "\n".join((self.err.strip() or self.out.strip()).splitlines()[-15:])


def make_command(board: str, model: Path | None = None, output: Path | None = None, **variables: str) -> list[str]:
    """The make command that builds for a board, into the folder ``output`` (firmware/build)."""
    command = ["make", "-C", str(firmware_folder()), f"BOARD={board}", f"PYTHON={sys.executable}"]
    if model is not None:
        command.append(f"MODEL={model.resolve()}")
    if output is not None:
        command.append(f"BUILD={output.resolve()}")
    return [*command, *(f"{key}={value}" for key, value in variables.items())]


@contextlib.contextmanager
def _staged(firmware: Path, output: Path) -> Iterator[Path]:
    """A folder that has the firmware's files, and ``output`` as ``build``.

    make splits names at spaces. Seen from here no name has one, wherever the checkout and ``output`` are.
    """
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="flipbit-make-") as name:
        stage = Path(name)
        for path in firmware.iterdir():
            if path.name != "build":
                (stage / path.name).symlink_to(path)
        (stage / "build").symlink_to(output.resolve())
        yield stage


def make(
    board: str,
    model: Path | None = None,
    output: Path | None = None,
    firmware: Path | None = None,
    **variables: str,
) -> Made:
    """Run the Makefile of ``firmware`` (:func:`firmware_folder`) for a board; every path may have spaces, quotes and
    dollars in it."""
    if not shutil.which("make"):
        raise BoardError("building the firmware needs make: apt install make")
    shown = shlex.join(make_command(board, model, output, **variables))
    firmware = firmware or firmware_folder()
    with _staged(firmware.resolve(), output or firmware / "build") as stage:
        command = ["make", "-j2", f"BOARD={board}", "BUILD=build", f"PYTHON={sys.executable}"]
        command += [f"MODEL={model.resolve()}"] if model else []
        done = run_child([*command, *(f"{key}={value}" for key, value in variables.items())], cwd=stage)
    return Made(done.returncode, done.stdout, done.stderr, shown)


def build(profile: Profile, model: Path | None = None, output: Path | None = None) -> Built:
    """Build the firmware for a board, with a model linked in if one is given."""
    if model is not None:
        read_image(model)  # what is wrong with it is said at once, and in better words than make's
    done = make(profile.name, model, output)
    if done.status:
        raise BoardError(
            f"the firmware for {profile.name} was not built ({done.command}): {' '.join(done.last_words.split())}"
        )
    elf = elf_path(profile, output)
    if not elf.is_file():
        raise BoardError(f"{done.command} left no {elf}")
    return Built(elf, done.out)


def elf_path(profile: Profile, output: Path | None = None) -> Path:
    """Where a build puts the program."""
    folder = output.resolve() if output else firmware_folder() / "build"
    return folder / profile.name / "flipbit.elf"
