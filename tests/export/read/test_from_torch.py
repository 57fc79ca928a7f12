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
