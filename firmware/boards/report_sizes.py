"""What a program takes of a board's flash and RAM, and whether its model can run there.

    python3 report_sizes.py NAME flipbit.elf [arena_needs model.fbit]
    python3 report_sizes.py --store [NAME ...]      builds the application without a model for these boards (all) and
                                                    writes what it takes into runtime/board/measured/programs.json

`arena_needs` is the host program built from arena_needs.c. Exit status 1 if the arena is too small for the model. What
is stored is what `flipbit info --board` says on machines without compilers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import read_profile
from board_toml import Profile, ProfileError

PROGRAMS = Path(__file__).resolve().parents[2] / "runtime" / "board" / "measured" / "programs.json"


@dataclass(frozen=True)
class Sizes:
    """Bytes. ``room`` is left for input, output and arena; ``code`` includes ``core``."""

    code: int
    core: int
    model: int
    data: int
    bss: int
    stack: int
    room: int
    free_flash: int


@dataclass(frozen=True)
class Needs:
    """Bytes of RAM a model needs: input, output, and the least arena; faster kernels take more if it is there."""

    input: int
    output: int
    arena: int

    @property
    def total(self) -> int:
        return self.input + self.output + self.arena


def symbols(profile: Profile, elf: Path) -> dict[str, int]:
    text = subprocess.run([profile.compiler + "nm", str(elf)], check=True, capture_output=True, text=True).stdout
    return {parts[2]: int(parts[0], 16) for parts in map(str.split, text.splitlines()) if len(parts) == 3}


def sections(profile: Profile, elf: Path) -> dict[str, int]:
    text = subprocess.run([profile.compiler + "size", "-A", str(elf)], check=True, capture_output=True, text=True)
    rows = [line.split() for line in text.stdout.splitlines() if line.startswith(".")]
    return {row[0]: int(row[1]) for row in rows}


def measure(profile: Profile, elf: Path) -> Sizes:
    at, size = symbols(profile, elf), sections(profile, elf)
    model = at["board_model_end"] - at["board_model"]
    code = size[".text"] + size.get(".rodata", 0) - model
    in_ram = ".rodata" in size  # a chip that runs from RAM has its constants there
    used = size[".text"] + (0 if in_ram else size.get(".data", 0))
    return Sizes(
        code=code, core=at["link_core_end"] - at["link_core"], model=model, data=size.get(".data", 0),
        bss=size.get(".bss", 0), stack=at["board_stack_top"] - at["board_stack"],
        room=at["board_arena_end"] - at["board_arena"], free_flash=profile.code.size - used,
    )  # fmt: skip


def needs(tool: Path, model: Path) -> Needs:
    done = subprocess.run([str(tool), str(model)], check=False, capture_output=True, text=True)
    if done.returncode:
        raise ProfileError(done.stderr.strip())
    return Needs(*map(int, done.stdout.split()))


def table(profile: Profile, sizes: Sizes, need: Needs | None) -> str:
    rows = [
        ("text", sizes.code, f"of it {sizes.core} the flipbit core"),
        ("model", sizes.model, ""),
        ("data", sizes.data, "in flash and in RAM"),
        ("bss", sizes.bss, ""),
        ("stack", sizes.stack, ""),
        ("free flash", sizes.free_flash, f"of {profile.code.size}, beside {profile.store.size} for stored images"),
        ("free RAM", sizes.room, f"of {profile.ram.size}, for input, output and arena"),
    ]
    if need:
        rows.append(("model needs", need.total, f"input {need.input} + output {need.output} + arena {need.arena}"))
        rows.append(("left of RAM", sizes.room - need.total, ""))
    return "\n".join(f"  {name:<11} {size:>9}  {note}".rstrip() for name, size, note in rows)


def program(profile: Profile, sizes: Sizes) -> dict[str, int]:
    """What the application without a model takes of a board's flash, and the RAM it leaves."""
    return {"flash": profile.code.size - sizes.free_flash, "ram_free": sizes.room}


def store(names: list[str]) -> None:
    """Build for boards, and keep what :func:`program` says of them."""
    from flipbit.runtime.board.profile import BoardError, make
    from flipbit.runtime.stopping import stops_cleanly

    text = PROGRAMS.read_text(encoding="utf-8") if PROGRAMS.is_file() else "{}"
    boards = json.loads(text).get("boards", {})
    with stops_cleanly(), tempfile.TemporaryDirectory() as folder:
        for name in names or read_profile.names():
            profile = read_profile.read(name)
            done = make(name, None, Path(folder), read_profile.BOARDS.parent)
            if done.status:
                raise BoardError(f"{name} was not built:\n{done.last_words}")
            boards[name] = program(profile, measure(profile, Path(folder) / name / "flipbit.elf"))
            sys.stderr.write(f"{name}: {boards[name]}\n")
    boards = {name: boards[name] for name in read_profile.names() if name in boards}
    about = "bytes the application takes of the flash and leaves of the RAM; firmware/boards/report_sizes.py --store"
    PROGRAMS.write_text(json.dumps({"about": about, "boards": boards}, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--store"]:
        from flipbit.runtime.errors import FlipbitError

        try:
            store(arguments[1:])
        except (ProfileError, FlipbitError) as error:
            sys.stderr.write(f"{error}\n")
            return 2
        return 0
    if len(arguments) not in (2, 4):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    try:
        profile = read_profile.read(arguments[0])
        sizes = measure(profile, Path(arguments[1]))
        need = needs(Path(arguments[2]), Path(arguments[3])) if len(arguments) == 4 else None
    except ProfileError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{arguments[1]}: bytes\n{table(profile, sizes, need)}\n")
    if need and need.total > sizes.room:
        sys.stderr.write(
            f"{profile.name} has {sizes.room} bytes of RAM free, this model needs {need.total} "
            f"({need.total - sizes.room} more): take a smaller net or a board with more RAM\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
