"""PyTorch nets give the deploy graph that computes what they do."""

from __future__ import annotations

import copy
import io
import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs PyTorch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils import parametrize  # noqa: E402

from flipbit.export import oracle  # noqa: E402
from flipbit.export.calibrate import calibrate  # noqa: E402
from flipbit.export.graph import (  # noqa: E402
    Add,
    AveragePool,
    Conv,
    ExportError,
    Flatten,
    Graph,
    MaxPool,
    PadShortcut,
    Relu,
)
from flipbit.export.quantize import quantize_graph  # noqa: E402
from flipbit.export.read.from_torch import from_torch, load_torch  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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


# Whole nets.


@pytest.mark.parametrize("conv", [*BINARY, nn.Conv2d], ids=lambda conv: conv.__name__)
def test_vgg_folds_exactly_and_finds_its_binary_layers(conv: Callable[..., nn.Module]) -> None:
    torch.manual_seed(0)
    graph = agrees(stirred(Vgg(conv), (3, 16, 12)), (3, 16, 12))
    assert kinds(graph) == "Conv Conv MaxPool Conv MaxPool Flatten Dense Dense".split()
    for op in graph.weighted():
        assert op.binary == (isinstance(op, Conv) and conv is not nn.Conv2d), op.name
        assert op.binary == (op.weights.dtype == np.int8)
        assert (op.scale >= 0).all()


