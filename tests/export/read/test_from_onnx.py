"""ONNX nets give the deploy graph that computes what onnxruntime does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from flipbit.export import from_onnx, oracle
from flipbit.export.check.guard import as_the_model_ends, check
from flipbit.export.commands import convert as command
from flipbit.export.commands import verify
from flipbit.export.graph import (
    Add,
    AveragePool,
    Concat,
    Conv,
    Dense,
    DepthwiseConv,
    ExportError,
    Flatten,
    Graph,
    MaxPool,
    Table,
)
from flipbit.export.quantize import quantize_graph
from flipbit.export.read.onnx_file import load_onnx
from tests.nets.random_nets import int8_graph, random_model

RANDOM = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return RANDOM.normal(0, 0.4, shape).astype(np.float32)


class Net:
    """A model of ONNX, node by node; each call gives the name of its result."""

    def __init__(self, shape: tuple[Any, ...], opset: int = 17):
        self.shape, self.opset = shape, opset
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __call__(self, kind: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> str:
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        made = [f"{kind.lower()}{len(self.nodes)}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, names, made, name=made[0], **attributes))
        return made[0]

    def constant(self, value: Any) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def model(self, result: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)], self.constants,
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)

    def refusal(self, result: str) -> str:
        with pytest.raises(ExportError) as error:
            from_onnx(self.model(result))
        assert len(str(error.value).splitlines()) == 1
        return str(error.value)


def agrees(model: onnx.ModelProto, kinds: list[type] | None = None) -> Graph:
    graph = from_onnx(model)
    assert graph.reference is not None
    images = RANDOM.normal(0, 1, (3, *graph.tensors[graph.input].shape)).astype(np.float32)
    found, expected = as_the_model_ends(oracle.logits(graph, images), graph.reference.ends), graph.reference.run(images)
    if graph.reference.ends == "softmax":
        expected = np.log(expected)
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-4 * np.abs(expected).max())
    if kinds is not None:
        assert [type(op) for op in graph] == kinds
    return graph


def test_a_convolutional_net_with_a_shortcut() -> None:
    net = Net(("batch", 3, 9, 8))
    x = net("Conv", "x", weights(8, 3, 3, 3), weights(8), pads=[1, 1, 1, 1], strides=[2, 2])
    x = net("BatchNormalization", x, weights(8), weights(8), weights(8), np.abs(weights(8)) + 0.3, epsilon=1e-3)
    x = net("Relu", x)
    y = net("Conv", net("Pad", x, np.array([0, 0, 1, 0, 0, 0, 1, 2])), weights(8, 8, 3, 3))
    y = net("Mul", net("Add", y, weights(8, 1, 1)), np.float32(0.5))
    x = net("Relu", net("Add", net("MaxPool", x, kernel_shape=[1, 1]), y))
    shape = net("Concat", net("Slice", net("Shape", x), np.array([0]), np.array([1])), np.array([-1]), axis=0)
    x = net("Gemm", net("Reshape", x, shape), weights(160, 6), weights(6), beta=0.5)
    graph = agrees(net.model(net("Softmax", x, axis=1)))
    assert [op.kind for op in graph] == ["Conv", "Conv", "MaxPool", "Add", "Flatten", "Dense"]
    assert graph.tensors["input"].shape == (9, 8, 3)


def test_channels_last_as_tensorflows_exporters_write_it() -> None:
    net = Net((None, 8, 6, 3))
    x = net(
        "Conv", net("Transpose", "x", perm=[0, 3, 1, 2]), weights(4, 3, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]
    )
    y = net("ReduceMean", net("Transpose", x, perm=[0, 2, 3, 1]), axes=[1, 2], keepdims=0)
    agrees(net.model(net("MatMul", y, weights(4, 3))), [Conv, AveragePool, Dense])
    flat = net("Reshape", net("Transpose", x, perm=[0, 2, 3, 1]), np.array([-1, 48]))
    graph = agrees(net.model(net("MatMul", flat, weights(48, 3))), [Conv, Flatten, Dense])
    assert graph.tensors["input"].shape == (8, 6, 3)
    one = Net((None, 5, 6, 1))  # a transpose of one channel is a reshape
    x = one("Conv", one("Reshape", "x", np.array([-1, 1, 5, 6])), weights(2, 1, 3, 3))
    agrees(one.model(one("GlobalAveragePool", x)))


@pytest.mark.parametrize("binary", [1.0, 0.25])
def test_two_values_in_each_filter_are_bits(binary: float) -> None:
    net = Net((1, 3, 6, 6))
    graph = agrees(net.model(net("Conv", "x", np.where(weights(4, 3, 3, 3) > 0, binary, -binary).astype(np.float32))))
    assert graph.weighted()[0].binary
    assert graph.weighted()[0].scale == pytest.approx(binary)


def test_depthwise_one_dimension_functions_and_concatenation() -> None:
    net = Net((None, 4, 8, 8))
    x = net(
        "Clip",
        net("Conv", "x", weights(4, 1, 3, 3), weights(4), group=4, pads=[1, 1, 1, 1]),
        np.float32(0),
        np.float32(6),
    )
    y = net("Mul", x, net("Sigmoid", x))
    z = net("Mul", net("HardSigmoid", x, alpha=1 / 6, beta=0.5), x)
    parts = [
        net("LeakyRelu", y, alpha=0.2),
        net("Elu", z),
        net("Tanh", x),
        net("HardSwish", x),
        net("PRelu", x, np.float32([0.3])),
    ]
    x = net("Concat", *parts, axis=1)
    x = net("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    graph = agrees(net.model(net("Flatten", net("GlobalMaxPool", x))))
    assert {DepthwiseConv, Table, Concat} <= {type(op) for op in graph}
    assert {str(op.function) for op in graph if isinstance(op, Table)} >= {"swish", "hard_swish", "tanh", "elu(1)"}

    line = Net((None, 2, 20))
    x = line("Relu", line("Conv", "x", weights(5, 2, 3), weights(5), strides=[2], pads=[1, 1]))
    x = line("MaxPool", x, kernel_shape=[2], strides=[2])
    x = line("Gemm", line("Flatten", x), weights(3, 25), transB=1)
    graph = agrees(line.model(x))
    assert graph.tensors["input"].shape == (1, 20, 2)


def test_dilation_zeros_that_count_and_the_largest_of_an_image() -> None:
    net = Net((None, 3, 12, 11))
    x = net("Conv", "x", weights(6, 3, 3, 2), weights(6), dilations=[2, 3], pads=[2, 1, 1, 2])
    x = net("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 0], count_include_pad=1)
    x = net("Conv", x, weights(6, 1, 3, 3), dilations=[2, 2], pads=[2, 2, 2, 2], group=6)
    x = net("ReduceMax", x, axes=[2, 3], keepdims=0)
    agrees(net.model(net("Gemm", x, weights(6, 3))), [Conv, DepthwiseConv, DepthwiseConv, MaxPool, Flatten, Dense])
    sound = Net((None, 2, 40))
    x = sound("Conv", "x", weights(4, 2, 3), dilations=[4], pads=[8, 0])
    agrees(sound.model(sound("Gemm", sound("ReduceMax", x, axes=[2], keepdims=0), weights(4, 3))))


def test_older_opsets_say_with_attributes_what_newer_ones_say_with_inputs() -> None:
    net = Net((1, 2, 6, 6), opset=9)
    x = net("Conv", net("Pad", "x", pads=[0, 0, 1, 1, 0, 0, 1, 1]), weights(3, 2, 3, 3))
    x = net("Clip", x, min=0.0, max=6.0)
    x = net("Squeeze", net("GlobalAveragePool", x), axes=[2, 3])
    agrees(net.model(net("Softmax", net("Gemm", x, weights(3, 4), weights(4)))), [Conv, AveragePool, Dense])


@pytest.mark.parametrize("net", ["resnet8", "vgg-small"])
def test_our_own_files_come_back(net: str, tmp_path: Path) -> None:
    real, graph = int8_graph(random_model(net, (8, 8, 3)))
    real.save(tmp_path / "real.onnx")
    back = from_onnx(tmp_path / "real.onnx")
    assert [(op.kind, op.name) for op in back if op.traits.weights] == [
        (op.kind, op.name) for op in real if op.traits.weights
    ]
    for ours, theirs in zip(real.weighted(), back.weighted()):
        assert ours.binary == theirs.binary
        assert (ours.weights * ours.scale) == pytest.approx(theirs.weights * theirs.scale, rel=1e-6)
    graph.save(tmp_path / "int8.onnx")
    again = quantize_graph(from_onnx(tmp_path / "int8.onnx"), {})
    assert len(again.ops) == len(graph.ops)
    for ours, theirs in zip(graph, again):
        assert ours.traits is theirs.traits
        a, b = graph.tensors[ours.output], again.tensors[theirs.output]
        assert (a.shape, np.float32(a.scale), a.zero_point) == (b.shape, np.float32(b.scale), b.zero_point)
        if ours.traits.shifts:
            assert ours.shift == theirs.shift
    for ours, theirs in zip(graph.weighted(), again.weighted()):
        assert ours.requantize is not None and theirs.requantize is not None
        assert np.array_equal(ours.weights, theirs.weights)
        assert np.array_equal(ours.requantize.bias, theirs.requantize.bias)
        # The scales of int8 weights are float32 in the file: 24 of the multiplier's 31 bits.
        near = 0 if ours.binary else 2.0**-22
        assert ours.requantize.multiplier == pytest.approx(theirs.requantize.multiplier, rel=near, abs=0)


def quantized(model: onnx.ModelProto, folder: Path, **options: Any) -> Path:
    """The QDQ form that onnxruntime makes of a net."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    shape = [d.dim_value or 4 for d in model.graph.input[0].type.tensor_type.shape.dim]

    class Samples(CalibrationDataReader):
        left = 4

        def get_next(self) -> Any:
            self.left -= 1
            return {"x": RANDOM.normal(0, 1, shape).astype(np.float32)} if self.left >= 0 else None

    onnx.save(model, folder / "float.onnx")
    options = {"per_channel": True, "weight_type": QuantType.QInt8, "activation_type": QuantType.QUInt8, **options}
    quantize_static(folder / "float.onnx", folder / "qdq.onnx", Samples(), quant_format=QuantFormat.QDQ, **options)
    return folder / "qdq.onnx"


