"""Putting the firmware on a board, with the tool its profile names.

| tool | what must be there |
|---|---|
| openocd, pyocd | a debug probe |
| uf2 | the drive that the board shows in its boot mode; the program is copied onto it |
| esptool | a serial port |
| (QEMU) | GDB: the emulated board's flash is written as a probe would |

The profile's section ``[flash]`` has ``tool``, ``command`` with places for files (``{elf}``, ``{bin}``, ``{hex}``,
``{uf2}``, ``{esp}``), ``{port}`` and ``{volume}``, and ``probe``, a command that shows whether a probe is there.
"""

from __future__ import annotations

import glob
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flipbit.runtime.board.profile import BoardError, Profile
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.link.line import serial_ports

INSTALL = {"openocd": "apt install openocd", "pyocd": "pip install pyocd", "esptool": "pip install esptool"}
MOUNTS = ("/media/*/{}", "/media/{}", "/run/media/*/{}", "/mnt/{}", "/Volumes/{}")
Report = Callable[[str], None]


class NoProbeError(BoardError):
    """There is nothing to flash with: ``looked`` says what was looked for, and what was found."""

    def __init__(self, board: Profile, what: str, looked: list[str]):
        tried = "\n".join(f"  - {line}" for line in looked)
        emulate = "\nThe emulated board needs none: flipbit flash --qemu" if board.qemu else ""
        super().__init__(f"no {what} for the {board.title}. Looked for:\n{tried}{emulate}")
        self.looked = looked


@dataclass(frozen=True)
class FlashTarget:
    """What a board is reached through."""

    port: str | None = None
    volume: Path | None = None


def flash_command(profile: Profile, elf: Path, target: FlashTarget) -> list[str]:
    """The command that flashes ``elf`` (or a file beside it with another ending)."""
    places = {
        "port": target.port or "PORT",
        "volume": str(target.volume or f"/media/{profile.flash.get('volume', 'X')}"),
    }

    def fill(found: re.Match[str]) -> str:
        name = found[1]
        if name in places:
            return places[name]
        if name == "elf" or name in profile.artifacts:
            return str(elf.with_suffix(f".{name}"))
        raise BoardError(f"{profile.folder / 'board.toml'}: flash.command has {{{name}}}, which no build makes")

    command = profile.flash.get("command")
    if not command:
        raise ArgumentError(f"the {profile.title} cannot be flashed: its profile has no [flash]; try --qemu")
    # A file inside a longer word is part of a script: OpenOCD's Tcl takes {…} as it is.
    return [
        re.sub(r"\{(\w+)\}", fill if len(word.split()) == 1 else lambda found: _tcl(fill(found)), word)
        for word in command
    ]


def _tcl(path: str) -> str:
    if re.fullmatch(r"[\w./:+-]+", path):
        return path
    if "{" in path or "}" in path or path.endswith("\\"):
        raise ArgumentError(f"{path}: OpenOCD cannot be given this name; use a folder without braces")
    return f"{{{path}}}"


def find_target(profile: Profile, port: str | None = None) -> FlashTarget:
    """Look for what the board is flashed through; NoProbeError says what was looked for."""
    tool = str(profile.flash.get("tool", ""))
    if tool == "uf2":
        return FlashTarget(port, _find_volume(profile))
    if tool and not shutil.which(tool):
        raise NoProbeError(profile, tool, [f"the program {tool}: not installed ({INSTALL.get(tool, tool)})"])
    if "{port}" in " ".join(profile.flash.get("command", [])):
        ports = [port] if port else serial_ports()
        if not ports or not Path(ports[0]).exists():
            looked = [port] if port else ["/dev/ttyACM*", "/dev/ttyUSB*", "/dev/cu.usb*"]
            raise NoProbeError(profile, "serial port", [f"{name}: not there" for name in looked])
        if len(ports) > 1:
            raise ArgumentError(f"several serial ports: {', '.join(ports)}; say which one with --port")
        return FlashTarget(ports[0])
    _probe(profile)
    return FlashTarget(port)


def _find_volume(profile: Profile) -> Path:
    name = str(profile.flash.get("volume", ""))
    patterns = [pattern.format(name) for pattern in MOUNTS]
    for pattern in patterns:
        for path in sorted(glob.glob(pattern)):
            if Path(path).is_dir():
                return Path(path)
    looked = [f"a drive at {pattern}: not there" for pattern in patterns]
    label = Path("/dev/disk/by-label") / name
    if label.exists():
        looked.append(f"{label}: there, but not mounted; mount it and try again")
    else:
        looked.append(f"{label}: not there; hold the board's boot button (BOOTSEL) while plugging it in")
    raise NoProbeError(profile, f"drive {name}", looked)


def _probe(profile: Profile) -> None:
    """Ask the profile's tool whether it sees a probe."""
    command = [str(word) for word in profile.flash.get("probe", [])]
    if not command:
        return
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        said, failed = done.stdout + done.stderr, done.returncode != 0
    except subprocess.TimeoutExpired:
        said, failed = "no answer in 30 s", True
    if failed or "No available debug probes" in said:
        errors = [line.strip() for line in said.splitlines() if "rror" in line or "No available" in line]
        looked = [f"{' '.join(command)}: {'; '.join(errors[-3:]) or said.strip()[-200:] or 'failed'}"]
        devices = usb_devices()
        looked.append(f"USB devices: {', '.join(devices) if devices else 'none at all'}")
        raise NoProbeError(profile, "debug probe", looked)


def usb_devices() -> list[str]:
    """Names of what is plugged in, hubs left out (Linux)."""
    names = [Path(p).read_text(errors="replace").strip() for p in sorted(glob.glob("/sys/bus/usb/devices/*/product"))]
    return [name for name in names if "Host Controller" not in name and "hub" not in name.lower()]


def flash(profile: Profile, elf: Path, port: str | None = None, report: Report | None = None) -> FlashTarget:
    """Flash a real board."""
    target = find_target(profile, port)
    command = flash_command(profile, elf, target)
    if report:
        report(" ".join(command))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-10:])
        raise BoardError(f"flashing the {profile.title} failed ({' '.join(command)}):\n{said}")
    return target