@pytest.mark.parametrize("size", [(16, 16), (15, 10)], ids=["even", "odd"])
@pytest.mark.parametrize("shortcuts", ["1x1", "option A", "option A behind", "option A, concatenated"])
def test_resnet_with_every_kind_of_shortcut(shortcuts: str, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    shape = (3, *size)
    graph = agrees(stirred(ResNet(shortcuts), shape), shape)
    assert kinds(graph).count("Add") == 4
    assert kinds(graph).count("PadShortcut") == (0 if shortcuts == "1x1" else 2)
    assert all(op.relu for op in graph if isinstance(op, Add))
    assert not any(isinstance(op, Relu) for op in graph)
    assert graph.tensors["pool"].shape == (24,)


@pytest.mark.parametrize(
    "net",
    [lambda: Vgg(), lambda: Vgg(nn.Conv2d), lambda: ResNet("1x1"), lambda: ResNet("option A", nn.Conv2d)],
    ids=["binary vgg", "float vgg", "binary resnet", "float resnet"],
)
def test_int8_graph_mostly_picks_the_same_class(net: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    module = stirred(net(), (3, 16, 12))
    colours = 0.75 * pictures((3, 1, 1), 100, seed=2)
    images = channels_last(colours + pictures((3, 16, 12), 100) / 4)
    # Offsets in the last layer that let each class win about as often.
    last = [layer for layer in module.modules() if isinstance(layer, nn.Linear)][-1]
    mean = oracle.logits(from_torch(module, pictures((3, 16, 12), 1)), images).mean(0)
    last.bias.data -= torch.from_numpy(mean).float()
    graph = from_torch(module, pictures((3, 16, 12), 1))
    integers = quantize_graph(graph, calibrate(graph, images[:32]))
    real, whole = (oracle.logits(g, images).argmax(1) for g in (graph, integers))
    assert np.bincount(real).max() < 60
    assert (real == whole).mean() >= 0.9


def test_operations_are_named_by_module_and_labels_are_kept() -> None:
    x = pictures((3, 16, 16), 1)
    graph = from_torch(ResNet("1x1"), (x,), labels=list("abcdefghij"))
    names = [op.name for op in graph]
    assert {"conv", "blocks.0.conv1", "blocks.1.shortcut.0", "pool", "fc"} <= set(names)
    assert len(set(names)) == len(names)
    assert graph.labels == list("abcdefghij")


def test_the_module_stays_as_it_was() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout()).train()
    before = copy.deepcopy(module.state_dict())
    from_torch(module, pictures((3, 8, 8), 2))
    assert module.training and module[1].training
    assert all(torch.equal(a, b) for a, b in zip(before.values(), module.state_dict().values()))


# Single layers.


@settings(max_examples=20)
@given(
    st.tuples(st.integers(5, 10), st.integers(5, 10)),
    st.sampled_from([1, 2, 3, (3, 2), 5]),
    st.sampled_from([1, 2, (2, 1), 3]),
    st.sampled_from([0, 1, 2, (0, 1)]),
    st.booleans(),
)
def test_convolution_of_any_size_stride_and_padding(size: Any, kernel: Any, stride: Any, pad: Any, bias: bool) -> None:
    agrees(nn.Conv2d(2, 3, kernel, stride, pad, bias=bias), (2, *size), n=2)


@pytest.mark.parametrize("kernel", [2, 3, (4, 1)])
def test_same_padding_by_name(kernel: Any) -> None:
    agrees(nn.Conv2d(2, 3, kernel, padding="same"), (2, 7, 6))
    agrees(nn.Conv2d(2, 3, kernel, padding="valid"), (2, 7, 6))


def test_zero_padding_merges_into_the_convolution() -> None:
    layers = nn.Sequential(nn.ZeroPad2d((1, 2, 3, 0)), nn.Conv2d(2, 3, 3, padding=1))
    (conv,) = agrees(layers, (2, 7, 6)).ops
    assert isinstance(conv, Conv) and conv.padding == (4, 1, 2, 3)


@settings(max_examples=15)
@given(
    st.tuples(st.integers(5, 10), st.integers(5, 10)),
    st.sampled_from([2, 3, (3, 2)]),
    st.sampled_from([None, 1, 2, 3]),
    st.sampled_from([0, 1]),
    st.booleans(),
)
def test_max_pool_of_any_size_stride_padding_and_ceil_mode(
    size: Any, kernel: Any, stride: Any, pad: Any, ceil: bool
) -> None:
    agrees(nn.MaxPool2d(kernel, stride, pad, ceil_mode=ceil), (2, *size), n=2)


@pytest.mark.parametrize(
    "pool",
    [
        nn.AvgPool2d(2),
        nn.AvgPool2d((3, 2), 1),
        nn.AdaptiveAvgPool2d(1),
        nn.AdaptiveAvgPool2d((3, 2)),
        Function(lambda m, x: x.mean((2, 3))),
        Function(lambda m, x: x.mean([-1, -2], keepdim=True)),
        Function(lambda m, x: F.adaptive_avg_pool2d(x, 1).squeeze(-1).squeeze(-1)),
        Function(lambda m, x: F.avg_pool2d(x, x.shape[2:]).reshape(-1, 3)),
    ],
)
def test_average_pooling(pool: nn.Module) -> None:
    graph = agrees(pool, (3, 6, 4))
    assert kinds(graph) == ["AveragePool"]


def test_dense_weights_follow_the_flatten_through_relu_and_views() -> None:
    def forward(m: Any, x: Any) -> Any:
        return m.fc(F.relu(m.pool(x).flatten(2).flatten(1)))

    graph = agrees(Function(forward, pool=nn.MaxPool2d(2), fc=nn.Linear(5 * 3 * 2, 4)), (5, 6, 4))
    assert kinds(graph) == ["MaxPool", "Relu", "Flatten", "Dense"]


def test_one_image_read_by_two_linear_layers_is_flattened_once() -> None:
    def forward(m: Any, x: Any) -> Any:
        return m.a(x.flatten(1)) + m.b(x.flatten(1))

    graph = agrees(Function(forward, a=nn.Linear(24, 4), b=nn.Linear(24, 4)), (3, 4, 2))
    assert kinds(graph) == ["Flatten", "Dense", "Dense", "Add"]


def test_weights_made_from_zeros_like_the_weights() -> None:
    def forward(m: Any, x: Any) -> Any:
        return F.linear(x, torch.where(m.fc.weight > 0, 0.5, torch.zeros_like(m.fc.weight)[:, :1] - 0.5))

    (op,) = agrees(Function(forward, fc=nn.Linear(7, 5)), (7,)).weighted()
    assert op.binary and np.array_equal(op.scale, np.full(5, 0.5))


def test_a_net_of_vectors() -> None:
    agrees(nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3), nn.Softmax(1))[:3], (7,))


def test_matrix_products_with_constants_are_linear_layers() -> None:
    agrees(Function(lambda m, x: x @ torch.sign(m.fc.weight).T + m.fc.bias, fc=nn.Linear(7, 5)), (7,))


def test_batch_norm_without_gain_and_offset() -> None:
    agrees(stirred(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False)), (3, 6, 6)), (3, 6, 6))


