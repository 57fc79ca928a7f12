"""Board profiles: firmware/boards/NAME/board.toml, the one place for a board's facts, and what the build makes of them.

    python3 read_profile.py list                       a table of the boards
    python3 read_profile.py generate NAME FOLDER       board.mk, board_profile.h and memory.ld for the build

A profile is TOML; docs/boards.md says what its keys mean. Only the standard library is used, of Python 3.11
or newer (3.10 with tomli).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib  # type: ignore[no-redef]

BOARDS = Path(__file__).resolve().parent
REQUIRED = {
    "build": ("compiler", "flags", "start", "drivers", "artifacts"),
    "memory": ("flash", "ram", "stack"),
    "store": ("kind",),
    "uart": ("base", "baud"),
}
ARTIFACTS = ("bin", "hex", "uf2", "esp")
UNITS = (2, 4, 8, 256)


class ProfileError(Exception):
    """A profile is missing or wrong; the message says which board, which key, and what was expected."""


@dataclass(frozen=True)
class Region:
    base: int
    size: int

    @property
    def end(self) -> int:
        return self.base + self.size

    def meets(self, other: Region) -> bool:
        return self.base < other.end and other.base < self.end


@dataclass(frozen=True)
class Profile:
    """A board. ``facts`` is the whole TOML file, for what is not needed by the build: ``flash``, ``qemu`` and more."""

    name: str
    facts: dict[str, Any]
    flash: Region
    ram: Region
    store: Region
    page: int
    unit: int
    reprogram: bool

    @property
    def emulated(self) -> bool:
        return "qemu" in self.facts

    @property
    def compiler(self) -> str:
        return str(self.facts["build"]["compiler"])

    @property
    def flash_total(self) -> int:
        return self.flash.size + (self.store.size if self.facts["store"]["kind"] == "flash" else 0)

    def qemu_command(self, elf: Path, *more: str) -> list[str]:
        """The emulator with a program: what it says over semihosting is on stdout, what QEMU itself says on stderr. The
        UART is where ``more`` says."""
        qemu = self.facts["qemu"]
        return [qemu["system"], *qemu["args"], "-kernel", str(elf), "-display", "none", "-monitor", "none",
                "-chardev", "stdio,id=said", "-semihosting-config", "enable=on,target=native,chardev=said",
                *more]  # fmt: skip


def names(boards: Path = BOARDS) -> list[str]:
    return sorted(path.parent.name for path in boards.glob("*/board.toml"))


def read(name: str, boards: Path = BOARDS) -> Profile:
    path = boards / name / "board.toml"
    if not path.is_file():
        raise ProfileError(f"no board {name!r}; there are: {', '.join(names(boards))}")
    try:
        facts = tomllib.loads(path.read_text(encoding="utf-8"))
        return check(name, facts)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{path}: {error}") from error
    except KeyError as error:
        raise ProfileError(f"{path}: {error} is missing; boards/template/profile.toml explains every key") from error
    except (TypeError, ValueError) as error:
        raise ProfileError(f"{path}: {error}") from error


def check(name: str, facts: dict[str, Any]) -> Profile:
    missing = [key for key in ("title", "chip", "core", "clock_hz", "tick_hz") if key not in facts]
    missing += [f"{part}.{key}" for part, keys in REQUIRED.items() for key in keys if key not in facts.get(part, {})]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing; boards/template/profile.toml explains every key")
    memory, store, build = facts["memory"], facts["store"], facts["build"]
    kind = store["kind"]
    if kind not in ("flash", "ram", "none"):
        raise ValueError(f"store.kind is {kind!r}; expected flash, ram or none")
    region = Region(0, 0) if kind == "none" else Region(store["base"], store["size"])
    page, unit, again = (1024, 4, False) if kind == "none" else (store["page"], store["unit"], store["reprogram"])
    profile = Profile(name, facts, Region(**memory["flash"]), Region(**memory["ram"]), region, page, unit, again)
    if not isinstance(again, bool):
        raise ValueError(f"store.reprogram is {again!r}; expected true or false")
    if unit not in UNITS or page & (page - 1) or page % unit:
        raise ValueError(f"store.unit is {unit}, store.page {page}; expected a unit of {UNITS} and a power of two")
    if region.base % page or region.size % page:
        raise ValueError(f"store.base and store.size must be multiples of store.page, {page}")
    if region.size and (region.meets(profile.flash) or region.meets(profile.ram)):
        raise ValueError("the storage overlaps memory.flash or memory.ram: programs would be written over")
    if memory["stack"] % 8 or memory["stack"] >= profile.ram.size:
        raise ValueError(f"memory.stack is {memory['stack']}; expected a multiple of 8 below memory.ram.size")
    unknown = set(build["artifacts"]) - set(ARTIFACTS)
    if unknown:
        raise ValueError(f"build.artifacts has {sorted(unknown)}; expected some of {ARTIFACTS}")
    return profile


def make_variables(profile: Profile) -> str:
    """board.mk: what the Makefile needs."""
    build = profile.facts["build"]
    lines = {
        "COMPILER": profile.compiler,
        "BOARD_FLAGS": " ".join(build["flags"]),
        "START": build["start"],
        "LINK_SCRIPT": build.get("link", "link.ld"),
        "DRIVERS": " ".join(build["drivers"]),
        "ARTIFACTS": " ".join(build["artifacts"]),
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
        "STORE_RAM": int(facts["store"]["kind"] == "ram"),
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
        f"    CODE (rx) : ORIGIN = {profile.flash.base:#x}, LENGTH = {profile.flash.size:#x}\n"
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
            f"{profile.ram.size // 1024} KB", f"{profile.store.size // 1024} KB {facts['store']['kind']}",
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
