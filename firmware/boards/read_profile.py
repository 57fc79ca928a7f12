"""Board profiles, firmware/boards/NAME/board.toml, and what the build makes of them.

    python3 read_profile.py list                       a table of the boards
    python3 read_profile.py generate NAME FOLDER       board.mk, board_profile.h and memory.ld for the build

board_toml.py reads and checks a profile. Only the standard library is used, of Python 3.11 or newer (3.10 with tomli).
"""

from __future__ import annotations

import sys
from pathlib import Path

import board_toml
from board_toml import Profile, ProfileError

BOARDS = Path(__file__).resolve().parent


def names(boards: Path = BOARDS) -> list[str]:
    return board_toml.profile_names(boards)


def read(name: str, boards: Path = BOARDS) -> Profile:
    return board_toml.read_profile(name, boards)


def make_variables(profile: Profile) -> str:
    """board.mk: what the Makefile needs."""
    build = profile.facts["build"]
    lines = {
        "COMPILER": profile.compiler,
        "BOARD_FLAGS": " ".join(build["flags"]),
        "START": build["start"],
        "LINK_SCRIPT": build.get("link", "link.ld"),
        "DRIVERS": " ".join(build["drivers"]),
        "ARTIFACTS": " ".join(profile.artifacts),
    }
    return "".join(f"{key} := {value}\n" for key, value in lines.items())


def header(profile: Profile) -> str:
    """board_profile.h: the macros that board.h describes."""
    facts = profile.facts
    text = {"NAME": profile.name, "CHIP": facts["chip"], "CORE": facts["core"]}
    number = {
        "CLOCK_HZ": facts["clock_hz"],
        "TICK_HZ": facts["tick_hz"],
        "FLASH_SIZE": profile.flash_total,
        "RAM_SIZE": profile.ram.size,
        "UART_BASE": facts["uart"]["base"],
        "BAUD": facts["uart"]["baud"],
        "STORE_BASE": profile.store.base,
        "STORE_SIZE": profile.store.size,
        "STORE_PAGE": profile.page,
        "STORE_UNIT": profile.unit,
        "STORE_REPROGRAM": int(profile.reprogram),
        "STORE_RAM": int(profile.store_kind == "ram"),
        **{f"UART_{pin.upper()}": facts["uart"][pin] for pin in ("tx", "rx") if pin in facts["uart"]},
    }
    lines = [f"/* Made from boards/{profile.name}/board.toml. */", "#ifndef BOARD_PROFILE_H", "#define BOARD_PROFILE_H"]
    lines += [f'#define BOARD_{key} "{value}"' for key, value in text.items()]
    lines += [f"#define BOARD_{key} {value:#x}u" for key, value in number.items()]
    return "\n".join([*lines, "#endif", ""])


def memory_script(profile: Profile) -> str:
    """memory.ld: the regions that start/link.ld fills."""
    return (
        "MEMORY {\n"
        f"    CODE (rx) : ORIGIN = {profile.code.base:#x}, LENGTH = {profile.code.size:#x}\n"
        f"    RAM (rwx) : ORIGIN = {profile.ram.base:#x}, LENGTH = {profile.ram.size:#x}\n"
        "}\n"
        f"link_stack = {profile.facts['memory']['stack']};\n"
    )


def generate(profile: Profile, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "board_profile.h").write_text(header(profile), encoding="utf-8")
    (folder / "memory.ld").write_text(memory_script(profile), encoding="utf-8")
    (folder / "board.mk").write_text(make_variables(profile), encoding="utf-8")


def table(boards: Path = BOARDS) -> str:
    rows = [("board", "chip", "core", "flash", "RAM", "storage", "runs in")]
    for profile in (read(name, boards) for name in names(boards)):
        facts = profile.facts
        rows.append((
            profile.name, facts["chip"], facts["core"], f"{profile.flash_total // 1024} KB",
            f"{profile.ram.size // 1024} KB", f"{profile.store.size // 1024} KB {profile.store_kind}",
            facts["qemu"]["system"] if profile.emulated else "-",
        ))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["list"]:
                sys.stdout.write(table() + "\n")
            case ["generate", name, folder]:
                generate(read(name), Path(folder))
            case _:
                sys.stderr.write(f"{__doc__}\n")
                return 2
    except ProfileError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
