"""Files that a board's own loader takes, out of a linked program.

    python3 make_image.py uf2 NAME flipbit.elf flipbit.uf2      a drive to copy onto (RP2040)
    python3 make_image.py esp NAME flipbit.elf flipbit.esp      what the ROM of ESP32 chips loads

Written from the public descriptions of both formats; only the standard library is used.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

import read_profile
from board_toml import ProfileError

UF2_MAGIC = (0x0A324655, 0x9E5D5157, 0x0AB16F30)
UF2_HAS_FAMILY = 0x2000
UF2_PAYLOAD = 256
BOOT2_SIZE = 256
ESP_MAGIC, ESP_SEED = 0xE9, 0xEF


class ImageError(Exception):
    """A program cannot be made into an image; the message says why."""


@dataclass(frozen=True)
class Segment:
    address: int
    data: bytes


def segments(elf: bytes) -> tuple[int, list[Segment]]:
    """Entry point and what is loaded where (physical addresses) of a 32-bit little-endian ELF file."""
    if elf[:6] != b"\x7fELF\x01\x01":
        raise ImageError("not a 32-bit little-endian ELF file")
    entry, table = struct.unpack_from("<II", elf, 24)
    size, count = struct.unpack_from("<HH", elf, 42)
    found = []
    for i in range(count):
        kind, offset, _, physical, length = struct.unpack_from("<5I", elf, table + i * size)
        if kind == 1 and length:
            found.append(Segment(physical, elf[offset : offset + length]))
    return entry, sorted(found, key=lambda segment: segment.address)


def flat(parts: list[Segment]) -> Segment:
    """One run of bytes; gaps are 0xFF, as in erased flash."""
    base = parts[0].address
    data = bytearray(b"\xff" * (parts[-1].address + len(parts[-1].data) - base))
    for part in parts:
        data[part.address - base : part.address - base + len(part.data)] = part.data
    return Segment(base, bytes(data))


def boot2_crc(code: bytes) -> int:
    """CRC-32 as RP2040's ROM computes it: most significant bit first, start all ones, no final inversion."""
    crc = 0xFFFFFFFF
    for byte in code:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc & 0x80000000 else 0)) & 0xFFFFFFFF
    return crc


def uf2(elf: bytes, family: int) -> bytes:
    _, parts = segments(elf)
    image = flat(parts)
    found = struct.unpack_from("<I", image.data, BOOT2_SIZE - 4)[0]
    expected = boot2_crc(image.data[: BOOT2_SIZE - 4])
    if found != expected:
        raise ImageError(f"the boot stage ends in CRC {found:#010x}, its code has {expected:#010x}: correct boot2.S")
    count = -(-len(image.data) // UF2_PAYLOAD)
    blocks = []
    for i in range(count):
        payload = image.data[i * UF2_PAYLOAD : (i + 1) * UF2_PAYLOAD].ljust(UF2_PAYLOAD, b"\xff")
        head = struct.pack("<8I", *UF2_MAGIC[:2], UF2_HAS_FAMILY, image.address + i * UF2_PAYLOAD, UF2_PAYLOAD, i,
                           count, family)  # fmt: skip
        blocks.append(head + payload.ljust(476, b"\0") + struct.pack("<I", UF2_MAGIC[2]))
    return b"".join(blocks)


def esp(elf: bytes, chip: int) -> bytes:
    """Header, segments, checksum (exclusive or) at the end of a 16-byte line, SHA-256."""
    entry, parts = segments(elf)
    header = struct.pack("<BBBBI", ESP_MAGIC, len(parts), 2, 0x20, entry)  # DIO mode, 4 MB at 40 MHz
    extended = struct.pack("<BBBBHBHH4xB", 0xEE, 0, 0, 0, chip, 0, 0, 0xFFFF, 1)  # no write-protect pin; has a hash
    body, checksum = bytearray(header + extended), ESP_SEED
    for part in parts:
        data = part.data.ljust(-(-len(part.data) // 4) * 4, b"\0")
        body += struct.pack("<II", part.address, len(data)) + data
        for byte in data:
            checksum ^= byte
    body += bytes(15 - len(body) % 16) + bytes([checksum])
    return bytes(body) + hashlib.sha256(body).digest()


def main(arguments: list[str]) -> int:
    if len(arguments) != 4 or arguments[0] not in ("uf2", "esp"):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    kind, name, source, target = arguments
    try:
        build = read_profile.read(name).facts["build"]
        elf = Path(source).read_bytes()
        image = uf2(elf, build["uf2_family"]) if kind == "uf2" else esp(elf, build["esp_chip"])
    except (ProfileError, ImageError, OSError) as error:
        sys.stderr.write(f"{target}: {error}\n")
        return 2
    Path(target).write_bytes(image)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
