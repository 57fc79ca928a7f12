"""ONNX files, run by stock onnxruntime, against Keras and the oracle."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipbit.export import oracle
from flipbit.export.calibrate import calibrate
from flipbit.export.graph import (
    Add,
    AveragePool,
    Conv,
    Dense,
    ExportError,
    Flatten,
    Graph,
    MaxPool,
    Op,
    PadShortcut,
    Relu,
    Requantize,
    Tensor,
)
from flipbit.export.quantize import quantize_graph

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from flipbit.export.write.onnx_file import onnx_model, write_onnx  # noqa: E402

# Widths and images that leave nothing round: 3, 13 and 100 channels, sides that are odd or differ.
NETS: dict[str, tuple[float, tuple[int, int, int]]] = {
    "vgg9": (0.2, (9, 14, 3)),
    "vgg-bc": (0.1, (8, 11, 3)),
    "resnet56": (0.2, (10, 10, 3)),
    "wrn-56-2": (0.1, (9, 8, 3)),
    "resnet18": (0.1, (39, 30, 3)),
    "resnet20": (0.8, (12, 9, 1)),
    "resnet8": (1.5625, (13, 10, 3)),
    "flip-s": (0.8, (11, 8, 3)),
    "flip-m": (0.4, (8, 9, 3)),
    "flip-l": (0.4, (9, 8, 3)),
    "vgg-small": (0.8, (8, 13, 1)),
    "bireal": (0.5, (8, 12, 3)),
    "teacher": (0.1, (11, 8, 3)),
}


@dataclass
class Net:
    graph: Graph
    quantized: Graph
    images: np.ndarray
    keras: np.ndarray


@cache
def net(name: str) -> Net:
    """A net of random signs, its BatchNorm gains of either sign, with what Keras computes on random images."""
    from flipbit.export.read.from_keras import from_keras
    from flipbit.train.nets.networks import Layers, build

    seeds = sorted(NETS, key=lambda net: (net == "bireal", net))  # by place, what came later behind
    random = np.random.default_rng(seeds.index(name))
    width, shape = NETS[name]
    model = build(name, shape, 10, Layers(width=width))
    # Patches of colour under noise, so that images differ in more than what averages out.
    patches = random.normal(0, 0.7, (32, 2, 2, shape[2])).repeat(-(-shape[0] // 2), 1).repeat(-(-shape[1] // 2), 2)
    images = (patches[:, : shape[0], : shape[1]] + random.normal(0, 0.3, (32, *shape))).astype(np.float32)
    norms = [layer for layer in model.layers if layer.name.endswith("_bn")]
    for layer in norms:
        n = layer.gamma.shape[0]
        layer.gamma.assign(random.uniform(0.5, 1.5, n) * random.choice([-1, 1], n))
        layer.beta.assign(random.normal(0, 0.3, n))
        layer.momentum = 0.0
    model(images, training=True)
    for layer in norms:  # near what was seen, as after training, but not the same
        mean, variance = layer.moving_mean.numpy(), layer.moving_variance.numpy()
        layer.moving_mean.assign(mean + random.normal(0, 0.1, len(mean)) * np.sqrt(variance))
        layer.moving_variance.assign(variance * random.uniform(0.7, 1.4, len(variance)))
    graph = from_keras(model, [f"class {i}" for i in range(10)])
    quantized = quantize_graph(graph, calibrate(graph, images))
    return Net(graph, quantized, images, model(images, training=False).numpy())


def session(model: Any, optimized: bool = True, save: Path | None = None, precise: bool = False) -> Any:
    options = ort.SessionOptions()
    if precise:  # on x86 without VNNI: sums that cannot saturate
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if save:
        options.optimized_model_filepath = str(save)
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(model: Any, images: np.ndarray, optimized: bool = True) -> np.ndarray:
    (output,) = session(model, optimized).run(None, {"image": images})
    return output


def integers(graph: Graph, images: np.ndarray, optimized: bool) -> dict[str, np.ndarray]:
    """Every tensor of a quantized graph as onnxruntime computes it, as int8 with channels last."""
    model = onnx_model(graph)
    names = [f"{name}/uint8" for name in graph.tensors]
    for name in names:
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UINT8, None))
    values = {}
    for name, value in zip(graph.tensors, session(model, optimized).run(names, {"image": images})):
        value = (value.astype(np.int16) - 128).astype(np.int8)
        values[name] = value.transpose(0, 2, 3, 1) if value.ndim == 4 else value
    return values


def steps_apart(graph: Graph, images: np.ndarray, optimized: bool = True) -> np.ndarray:
    """How far the file's output is from the oracle's, in steps of the output."""
    scale = graph.tensors[graph.output].scale
    assert scale is not None
    return np.abs(np.round((run(onnx_model(graph), images, optimized) - oracle.logits(graph, images)) / scale))


@pytest.mark.parametrize("name", NETS)
def test_float_file_computes_what_keras_does(name: str) -> None:
    n = net(name)
    found = run(onnx_model(n.graph), n.images)
    np.testing.assert_allclose(found, n.keras, rtol=0, atol=1e-4 * np.abs(n.keras).max())
    np.testing.assert_allclose(found, oracle.logits(n.graph, n.images), rtol=0, atol=1e-5 * np.abs(n.keras).max())


@pytest.mark.parametrize("optimized", [True, False])
@pytest.mark.parametrize("name", NETS)
def test_int8_operations_are_at_most_one_step_from_the_oracle(name: str, optimized: bool) -> None:
    n = net(name)
    values = integers(n.quantized, n.images, optimized)
    assert np.array_equal(values["input"], oracle.quantize(n.images, n.quantized.tensors["input"]))
    differ, total = 0, 0
    for op in n.quantized:
        # The oracle on onnxruntime's own inputs of this operation: what it does differently, not what it was given.
        expected = oracle._INTEGER[type(op)](n.quantized, op, *[values[x] for x in op.inputs])
        apart = np.abs(values[op.output].astype(int) - expected)
        assert apart.max() <= 1, op.name
        differ, total = differ + np.count_nonzero(apart), total + apart.size
    # Without fusing, onnxruntime sums up float32: values that lie on a tie may then fall to either side.
    assert differ / total <= (2e-5 if optimized else 1e-3)


@pytest.mark.parametrize("name", NETS)
def test_int8_net_is_few_steps_from_the_oracle_and_names_the_same_class(name: str) -> None:
    n = net(name)
    scale, expected = n.quantized.tensors[n.quantized.output].scale, oracle.logits(n.quantized, n.images)
    found = run(onnx_model(n.quantized), n.images)
    apart = np.abs(np.round((found - expected) / scale))
    assert apart.max() <= 8  # one step early in an untrained, deep net grows
    # A value in 50,000 may be one step off, and of an image of a deep net any of them spreads to all classes.
    assert (apart == 0).mean() >= 0.5
    assert (found.argmax(1) == expected.argmax(1)).mean() >= 0.96  # one of 32 may be a draw


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("name", ["vgg9", "resnet18", "resnet20"])
def test_packed_and_unpacked_files_give_identical_numbers(name: str, quantized: bool) -> None:
    n = net(name)
    graph = n.quantized if quantized else n.graph
    packed, plain = onnx_model(graph), onnx_model(graph, packed=False)
    assert packed.ByteSize() < plain.ByteSize()
    assert np.array_equal(run(packed, n.images), run(plain, n.images))


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("name", ["vgg9", "resnet8", "resnet20"])
def test_onnxruntime_folds_the_unpacking_and_fuses_integers(name: str, quantized: bool, tmp_path: Path) -> None:
    n = net(name)
    kinds = []
    for packed in (True, False):
        graph = n.quantized if quantized else n.graph
        session(onnx_model(graph, packed), save=tmp_path / "optimized.onnx")
        kinds.append(sorted(node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node))
    assert kinds[0] == kinds[1]
    assert "Gather" not in kinds[0]
    if quantized:
        assert kinds[0].count("QLinearConv") == sum(isinstance(op, Conv) for op in n.graph)
        assert not {"Conv", "FusedConv", "Gemm", "MatMul", "Add", "Relu", "GlobalAveragePool"} & set(kinds[0])


# Graphs made by hand: one operation at a time, in every shape.


def signs(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.choice(np.array([-1, 1], np.int8), shape)


def conv(name: str, x: str, weights: np.ndarray, **fields: Any) -> Conv:
    random = np.random.default_rng(7)
    n = weights.shape[-1]
    scale = random.uniform(0.5, 2, n) / np.sqrt(weights[..., 0].size)
    return Conv(name, (x,), name, weights, scale, random.normal(0, 0.5, n), binary=True, **fields)


def chain(shape: tuple[int, ...], *ops: Op) -> Graph:
    """A graph of ``ops``; the shapes of their results are found by running them, in real numbers."""
    tensors, values = {"input": Tensor("input", shape)}, {"input": np.zeros((1, *shape))}
    for op in ops:
        known = Graph("input", op.output, [op], {**tensors, op.output: Tensor(op.output, (0,))})
        if isinstance(op, AveragePool) and shape[:2] == op.size:
            known.tensors[op.output] = Tensor(op.output, shape[2:])
        elif isinstance(op, AveragePool):
            h, w = ((n - k) // s + 1 for n, k, s in zip(values[op.inputs[0]].shape[1:3], op.size, op.stride))
            known.tensors[op.output] = Tensor(op.output, (h, w, shape[2]))
        values[op.output] = oracle._REAL[type(op)](known, op, *[values[x] for x in op.inputs])
        tensors[op.output] = Tensor(op.output, values[op.output].shape[1:])
    return Graph("input", ops[-1].output, list(ops), tensors)


def both(graph: Graph, seed: int = 0, count: int = 4) -> None:
    """The file of a graph and of its quantized form against the oracle."""
    images = np.random.default_rng(seed).normal(0, 1, (count, *graph.tensors["input"].shape)).astype(np.float32)
    expected = oracle.logits(graph, images)
    found = run(onnx_model(graph), images)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * max(1.0, np.abs(expected).max()))
    quantized = quantize_graph(graph, calibrate(graph, images))
    assert steps_apart(quantized, images).max() <= 1


@settings(max_examples=40)
@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(*[st.integers(0, 4)] * 4),
    channels=st.sampled_from([1, 3, 8, 13, 16, 100]),
    filters=st.sampled_from([1, 3, 13, 16, 100]),
    relu=st.booleans(),
    binary=st.booleans(),
    seed=st.integers(0, 99),
)
def test_convolutions_of_every_shape(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    channels: int,
    filters: int,
    relu: bool,
    binary: bool,
    seed: int,
) -> None:
    kernel = (min(kernel[0], size[0] + sum(padding[:2])), min(kernel[1], size[1] + sum(padding[2:])))
    random, shape = np.random.default_rng(seed), (*kernel, channels, filters)
    weights = signs(random, *shape) if binary else random.normal(0, 1, shape)
    layer = conv("conv", "input", weights, stride=stride, padding=padding, relu=relu)
    both(chain((*size, channels), replace(layer, binary=binary)), seed, 2)


@pytest.mark.parametrize(
    "ops",
    [
        [MaxPool("pool", ("input",), "pool", (3, 3), (2, 2), (0, 1, 1, 1))],
        [MaxPool("pool", ("input",), "pool", (2, 3), (1, 2))],
        [AveragePool("mean", ("input",), "mean", (2, 3), (2, 1))],
        [AveragePool("mean", ("input",), "mean", (7, 10), (7, 10))],
        [PadShortcut("short", ("input",), "short", 2, 13), Relu("relu", ("short",), "relu")],
        [PadShortcut("short", ("input",), "short", 1, 3), Add("add", ("input", "short"), "add", relu=True)],
        [Relu("relu", ("input",), "relu"), Add("add", ("relu", "input"), "add")],
        [Flatten("flat", ("input",), "flat")],
    ],
    ids=lambda ops: "-".join(op.kind for op in ops),
)
def test_operations_without_weights(ops: list[Op]) -> None:
    both(chain((7, 10, 3), *ops))


@pytest.mark.parametrize("binary", [True, False])
def test_flattening_keeps_the_order_height_width_channels(binary: bool) -> None:
    random = np.random.default_rng(0)
    weights = signs(random, 3 * 5 * 13, 7) if binary else random.normal(0, 1, (3 * 5 * 13, 7))
    dense = Dense("dense", ("flat",), "dense", weights, np.full(7, 0.1), random.normal(0, 1, 7), binary)
    both(chain((3, 5, 13), Flatten("flat", ("input",), "flat"), dense))


def test_a_vector_can_be_the_input() -> None:
    random = np.random.default_rng(0)
    both(chain((13,), Dense("dense", ("input",), "dense", signs(random, 13, 3), np.ones(3), np.ones(3), True, True)))


def test_names_that_the_file_uses_itself_do_not_collide() -> None:
    weights = signs(np.random.default_rng(0), 2, 2, 3, 3)
    for names in (["image", "image/Conv"], ["a/uint8", "a", "signs"], ["a/weights", "a"]):
        sources = ["input", *names]
        both(chain((5, 5, 3), *[conv(name, x, weights) for name, x in zip(names, sources)]))


@pytest.mark.parametrize("multiplier", [2**14, 3 * 2**12, 41 * 2**11])
@pytest.mark.parametrize("relu", [True, False])
def test_ties_go_away_from_zero_as_on_the_device(multiplier: int, relu: bool) -> None:
    graph = chain((4, 64, 1), conv("conv", "input", np.ones((1, 1, 1, 1), np.int8), relu=relu))
    values = np.arange(-128, 128).reshape(1, 4, 64, 1).astype(np.int8)
    graph = quantize_graph(graph, calibrate(graph, values / 128), (1 / 128, 0))
    (layer,) = graph.weighted()
    graph.ops[0] = replace(layer, requantize=Requantize(np.array([40]), np.array([multiplier]), 17))
    products = (values.astype(int) + 40) * multiplier
    assert (products[products > 0] % 2**18 == 2**16).any()  # some lie half way above an even number
    assert steps_apart(graph, values / np.float32(128)).max() == 0


def pair_sums(weights: np.ndarray) -> int:
    """The largest sum of two products of uint8 and these weights: what a CPU without VNNI keeps in 16 bits."""
    return int(2 * 255 * np.abs(weights.astype(int)).max())


def extreme(seed: int, kernel: int, channels: int, filters: int) -> tuple[Graph, np.ndarray]:
    """A convolution and a dense layer of weights at ±127 everywhere, and images of 0 and 255 alone."""
    random = np.random.default_rng(seed)
    size, padding = (6, 5), (kernel // 2,) * 4

    def weights(*shape: int) -> np.ndarray:
        found = random.choice([-1.0, 1.0], shape)
        found[..., ::2] = 1.0  # sums that only grow
        found[(0,) * len(shape)] = 0.99  # not quite binary
        return found

    layers: list[Op] = [
        Conv("conv", ("input",), "conv", weights(kernel, kernel, channels, filters),
             random.uniform(0.005, 0.011, filters), random.normal(0, 1, filters), padding=padding),
        Flatten("flat", ("conv",), "flat"),
        Dense("dense", ("flat",), "dense", weights(6 * 5 * filters, 7), random.uniform(0.005, 0.011, 7), np.zeros(7)),
    ]  # fmt: skip
    graph = chain((*size, channels), *layers)
    images = random.choice([-1.0, 127 / 128], (12, *size, channels)).astype(np.float32)
    images[0], images[1] = 127 / 128, -1
    return quantize_graph(graph, calibrate(graph, images * np.float32(0.83)), (1 / 128, 0)), images


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize(
    ("kernel", "channels", "filters"), [(1, 3, 5), (3, 3, 16), (3, 16, 32), (1, 64, 64), (3, 64, 8)]
)
def test_weights_at_127_and_extreme_images_saturate_nowhere(
    kernel: int, channels: int, filters: int, precise: bool
) -> None:
    graph, images = extreme(kernel + channels, kernel, channels, filters)
    assert all(np.mean(np.abs(op.weights) == 127) > 0.9 for op in graph.weighted())
    model = onnx_model(graph)
    for name in graph.tensors:
        model.graph.output.append(onnx.helper.make_tensor_value_info(f"{name}/uint8", onnx.TensorProto.UINT8, None))
    found = session(model, precise=precise).run([f"{name}/uint8" for name in graph.tensors], {"image": images})
    expected = oracle.run(graph, images)
    for name, value in zip(graph.tensors, found):
        value = value.transpose(0, 2, 3, 1) if value.ndim == 4 else value
        assert np.array_equal(value.astype(int) - 128, expected[name]), name


def test_no_pair_of_products_with_int8_weights_can_exceed_16_bits() -> None:
    graph, _ = extreme(0, 3, 16, 8)
    values = {t.name: onnx.numpy_helper.to_array(t) for t in onnx_model(graph).graph.initializer}
    for op in graph.weighted():
        assert values[f"{op.name}/uint8_weights"].dtype == np.uint8
        assert (values[f"{op.name}/zeros"] == 128).all()
    signed = [v for v in values.values() if v.dtype == np.int8 and v.size > 1]
    assert all(pair_sums(v) < 2**15 for v in signed)
    binary = onnx_model(net("vgg9").quantized, packed=False)
    signed = [onnx.numpy_helper.to_array(t) for t in binary.graph.initializer if t.data_type == onnx.TensorProto.INT8]
    assert signed
    assert all(pair_sums(v) < 2**15 for v in signed)


# The file


def vgg9_convolutions() -> Graph:
    """The conv part of the paper's VGG-9 at full width, 1.7 million weights."""
    random = np.random.default_rng(0)
    ops: list[Op] = []
    tensors = {"input": Tensor("input", (32, 32, 3))}
    x, side, channels = "input", 32, 3
    for number, width in enumerate([64, 64, 0, 128, 128, 0, 256, 256, 256, 0]):
        if width:
            ops.append(conv(f"conv{number}", x, signs(random, 3, 3, channels, width), relu=True, padding=(1, 1, 1, 1)))
            channels = width
        else:
            ops.append(MaxPool(f"pool{number}", (x,), f"pool{number}"))
            side //= 2
        x = ops[-1].output
        tensors[x] = Tensor(x, (side, side, channels))
    return Graph("input", x, ops, tensors)


