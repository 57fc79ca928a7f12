"""``flipbit flash``: build the firmware for a board, with a model, and put it there."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from flipbit.runtime.board.profile import Built, Profile, board_names, build, elf_path, load_profile, make_command
from flipbit.runtime.commands.device_text import identity_facts, identity_text
from flipbit.runtime.errors import ArgumentError
from flipbit.runtime.files import write_atomically
from flipbit.runtime.image.reader import read_image
from flipbit.runtime.link.device import Device
from flipbit.runtime.link.emulator import Emulator, gdb_command
from flipbit.runtime.link.flash import FlashTarget, flash, flash_command
from flipbit.runtime.link.memory import BoardMemory
from flipbit.runtime.stopping import wait_for_stop
from flipbit.runtime.text_table import text_table

ARTIFACTS = ("elf", "bin", "hex", "uf2", "esp")


def add_flash_parser(commands: Any) -> None:
    p = commands.add_parser(
        "flash",
        help="put the firmware and a model on a board",
        description="Build the firmware for a board and flash it, with the tool the board's profile names.",
        epilog="""examples:
  flipbit flash --list
  flipbit flash --board nucleo-l4r5zi --model resnet8.fbit
  flipbit flash --board pico --model digits.fbit --dry-run      only show the commands
  flipbit flash --board pico --model digits.fbit -o digits.uf2  only build: a file to keep or to give away
  flipbit flash --board microbit --model digits.fbit --qemu     the emulated board, flashed by GDB; it remembers:
  flipbit device info --port qemu:microbit""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--board", metavar="NAME", help="which board; --list shows them")
    p.add_argument("--list", action="store_true", help="list the boards")
    p.add_argument("--model", type=Path, metavar="IMAGE", help="a .fbit file to link in")
    p.add_argument("--firmware", type=Path, metavar="ELF", help="flash this file instead of building one")
    p.add_argument(
        "-o", "--output", type=Path, metavar="PATH", help="only build: write .elf, .bin, .hex, .uf2 or .esp, by its "
        "ending; all of them into a folder"
    )  # fmt: skip
    p.add_argument("--port", metavar="PORT", help="serial port, for tools that use one")
    p.add_argument("--qemu", action="store_true", help="flash the emulated board, which keeps it for other commands")
    p.add_argument("--fresh", action="store_true", help="with --qemu: forget what was on it, stored images too")
    p.add_argument("--run", action="store_true", help="with --qemu: keep it running until Ctrl-C")
    p.add_argument("--dry-run", action="store_true", help="show the commands, run none")
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(command=_flash)


def _flash(given: argparse.Namespace) -> int:
    if given.list:
        return _list(given.json)
    if not given.board:
        raise ArgumentError(f"--board NAME is missing; boards are {', '.join(board_names())}")
    profile = load_profile(given.board)
    emulated = given.qemu or not profile.flash
    if given.model:
        read_image(given.model)
    if given.firmware and given.model:
        raise ArgumentError("--firmware is flashed as it is: leave out --model, or --firmware")
    if given.output and (given.qemu or given.firmware or given.dry_run):
        raise ArgumentError("-o only builds: leave out --qemu, --firmware and --dry-run")
    if given.fresh and not emulated:
        raise ArgumentError("--fresh is for emulated boards: add --qemu")
    if given.dry_run:
        return _dry_run(given, profile, emulated)
    with tempfile.TemporaryDirectory(prefix="flipbit-") as folder:
        if given.firmware:
            elf = given.firmware
            if not elf.is_file():
                raise ArgumentError(f"{elf}: no such file")
        else:
            wanted = _wanted(profile, given.output) if given.output else None
            built = build(profile, given.model, Path(folder))
            elf = built.elf
            _say(given, built.log.replace(f"build/{profile.name}/", "").strip())
            if wanted is not None:
                return _keep(given, profile, built, wanted)
        if emulated:
            return _emulated(given, profile, elf)
        target = flash(profile, elf, given.port, lambda command: _say(given, command))
    return _done(given, profile, target)