@pytest.mark.parametrize(
    "tail",
    [
        lambda m, x: 2 - x,
        lambda m, x: torch.sub(m.c, x, alpha=2),
        lambda m, x: torch.rsub(x, m.c, alpha=3),
        lambda m, x: torch.add(m.c, x, alpha=3),
        lambda m, x: x / m.c - 1,
        lambda m, x: x.clamp(min=0) + 0,
        lambda m, x: torch.clamp_min(x * 1, 0),
    ],
)
def test_constants_per_channel_fold_into_the_convolution(tail: Callable[[Any, Any], Any]) -> None:
    module = Function(lambda m, x: tail(m, m.conv(x)), conv=nn.Conv2d(3, 4, 3))
    module.c = nn.Parameter(torch.randn(1, 4, 1, 1))
    assert kinds(agrees(module, (3, 6, 6))) == ["Conv"]


def inplace_statement(m: Any, x: Any) -> Any:
    y = m.a(x)
    F.relu(y, inplace=True)
    return m.b(y)


def inplace_addition(m: Any, x: Any) -> Any:
    y = m.a(x)
    z = F.relu(y)
    y += z
    return m.b(y) + m.b(z)


def before_and_after_relu(m: Any, x: Any) -> Any:
    y = m.a(x)
    return m.b(F.relu(y)) + m.b(y)


def empty_padding_read_twice(m: Any, x: Any) -> Any:
    y = F.pad(m.a(x), (0, 0))
    return m.b(F.relu(y)) + m.b(y)


def empty_padding_beside(m: Any, x: Any) -> Any:
    y = m.a(x)
    return m.b(F.relu(F.pad(y, (0, 0)))) + m.b(y * 1)


def slices_read_twice(m: Any, x: Any) -> Any:
    y = m.a(x)[:, :, ::2, ::2]
    return F.relu(y) + F.relu(F.pad(y, (0, 0, 0, 0, 0, 0)))


def zero_channels_then_convolution(m: Any, x: Any) -> Any:
    return m.a(F.pad(m.a(x)[:, :, ::2, ::2][:, :, ::1], (1, 1, 0, 2)))


def zero_channels_flattened(m: Any, x: Any) -> Any:
    y = F.pad(x, (0, 0, 0, 0, 1, 1))
    return F.relu(y).flatten(1) @ torch.linspace(-1, 1, 5 * 9 * 8 * 2, dtype=x.dtype).reshape(-1, 2)


@pytest.mark.parametrize(
    "forward",
    [
        inplace_statement,
        inplace_addition,
        before_and_after_relu,
        empty_padding_read_twice,
        empty_padding_beside,
        slices_read_twice,
        zero_channels_then_convolution,
        zero_channels_flattened,
    ],
)
def test_only_what_nobody_else_reads_is_changed(forward: Callable[[Any, Any], Any]) -> None:
    conv = nn.Conv2d(3, 3, 3, padding=1)
    agrees(Function(forward, a=conv, b=nn.Conv2d(3, 4, 3)), (3, 9, 8))


def test_weights_of_nearly_two_values_stay_real_when_they_are_not_near_enough() -> None:
    conv = nn.Conv2d(3, 4, 3)
    conv.weight.data = torch.sign(conv.weight) * (1 + 1e-4 * torch.rand_like(conv.weight))
    (op,) = agrees(conv, (3, 6, 6)).weighted()
    assert not op.binary


# Programs and files.


def test_program_taken_apart_into_core_operators() -> None:
    module = stirred(ResNet("option A"), (3, 16, 12))
    x = pictures((3, 16, 12), 2)
    with torch.no_grad():
        program = torch.export.export(module, (x,)).run_decompositions()
    assert "aten.addmm.default" in {str(node.target) for node in program.graph.nodes}
    agrees(module, (3, 16, 12), from_torch(program))


def test_program_for_a_batch_of_any_size() -> None:
    module = stirred(ResNet("1x1"), (3, 16, 12))
    batch = torch.export.Dim("batch", min=1, max=64)
    with torch.no_grad():
        program = torch.export.export(module, (pictures((3, 16, 12), 3),), dynamic_shapes={"x": {0: batch}})
    agrees(module, (3, 16, 12), from_torch(program))


