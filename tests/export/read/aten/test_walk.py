"""What is not supported is refused, and the message names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from flipbit.export.graph import ExportError  # noqa: E402
from flipbit.export.read.from_torch import from_torch  # noqa: E402
from tests.nets.torch_nets import (  # noqa: E402
    Function,
    pictures,
)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Conv2d(4, 4, 3, groups=2), "2 groups"),
        (nn.ConvTranspose2d(4, 4, 3), "conv_transpose2d.*upsampling is not supported"),
        (nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), "pads with reflect"),
        (nn.Sequential(nn.ConstantPad2d(1, 2.0), nn.Conv2d(4, 4, 3)), "pads with 2.0"),
        (nn.Sequential(nn.ZeroPad2d(1), nn.MaxPool2d(2)), "no convolution follows"),
        (nn.Sequential(nn.ZeroPad2d(-1), nn.Conv2d(4, 4, 3)), "pads by"),
        (nn.ZeroPad2d(1), "no convolution follows"),
        (nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)), "statistics of the batch"),
        (nn.Sequential(nn.Conv2d(4, 4, 3), nn.Mish()), r"1 \(Mish, node mish\): aten.mish.default is not supported"),
        (nn.Sequential(nn.Softmax(1), nn.Conv2d(4, 4, 3)), "softmax inside"),
        (nn.Softmax(2), "axis 2"),
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
        (Function(lambda m, x: F.conv2d(x, x)), "weight depends on the image"),
        (Function(lambda m, x: torch.cat([x, x], 2)), "concatenates along axis 2"),
        (Function(lambda m, x: x[:, :, 1::2, ::2]), r"takes \[1:"),
        (Function(lambda m, x: F.relu(x[:, :, ::2])), "same step"),
        (Function(lambda m, x: x.mean(1)), "mean over axes"),
        (Function(lambda m, x: x.mean().reshape(1, 1)), "mean over axes"),
        (Function(lambda m, x: x.relu().view(torch.int32)), "another type"),
        (Function(lambda m, x: torch.ones(2, 192).view_as(x) + x), "of constants"),
        (Function(lambda m, x: (x, x)), "2 outputs"),
        (Function(lambda m, x: x.clamp(max=1)), "clamps to None … 1"),
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


def test_a_program_may_not_call_what_has_effects(tmp_path: Path) -> None:
    """Constants are computed on the way: nothing but functions of tensors may be called for them."""
    x = pictures((2, 6, 4), 1)
    program = torch.export.export(Function(lambda m, x: x + torch.zeros(2, 1, 1)), (x,))
    (zeros,) = [node for node in program.graph.nodes if "zeros" in str(node.target)]
    zeros.target, zeros.args, zeros.kwargs = torch.ops.aten.from_file.default, (str(tmp_path / "made"), True, 2), {}
    with pytest.raises(ExportError, match="from_file"):
        from_torch(program)
    assert not (tmp_path / "made").exists()
