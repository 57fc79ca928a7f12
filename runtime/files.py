"""Files that are either whole or not there: write beside, flush to disk, rename."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path that takes the place of ``path`` when the block ends well, and vanishes otherwise.

    A file that was there keeps its permissions, a new one gets those of the umask. A link stays a link: what it points
    at is replaced.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder, expected a file", str(path))
    old = path.stat() if path.exists() else None
    if old and not stat.S_ISREG(old.st_mode):  # /dev/stdout, a pipe: nothing to rename onto
        try:
            with _into_stream(path) as temporary:
                yield temporary
        except OSError as error:
            raise _named(error, None, path) from None
        return
    target = Path(os.path.realpath(path))
    # Same suffix, as Keras and NumPy choose the format by it; same folder, as a rename must not cross disks.
    temporary = target.with_name(f".{target.stem[:40]}.{secrets.token_hex(4)}.part{target.suffix}")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        if old:
            with contextlib.suppress(OSError):  # only root may give files away
                os.chown(temporary, old.st_uid, old.st_gid)
            os.chmod(temporary, stat.S_IMODE(old.st_mode))
        os.replace(temporary, target)
        _flush_folder(target.parent)
    except OSError as error:
        raise _named(error, temporary, path) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_place(*paths: Path | None) -> None:
    """Raise now what :func:`replacing` would raise of these files after the work is done."""
    for path in paths:
        if path is None or (path.exists() and not path.is_dir() and not path.is_file()):  # /dev/stdout
            continue
        with contextlib.suppress(_Checked), replacing(path) as temporary:
            temporary.touch()
            raise _Checked


class _Checked(Exception):
    """Leaves a block of :func:`replacing` without replacing anything."""


def _named(error: OSError, temporary: Path | None, path: Path) -> OSError:
    """The same error, with the name that the user gave: a full disk has none, and the temporary one says nothing."""
    if error.errno is None or error.filename not in (None, *([str(temporary)] if temporary else [])):
        return error
    return OSError(error.errno, error.strerror, str(path))


@contextmanager
def _into_stream(target: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="flipbit-") as folder:
        temporary = Path(folder) / target.name
        yield temporary
        with open(temporary, "rb") as source, open(target, "wb") as stream:
            shutil.copyfileobj(source, stream)


def _flush_folder(folder: Path) -> None:
    """A rename is on disk when its folder is; some file systems cannot say so."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except OSError:  # may be written to but not read
        return
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(opened)


def write_atomically(path: str | Path, data: bytes) -> None:
    """Write a file so that whoever reads it finds the old content or the new, whatever happens in between."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | Path, text: str) -> None:
    # Lone surrogates (file names that are no text) are written as \udc80, which JSON reads back.
    write_atomically(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: str | Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
