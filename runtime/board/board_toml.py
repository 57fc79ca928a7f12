"""board.toml: what is known of a board, read and checked. docs/boards.md says what its keys mean.

Only the standard library is used, of Python 3.11 or newer (3.10 with tomli), and nothing of flipbit: make reads
profiles on machines where flipbit is not installed. ``firmware/boards/board_toml.py`` is a link to this file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REQUIRED = {
    "build": ("compiler", "flags", "start", "drivers", "artifacts"),
    "memory": ("flash", "ram", "stack"),
    "store": ("kind",),
    "uart": ("base", "baud"),
}
ARTIFACTS = ("bin", "hex", "uf2", "esp")
SMALL_CODE = "-DFB_SMALL_CODE"
UNITS = (2, 4, 8, 256)
# What [power] has to say of a board, and in which units.
FIGURES = {
    "voltage": {"supply": "V", "brown_out": "V"},
    "current": {"active": "mA", "sleep": "uA"},
    "flash": {"current": "mA", "erase": "ms", "program": "us", "endurance": "erases"},
}
EXPLAINED = "boards/template/profile.toml explains every key"
IMAGE_SLOTS = 2  # FB_LEDGER_SLOTS


class ProfileError(Exception):
    """A profile is missing or wrong; the message says which board, which key, and what was expected."""


class NoBoardError(ProfileError):
    """There is no board of that name; the message has those there are."""


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
class Figure:
    """An electrical value and where it comes from."""

    value: float
    unit: str
    source: str

    @property
    def estimate(self) -> bool:
        return "estimate" in self.source


@dataclass(frozen=True)
class Storage:
    """How the application divides a board's storage: firmware/app/fb_slots.h, fb_ledger_flash.c. Bytes."""

    images: int  # slots for images
    image_size: int  # of each
    ledger: int  # all of the ledger
    ledger_slots: int


