"""Nets of PyTorch as people write them, and how a deploy graph is held against one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils import parametrize  # noqa: E402

from flipbit.export import oracle  # noqa: E402
from flipbit.export.graph import Graph  # noqa: E402
from flipbit.export.read.from_torch import from_torch  # noqa: E402

# Binary layers as people write them.


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, w: Any) -> Any:
        return torch.where(w >= 0, 1.0, -1.0).to(w.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


class SignConv(nn.Conv2d):
    """Autograd function in forward."""

    def forward(self, x: Any) -> Any:
        return F.conv2d(x, Sign.apply(self.weight), self.bias, self.stride, self.padding)


class ScaledConv(nn.Conv2d):
    """XNOR-Net's scale per filter, computed without gradient."""

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            alpha = self.weight.abs().mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, torch.sign(self.weight) * alpha, self.bias, self.stride, self.padding)


class StraightThroughConv(nn.Conv2d):
    """(b − w).detach() + w is b = ±0.03 but for rounding."""

    def forward(self, x: Any) -> Any:
        w, b = self.weight, torch.sign(self.weight) * 0.03
        return F.conv2d(x, (b - w).detach() + w, self.bias, self.stride, self.padding)


class ScaledAfterConv(nn.Conv2d):
    """The scale is a parameter that multiplies the result."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.alpha = nn.Parameter(torch.rand(self.out_channels, 1, 1) - 0.5)

    def forward(self, x: Any) -> Any:
        w = torch.ones_like(self.weight) - 2 * (self.weight < 0).to(x.dtype)
        return F.conv2d(x, w, None, self.stride, self.padding) * self.alpha / 0.5 + self.bias[:, None, None]


class SignParametrization(nn.Module):
    def forward(self, w: Any) -> Any:
        return torch.where(w >= 0, torch.ones_like(w), -torch.ones_like(w))


def ParametrizedConv(*args: Any, **kwargs: Any) -> nn.Module:
    return parametrize.register_parametrization(nn.Conv2d(*args, **kwargs), "weight", SignParametrization())


def StoredConv(*args: Any, **kwargs: Any) -> nn.Module:
    """The weights themselves are ±s, as another tool may have left them."""
    conv = nn.Conv2d(*args, **kwargs)
    conv.weight.data = torch.sign(conv.weight) * torch.rand(conv.out_channels, 1, 1, 1)
    return conv


BINARY = [SignConv, ScaledConv, StraightThroughConv, ScaledAfterConv, ParametrizedConv, StoredConv]


# Nets.


class Vgg(nn.Module):
    def __init__(self, conv: Callable[..., nn.Module] = SignConv, size: tuple[int, int] = (16, 12)):
        super().__init__()
        inplace = conv is SignConv
        self.features = nn.Sequential(
            *(conv(3, 13, 3, padding=1), nn.BatchNorm2d(13), nn.ReLU(inplace)),
            *(conv(13, 8, 3, padding=1, bias=False) if conv is not ScaledAfterConv else conv(13, 8, 3, padding=1),),
            *(nn.BatchNorm2d(8), nn.ReLU(inplace), nn.MaxPool2d(2)),
            *(conv(8, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU(), nn.Dropout2d(), nn.MaxPool2d(2)),
        )
        units = 5 * (size[0] // 4) * (size[1] // 4)
        self.classifier = nn.Sequential(
            nn.Dropout(0.5), nn.Linear(units, 20, bias=False), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 10)
        )

    def forward(self, x: Any) -> Any:
        return F.log_softmax(self.classifier(torch.flatten(self.features(x), 1)), dim=1)


def option_a(front: int, back: int) -> Callable[[Any], Any]:
    return lambda x: F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, front, back))


def concatenated(channels: int) -> Callable[[Any], Any]:
    def shortcut(x: Any) -> Any:
        x = F.avg_pool2d(x, 1, 2)
        return torch.cat([x, x.new_zeros(x.shape[0], channels, x.shape[2], x.shape[3])], 1)

    return shortcut


class Block(nn.Module):
    def __init__(self, conv: Any, before: int, after: int, stride: int, shortcut: Any):
        super().__init__()
        self.conv1 = conv(before, after, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = conv(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut = shortcut

    def forward(self, x: Any) -> Any:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet-8: three blocks, the last two at stride 2, with the shortcuts named."""

    def __init__(self, shortcuts: str, conv: Any = ScaledConv, width: int = 6):
        super().__init__()
        self.conv = conv(3, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        make: Callable[[int], Any] = {
            "1x1": lambda n: nn.Sequential(conv(n, 2 * n, 1, stride=2, bias=False), nn.BatchNorm2d(2 * n)),
            "option A": lambda n: option_a(n // 2, n // 2),
            "option A behind": lambda n: option_a(0, n),
            "option A, concatenated": concatenated,
        }[shortcuts]
        self.blocks = nn.Sequential(
            Block(conv, width, width, 1, nn.Identity()),
            Block(conv, width, 2 * width, 2, make(width)),
            Block(conv, 2 * width, 2 * width, 1, nn.Identity()),
            Block(conv, 2 * width, 4 * width, 2, make(2 * width)),
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(4 * width, 10)

    def forward(self, x: Any) -> Any:
        x = self.blocks(F.relu(self.bn(self.conv(x))))
        return self.fc(self.pool(x).view(x.size(0), -1))


class Function(nn.Module):
    """A forward in one line, over layers given by name."""

    def __init__(self, forward: Callable[[Any, Any], Any], **layers: nn.Module):
        super().__init__()
        self.function = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def stirred(module: nn.Module, shape: tuple[int, ...], seed: int = 0) -> nn.Module:
    """Random BatchNorm gains (some negative) and offsets, statistics of random images."""
    generator = torch.Generator().manual_seed(seed)
    for layer in module.modules():
        if isinstance(layer, (nn.BatchNorm2d, nn.BatchNorm1d)):
            n = layer.num_features
            sign = torch.randint(0, 2, (n,), generator=generator) * 2 - 1
            if layer.affine:
                layer.weight.data = (torch.rand(n, generator=generator) + 0.5) * sign
                layer.bias.data = torch.randn(n, generator=generator) / 2
            layer.momentum = 0.5
    module.train()
    with torch.no_grad():
        for i in range(4):
            module(pictures(shape, 16, 100 + i))
    return module.eval()


def pictures(shape: tuple[int, ...], n: int, seed: int = 1) -> Any:
    return torch.randint(-128, 128, (n, *shape), generator=torch.Generator().manual_seed(seed)) / 128


def channels_last(x: Any) -> np.ndarray:
    return x.permute(0, 2, 3, 1).numpy() if x.dim() == 4 else x.numpy()


def agrees(module: nn.Module, shape: tuple[int, ...], graph: Graph | None = None, n: int = 4) -> Graph:
    """Hold the deploy graph against the module in float64, and give it back."""
    x = pictures(shape, n)
    graph = graph or from_torch(module, x[:2])
    with torch.no_grad():
        expected = channels_last(copy.deepcopy(module).double().eval()(x.double()))
    found = oracle.logits(graph, channels_last(x))
    if np.allclose(np.exp(expected).sum(1), 1):  # a log_softmax was dropped
        found = found - np.log(np.exp(found).sum(1, keepdims=True))
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    return graph


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph]


def saved(module: nn.Module, path: Path, shape: tuple[int, ...] = (3, 16, 12), **options: Any) -> Path:
    with torch.no_grad():
        torch.export.save(torch.export.export(module.eval(), (pictures(shape, 2),), **options), path)
    return path
