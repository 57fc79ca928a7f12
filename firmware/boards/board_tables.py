"""The tables of docs/boards.md, made from the profiles of the boards.

    python3 board_tables.py boards        what the boards are
    python3 board_tables.py storage       how the application divides their storage
    python3 board_tables.py flashing      how to connect and flash real ones
    python3 board_tables.py --write       puts all of them into docs/boards.md, where a comment names them

Only the standard library is used.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import read_profile
from board_toml import Profile, ProfileError

DOCUMENT = read_profile.BOARDS.parents[1] / "docs" / "boards.md"
Row = tuple[str, ...]


def core_name(profile: Profile) -> str:
    return profile.core.removeprefix("cortex-").upper().replace("PLUS", "+")


def kilobytes(size: int) -> str:
    return f"{size // 1024} KB"


def storage(profile: Profile) -> str:
    return f"{kilobytes(profile.store.size)} {'of RAM' if profile.store_kind == 'ram' else 'of flash'}"


def runs_in(profile: Profile) -> str:
    """Emulators, and whether they do what the board's flash does."""
    emulator = "QEMU" if profile.emulated else str(profile.facts.get("emulator", ""))
    if not emulator or profile.store_kind != "flash":
        return emulator
    return f"{emulator}, {'with' if profile.facts['store'].get('emulated') else 'without'} flash writes"


def boards_table(profiles: list[Profile]) -> list[Row]:
    rows: list[Row] = [("board", "", "chip, core", "flash", "RAM", "storage for images", "runs in", "simulated")]
    for p in profiles:
        in_ram = " of RAM" if p.facts["build"].get("link") == "link_ram.ld" else ""
        rows.append((
            f"`{p.name}`", p.title, f"{p.facts['chip']}, {core_name(p)}", f"{kilobytes(p.flash_total)}{in_ram}",
            kilobytes(p.ram.size), storage(p), runs_in(p), "yes" if p.power else "",
        ))  # fmt: skip
    return rows


def storage_table(profiles: list[Profile]) -> list[Row]:
    rows: list[Row] = [("board", "storage", "slots for images", "slots of the ledger")]
    for p in (p for p in profiles if p.store.size):
        s = p.storage
        ledger = s.ledger // p.page // s.ledger_slots * p.page
        cells = (
            f"{number} × {kilobytes(size)}" for number, size in ((s.images, s.image_size), (s.ledger_slots, ledger))
        )
        rows.append((f"`{p.name}`", storage(p), *cells))
    return rows


def flashing_table(profiles: list[Profile]) -> list[Row]:
    rows: list[Row] = [("board", "connect", "flash with")]
    for p in (p for p in profiles if p.flash):
        files = {ending: f"flipbit.{ending}" for ending in ("elf", *p.artifacts)}
        values = {**files, "port": "PORT", "volume": p.flash.get("volume", "")}
        command = shlex.join(str(word).format(**values) for word in p.flash["command"]).replace("'", '"')
        rows.append((f"`{p.name}`", str(p.flash.get("connect", "")), f"`{command}`"))
    return rows


TABLES = {"boards": boards_table, "storage": storage_table, "flashing": flashing_table}


def markdown(name: str, boards: Path = read_profile.BOARDS) -> str:
    head, *rows = TABLES[name]([read_profile.read(board, boards) for board in read_profile.names(boards)])
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("| --- ", "|---").replace(" |---", "|---") for line in lines)


def written(text: str) -> str:
    """The document with the tables of today."""
    for name in TABLES:
        begin, end = f"<!-- python firmware/boards/board_tables.py {name} -->\n\n", "\n\n<!-- end -->"
        found = re.search(re.escape(begin.strip()) + ".*?" + re.escape(end.strip()), text, re.DOTALL)
        if not found:
            raise ProfileError(f"{DOCUMENT} has no lines {begin.strip()} and {end.strip()}")
        text = text.replace(found[0], f"{begin}{markdown(name)}{end}")
    return text


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["--write"]:
                DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
            case [name] if name in TABLES:
                sys.stdout.write(markdown(name) + "\n")
            case _:
                sys.stderr.write(f"{__doc__}\n")
                return 2
    except (ProfileError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