def test_vgg9_convolutions_take_a_twentieth_of_the_float_file() -> None:
    graph = vgg9_convolutions()
    packed, plain = onnx_model(graph).ByteSize(), onnx_model(graph, packed=False).ByteSize()
    assert plain > 4 * 1_735_000
    assert packed * 20 <= plain
    assert packed * 8 <= 1.1 * 1_735_000 + 8 * 15_000  # and little beyond the bits themselves


def test_same_graph_gives_the_same_bytes(tmp_path: Path) -> None:
    graph = net("resnet8").quantized
    for name in ("a.onnx", "b.onnx"):
        write_onnx(graph, tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.onnx", "b.onnx"]


@pytest.mark.parametrize("quantized", [False, True])
def test_file_says_what_a_user_must_know(quantized: bool, tmp_path: Path) -> None:
    n = net("resnet8")
    write_onnx(n.quantized if quantized else n.graph, tmp_path / "m.onnx", input_formula="(pixel - 128) / 128")
    model = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert {p.key: p.value for p in model.metadata_props} == {
        "input": "(pixel - 128) / 128",
        "labels": "[" + ", ".join(f'"class {i}"' for i in range(10)) + "]",
    }
    assert (model.producer_name, model.ir_version, model.opset_import[0].version) == ("flipbit", 10, 21)
    assert {op.domain for op in model.opset_import} == {""}
    assert not any(tensor.external_data for tensor in model.graph.initializer)
    (image,) = ort.InferenceSession(tmp_path / "m.onnx").get_inputs()
    assert (image.name, image.type, image.shape) == ("image", "tensor(float)", ["batch", 13, 10, 3])


def test_a_batch_of_any_size_is_taken() -> None:
    n = net("resnet8")
    model = session(onnx_model(n.quantized))
    whole = model.run(None, {"image": n.images})[0]
    for part in (n.images[:1], n.images[:7]):
        assert np.array_equal(model.run(None, {"image": part})[0], whole[: len(part)])


# Refusals


class Softmax(Op):
    pass


def test_operation_without_onnx_form_is_refused_by_name(tmp_path: Path) -> None:
    tensors = {name: Tensor(name, (3,)) for name in ("input", "soft")}
    graph = Graph("input", "soft", [Softmax("soft", ("input",), "soft")], tensors)
    with pytest.raises(ExportError, match=r"soft: Softmax .* supported are Conv, .*Dense"):
        write_onnx(graph, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_nan_is_refused() -> None:
    layer = conv("conv", "input", signs(np.random.default_rng(0), 1, 1, 1, 1))
    with pytest.raises(ExportError, match="conv: its bias hold NaN"):
        onnx_model(chain((2, 2, 1), replace(layer, bias=np.array([np.nan]))))


def test_graph_quantized_in_part_is_refused() -> None:
    graph = chain((4, 4, 3), conv("conv", "input", signs(np.random.default_rng(0), 3, 3, 3, 3)))
    graph.tensors["input"] = replace(graph.tensors["input"], scale=0.1)
    with pytest.raises(ExportError, match="conv: is in real numbers"):
        onnx_model(graph)


def test_graph_whose_shapes_contradict_each_other_is_refused() -> None:
    graph = chain((4, 4, 3), conv("conv", "input", signs(np.random.default_rng(0), 3, 3, 3, 3)))
    graph.tensors["conv"] = Tensor("conv", (9, 9, 9))
    with pytest.raises(ExportError, match="valid ONNX"):
        onnx_model(graph)


def test_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    graph = chain((4, 4, 3), conv("conv", "input", signs(np.random.default_rng(0), 3, 3, 3, 3)))
    with pytest.raises(OSError, match="No such file or directory"):
        write_onnx(graph, tmp_path / "nowhere" / "m.onnx")
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(OSError, match="is a folder, expected a file"):
        write_onnx(graph, tmp_path / "folder.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.onnx"]


def test_failure_keeps_the_file_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = chain((4, 4, 3), conv("conv", "input", signs(np.random.default_rng(0), 3, 3, 3, 3)))
    path = tmp_path / "m.onnx"
    path.write_bytes(b"before")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_onnx(graph, path)
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