@dataclass(frozen=True)
class Profile:
    """A board. ``facts`` is the whole TOML file; ``power`` has the figures of FIGURES, None if the file has none."""

    name: str
    folder: Path
    facts: dict[str, Any] = field(repr=False)
    code: Region  # memory.flash: for the program and a linked model
    ram: Region
    store: Region
    page: int
    unit: int
    reprogram: bool
    power: dict[str, dict[str, Figure]] | None = field(repr=False)

    @property
    def title(self) -> str:
        return str(self.facts["title"])

    @property
    def core(self) -> str:
        return str(self.facts["core"])

    @property
    def clock_hz(self) -> int:
        return int(self.facts["clock_hz"])

    @property
    def compiler(self) -> str:
        return str(self.facts["build"]["compiler"])

    @property
    def artifacts(self) -> list[str]:
        """Files a build makes besides the .elf, by ending."""
        return list(self.facts["build"]["artifacts"])

    @property
    def small_code(self) -> bool:
        """Whether its core has no large kernels beside the reference ones: FB_SMALL_CODE of flipbit.h."""
        return SMALL_CODE in self.facts["build"]["flags"]

    @property
    def store_kind(self) -> str:
        return str(self.facts["store"]["kind"])

    @property
    def storage(self) -> Storage:
        pages = self.store.size // self.page
        for_images = pages // 2 if pages >= 4 else max(0, pages - 2)
        images = IMAGE_SLOTS if for_images >= IMAGE_SLOTS else min(1, for_images)
        ledger = (pages - for_images) * self.page
        slots = min(4, max(2, ledger // self.ram.size))  # no record is longer than RAM
        return Storage(images, for_images // max(1, images) * self.page, ledger, slots)

    @property
    def flash_total(self) -> int:
        return self.code.size + (self.store.size if self.store_kind == "flash" else 0)

    @property
    def baud(self) -> int:
        return int(self.facts["uart"]["baud"])

    @property
    def flash(self) -> dict[str, Any]:
        """How a real board is flashed; empty for a platform that exists in the emulator alone."""
        return dict(self.facts.get("flash", {}))

    @property
    def emulated(self) -> bool:
        return "qemu" in self.facts

    @property
    def qemu(self) -> list[str] | None:
        """Command of its emulator; None if there is none."""
        section = self.facts.get("qemu")
        return [section["system"], *section["args"]] if section else None

    def qemu_command(self, elf: Path, *more: str) -> list[str]:
        """The emulator with a program: what it says over semihosting is on stdout, what QEMU itself says on stderr. The
        UART is where ``more`` says."""
        return [*(self.qemu or []), "-kernel", str(elf), "-display", "none", "-monitor", "none",
                "-chardev", "stdio,id=said", "-semihosting-config", "enable=on,target=native,chardev=said",
                *more]  # fmt: skip


def profile_names(boards: Path) -> list[str]:
    """The boards that have a folder in ``boards``."""
    return sorted(path.parent.name for path in boards.glob("*/board.toml"))


def read_profile(name: str, boards: Path) -> Profile:
    path = boards / name / "board.toml"
    if not name or Path(name).name != name or not path.is_file():
        raise NoBoardError(
            f"there is no board {name or 'without a name'}; boards are {', '.join(profile_names(boards))}"
        )
    toml = _toml()
    try:
        return _checked(name, path.parent, toml.loads(path.read_text(encoding="utf-8")))
    except KeyError as error:
        raise ProfileError(f"{path}: {error} is missing; {EXPLAINED}") from None
    except (AttributeError, TypeError, ValueError) as error:  # TOML's own error is a ValueError
        raise ProfileError(f"{path}: {error}") from None


def _toml() -> Any:
    try:
        import tomllib
    except ImportError:  # Python 3.10
        try:
            import tomli as tomllib  # type: ignore[import-not-found, no-redef, unused-ignore]
        except ImportError:
            raise ProfileError("reading board.toml needs Python 3.11, or: pip install tomli") from None
    return tomllib


def _checked(name: str, folder: Path, facts: dict[str, Any]) -> Profile:
    missing = [key for key in ("title", "chip", "core", "clock_hz", "tick_hz") if key not in facts]
    missing += [f"{part}.{key}" for part, keys in REQUIRED.items() for key in keys if key not in facts.get(part, {})]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing; {EXPLAINED}")
    memory, store, build = facts["memory"], facts["store"], facts["build"]
    kind = store["kind"]
    if kind not in ("flash", "ram", "none"):
        raise ValueError(f"store.kind is {kind!r}; expected flash, ram or none")
    region = Region(0, 0) if kind == "none" else Region(store["base"], store["size"])
    page, unit, again = (1024, 4, False) if kind == "none" else (store["page"], store["unit"], store["reprogram"])
    code, ram = Region(**memory["flash"]), Region(**memory["ram"])
    if not isinstance(again, bool):
        raise ValueError(f"store.reprogram is {again!r}; expected true or false")
    if unit not in UNITS or page & (page - 1) or page % unit:
        raise ValueError(f"store.unit is {unit}, store.page {page}; expected a unit of {UNITS} and a power of two")
    if region.base % page or region.size % page:
        raise ValueError(f"store.base and store.size must be multiples of store.page, {page}")
    if region.size and (region.meets(code) or region.meets(ram)):
        raise ValueError("the storage overlaps memory.flash or memory.ram: programs would be written over")
    if memory["stack"] % 8 or memory["stack"] >= ram.size:
        raise ValueError(f"memory.stack is {memory['stack']}; expected a multiple of 8 below memory.ram.size")
    unknown = set(build["artifacts"]) - set(ARTIFACTS)
    if unknown:
        raise ValueError(f"build.artifacts has {sorted(unknown)}; expected some of {ARTIFACTS}")
    power = _power(facts["power"]) if "power" in facts else None
    return Profile(name, folder, facts, code, ram, region, page, unit, again, power)


def _power(given: dict[str, Any]) -> dict[str, dict[str, Figure]]:
    every = [(section, key) for section, keys in FIGURES.items() for key in keys]
    missing = [f"power.{section}.{key}" for section, key in every if key not in given.get(section, {})]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing; {EXPLAINED}")
    return {
        section: {key: _figure(f"power.{section}.{key}", given[section][key], unit) for key, unit in keys.items()}
        for section, keys in FIGURES.items()
    }


def _figure(name: str, given: Any, unit: str) -> Figure:
    expected = f"{name}: expected {{ value, unit, source }}, the value in {unit} and not negative, and its source"
    if not isinstance(given, dict) or set(given) != {"value", "unit", "source"}:
        raise ValueError(expected)
    figure = Figure(float(given["value"]), str(given["unit"]), str(given["source"]))
    if figure.unit != unit or figure.value < 0 or not figure.source:
        raise ValueError(expected)
    return figure