def test_program_that_computes_with_the_size_of_its_batch() -> None:
    module = Function(lambda m, x: m.fc(F.relu(x).reshape(x.size(0) + 1 - 1, -1)), fc=nn.Linear(24, 2))
    dynamic = {"x": {0: torch.export.Dim("batch", min=1, max=64)}}
    agrees(
        module, (3, 4, 2), from_torch(torch.export.export(module, (pictures((3, 4, 2), 3),), dynamic_shapes=dynamic))
    )


def test_program_with_a_sub_graph_for_no_grad(tmp_path: Path) -> None:
    module = ScaledConv(3, 4, 3)
    program = torch.export.export(module, (pictures((3, 6, 6), 2),))
    assert "wrap_with_set_grad_enabled" in str(program.graph)
    graph = agrees(module, (3, 6, 6), from_torch(program))
    assert graph.weighted()[0].binary
    torch.export.save(program, tmp_path / "net.pt2")
    with pytest.raises(ExportError, match=r"wrap_with_set_grad_enabled.*inside torch\.no_grad"):
        load_torch(tmp_path / "net.pt2")


def saved(module: nn.Module, path: Path, shape: tuple[int, ...] = (3, 16, 12), **options: Any) -> Path:
    with torch.no_grad():
        torch.export.save(torch.export.export(module.eval(), (pictures(shape, 2),), **options), path)
    return path


