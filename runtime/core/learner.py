"""Learning with the C core: the same code, bits and random numbers as on a device.

learner = Learner("model.fbit", LearnerConfig(bits=True, bias=True, seed=1), arena=100_000)
for rate in (0.004, 0.003, 0.002):
    report = learner.step(inputs, labels, rate_bits=rate, rate_bias=0.1)
Path("better.fbit").write_bytes(learner.image)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_bool, c_char_p, c_int32, c_size_t, c_uint8, c_uint16, c_uint32, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.core.fixed_width import within
from flipbit.runtime.core.learner_config import LearnerConfig
from flipbit.runtime.core.library import CModel, check, library, status_name
from flipbit.runtime.errors import ArgumentError, StateError, error_of
from flipbit.runtime.image.kinds import Back, named
from flipbit.runtime.image.reader import read_image

Array = np.ndarray
RATE_ONE = 1 << 20


NO_REFERENCES = (
    "no layer that learns has references, which recalibrating compares with: export the net anew with --references "
    "2000, or choose other --layers or another --method"
)


class _CConfig(ctypes.Structure):
    """fb_train_config. Filled and read by C alone, from and to the bytes of :meth:`LearnerConfig.pack`."""

    _fields_ = (("opaque", c_uint32 * 5),)


class _CPass(ctypes.Structure):
    _fields_ = (
        ("high_op", c_uint16), ("low_op", c_uint16), ("first_filter", c_uint16), ("end_filter", c_uint16),
        ("sums", c_uint32), ("saved", c_uint32), ("work", c_uint32), ("active", c_uint8 * 32),
        ("keep", c_uint8 * 32),
    )  # fmt: skip


GRADIENT = ctypes.CFUNCTYPE(None, c_void_p, *[ctypes.c_uint] * 3, POINTER(c_int32), c_uint32)


class _CTrain(ctypes.Structure):
    _fields_ = (
        ("model", CModel), ("config", _CConfig), ("image", c_void_p), ("state", c_void_p), ("arena", c_void_p),
        ("state_size", c_uint32), ("arena_size", c_uint32), ("samples", c_uint32), ("seen", c_uint32),
        ("rate_bits", c_uint32), ("rate_bias", c_uint32), ("passes", c_uint32), ("flips", c_uint32), ("pass_", _CPass),
        ("on_gradient", GRADIENT), ("context", c_void_p),
    )  # fmt: skip


class _CResult(ctypes.Structure):
    _fields_ = (("predicted", c_uint16), ("loss", c_uint32))


def _core() -> ctypes.CDLL:
    core = library()
    if core.fb_train_state_size.restype is not c_size_t:
        sizes: list[Any] = [POINTER(CModel), POINTER(_CConfig)]
        core.fb_train_state_size.restype, core.fb_train_state_size.argtypes = c_size_t, sizes
        core.fb_train_arena_size.restype, core.fb_train_arena_size.argtypes = c_size_t, [*sizes, c_bool]
        core.fb_train_check.argtypes = sizes
        core.fb_train_config_unpack.argtypes = [POINTER(_CConfig), c_char_p]
        core.fb_train_open.argtypes = [
            POINTER(_CTrain), c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_size_t, POINTER(_CConfig),
        ]  # fmt: skip
        core.fb_train_begin.argtypes = [POINTER(_CTrain), c_uint32, c_uint32, c_uint32]
        core.fb_train_sample.argtypes = [POINTER(_CTrain), c_void_p, ctypes.c_uint, POINTER(_CResult)]
        core.fb_train_end_pass.argtypes = [POINTER(_CTrain)]
        core.fb_train_drift.argtypes, core.fb_train_drift.restype = [POINTER(_CTrain)], c_uint32
        core.fb_train_steps.argtypes, core.fb_train_steps.restype = [POINTER(_CTrain)], c_uint32
    return core


@dataclass(frozen=True)
class Step:
    """What a step did: means over its samples are from before its update."""

    loss: float
    accuracy: float
    flips: int
    passes: int


def _aligned(size: int) -> Array:
    """Zeroed memory at a multiple of 8."""
    return np.zeros(-(-size // 8), np.uint64)


class Learner:
    """A net that learns in a fixed amount of memory. ``arena`` bytes; 0 takes what one pass per step needs."""

    def __init__(self, image: str | Path | bytes, config: LearnerConfig, arena: int = 0, state: bytes | None = None):
        data = image if isinstance(image, bytes) else Path(image).read_bytes()
        self._core = _core()
        self._image = _aligned(len(data))
        self._image.view(np.uint8)[: len(data)] = np.frombuffer(data, np.uint8)
        self._size = len(data)
        self.config = config
        chosen = _CConfig()
        check(self._core.fb_train_config_unpack(ctypes.byref(chosen), config.pack()), f"the C core refuses {config}")
        model = CModel()
        self.arena_least = 0
        self._check(self._core.fb_model_open(ctypes.byref(model), self._image.ctypes.data, self._size), "the image")
        self._check_trainable(model, chosen)
        size = self._core.fb_train_state_size(model, chosen)
        self.arena_least = self._core.fb_train_arena_size(model, chosen, False)
        self.arena_fast = self._core.fb_train_arena_size(model, chosen, True)
        if not self.arena_least:
            raise error_of("FB_ERR_LIVE", f"this net cannot be trained{config.where}: too many tensors at a time")
        self._state, self._arena = _aligned(size), _aligned(arena or self.arena_fast)
        self._state_size = size
        if state is not None:
            if len(state) != size:
                raise StateError(f"the checkpoint has {len(state)} bytes, this net's learner {size}")
            self._state.view(np.uint8)[:size] = np.frombuffer(state, np.uint8)
        self._train = _CTrain()
        tensors = read_image(data).tensors
        self.input_size, self.output_size = tensors[model.input].size, tensors[model.output].size
        status = self._core.fb_train_open(
            ctypes.byref(self._train), self._image.ctypes.data, self._size, self._state.ctypes.data,
            self._state.nbytes, self._arena.ctypes.data, self._arena.nbytes, ctypes.byref(chosen),
        )  # fmt: skip
        self._check(status, "the learner")

    def _check_trainable(self, model: CModel, chosen: _CConfig) -> None:
        name = status_name(self._core.fb_train_check(model, chosen))
        if name == "FB_ERR_ARGUMENT" and self.config.recalibrate:
            raise error_of(name, NO_REFERENCES)
        if name == "FB_ERR_KIND":
            raise ArgumentError(self._gradients_end())
        why = {
            "FB_ERR_ARGUMENT": "nothing in that range is trainable",
            "FB_ERR_OVERFLOW": "sums of its gradients could exceed 32 bits (too many outputs, pixels or filters)",
            "FB_ERR_OFFSET": "its weights overlap others or the metadata",
        }
        if name != "FB_OK":
            raise error_of(name, f"this net cannot be trained{self.config.where}: {why.get(name, name)}")

    def _gradients_end(self) -> str:
        """Which operation no gradient passes, and which layers lie behind it."""
        operations = read_image(self.image).operations
        last = max(i for i, op in enumerate(operations) if named(op.kind).back is Back.NONE)
        found = f"gradients cannot pass {operations[last].name} ({operations[last].kind})"
        behind = [i for i, op in enumerate(operations) if i > last and named(op.kind).back is Back.WEIGHTS]
        if not behind:
            return f"{found}, and no layer with weights lies behind it: this net can only be recalibrated"
        first, end = behind[0], len(operations) - 1
        return f"{found}: train the layers behind it, --layers {first}-{end} (first_op={first})"

    @property
    def image(self) -> bytes:
        """The image as it is now: valid after every step."""
        return self._image.view(np.uint8)[: self._size].tobytes()

    @property
    def state(self) -> bytes:
        """What must be kept with the image to go on as if never stopped."""
        return self._state.view(np.uint8)[: self._state_size].tobytes()

    @property
    def steps(self) -> int:
        return int(self._core.fb_train_steps(ctypes.byref(self._train)))

    @property
    def flips(self) -> int:
        """Bits changed by the last step."""
        return int(self._train.flips)

    def on_gradient(self, receive: Callable[[int, int, int, Array], None]) -> None:
        """Call ``receive(op, filter, part, gradient)`` for every filter at the end of a pass; part 0 are its weights, 1
        its bias, 2 its multiplier."""

        def received(_: object, op: int, filter: int, part: int, values: object, count: int) -> None:
            receive(op, filter, part, np.ctypeslib.as_array(values, (count,)).copy())

        self._callback = GRADIENT(received)
        self._train.on_gradient = self._callback

    def begin(self, samples: int, rate_bits: float = 0.0, rate_bias: float = 0.0) -> None:
        """Begin a step over a virtual batch of ``samples``, or the rest of one that a checkpoint was taken in."""
        rates = (round(rate_bits * RATE_ONE), round(rate_bias * RATE_ONE))
        samples = within("samples of a batch", samples, 1, 0xFFFF)
        if min(rates) < 0 or max(rates) > RATE_ONE:
            raise ArgumentError(f"rates {rate_bits:g} and {rate_bias:g}: rates are within 0 … 1")
        self._check(self._core.fb_train_begin(ctypes.byref(self._train), samples, *rates), "a step")

    def sample(self, x: Array, label: int) -> tuple[int, float]:
        """One sample of the batch, (channels, height, width) int8: the predicted class and the loss in nats."""
        x = np.ascontiguousarray(x, np.int8)
        if x.size != self.input_size:
            raise ArgumentError(f"a sample of {x.size} values; the net takes {self.input_size}")
        label = within("label", label, 0, self.output_size - 1)
        result = _CResult()
        core = self._core
        status = core.fb_train_sample(ctypes.byref(self._train), x.ctypes.data, label, ctypes.byref(result))
        self._check(status, "a sample")
        return result.predicted, result.loss / 65536

    def end_pass(self) -> bool:
        """After all samples: whether the step needs another pass over them. Image and state are a checkpoint now."""
        status = self._core.fb_train_end_pass(ctypes.byref(self._train))
        if status_name(status) == "FB_MORE":
            return True
        self._check(status, "a pass")
        return False

    @property
    def drift(self) -> float:
        """While it recalibrates, after samples: how far what they make of the layers is from the references; 0 is as on
        training images. ``begin`` drops the pass."""
        return int(self._core.fb_train_drift(ctypes.byref(self._train))) / 65536

    def moments(self, channels: int) -> Array:
        """While it recalibrates, between samples: sums of the results of each channel that has a reference, and of
        their squares, (channels, 2). Operations stand in order."""
        start = int(self._train.pass_.sums) // 8
        return self._arena.view(np.int64)[start : start + 2 * channels].reshape(channels, 2).copy()

    def step(self, inputs: Array, labels: Array, rate_bits: float = 0.0, rate_bias: float = 0.0) -> Step:
        """One update from the gradient of all ``inputs``, (samples, channels, height, width) int8."""
        self.begin(len(inputs), rate_bits, rate_bias)
        while True:
            results = [self.sample(x, label) for x, label in zip(inputs, labels)]
            if not self.end_pass():
                break
        right = np.mean([predicted == label for (predicted, _), label in zip(results, labels)])
        loss = np.mean([loss for _, loss in results])
        return Step(float(loss), float(right), self.flips, int(self._train.passes))

    def _check(self, status: int, what: str) -> None:
        if status:
            name = status_name(status)
            more = f": it needs at least {self.arena_least:,} bytes of arena" if name == "FB_ERR_ARENA" else ""
            raise error_of(name, f"{what} was refused{more}")


__all__ = ["RATE_ONE", "Learner", "LearnerConfig", "Step"]
