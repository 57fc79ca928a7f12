"""Features that were computed once: kept in a folder of the user's, found again by what they were made from.

``FLIPBIT_CACHE``, else ``XDG_CACHE_HOME/flipbit``, else ``~/.cache/flipbit``. A file there is whole or absent, its name
ends in a digest of the settings and of the names, sizes and times of the recordings; all of them may be deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.files import replacing

Array = np.ndarray
VERSION = 1  # of what readers compute: a change of theirs that the settings do not show


def cache_folder() -> Path:
    given = os.environ.get("FLIPBIT_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flipbit"


def cached(name: str, settings: Any, files: Iterable[Path], make: Callable[[], dict[str, Array]]) -> dict[str, Array]:
    """The arrays that ``make`` gives, from the cache if they were made from the same files with the same settings."""
    digest = hashlib.sha256(json.dumps([VERSION, settings], sort_keys=True).encode())
    for path in files:
        try:
            known = path.stat()
            size, changed = known.st_size, known.st_mtime_ns
        except OSError:  # a link to nowhere: who reads it says so
            size = changed = -1
        digest.update(f"{path}\0{size}\0{changed}\n".encode("utf-8", "surrogateescape"))
    kept = cache_folder() / f"{name}-{digest.hexdigest()[:20]}.npz"
    found = _kept(kept)
    if found is None:
        found = make()
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            with replacing(kept) as temporary:
                np.savez(temporary, **found)
        except OSError as error:
            print(f"note: features are not kept for the next time ({error})", file=sys.stderr)
    return found


def _kept(path: Path) -> dict[str, Array] | None:
    """Arrays of a file; None if there is none, or it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def counted(what: str, total: int) -> Callable[[int], None]:
    """A line that counts on a terminal once more than a second has passed; silent elsewhere."""
    shown, begin = [0.0], time.monotonic()

    def show(done: int) -> None:
        now = time.monotonic()
        if sys.stderr.isatty() and now - begin > 1 and (now - shown[0] > 0.1 or done == total):
            shown[0], part = now, done / max(1, total)
            bar = "█" * round(24 * part) + "░" * (24 - round(24 * part))
            end = "\n" if done == total else ""
            print(f"\r{what} {bar} {done:,} of {total:,}", end=end, file=sys.stderr, flush=True)

    return show
