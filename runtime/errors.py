"""What can go wrong: an exception for each status of the C core, with the status' name in it.

::

    FlipbitError
    ├── ImageError        a .fbit image is refused: CrcError, VersionError, ShapeError, …
    ├── ArenaError        the arena is too small for the net
    ├── LiveError         the net keeps more activations at a time than the core was built for
    ├── FlashError, FullError, EmptyError, OwnerError      of what is saved in flash
    ├── OrderError, StateError                             of learning
    ├── ArgumentError     what was passed makes no sense (it is a ValueError, too)
    │   └── InputError    a file or setting of the user's is wrong
    └── CoreError         the compiled C core is missing (an ImportError, too)

``error.status`` is the C name, such as ``FB_ERR_CRC`` (``FB_ERR_IO`` and ``FB_ERR_CORE`` are of Python alone); the text
says what was found and what to do.
"""

from __future__ import annotations


class FlipbitError(Exception):
    """Anything the runtime refuses. ``status`` is the C core's name of the reason, ``message`` what was found."""

    status = "FB_ERR_UNKNOWN"
    advice = ""

    def __init__(self, message: str):
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        advice = f"; {self.advice}" if self.advice else ""
        return f"{self.message}{advice} ({self.status})"

    def about(self, what: object) -> FlipbitError:
        """The same error, naming the file (or whatever) it is about."""
        return type(self)(f"{what}: {self.message}")


class ImageError(FlipbitError):
    """An image is refused: it is damaged, or does not follow docs/fbit-format.md."""

    advice = "write the image again with export/to_fbit.py"


class FileError(ImageError):
    """The file cannot be read at all. (The C core reads no files: it has no such status.)"""

    status = "FB_ERR_IO"
    advice = "check its name and permissions"


class TruncatedError(ImageError):
    """Fewer bytes than a header has."""

    status = "FB_ERR_TRUNCATED"
    advice = "copy or export it again"


class MagicError(ImageError):
    """Not a .fbit image."""

    status = "FB_ERR_MAGIC"
    advice = "make one from a trained model with export/to_fbit.py"


class VersionError(ImageError):
    """Of another format version."""

    status = "FB_ERR_VERSION"
    advice = "export the model again with this version of flipbit, or install the one that wrote it"


class LengthError(ImageError):
    """Its length is not the one it states, or no multiple of 4."""

    status = "FB_ERR_LENGTH"
    advice = "copy or export it again"


class CrcError(ImageError):
    """Damaged."""

    status = "FB_ERR_CRC"
    advice = "copy or export it again"


class ReservedError(ImageError):
    """A reserved field, an unused bit or a byte between parts is not 0."""

    status = "FB_ERR_RESERVED"


class TableError(ImageError):
    """Tables reach beyond the image, or are empty."""

    status = "FB_ERR_TABLE"


class TensorIndexError(ImageError):
    """A tensor that does not exist, is not written yet, or is written twice."""

    status = "FB_ERR_INDEX"


class ShapeError(ImageError):
    """Shapes do not agree."""

    status = "FB_ERR_SHAPE"


class ScaleError(ImageError):
    """A scale is not positive, or changes where it must not."""

    status = "FB_ERR_SCALE"


class MetadataError(ImageError):
    """Metadata without a place, or that is not JSON."""

    status = "FB_ERR_METADATA"


class AlignError(ImageError):
    """An offset is not a multiple of 4."""

    status = "FB_ERR_ALIGN"


class OffsetError(ImageError):
    """Weights, parameters or metadata lie outside the image."""

    status = "FB_ERR_OFFSET"


class KindError(ImageError):
    """An operation this version does not know."""

    status = "FB_ERR_KIND"
    advice = "export the model again with this version of flipbit, or install the one that wrote it"


class FlagsError(ImageError):
    """Flags an operation does not have."""

    status = "FB_ERR_FLAGS"


class WindowError(ImageError):
    """Kernel, stride or padding make no sense."""

    status = "FB_ERR_WINDOW"


class ShiftError(ImageError):
    """A shift out of range."""

    status = "FB_ERR_SHIFT"


class MultiplierError(ImageError):
    """A multiplier out of range."""

    status = "FB_ERR_MULTIPLIER"


class SumOverflowError(ImageError):
    """Sums could exceed 32 bits."""

    status = "FB_ERR_OVERFLOW"


class LiveError(FlipbitError):
    """More activations at a time than FB_MAX_LIVE."""

    status = "FB_ERR_LIVE"
    advice = "compile the core with a larger FB_MAX_LIVE"


class ArenaError(FlipbitError):
    """The arena is too small."""

    status = "FB_ERR_ARENA"


class ArgumentError(FlipbitError, ValueError):
    """What was passed makes no sense: a shape, a type, an index, a file."""

    status = "FB_ERR_ARGUMENT"

    def __str__(self) -> str:
        return self.message  # of the caller's making: the name of a C status helps nobody


class InputError(ArgumentError):
    """Something the user gave is wrong; the message says what, and what to do. Exit status 2."""


class FlashError(FlipbitError):
    """What was written to flash, or erased, reads back wrong."""

    status = "FB_ERR_FLASH"
    advice = "it is worn, locked, or an emulator's that cannot be written: use another slot, or another board"


class FullError(FlipbitError):
    """Longer than what a slot in flash holds."""

    status = "FB_ERR_FULL"
    advice = "use a smaller net, or a board with more flash"


class EmptyError(FlipbitError):
    """Nothing was saved yet."""

    status = "FB_ERR_EMPTY"
    advice = "save or upload first"


class OwnerError(FlipbitError):
    """What was saved belongs to another model, or is of another kind."""

    status = "FB_ERR_OWNER"
    advice = "open it with the model it was saved for, or erase it"


class OrderError(FlipbitError):
    """A call before the one that must precede it."""

    status = "FB_ERR_ORDER"


class StateError(FlipbitError):
    """A learner's state is damaged, or belongs to another net or configuration."""

    status = "FB_ERR_STATE"
    advice = "use the net and settings it was saved with, or start anew"


class CoreError(FlipbitError, ImportError):
    """The compiled C core cannot be loaded."""

    status = "FB_ERR_CORE"
    advice = "install flipbit on this machine, which compiles it (in the source folder: pip install -e .)"


def _classes(base: type[FlipbitError]) -> dict[str, type[FlipbitError]]:
    found = {base.status: base} if "status" in vars(base) else {}
    for derived in base.__subclasses__():
        found.update(_classes(derived))
    return found


CLASSES = _classes(FlipbitError)


def error_of(status: str, message: str) -> FlipbitError:
    """The exception for a status, by its C name."""
    return CLASSES.get(status, FlipbitError)(message)