def _wanted(profile: Profile, output: Path) -> dict[str, Path]:
    """Where the files of a build go, by ending."""
    endings = ["elf", *profile.artifacts]
    ending = output.suffix.removeprefix(".")
    if ending in endings and not output.is_dir():
        wanted = {ending: output}
    elif ending in ARTIFACTS and not output.is_dir():
        raise ArgumentError(f"{output}: a build for {profile.name} makes {', '.join(f'.{e}' for e in endings)}")
    else:
        wanted = {e: output / f"flipbit.{e}" for e in endings}
    folder = next(iter(wanted.values())).parent
    if not folder.parent.is_dir() or (folder.exists() and not folder.is_dir()):
        raise ArgumentError(f"{output}: there is no folder {folder.parent} to write to")
    return wanted


def _keep(given: argparse.Namespace, profile: Profile, built: Built, wanted: dict[str, Path]) -> int:
    for ending, path in wanted.items():
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, built.file(ending).read_bytes())
    files = {ending: str(path) for ending, path in wanted.items()}
    if given.json:
        print(json.dumps({"board": profile.name, "files": files}, indent=1))
        return 0
    for path in wanted.values():
        print(f"wrote {path}: {path.stat().st_size:,} bytes")
    first = next(iter(wanted.values()))
    if profile.flash:
        by_hand = flash_command(profile, first, FlashTarget(given.port))
        if all(Path(word).exists() for word in by_hand if word.startswith(str(first.with_suffix("")))):
            print(f"flash it with: {shlex.join(by_hand)}")
    return 0


def _say(given: argparse.Namespace, text: str) -> None:
    print(text, file=sys.stderr if given.json else sys.stdout, flush=True)


def _list(as_json: bool) -> int:
    rows = []
    for name in board_names():
        profile = load_profile(name)
        facts = profile.facts
        rows.append(
            {
                "board": name,
                "title": profile.title,
                "core": facts.get("core"),
                "tool": profile.flash.get("tool"),
                "emulator": profile.qemu[0] if profile.qemu else None,
            }
        )
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        print(text_table(("board", "title", "core", "flashed by", "emulator"), (tuple(row.values()) for row in rows)))
    return 0


def _dry_run(given: argparse.Namespace, profile: Profile, emulated: bool) -> int:
    commands = []
    elf = given.firmware
    if elf is None:
        commands.append(make_command(profile.name, given.model))
        elf = elf_path(profile)
    if emulated:
        machine = profile.qemu
        if machine is None:
            raise ArgumentError(f"QEMU does not emulate the {profile.title}")
        commands.append([*machine, "-S", "-gdb", "unix:GDB", "-serial", "unix:UART", "-display", "none"])
        commands.append(gdb_command("GDB", elf))
    else:
        commands.append(flash_command(profile, elf, FlashTarget(given.port)))
    if given.json:
        print(json.dumps({"board": profile.name, "commands": commands}, indent=1))
    else:
        print("\n".join(shlex.join(command) for command in commands))
    return 0


def _emulated(given: argparse.Namespace, profile: Profile, elf: Path) -> int:
    with BoardMemory(profile) as memory:
        if given.fresh:
            memory.forget()
        with Emulator(profile, memory=memory) as emulator:
            begin = time.perf_counter()
            said = emulator.flash(elf)
            memory.keep_program(elf)
            matched = said.count("matched")
            _say(
                given, f"flashed by GDB in {time.perf_counter() - begin:.1f} s, {matched} sections compared: all equal"
            )
            with Device(emulator.line()) as device:
                info = device.hello()
            if given.json:
                print(json.dumps({"board": profile.name, "sections": matched, **identity_facts(info)}, indent=1))
            else:
                print(identity_text(info))
            if given.run:
                port = f"unix:{emulator.uart}"
                memory.tell(port)
                _say(given, f"\nrunning; talk to it with: flipbit device info --port {port}\nCtrl-C ends it")
                wait_for_stop()
        _say(given, f"kept in {memory.folder}; talk to it with: flipbit device info --port qemu:{profile.name}")
    return 0


def _done(given: argparse.Namespace, profile: Profile, target: FlashTarget) -> int:
    if given.json:
        print(json.dumps({"board": profile.name, "flashed": True, "port": target.port}))
    else:
        port = target.port or "/dev/ttyACM0"
        print(f"flashed the {profile.title}; talk to it with: flipbit device info --port {port}")
    return 0


def main(argv: list[str] | None = None) -> int:
    """``python -m flipbit.runtime.commands.flash``"""
    from flipbit.runtime.commands.device import run_alone

    return run_alone(add_flash_parser, "flash", argv)


if __name__ == "__main__":
    sys.exit(main())