def small_net() -> onnx.ModelProto:
    net = Net((None, 3, 8, 8))
    x = net("Relu", net("Conv", "x", weights(6, 3, 3, 3), weights(6), pads=[1, 1, 1, 1]))
    y = net("Conv", x, weights(6, 6, 3, 3), weights(6), pads=[1, 1, 1, 1])
    x = net("Relu", net("Add", x, y))
    x = net("Flatten", net("GlobalAveragePool", net("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])))
    return net.model(net("Gemm", x, weights(6, 4), weights(4)))


@pytest.mark.parametrize("signed", [True, False])
def test_a_quantized_net_keeps_its_integers_and_scales(signed: bool, tmp_path: Path) -> None:
    from onnxruntime.quantization import QuantType

    path = quantized(small_net(), tmp_path, activation_type=QuantType.QInt8 if signed else QuantType.QUInt8)
    graph = from_onnx(path)
    integers = quantize_graph(graph, {})
    held = {t.name: numpy_helper.to_array(t) for t in load_onnx(path).graph.initializer}
    (first,) = [array for name, array in held.items() if array.dtype == np.int8 and array.shape == (6, 3, 3, 3)]
    assert np.array_equal(integers.weighted()[0].weights, first.transpose(2, 3, 1, 0))
    scales = {float(array) for array in held.values() if array.dtype == np.float32 and array.ndim == 0}
    assert {tensor.scale for tensor in integers.tensors.values()} <= scales
    integers.save(tmp_path / "net.fbit", (said := []).append)
    assert f"{len(integers.ops)} of {len(integers.ops)} operations as onnxruntime computes them" in said[0]
    assert check(integers, tmp_path / "net.fbit")


def test_a_quantized_net_is_exported_without_sample_images(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = quantized(small_net(), tmp_path)
    pixels = ["--pixel-offset", "128", "--pixel-scale", "1/64", "-o", str(tmp_path / "net.fbit")]
    assert command.main("fbit", [str(path), "--int8-weights", *pixels]) == 0
    assert "scales as the model has them" in capsys.readouterr().out
    pictures = RANDOM.integers(0, 256, (8, 8, 8, 3)).astype(np.uint8)
    np.savez(
        tmp_path / "data.npz", x_train=pictures, y_train=np.zeros(8, int), x_test=pictures, y_test=np.zeros(8, int)
    )
    files = [str(path), str(tmp_path / "net.fbit"), "--data", str(tmp_path / "data.npz")]
    assert verify.main([*files, *pixels[:4]]) == 0
    capsys.readouterr()
    assert command.main("onnx", [str(path), "--int8-weights", *pixels[:4]]) == 2
    assert "would replace the model" in capsys.readouterr().err


def test_asymmetric_weights_and_other_forms_are_refused(tmp_path: Path) -> None:
    from onnxruntime.quantization import QuantType

    path = quantized(small_net(), tmp_path, weight_type=QuantType.QUInt8, per_channel=False)
    with pytest.raises(ExportError, match="its weights are asymmetric"):
        from_onnx(path)
    net = Net((1, 3, 4, 4))
    zero, step = np.uint8(3), np.float32(0.1)
    x = net("DequantizeLinear", net("QuantizeLinear", "x", step, zero), step, zero)
    other = net("DequantizeLinear", net("QuantizeLinear", "x", np.float32(0.2), zero), step, zero)
    assert "which has 0.1 and -125 already" in net.refusal(net("Add", x, other))
    net = Net((1, 3, 4, 4))
    x = net("MaxPool", net("DequantizeLinear", net("QuantizeLinear", "x", step, zero), step, zero), kernel_shape=[2, 2])
    x = net("DequantizeLinear", net("QuantizeLinear", x, np.float32(0.2), zero), np.float32(0.2), zero)
    assert "changes the scale from 0.1 to 0.2" in net.refusal(x)
    net = Net((1, 3, 4, 4))
    x = net("QuantizeLinear", "x", step, np.int16(3))
    assert "8-bit activations are supported, found int16" in net.refusal(net("DequantizeLinear", x, step, np.int16(3)))


def reflected(net: Net) -> str:
    return net("Conv", net("Pad", "x", np.array([0, 0, 1, 1, 0, 0, 1, 1]), mode="reflect"), weights(2, 3, 3, 3))


def at_work(net: Net) -> str:
    return net("BatchNormalization", "x", *[weights(3)] * 4, training_mode=1, outputs=3)


REFUSED: dict[str, tuple[Callable[[Net], str], str]] = {
    "all at once": (lambda n: n("Sin", n("Cos", n("Relu", "x"))), "not supported: cos1.0 (Cos), sin2.0 (Sin);"),
    "upsampling": (lambda n: n("ConvTranspose", "x", weights(3, 4, 2, 2)), "makes images larger"),
    "groups": (lambda n: n("Conv", "x", weights(6, 1, 3, 3), group=3), "3 groups for 3 channels and 6 filters"),
    "dilation": (lambda n: n("Conv", "x", np.sign(weights(4, 3, 2, 2)), dilations=[2, 2]), "[2, 2] of one-bit weights"),
    "dilated pooling": (lambda n: n("MaxPool", "x", kernel_shape=[2, 2], dilations=[2, 2]), "pooling with dilation"),
    "weights of the image": (lambda n: n("Conv", "x", n("Relu", "x")), "its weights depends on the image"),
    "a product": (lambda n: n("Mul", "x", n("Relu", "x")), "of two tensors; addition is supported"),
    "a softmax inside": (lambda n: n("Relu", n("Softmax", "x", axis=1)), "only a final one is supported"),
    "reflected edges": (reflected, "pads with reflect"),
    "reshaped": (lambda n: n("Relu", n("Reshape", "x", np.array([1, 6, 8]))), "reshapes (1, 3, 4, 4) to (1, 6, 8)"),
    "dense on an image": (lambda n: n("MatMul", "x", weights(4, 2)), "flatten it first"),
    "NaN": (lambda n: n("Conv", "x", np.full((2, 3, 1, 1), np.nan, np.float32)), "NaN"),
    "a huge constant": (lambda n: n("Add", "x", n("ConstantOfShape", np.array([1 << 20] * 2))), "larger than any"),
    "a sine of weights": (lambda n: n("Conv", "x", n("Sin", weights(2, 3, 1, 1))), "of constants is not supported"),
    "nonsense": (lambda n: n("Conv", "x", n("Gather", weights(2), np.array([0]), axis=7)), "do not fit each other"),
    "statistics of the batch": (at_work, "evaluation mode"),
    "the order of the output": (lambda n: n("Flatten", n("Relu", "x")), "end with a dense layer"),
}  # fmt: skip


def test_all_that_is_refused_is_said_at_once() -> None:
    net = Net((1, 4, 8, 8))
    x = net("Conv", "x", weights(4, 2, 3, 3), group=2, pads=[1, 1, 1, 1])
    x = net("Sin", net("PRelu", x, np.float32([[[0.1]], [[0.2]], [[0.3]], [[0.4]]])))
    x = net("ConvTranspose", x, weights(4, 4, 2, 2), strides=[2, 2])
    said = net.refusal(net("Conv", net("Cos", x), weights(2, 4, 3, 3), group=1, dilations=[0, 1]))
    parts = ["4 complaints: (1) conv0.0 (Conv): 2 groups", "prelu1.0 (PRelu)", "sin2.0 (Sin)", "cos4.0 (Cos)"]
    parts += ["convtranspose3.0 (ConvTranspose: makes images larger", "conv5.0 (Conv): [0, 1] as a size"]
    assert all(part in said for part in parts), said
    assert said.count("supported are Conv (also depthwise") == 1


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_said_in_one_line(name: str) -> None:
    make, expected = REFUSED[name]
    net = Net((1, 3, 4, 4))
    assert expected in net.refusal(make(net))


def test_weights_beside_the_file_are_read_and_only_there(tmp_path: Path) -> None:
    net = Net((1, 3, 4, 4))
    model = net.model(net("Conv", "x", weights(2, 3, 3, 3)))
    path = tmp_path / "net.onnx"
    onnx.save(model, path, save_as_external_data=True, location="net.onnx.data", size_threshold=0)
    agrees(load_onnx(path))

    def refusal(**entries: str) -> str:
        changed = onnx.load(path, load_external_data=False)
        for entry in changed.graph.initializer[0].external_data:
            entry.value = entries.get(entry.key, entry.value)
        (tmp_path / "bad.onnx").write_bytes(changed.SerializeToString())
        with pytest.raises(ExportError) as error:
            load_onnx(tmp_path / "bad.onnx")
        return str(error.value)

    for place in ("../net.onnx.data", "/etc/passwd", "..", "a/b", ""):
        assert "not in a file beside it" in refusal(location=place)
    (tmp_path / "link").symlink_to(tmp_path / "net.onnx.data")
    assert "not in a file beside it" in refusal(location="link")
    assert "No such file" in refusal(location="none.data")
    assert "outside" in refusal(offset="1000000")
    assert "outside" in refusal(length="-5")


def test_files_that_are_no_model_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    content = small_net().SerializeToString()
    for broken in (content[: len(content) // 2], content[:-1], RANDOM.bytes(3000), b"\x08"):
        path.write_bytes(broken)
        with pytest.raises(ExportError) as error:
            from_onnx(path)
        assert len(str(error.value).splitlines()) == 1
    model = small_net()
    model.graph.initializer[0].dims[0] = 1 << 40
    with pytest.raises(ExportError, match="do not make its shape"):
        from_onnx(model)
    model = small_net()
    model.opset_import[0].version = 5
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ExportError, match="opset 5; opset 9 and newer are read"):
        from_onnx(path)


@pytest.mark.parametrize("varying", [False, True])
def test_what_pytorch_exports_is_read(varying: bool, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    from torch import nn

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 3, 2, groups=8),
        nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(), nn.Linear(72, 10), nn.BatchNorm1d(10), nn.LogSoftmax(1),
    ).eval()  # fmt: skip
    path = tmp_path / "net.onnx"
    more = {"dynamic_axes": {"x": {0: "batch"}}} if varying else {}
    torch.onnx.export(net, (torch.zeros(2, 3, 14, 14),), path, dynamo=False, input_names=["x"], **more)
    graph = agrees(load_onnx(path))
    images = RANDOM.normal(0, 1, (2, 14, 14, 3)).astype(np.float32)
    with torch.no_grad():
        expected = net(torch.tensor(images.transpose(0, 3, 1, 2).copy())).numpy()
    assert as_the_model_ends(oracle.logits(graph, images), "log_softmax") == pytest.approx(expected, abs=1e-4)
    assert isinstance(graph.ops[-1], Dense) and not any(isinstance(op, Add) for op in graph)
