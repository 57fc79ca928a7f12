"""PyTorch nets give the deploy graph that computes what they do."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from flipbit.export import oracle  # noqa: E402
from flipbit.export.calibrate import calibrate  # noqa: E402
from flipbit.export.graph import Add, Conv, ExportError, Relu  # noqa: E402
from flipbit.export.quantize import quantize_graph  # noqa: E402
from flipbit.export.read.from_torch import from_torch, load_torch  # noqa: E402
from tests.nets.torch_nets import (  # noqa: E402
    BINARY,
    Function,
    ResNet,
    ScaledConv,
    Vgg,
    agrees,
    channels_last,
    kinds,
    pictures,
    stirred,
)


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


class Branches(nn.Module):
    """Two branches, concatenated, and a depthwise convolution of both."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 5, 1)
        self.depthwise, self.last = nn.Conv2d(9, 9, 3, 2, 1, groups=9), nn.Linear(9, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = torch.cat([self.one(x), torch.relu(self.other(x))], 1)
        return self.last(F.adaptive_max_pool2d(F.hardswish(self.depthwise(both)), 1).flatten(1))


def test_depthwise_concatenation_and_the_largest_of_all_pixels() -> None:
    torch.manual_seed(0)
    graph = agrees(Branches().eval(), (3, 8, 8))
    assert kinds(graph) == ["Conv", "Conv", "Concat", "DepthwiseConv", "Table", "MaxPool", "Flatten", "Dense"]


@pytest.mark.parametrize(
    "activation",
    [nn.ReLU6(), nn.LeakyReLU(0.2), nn.ELU(), nn.Sigmoid(), nn.Tanh(), nn.SiLU(), nn.GELU(), nn.GELU("tanh"),
     nn.Hardsigmoid(), nn.Hardswish(), nn.PReLU(), nn.Hardtanh()],
    ids=str,
)  # fmt: skip
def test_functions_of_one_value(activation: nn.Module) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), activation, nn.Flatten(), nn.Linear(96, 4))
    graph = agrees(net.eval(), (3, 6, 6))
    assert ("Table" in kinds(graph)) != isinstance(activation, nn.ReLU6)  # which is fused


class Pooled(nn.Module):
    """BatchNorms and constants where nothing can take them in: behind a ReLU, pooling, an addition, on the input."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (3, 6, 6, 6))
        self.pool, self.last, self.end = pool, nn.BatchNorm1d(6), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norms[1](torch.relu(self.first(self.norms[0](x))))
        x = self.norms[2](self.pool(x))
        x = torch.relu(self.norms[3](self.second(x) + x) * 0.5 - 0.1)
        return self.end(self.last(x.mean((2, 3))))


POOLS = {
    "whole": nn.AvgPool2d(2),
    "zeros count": nn.AvgPool2d(3, 2, 1),
    "zeros count, other sides": nn.AvgPool2d((2, 3), (1, 2), (1, 0)),
    "zeros do not count": nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    "beyond the border": nn.AvgPool2d(3, 2, ceil_mode=True),
    "beyond the border, zeros do not count": nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
    "largest": nn.MaxPool2d(3, 2, 1),
}


@pytest.mark.parametrize("pool", POOLS)
def test_batch_norm_anywhere_and_pooling_over_the_border(pool: str) -> None:
    torch.manual_seed(0)
    agrees(stirred(Pooled(POOLS[pool]), (3, 8, 8)), (3, 8, 8))


@pytest.mark.parametrize("padding", [0, 2, "same"])
def test_dilation_as_zeros_between_weights(padding: int | str) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3, padding=padding, dilation=2), nn.ReLU(), nn.Conv2d(6, 6, (1, 2), dilation=3, groups=6)]
    agrees(nn.Sequential(*layers).eval(), (3, 9, 9))


class Gate(nn.Module):
    """Squeeze-and-excite."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.fc(x.mean((2, 3), keepdim=True)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.end = nn.LSTM(64, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.end(self.lstm(x.flatten(2))[0][:, -1])


REFUSED = {
    "gate": (lambda: Gate(3), r"mul.* of two tensors.*squeeze-and-excite"),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 2, 2), r"conv_transpose2d.*upsampling is not supported; end the"),
    "upsampling": (lambda: nn.Upsample(scale_factor=2), "upsampling is not supported"),
    "groups": (lambda: nn.Conv2d(3, 6, 3, groups=3), "3 groups for 6 filters; supported are 1 group, and one filter"),
    "layer norm": (lambda: nn.LayerNorm([3, 8, 8]), "layer_norm.*use BatchNorm"),
    "group norm": (lambda: nn.GroupNorm(1, 3), "group_norm.*use BatchNorm"),
    "ceil": (lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True), "use count_include_pad=False"),
    "divisor": (lambda: nn.AvgPool2d(2, divisor_override=3), "divides by 3; the window's size is supported"),
    "dilated bits": (lambda: DilatedSign(3, 4, 3), "dilation .2, 2. of one-bit weights; 1 is supported"),
    "recurrent": (Recurrent, "recurrent layers are not supported; use convolutions"),
}


class DilatedSign(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, torch.sign(self.weight), self.bias, dilation=2)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_refused_with_what_to_use_instead(name: str) -> None:
    make, words = REFUSED[name]
    with pytest.raises(ExportError, match=words):
        from_torch(make().eval(), pictures((3, 8, 8), 1))


def test_all_that_is_wrong_with_a_net_is_said_at_once_by_module_and_with_the_supported_said_once() -> None:
    layers = [Gate(3), nn.GroupNorm(1, 3), nn.Conv2d(3, 6, 3, groups=3), nn.Softplus(), nn.Upsample(scale_factor=2)]
    with pytest.raises(ExportError) as caught:
        from_torch(nn.Sequential(*layers, nn.Softplus(), nn.Flatten(), nn.Linear(864, 2)), pictures((3, 8, 8), 1))
    said = str(caught.value)
    assert said.startswith("6 operations cannot be exported: (1) 0 (Gate, ") and "(6) 5 (Softplus" in said
    for words in ("squeeze-and-excite", "use BatchNorm", "3 groups for 6", "softplus", "upsampling is not supported"):
        assert words in said
    assert said.count("supported are Conv2d (also depthwise)") == 1 and "\n" not in said
