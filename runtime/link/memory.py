"""What an emulated board keeps between commands, as a real one keeps its flash without power.

A folder for each board, in ``$FLIPBIT_STATE``, else ``$XDG_STATE_HOME/flipbit``, else ``~/.local/state/flipbit``::

    boards/microbit/program.elf     what was flashed
    boards/microbit/storage.bin     the storage: uploaded images, the selected one, checkpoints of learning
    boards/microbit/lock            held while the board runs; says who runs it

Storage that is RAM on the board (it stands in for flash) is kept as well.
"""

from __future__ import annotations

import os
from pathlib import Path

from flipbit.runtime.board.profile import BoardError, Profile
from flipbit.runtime.files import write_atomically

ENVIRONMENT = "FLIPBIT_STATE"


def state_folder() -> Path:
    """Where emulated boards are kept."""
    if os.environ.get(ENVIRONMENT):
        return Path(os.environ[ENVIRONMENT]).expanduser() / "boards"
    base = os.environ.get("XDG_STATE_HOME")  # ignored unless absolute, as its specification says
    return (Path(base) if base and os.path.isabs(base) else Path.home() / ".local" / "state") / "flipbit" / "boards"


class BoardMemory:
    """A board's folder, locked: one process at a time runs the board. ``folder``: another one than those above."""

    def __init__(self, profile: Profile, folder: Path | None = None):
        self.profile = profile
        self.folder = folder or state_folder() / profile.name
        self._lock: int | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = self._take()
        except OSError as error:
            raise BoardError(
                f"the memory of qemu:{profile.name} cannot be kept in {self.folder} ({error.strerror}): "
                f"set {ENVIRONMENT} to a folder that can be written"
            ) from None

    def __enter__(self) -> BoardMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self) -> int:
        import fcntl  # not on Windows, where no board is emulated

        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.read(lock, 4000).decode(errors="replace").strip()
            os.close(lock)
            raise BoardError(
                f"qemu:{self.profile.name} is already running ({who or 'another process'}); end that first, or set "
                f"{ENVIRONMENT} to another folder for a board of your own"
            ) from None
        except OSError:
            os.close(lock)
            raise
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"process {os.getpid()}".encode(), 0)
        return lock

    def tell(self, where: str) -> None:
        """Note for others how the running board can be reached."""
        if self._lock is not None:
            os.pwrite(self._lock, f"process {os.getpid()}, which serves it at --port {where}".encode(), 0)

    @property
    def program(self) -> Path | None:
        """What was flashed; None if nothing was."""
        path = self.folder / "program.elf"
        return path if path.is_file() else None

    def keep_program(self, elf: Path) -> None:
        write_atomically(self.folder / "program.elf", elf.read_bytes())

    @property
    def storage(self) -> bytes | None:
        """The storage as it was when the board was last switched off; None for a new board."""
        _, size = storage_region(self.profile)
        try:
            data = (self.folder / "storage.bin").read_bytes()
        except OSError:
            return None
        return data if size and len(data) == size else None  # another size: the profile was changed

    def keep_storage(self, data: bytes) -> None:
        write_atomically(self.folder / "storage.bin", data)

    def forget(self) -> None:
        """As it came from the factory."""
        for name in ("program.elf", "storage.bin"):
            (self.folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)  # and with it the lock
            self._lock = None


def storage_region(profile: Profile) -> tuple[int, int]:
    """Address and size of a board's storage; 0, 0 without."""
    return profile.store.base, profile.store.size