def test_file_is_read_in_a_fresh_process_that_knows_no_classes(tmp_path: Path) -> None:
    module = stirred(ResNet("option A"), (3, 16, 12))
    path = saved(module, tmp_path / "net.pt2", dynamic_shapes={"x": {0: torch.export.Dim("n", min=1, max=64)}})
    images = channels_last(pictures((3, 16, 12), 4))
    np.save(tmp_path / "images.npy", images)
    program = (
        "import sys, numpy as np\n"
        "from flipbit.export.read.from_torch import from_torch, load_torch\n"
        "from flipbit.export import oracle\n"
        "graph = from_torch(load_torch(sys.argv[1]))\n"
        "np.save(sys.argv[3], oracle.logits(graph, np.load(sys.argv[2])))\n"
        "print(*(op.name for op in graph.weighted() if op.binary))\n"
    )
    files = [str(tmp_path / name) for name in ("net.pt2", "images.npy", "logits.npy")]
    assert path == Path(files[0])
    run = subprocess.run([sys.executable, "-c", program, *files], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split()[:2] == ["conv", "blocks.0.conv1"]
    graph = from_torch(module, pictures((3, 16, 12), 1))
    assert np.allclose(np.load(files[2]), oracle.logits(graph, images), rtol=1e-9)


def test_from_keras_and_from_torch_import_without_their_frameworks() -> None:
    program = (
        "import sys\n"
        "import flipbit.export.read.from_keras, flipbit.export.read.from_torch\n"
        "print([name for name in ('tensorflow', 'keras', 'tf_keras', 'torch') if name in sys.modules])\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


def test_without_pytorch_the_message_says_so() -> None:
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from flipbit.export.read.from_torch import load_torch\n"
        "load_torch('net.pt2')\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ExportError: PyTorch models need PyTorch" in run.stderr


class Touch:
    """A pickle that leaves a file behind when it is opened."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def forged(source: Path, target: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """A copy of an archive with some records changed."""
    with zipfile.ZipFile(source) as archive:
        records = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    change(records)
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in records.items():
            archive.writestr(f"forged/{name}", data)
    return target


@pytest.fixture(scope="module")
def plain(tmp_path_factory: Any) -> Path:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 4 * 2, 2))
    return saved(module, tmp_path_factory.mktemp("pt2") / "plain.pt2", (3, 6, 4))


def test_pickles_in_a_file_that_are_not_needed_are_never_opened(plain: Path, tmp_path: Path) -> None:
    def change(records: dict[str, bytes]) -> None:
        buffer = io.BytesIO()
        torch.save((Touch(tmp_path / "ran"), {}), buffer)
        records["data/sample_inputs/model.pt"] = buffer.getvalue()
        records["data/constants/model.pt"] = buffer.getvalue()
        records["data/weights/model.pt"] = buffer.getvalue()
        records["data/aotinductor/model/model.so"] = b"\x7fELF"

    path = forged(plain, tmp_path / "net.pt2", change)
    assert kinds(from_torch(load_torch(path))) == ["Conv", "Flatten", "Dense"]
    assert not (tmp_path / "ran").exists()


def test_files_that_could_run_code_are_refused(plain: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    call = f"__import__('pathlib').Path({str(ran)!r}).touch()"

    def program(change: Callable[[Any], None]) -> Callable[[dict[str, bytes]], None]:
        def forge(records: dict[str, bytes]) -> None:
            found = json.loads(records["models/model.json"])
            change(found)
            records["models/model.json"] = json.dumps(found).encode()

        return forge

    def graph(found: Any) -> Any:
        return found["graph_module"]["graph"]

    def size(found: Any) -> None:
        graph(found)["tensor_values"]["conv2d"]["sizes"][0] = {"as_expr": {"expr_str": call, "hint": None}}

    def rename(found: Any) -> None:
        text = json.dumps(found).replace('"conv2d"', json.dumps(f"x=({call})"))
        found.update(json.loads(text))

    def target(found: Any) -> None:
        graph(found)["nodes"][0]["target"] = "torch.ops.load_library"

    def tree(found: Any) -> None:
        context = json.dumps([{"__enum__": True, "fqn": "antigravity:x", "name": "y"}])
        spec = json.dumps([1, {"type": "builtins.dict", "context": context, "children_spec": []}])
        found["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = spec

    def factory(found: Any) -> None:
        spec = json.dumps([1, {"type": "collections.defaultdict", "context": {}, "children_spec": []}])
        found["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = spec

    def weights(records: dict[str, bytes]) -> None:
        config = json.loads(records["data/weights/model_weights_config.json"])
        config["config"]["0.weight"]["use_pickle"] = True
        records["data/weights/model_weights_config.json"] = json.dumps(config).encode()
        records["data/weights/weight_0"] = pickle.dumps(Touch(ran))

    def constants(records: dict[str, bytes]) -> None:
        entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
        records["data/constants/model_constants_config.json"] = json.dumps({"config": {"c": entry}}).encode()
        records["data/constants/opaque_obj_0"] = pickle.dumps(Touch(ran))

    for change, message in [
        (program(size), "might run"),
        (program(rename), "might run"),
        (program(target), "torch.ops.load_library"),
        (program(tree), "not plain"),
        (program(factory), "collections.defaultdict"),
        (weights, "pickle"),
        (constants, "pickle"),
    ]:
        with pytest.raises(ExportError, match=message):
            load_torch(forged(plain, tmp_path / "net.pt2", change))
    assert not ran.exists()


def test_files_that_are_none_are_refused(plain: Path, tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "net.pth")
    with pytest.raises(ExportError, match=r"pickle.*torch\.export\.save"):
        load_torch(tmp_path / "net.pth")
    (tmp_path / "net.pth").rename(tmp_path / "pickle.pt2")
    with pytest.raises(ExportError, match=r"torch\.export\.save"):
        load_torch(tmp_path / "pickle.pt2")
    with pytest.raises(ExportError, match="no such file"):
        load_torch(tmp_path / "absent.pt2")
    (tmp_path / "cut.pt2").write_bytes(plain.read_bytes()[:2000])
    with pytest.raises(ExportError, match="not a whole"):
        load_torch(tmp_path / "cut.pt2")

    def shorten(records: dict[str, bytes]) -> None:
        records["data/weights/weight_0"] = records["data/weights/weight_0"][:8]

    with pytest.raises(ExportError, match="cannot read"):
        load_torch(forged(plain, tmp_path / "short.pt2", shorten))
    path = forged(plain, tmp_path / "empty.pt2", lambda records: records.pop("models/model.json") and None)
    with pytest.raises(ExportError, match=r"torch\.export\.save"):
        load_torch(path)


def test_a_program_may_not_call_what_has_effects(tmp_path: Path) -> None:
    """Constants are computed on the way: nothing but functions of tensors may be called for them."""
    x = pictures((2, 6, 4), 1)
    program = torch.export.export(Function(lambda m, x: x + torch.zeros(2, 1, 1)), (x,))
    (zeros,) = [node for node in program.graph.nodes if "zeros" in str(node.target)]
    zeros.target, zeros.args, zeros.kwargs = torch.ops.aten.from_file.default, (str(tmp_path / "made"), True, 2), {}
    with pytest.raises(ExportError, match="from_file"):
        from_torch(program)
    assert not (tmp_path / "made").exists()


# What is refused.


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Conv2d(4, 4, 3, groups=2), "2 groups"),
        (nn.Conv2d(4, 4, 3, dilation=2), "dilation"),
        (nn.ConvTranspose2d(4, 4, 3), "conv_transpose2d.*supported are"),
        (nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), "pads with reflect"),
        (nn.Sequential(nn.ConstantPad2d(1, 2.0), nn.Conv2d(4, 4, 3)), "pads with 2.0"),
        (nn.Sequential(nn.ZeroPad2d(1), nn.MaxPool2d(2)), "no convolution follows"),
        (nn.Sequential(nn.ZeroPad2d(-1), nn.Conv2d(4, 4, 3)), "pads by"),
        (nn.ZeroPad2d(1), "no convolution follows"),
        (nn.BatchNorm2d(4), "BatchNorm after the input"),
        (nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.BatchNorm2d(4)), r"2 \(BatchNorm2d.*after Conv with ReLU"),
        (nn.Sequential(nn.MaxPool2d(2), nn.BatchNorm2d(4)), "BatchNorm after MaxPool"),
        (nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)), "statistics of the batch"),
        (nn.Sequential(nn.Conv2d(4, 4, 3), nn.GELU()), r"1 \(GELU, node gelu\): aten.gelu.default is not supported"),
        (nn.ReLU6(), "hardtanh"),
        (nn.Sequential(nn.Softmax(1), nn.Conv2d(4, 4, 3)), "softmax inside"),
        (nn.Softmax(2), "axis 2"),
        (nn.AvgPool2d(3, padding=1), "over the border"),
        (nn.AvgPool2d(3, ceil_mode=True), "over the border"),
        (nn.AvgPool2d(2, divisor_override=3), "divides by 3"),
        (nn.AdaptiveAvgPool2d(5), "sizes that divide"),
        (nn.MaxPool2d(2, dilation=2), "dilation"),
        (nn.Linear(6, 3), "flatten to"),
        (nn.Flatten(), "another order"),
        (nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (1, -1))), "batch axis"),
        (Function(lambda m, x: x.reshape(x.shape[0], 6, 8, 4).relu()), "view of"),
        (Function(lambda m, x: F.max_pool2d(x.reshape(x.shape[0], 6, 8, 4), 2)), "not reshaped"),
        (Function(lambda m, x: x * x), "plain addition"),
        (Function(lambda m, x: torch.add(x, x, alpha=2)), "plain addition"),
        (Function(lambda m, x: x + x[:, :1]), "axis 1"),
        (Function(lambda m, x: x + F.avg_pool2d(x, (8, 6))), "one shape"),
        (Function(lambda m, x: x / 255), "div with a constant after the input"),
        (Function(lambda m, x: F.conv2d(x, x)), "weight depends on the image"),
        (Function(lambda m, x: torch.cat([x, x], 1)), "concatenates"),
        (Function(lambda m, x: x[:, :, 1::2, ::2]), r"takes \[1:"),
        (Function(lambda m, x: F.relu(x[:, :, ::2])), "same step"),
        (Function(lambda m, x: x.mean(1)), "mean over axes"),
        (Function(lambda m, x: x.mean().reshape(1, 1)), "mean over axes"),
        (Function(lambda m, x: x.relu().view(torch.int32)), "another type"),
        (Function(lambda m, x: torch.ones(2, 192).view_as(x) + x), "of constants"),
        (Function(lambda m, x: (x, x)), "2 outputs"),
        (Function(lambda m, x: x.clamp(0, 1)), "clamps"),
        (Function(lambda m, x: x.permute(0, 2, 3, 1)), "permute"),
        (Function(lambda m, x: torch.zeros(2, 3)), "does not depend on the input"),
        (Function(lambda m, x: x if x.sum() > 0 else -x), "cannot trace Function"),
        (Function(lambda m, x: F.conv2d(x, torch.bernoulli(torch.full((4, 4, 3, 3), 0.5)))), "at random"),
        (Function(lambda m, x: F.dropout(x, 0.5, training=True)), "eval mode"),
        (Function(lambda m, x: F.max_pool2d(x, 2, return_indices=True)[1]), "result 1"),
        (Function(lambda m, x: x + torch.arange(6.0)), "one per channel"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(module: nn.Module, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        from_torch(module, pictures((4, 8, 6), 2))


@pytest.mark.parametrize(
    ("module", "example", "message"),
    [
        (nn.Conv2d(3, 4, 3), None, "example"),
        ("net", torch.zeros(1), "found str"),
        (nn.Conv2d(3, 4, 3), torch.zeros(3, 8, 8), "input has shape"),
        (nn.Conv2d(3, 4, 3), "image", "must be a tensor"),
        (Function(lambda m, x: x), torch.zeros(2, 3, 4, 5, 6), "input has shape"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(module: Any, example: Any, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        from_torch(module, example)


def test_two_inputs_are_refused() -> None:
    class Sum(nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a + b

    with pytest.raises(ExportError, match="2 inputs"):
        from_torch(Sum(), (torch.zeros(1, 3, 4, 4), torch.zeros(1, 3, 4, 4)))


def test_program_in_training_mode_is_refused() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).train()
    with pytest.raises(ExportError, match="eval mode"):
        from_torch(torch.export.export(module, (torch.randn(2, 3, 8, 8),)))


def test_sizes_that_are_not_fixed_are_refused() -> None:
    rows = torch.export.Dim("rows", min=4, max=64)
    program = torch.export.export(nn.Conv2d(3, 4, 3), (torch.zeros(2, 3, 8, 8),), dynamic_shapes=({2: rows},))
    with pytest.raises(ExportError, match="must be fixed"):
        from_torch(program)


def test_weights_that_are_no_numbers_are_refused() -> None:
    conv = nn.Conv2d(3, 4, 3)
    conv.weight.data[0, 0, 0, 0] = float("nan")
    with pytest.raises(ExportError, match="NaN"):
        from_torch(conv, torch.zeros(1, 3, 8, 8))


def test_average_flattened_and_read_as_an_image_too() -> None:
    def forward(m: Any, x: Any) -> Any:
        y = m.pool(x)
        return m.fc(y.flatten(1)) + m.conv(y).flatten(1)

    module = Function(forward, pool=nn.AdaptiveAvgPool2d(1), fc=nn.Linear(3, 4), conv=nn.Conv2d(3, 4, 1))
    graph = agrees(module, (3, 4, 6))
    assert {type(op) for op in graph} >= {AveragePool, Flatten, Add}
    assert not any(isinstance(op, (MaxPool, PadShortcut)) for op in graph)


class Branches(nn.Module):
    """Random layers, each reading any tensor before it; views, dropout and identities between them."""

    def __init__(self, seed: int):
        super().__init__()
        self.random = np.random.default_rng(seed)
        self.plan = [int(n) for n in self.random.integers(0, 6, 6)]
        self.reads = [tuple(int(n) for n in self.random.integers(0, 100, 2)) for _ in self.plan]
        self.layers = nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in self.plan)
        self.norms = nn.ModuleList(nn.BatchNorm2d(3) for _ in self.plan)
        self.side = nn.Linear(60, 60)
        self.head = nn.Linear(60, 4)

    def forward(self, x: Any) -> Any:
        tensors = [self.layers[0](x)]
        for move, (a, b), layer, norm in zip(self.plan, self.reads, self.layers, self.norms):
            first, second = tensors[a % len(tensors)], tensors[b % len(tensors)]
            if move == 0:
                tensors.append(norm(layer(first)))
            elif move == 1:
                tensors.append(F.dropout(first, 0.3, self.training))
            elif move == 2:
                tensors.append(F.relu(first.contiguous()))
            elif move == 3:
                tensors.append(first + second)
            elif move == 4:
                tensors.append(F.relu(F.dropout(first, 0.3, self.training)) + first)
            else:
                tensors.append(layer(second))
        flat = tensors[-1].flatten(1)
        return self.head(F.relu(flat) + F.relu(self.side(tensors[len(tensors) // 2].flatten(1))) + flat)


@pytest.mark.parametrize("start", range(0, 30, 10))
def test_random_branches_compute_what_torch_does(start: int) -> None:
    for seed in range(start, start + 10):
        torch.manual_seed(seed)
        agrees(stirred(Branches(seed), (3, 4, 5), seed), (3, 4, 5))
