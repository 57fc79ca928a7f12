"""Every setting of a training run, and the recipes that fill them in."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

METHODS = ("adam", "bc", "sr", "r")
OPTIMIZERS = ("adam", "sgd")
NETWORK_NAMES = ("vgg9", "vgg-bc", "resnet56", "wrn-56-2", "resnet18", "resnet20", "resnet8", "vgg-small")
DATA_NAMES = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "imagenet")


class InputError(Exception):
    """Something the user gave is wrong; the message says what, and what to do. Exit status 2."""


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

    def resolve(self) -> Settings:
        """Fill in what the recipe decides, and refuse what makes no sense. Returns self."""
        self._check()
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
        if self.optimizer == "sgd":
            lr = 0.1 if self.method == "adam" else 1.0  # ±1 weights under BatchNorm have small gradients
        defaults = {
            "net": net, "lr": lr, "batch": batch, "epochs": epochs, "schedule": schedule, "input": inputs,
        }  # fmt: skip
        for name, value in defaults.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        if self.init is None:
            # Around zero a real-valued buffer flips easily and learns fast. Where rounding is at random or the
            # grid has a zero, small weights are noise or nothing: BinaryConnect's spread over [−Δ, Δ] learns.
            near_zero = self.forward == "deterministic" and self.bits == 1
            self.init = "small" if near_zero else "spread"
        if self.lr_drops is None:
            self.lr_drops = drops
        if self.delta is None:
            self.delta = 1.0 if self.bits == 1 else 1.0 / (2 ** (self.bits - 1) - 1)
        return self

    def _check(self) -> None:
        def one_of(name: str, allowed: tuple[str, ...]) -> None:
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise InputError(f"--{name.replace('_', '-')} {value}: choose from {', '.join(allowed)}")

        def at_least(name: str, low: float, strict: bool = False) -> None:
            value = getattr(self, name)
            if value is not None and not (value > low if strict else value >= low):
                bound = "more than" if strict else "at least"
                raise InputError(f"--{name.replace('_', '-')} {value}: must be {bound} {low:g}")

        one_of("method", METHODS)
        one_of("net", NETWORK_NAMES)
        one_of("recipe", ("quick", "paper"))
        one_of("optimizer", OPTIMIZERS)
        one_of("schedule", ("cosine", "steps", "constant"))
        one_of("augment", ("auto", "none"))
        one_of("input", ("fixed", "mean"))
        one_of("scale", ("none", "filter"))
        one_of("quantize", ("conv", "all"))
        one_of("forward", ("deterministic", "stochastic"))
        one_of("init", ("small", "spread"))
        for name in ("width", "delta"):
            at_least(name, 0, strict=True)
        for name in ("batch", "epochs", "limit", "image_size", "bits"):
            at_least(name, 1)
        for name in ("lr", "momentum", "weight_decay", "threads"):
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

    @property
    def rule(self) -> str:
        """The update rule of :mod:`flipbit.train.optimizers`."""
        return "buffer" if self.buffer_bits else self.method

    def learning_rate(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        assert self.lr is not None and self.epochs is not None and self.lr_drops is not None
        if self.schedule == "steps":
            return self.lr * 0.1 ** sum(epoch >= drop for drop in self.lr_drops)
        if self.schedule == "cosine":
            from math import cos, pi

            return self.lr * 0.5 * (1 + cos(pi * epoch / self.epochs))
        return self.lr

    def name(self) -> str:
        """A folder name that tells runs apart."""
        data = self.data.rstrip("/").split("/")[-1].removesuffix(".npz")
        parts = [data, str(self.net), self.method]
        if self.buffer_bits is not None:
            parts[-1] += f"-k{self.buffer_bits}"
        if self.width != 1:
            parts[1] += f"-w{self.width:g}"
        if self.optimizer != "adam":
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
