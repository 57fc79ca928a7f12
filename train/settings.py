"""Every setting of a training run, and the recipes that fill them in."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, fields
from math import cos, isfinite, log2, pi
from pathlib import Path
from typing import Any

from flipbit.runtime.data.sets import DATA_NAMES, absolute_source
from flipbit.runtime.errors import InputError

__all__ = ["DATA_NAMES", "METHODS", "NETWORK_NAMES", "OPTIMIZERS", "InputError", "Settings"]

METHODS = ("adam", "bc", "sr", "r")
OPTIMIZERS = ("adam", "sgd")
NETWORK_NAMES = (
    "vgg9", "vgg-bc", "resnet56", "wrn-56-2", "resnet18", "resnet20", "resnet8", "flip-s", "flip-m", "flip-l",
    "vgg-small", "word-s", "person-s", "signal-s", "vibration-s", "bireal", "teacher",
)  # fmt: skip
BINARY_NETWORKS = ("bireal",)  # whose convolutions read signs
FORWARD = ("deterministic", "stochastic")
PRECISIONS = ("float32", "bfloat16")
MODEL_FILES = ("float32", "float16")
BATCH_NORMS = ("sync", "local")  # statistics over the whole batch, or over each replica's part
AUGMENTS = ("auto", "photos", "none")
SCHEDULES = ("cosine", "restarts", "steps", "constant")

# Settings that change how a net is trained, but neither the net nor what its weights mean.
RECIPES = (
    "holdout", "keep", "init_from", "teacher", "teacher_weight", "teacher_temperature", "teacher_epochs",
    "label_smoothing", "cutout",
    "mixup", "estimator", "decay_on", "restarts", "warmup", "activation_bits", "activation_epochs", "buffer_rule",
    "pace", "batch_growth", "precision",
    "model_file", "init_matching", "batch_norm",
)  # fmt: skip


def is_net(name: str) -> bool:
    """Whether ``--net`` means something: one of ours, a model file, or a function in a Python file."""
    return name in NETWORK_NAMES or name.endswith((".keras", ".h5", ".json")) or ".py:" in name


@dataclass
class Settings:
    """What ``train/run.py`` takes; ``run.json`` holds exactly this.

    ``None`` means "as the recipe says"; :meth:`resolve` fills it in.
    """

    method: str = "bc"
    data: str = "digits"
    data_dir: str | None = None
    net: str | None = None
    width: float = 1.0
    recipe: str = "quick"
    optimizer: str = "adam"
    lr: float | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch: int | None = None
    epochs: int | None = None
    schedule: str | None = None
    lr_drops: tuple[int, ...] | None = None
    augment: str = "auto"
    input: str | None = None
    image_size: int | None = None
    limit: int | None = None
    bits: int = 1
    delta: float | None = None
    scale: str = "none"
    quantize: str = "conv"
    forward: str = "deterministic"
    init: str | None = None
    buffer_bits: int | None = None
    seed: int = 0
    threads: int = 0
    # Settings below came later: their defaults are what a run without them did, so that its run.json keeps its meaning.
    holdout: float | None = None
    keep: str | None = None
    init_from: str | None = None
    teacher: str | None = None
    teacher_weight: float = 0.9
    teacher_temperature: float = 4.0
    teacher_epochs: int = 0
    label_smoothing: float = 0.0
    cutout: int = 0
    mixup: float = 0.0
    standardize: bool = False
    estimator: str = "ste"
    clip: float | None = None
    decay_on: str = "all"
    restarts: int = 3
    warmup: int = 0
    activation_bits: int | None = None
    activation_epochs: int | None = None
    buffer_rule: str = "core"
    pace: float = 0.4
    batch_growth: int = 1
    precision: str = "float32"
    model_file: str = "float32"
    init_matching: bool = False
    activations: str | None = None
    batch_norm: str = "sync"

    def resolve(self) -> Settings:
        """Fill in what the recipe decides, and refuse what makes no sense. Returns self."""
        self._check()
        # run.json is read from other folders, by export and by --resume.
        self.data = absolute_source(self.data)
        self.data_dir = None if self.data_dir is None else os.path.abspath(self.data_dir)
        drops: tuple[int, ...]
        if self.recipe == "paper":
            imagenet = self.data == "imagenet"
            net, lr, batch, schedule, inputs = "vgg9", 0.01, 128, "steps", "mean"
            epochs, drops = (90, (30, 60)) if imagenet else (160, (82, 122))
            net = "resnet18" if imagenet else net
        else:
            small = self.data == "digits"
            net = "vgg-small" if small else "resnet8"
            lr, batch, schedule, inputs = 0.01, 64 if small else 128, "cosine", "fixed"
            epochs = {"digits": 60, "mnist": 8, "fashion-mnist": 10}.get(self.data, 15)
            drops = ()
            if self.method == "adam":
                lr = 0.003  # 0.5 points better than 0.01 after five epochs of resnet8 on CIFAR-10
        if self.buffer_rule == "mean":
            # Steps are normalised by a mean, also those of the other parameters: lr is their size, as Adam's.
            self.optimizer, lr = "sgd", 0.01
        elif self.optimizer == "sgd":
            lr = 0.1 if self.method == "adam" else 1.0  # ±1 weights under BatchNorm have small gradients
        defaults = {
            "net": net, "lr": lr, "batch": batch, "epochs": epochs, "schedule": schedule, "input": inputs,
        }  # fmt: skip
        for name, value in defaults.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        if self.activations is None:
            self.activations = "binary" if self.net in BINARY_NETWORKS else "real"
        if (self.activations == "binary") != (self.net in BINARY_NETWORKS):
            raise InputError(
                f"--activations {self.activations} does not go with --net {self.net}: binary goes with "
                f"{', '.join(BINARY_NETWORKS)}; in a net of your own, give layers input_quantizer='ste_sign'"
            )
        if self.activations == "binary" and (self.method == "adam" or self.bits != 1):
            raise InputError("--activations binary needs one-bit weights too: use --method bc, sr or r, and --bits 1")
        if self.init is None:
            # Around zero a real-valued buffer flips easily and learns fast. Where rounding is at random or the
            # grid has a zero, small weights are noise or nothing: BinaryConnect's spread over [−Δ, Δ] learns.
            near_zero = self.forward == "deterministic" and self.bits == 1
            self.init = "small" if near_zero else "spread"
        if self.lr_drops is None:
            self.lr_drops = drops
        if self.delta is None:
            self.delta = 1.0 if self.bits == 1 else 1.0 / (2 ** (self.bits - 1) - 1)
        if self.holdout is None:
            self.holdout = 0.1 if self.keep == "best" else 0.0
        if self.keep is None:
            self.keep = "best" if self.holdout else "last"
        if self.activation_bits and self.activation_epochs is None:
            self.activation_epochs = max(1, int(self.epochs or 1) // 10)
        # A run is continued from anywhere: paths in run.json must not depend on where it was started.
        for name in ("teacher", "init_from"):
            if getattr(self, name):
                setattr(self, name, str(Path(getattr(self, name)).absolute()))
        if self.net and self.net not in NETWORK_NAMES:
            path, colon, function = self.net.rpartition(":") if ".py:" in self.net else (self.net, "", "")
            self.net = str(Path(path).absolute()) + colon + function
        return self

    def _check(self) -> None:
        def one_of(name: str, allowed: tuple[str, ...]) -> None:
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise InputError(f"--{name.replace('_', '-')} {value}: choose from {', '.join(allowed)}")

        def at_least(name: str, low: float, strict: bool = False) -> None:
            value = getattr(self, name)
            if value is not None and not ((value > low if strict else value >= low) and isfinite(value)):
                bound = "more than" if strict else "at least"
                raise InputError(f"--{name.replace('_', '-')} {value}: must be {bound} {low:g}")

        one_of("method", METHODS)
        if self.net is not None and not is_net(self.net):
            raise InputError(
                f"--net {self.net}: choose from {', '.join(NETWORK_NAMES)}, "
                "or name a model file (.keras, .h5, .json) or a function that builds one (my_net.py:build)"
            )
        one_of("activations", ("real", "binary"))
        one_of("recipe", ("quick", "paper"))
        one_of("optimizer", OPTIMIZERS)
        one_of("schedule", SCHEDULES)
        one_of("augment", AUGMENTS)
        one_of("input", ("fixed", "mean"))
        one_of("scale", ("none", "filter"))
        one_of("quantize", ("conv", "all"))
        one_of("forward", FORWARD)
        one_of("init", ("small", "spread"))
        one_of("keep", ("best", "last"))
        one_of("estimator", ("ste", "ede"))
        one_of("decay_on", ("all", "float"))
        one_of("buffer_rule", ("core", "mean"))
        one_of("precision", PRECISIONS)
        one_of("model_file", MODEL_FILES)
        one_of("batch_norm", BATCH_NORMS)
        for name in ("width", "delta"):
            at_least(name, 0, strict=True)
        for name in ("batch", "epochs", "limit", "image_size", "bits", "restarts", "activation_epochs", "batch_growth"):
            at_least(name, 1)
        for name in ("lr", "momentum", "weight_decay", "threads", "clip", "cutout", "mixup", "warmup"):
            at_least(name, 0)
        if not 0 <= self.seed < 2**31:
            raise InputError(f"--seed {self.seed}: must be 0 to {2**31 - 1}")
        if self.bits > 8:
            raise InputError(f"--bits {self.bits}: at most 8 (use --method adam for full precision)")
        if self.method == "adam" and (self.bits != 1 or self.scale != "none" or self.forward != "deterministic"):
            raise InputError("--method adam trains in full precision: --bits, --scale and --forward do not apply")
        if self.buffer_bits is not None:
            if self.method != "sr":
                raise InputError("--buffer-bits goes with --method sr (a float buffer is --method bc)")
            if not 0 <= self.buffer_bits <= 8:
                raise InputError(f"--buffer-bits {self.buffer_bits}: 0 to 8 (a float buffer is --method bc)")
            if self.bits != 1:
                raise InputError("--buffer-bits keeps a buffer beside one sign bit: drop --bits")
        if self.scale == "filter" and self.method != "bc":
            raise InputError("--scale filter takes its scales from a real-valued buffer: use --method bc")
        if self.forward == "stochastic" and self.method != "bc":
            raise InputError("--forward stochastic rounds a real-valued buffer: use --method bc")
        if any(drop < 1 for drop in self.lr_drops or ()):
            raise InputError("--lr-drops: epochs count from 1")
        self._check_recipes()

    def _check_recipes(self) -> None:
        def within(name: str, low: float, high: float, most: bool = True) -> None:
            value = getattr(self, name)
            if not (low <= value <= high if most else low <= value < high):
                bound = "at most" if most else "less than"
                raise InputError(f"--{name.replace('_', '-')} {value:g}: must be at least {low:g} and {bound} {high:g}")

        within("holdout", 0, 0.5) if self.holdout is not None else None
        within("momentum", 0, 1, most=False) if self.momentum is not None else None
        within("teacher_weight", 0, 1)
        within("label_smoothing", 0, 1, most=False)
        for name in ("teacher_temperature", "pace"):
            if not (getattr(self, name) > 0 and isfinite(getattr(self, name))):
                raise InputError(f"--{name.replace('_', '-')} {getattr(self, name):g}: must be more than 0")
        if self.teacher_epochs < 0:
            raise InputError(f"--teacher-epochs {self.teacher_epochs}: must be at least 0 (ask at every step)")
        if self.teacher_epochs and (self.teacher is None or self.cutout or self.mixup):
            raise InputError("--teacher-epochs keeps answers to whole images: give --teacher, no --cutout or --mixup")
        if self.keep == "best" and self.holdout == 0:
            raise InputError("--keep best chooses by validation images: drop --holdout 0, or use --keep last")
        if (self.standardize or self.estimator != "ste") and (self.method != "bc" or self.bits != 1):
            raise InputError("--standardize and --estimator ede act on a real-valued buffer: use --method bc, --bits 1")
        if self.estimator != "ste" and self.forward != "deterministic":
            raise InputError("--estimator ede sharpens the gradient of a sign: drop --forward stochastic")
        if self.standardize and self.forward != "deterministic":
            raise InputError("--standardize leaves nothing to round at random: drop --forward stochastic")
        if self.clip is not None and self.method != "bc":
            raise InputError("--clip bounds a real-valued buffer: use --method bc")
        if self.init_matching and self.init_from is None:
            raise InputError("--init-matching says how --init-from is taken: give that too")
        if self.decay_on == "float" and not self.weight_decay:
            raise InputError("--decay-on float says where --weight-decay acts: give that too")
        if self.activation_bits is not None and not 2 <= self.activation_bits <= 8:
            raise InputError(f"--activation-bits {self.activation_bits}: 2 to 8 (devices compute with 8)")
        if self.activation_epochs is not None and self.activation_bits is None:
            raise InputError("--activation-epochs says when --activation-bits is simulated: give that too")
        if self.epochs is not None and (self.activation_epochs or 0) > self.epochs:
            raise InputError(f"--activation-epochs {self.activation_epochs}: the run has only {self.epochs} epochs")
        if self.buffer_rule == "mean" and (self.method != "sr" or not self.buffer_bits):
            raise InputError("--buffer-rule mean moves a buffer of few bits: use --method sr --buffer-bits 4")
        if self.buffer_rule == "mean" and self.momentum:
            raise InputError("--buffer-rule mean keeps no float per weight: drop --momentum")
        if self.batch_growth & (self.batch_growth - 1):
            raise InputError(f"--batch-growth {self.batch_growth}: batches double, so use a power of 2")

    def without_recipes(self) -> Settings:
        """The same net and optimizer core without what a long training adds: for a few steps on few images."""
        plain = Settings()
        kept = {f.name for f in fields(plain)} - {*RECIPES}
        return Settings(**{name: getattr(self if name in kept else plain, name) for name in (*kept, *RECIPES)})

    @property
    def rule(self) -> str:
        """The update rule of :mod:`flipbit.train.bits.optimizers`."""
        return "buffer" if self.buffer_bits else self.method

    def learning_rate(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        assert self.lr is not None and self.epochs is not None and self.lr_drops is not None
        warm = min(1.0, (epoch + 1) / (self.warmup + 1))
        if self.schedule == "steps":
            return warm * self.lr * 0.1 ** sum(epoch >= drop for drop in self.lr_drops)
        if self.schedule == "cosine":
            return warm * self.lr * 0.5 * (1 + cos(pi * epoch / self.epochs))
        if self.schedule == "restarts":
            start, end = self._cycle(epoch)
            return warm * self.lr * 0.5 * (1 + cos(pi * (epoch - start) / (end - start)))
        return warm * self.lr

    def _cycle(self, epoch: int) -> tuple[int, int]:
        """First epoch and end of the cosine an epoch lies in; each is twice as long as the one before."""
        assert self.epochs is not None
        parts = 2 ** (self.restarts + 1) - 1
        ends = sorted({max(1, round(self.epochs * (2**i - 1) / parts)) for i in range(1, self.restarts + 2)})
        end = next((e for e in ends if epoch < e), self.epochs)
        return max([0, *(e for e in ends if e <= epoch)]), end

    def batch_of(self, epoch: int) -> int:
        """The batch of an epoch, counted from 0: it doubles along the run, up to ``batch_growth`` times the first."""
        doublings = log2(self.batch_growth) * epoch / max(1, int(self.epochs or 1) - 1)
        return int(self.batch or 1) * 2 ** int(doublings + 0.5)

    def sharpness(self, epoch: int) -> float:
        """IR-Net's t of an epoch, counted from 0: from 0.1 to 10, evenly in its logarithm."""
        return 0.1 * 100 ** (epoch / int(self.epochs or 1))

    def simulates(self, epoch: int) -> bool:
        """Whether activations are quantized in an epoch, counted from 0."""
        return bool(self.activation_bits) and epoch >= int(self.epochs or 0) - int(self.activation_epochs or 0)

    @property
    def net_name(self) -> str:
        """The net without its path."""
        return str(self.net) if self.net in NETWORK_NAMES else Path(str(self.net).split(".py:")[0]).stem

    def name(self) -> str:
        """A folder name that tells runs apart."""
        data = self.data.rstrip("/").split("/")[-1].removesuffix(".npz")
        parts = [data, self.net_name, self.method]
        if self.buffer_bits is not None:
            parts[-1] += f"-k{self.buffer_bits}"
        if self.buffer_rule != "core":
            parts[-1] += f"-{self.buffer_rule}"
        if self.width != 1:
            parts[1] += f"-w{self.width:g}"
        if self.optimizer != "adam" and self.buffer_rule == "core":
            parts.append(self.optimizer)
        if self.recipe != "quick":
            parts.append(self.recipe)
        if self.seed:
            parts.append(f"seed{self.seed}")
        return "-".join(parts)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(saved: dict[str, Any]) -> Settings:
        known = {f.name for f in fields(Settings)}
        unknown = sorted(set(saved) - known)
        if unknown:
            raise InputError(f"settings {', '.join(unknown)} are not known to this version of flipbit")
        settings = Settings(**saved)
        if settings.lr_drops is not None:
            settings.lr_drops = tuple(settings.lr_drops)
        return settings
