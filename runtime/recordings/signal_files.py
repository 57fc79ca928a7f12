"""Recordings of sensors: ``.csv``, ``.npy`` and ``.wav`` as arrays of [samples, channels].

| file | what is read |
|---|---|
| `.csv` | one sample per line, numbers between commas, semicolons, tabs or spaces; a head line may name the columns |
| `.npy` | numbers, [samples] or [samples, channels] |
| `.wav` | sound, at 16 kHz, one channel |

Numbers between semicolons or tabs may have decimal commas. Columns of time are left out (``time``, ``timestamp``,
``t``, ``Time (s)``, ``seconds_elapsed`` …), and so is the row number that pandas puts first.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from flipbit.runtime.audio.wav import read_wav
from flipbit.runtime.data.arrays import read_arrays
from flipbit.runtime.errors import InputError

Array = np.ndarray
SIGNALS = (".csv", ".npy", ".wav")
BYTES_MOST = 1 << 28
CHANNELS_MOST = 255
_TIME = re.compile(
    r"t\s*([\[(].*)?|(time|timestamp|seconds|elapsed|date|datetime|epoch|epoc|millis|milliseconds)([\W_].*)?"
)
_ROW_NUMBERS = ("", "index", "unnamed: 0")


class SignalError(InputError):
    """A file that is no readable recording of a sensor."""


def is_signal(path: Path) -> bool:
    return path.suffix.lower() in SIGNALS and not path.name.startswith(".")


def read_signal(path: Path) -> Array:
    """float64 [samples, channels]; :class:`SignalError` names the file and what is wrong."""
    suffix = path.suffix.lower()
    try:
        if path.stat().st_size > BYTES_MOST:
            raise SignalError(f"{path}: more than {BYTES_MOST >> 20} MB; cut it into pieces")
        if suffix == ".wav":
            return read_wav(path).samples.astype(np.float64)[:, None]
        values = _npy(path) if suffix == ".npy" else _csv(path)
    except OSError as error:
        raise SignalError(f"{path}: {error.strerror or error}") from None
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or not values.size or values.shape[1] > CHANNELS_MOST:
        raise SignalError(f"{path}: an array of {values.shape}; expected samples × channels (at most {CHANNELS_MOST})")
    if not np.isfinite(values).all():
        line = int(np.flatnonzero(~np.isfinite(values).all(1))[0])
        raise SignalError(f"{path}: sample {line} is no number (NaN or infinite); fill or cut such gaps")
    return values


def _npy(path: Path) -> Array:
    try:
        values = read_arrays(path)[path.stem]
    except InputError as error:
        raise SignalError(error.message) from None
    if not (np.issubdtype(values.dtype, np.integer) or np.issubdtype(values.dtype, np.floating)):
        raise SignalError(f"{path}: holds {values.dtype}; expected numbers")
    return values.astype(np.float64)


def _csv(path: Path) -> Array:
    try:
        numbered = [(i, line) for i, line in enumerate(_text(path.read_bytes()).splitlines(), 1)]
        numbered = [(i, line) for i, line in numbered if line.strip() and not line.lstrip().startswith("#")]
        if not numbered:
            raise SignalError(f"{path}: empty")
        lines = [line for _, line in numbered]
        first = lines[:20]
        between = next((each for each in "\t;," if 2 * sum(each in line for line in first) >= len(first)), None)
        words = [_words(row, between) for row in _split(lines, between)]
    except csv.Error as error:
        raise SignalError(f"{path}: {error}") from None
    head = words[0]
    named = _numbers(head, between) is None
    kept = [i for i in range(len(head)) if not named or not _is_time_or_number(i, head)]
    if not kept:
        raise SignalError(f"{path}: no column but time")
    rows = []
    for (number, line), found in zip(numbered[named:], words[named:]):
        values = _numbers([found[i] for i in kept], between) if len(found) == len(head) else None
        if values is None:
            what = f"{len(found)} numbers" if _numbers(found, between) is not None else f"{line.strip()[:40]!r}"
            raise SignalError(f"{path}: line {number} has {what}; expected {len(head)} numbers")
        rows.append(values)
    if not rows:
        raise SignalError(f"{path}: a head line and no samples")
    return np.array(rows, np.float64)


def _text(data: bytes) -> str:
    """Excel's "Unicode text" is UTF-16; in other codes only names of columns can be unreadable."""
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if wide else "utf-8-sig", "replace")


def _split(lines: list[str], between: str | None) -> Iterable[list[str]]:
    if between is None:
        return (line.split() for line in lines)
    return csv.reader(lines, delimiter=between, skipinitialspace=True)


def _words(row: list[str], between: str | None) -> list[str]:
    """Without quotes; a separator at the end of a line is not another column."""
    words = [word.strip().strip("\"'") for word in row]
    return words[:-1] if between and len(words) > 1 and not words[-1] else words


def _is_time_or_number(place: int, head: list[str]) -> bool:
    name = head[place].lower()
    return bool(_TIME.fullmatch(name)) or (place == 0 and len(head) > 1 and name in _ROW_NUMBERS)


def _numbers(words: list[str], between: str | None) -> list[float] | None:
    if between in ("\t", ";"):
        words = [word.replace(",", ".") for word in words]
    try:
        return [float(word) for word in words]
    except ValueError:
        return None
