"""Keras models to deploy graphs: folding is exact, and what is not supported is said."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from flipbit.export import oracle
from flipbit.export.check.guard import as_the_model_ends
from flipbit.export.graph import Add, BitConv, Conv, ExportError, PadShortcut, Weighted
from flipbit.export.read.from_keras import binary_filters, from_keras, same_padding
from flipbit.train.keras_larq import keras, lq, tf
from flipbit.train.nets.networks import NETWORKS, Layers, build
from tests.nets.random_nets import images, int8_graph, random_model, stir

L = keras.layers


def agrees(model: Any, x: np.ndarray | None = None) -> None:
    """The graph in real numbers equals Keras within 1e-4 of the output's size."""
    x = images(model) if x is None else x
    expected = model(x, training=False).numpy()
    found = oracle.logits(from_keras(model), x)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_every_net_folds_exactly(name: str) -> None:
    agrees(random_model(name))


@pytest.mark.parametrize("layers", [{"scale": "filter"}, {"quantize": "all"}, {"quantize": "none"}, {"delta": 0.3},
                                    {"bits": 3, "delta": 0.25}, {"forward": "stochastic"}], ids=str)  # fmt: skip
def test_every_kind_of_weights_folds_exactly(layers: dict[str, Any]) -> None:
    agrees(random_model("resnet8", **layers))
    agrees(random_model("vgg9", **layers))


@pytest.mark.parametrize("shape", [(7, 7, 1), (9, 14, 3), (32, 32, 13), (13, 8, 100)])
def test_odd_sizes_and_channel_counts_fold_exactly(shape: tuple[int, int, int]) -> None:
    agrees(random_model("resnet8", shape, width=13 / 16))


def test_binary_layers_are_recognized_and_gains_made_positive() -> None:
    graph = from_keras(random_model("resnet8"))
    convs = [op for op in graph if isinstance(op, Conv)]
    assert len(convs) == 9
    for op in convs:
        assert op.binary
        assert set(np.unique(op.weights)) == {-1, 1}
        assert (op.scale > 0).all()
    assert not graph.weighted()[-1].binary


def test_relu_is_fused_and_nothing_else_is_left() -> None:
    graph = from_keras(random_model("resnet20"))
    assert {op.kind for op in graph} == {"Conv", "Add", "PadShortcut", "AveragePool", "Dense"}
    assert all(op.relu for op in graph if isinstance(op, Add))
    assert sum(isinstance(op, PadShortcut) for op in graph) == 2


@pytest.mark.parametrize(("size", "kernel", "stride", "expected"), [
    ((32, 32), (3, 3), (1, 1), (1, 1, 1, 1)), ((32, 32), (3, 3), (2, 2), (0, 1, 0, 1)),
    ((33, 32), (3, 3), (2, 2), (1, 1, 0, 1)), ((8, 8), (1, 1), (2, 2), (0, 0, 0, 0)),
    ((224, 224), (7, 7), (2, 2), (2, 3, 2, 3)),
])  # fmt: skip
def test_same_padding_is_tensorflows(size: Any, kernel: Any, stride: Any, expected: Any) -> None:
    assert same_padding(size, kernel, stride) == expected


@pytest.mark.parametrize("size", [6, 7])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
def test_convolutions_of_any_kernel_stride_and_padding(size: int, stride: int, kernel: int) -> None:
    for padding in ("same", "valid"):
        model = keras.Sequential(
            [
                L.Input((size, size + 1, 5)),
                lq.layers.QuantConv2D(4, kernel, strides=stride, padding=padding, kernel_quantizer="ste_sign"),
                L.BatchNormalization(),
                L.ReLU(),
                L.Flatten(),
                L.Dense(3, activation="softmax", kernel_initializer="he_normal"),
            ]
        )
        stir(model)
        x = images(model)
        expected = keras.Model(model.inputs, model.layers[-2].output)(x).numpy() @ model.layers[-1].kernel.numpy()
        expected = expected + model.layers[-1].bias.numpy()
        assert oracle.logits(from_keras(model), x) == pytest.approx(expected, abs=1e-4 * np.abs(expected).max())


def test_a_users_model_of_supported_layers() -> None:
    image = L.Input((12, 12, 3))
    x = L.ZeroPadding2D(((1, 0), (2, 1)))(image)
    x = L.Conv2D(8, 3, strides=2, padding="valid", activation="relu")(x)
    y = L.MaxPooling2D(3, strides=1, padding="same")(x)
    y = L.Activation("relu")(y)
    x = L.Add()([x, y])
    x = L.AveragePooling2D(2)(L.Dropout(0.3)(x))
    x = L.Conv2D(6, 1, use_bias=False)(x)
    x = L.BatchNormalization(scale=False)(x)
    x = L.GlobalAveragePooling2D()(x)
    agrees(stir(keras.Model(image, L.Dense(4)(L.Flatten()(x)))))


def test_a_tensor_that_others_read_is_not_changed_by_fusing() -> None:
    image = L.Input((6, 6, 2))
    x = L.Conv2D(3, 3, padding="same")(image)
    agrees(keras.Model(image, L.Dense(2)(L.GlobalAveragePooling2D()(L.Add()([x, L.ReLU()(x)])))))


def test_models_inside_a_model_are_read_layer_by_layer() -> None:
    inner = L.Input((6, 6, 4))
    block = keras.Model(inner, L.ReLU()(L.BatchNormalization(name="norm")(L.Conv2D(4, 3, name="conv")(inner))))
    body = keras.Sequential([L.Input((10, 10, 3)), L.ZeroPadding2D(1), L.Conv2D(4, 3, 2, name="conv"), L.ReLU()])
    image = L.Input((10, 10, 3))
    x = keras.Sequential([L.ZeroPadding2D(1), keras.Sequential([L.Conv2D(4, 3)])])(block(L.ZeroPadding2D(1)(
        keras.Sequential([L.MaxPooling2D(2, 1)])(body(image)))))  # fmt: skip
    head = keras.Sequential([L.Flatten(), L.Dense(3, activation="softmax")])
    model = stir(keras.Model(image, head(x)))
    graph = from_keras(model)
    assert graph.reference is not None and graph.reference.ends == "softmax"
    found = np.exp(as_the_model_ends(oracle.logits(graph, images(model)), "softmax"))
    assert found == pytest.approx(model(images(model)).numpy(), abs=1e-5)
    assert [op.name for op in graph if isinstance(op, Conv)][:2] == ["conv", "conv_"]


def test_a_rescaling_inside_a_model_inside_the_model_is_the_pixel_formula() -> None:
    augment = keras.Sequential([L.Input((8, 8, 1)), L.Dropout(0.1), L.Rescaling(1 / 255, -0.5)])
    image = L.Input((8, 8, 1))
    graph = from_keras(keras.Model(image, L.Conv2D(2, 3)(augment(image))))
    assert graph.rescaling is not None and graph.rescaling.offset == pytest.approx(127.5)
    beside = L.Concatenate()([augment(image), image])
    with pytest.raises(ExportError):
        from_keras(keras.Model(image, L.Conv2D(2, 3)(beside)))


def test_a_layer_may_be_called_input() -> None:
    agrees(stir(keras.Sequential([L.Input((6, 6, 2)), L.Conv2D(3, 3, name="input"), L.Flatten(), L.Dense(2)])))


def refused(*layers: Any, shape: tuple[int, ...] = (8, 8, 3)) -> str:
    with pytest.raises(ExportError) as error:
        from_keras(keras.Sequential([L.Input(shape), *layers]))
    return str(error.value)


def test_unsupported_layers_are_named_with_what_is_supported() -> None:
    message = refused(L.Conv2D(4, 3, name="first"), L.LocallyConnected2D(2, 3, name="apart"))
    assert message.startswith("apart: LocallyConnected2D is not supported; supported are Conv2D, DepthwiseConv2D")
    assert "UnitNormalization is not supported; it normalizes" in refused(L.Conv2D(4, 3), L.UnitNormalization())
    binary = lq.layers.QuantConv2D(4, 3, dilation_rate=2, kernel_quantizer="ste_sign", name="second")
    assert "second: dilation (2, 2) of one-bit weights" in refused(binary)
    assert "2 groups for 4 channels" in refused(L.Conv2D(4, 3), L.Conv2D(6, 3, groups=2))
    assert "activation softsign" in refused(L.Conv2D(4, 3, activation="softsign"))
    assert "one of max_value and negative_slope" in refused(L.Conv2D(4, 3), L.ReLU(6.0, negative_slope=0.1))
    assert "PReLU with 16 slopes" in refused(L.Conv2D(16, 3), L.PReLU("random_normal", shared_axes=[1, 2]))
    assert "depth_multiplier 2; 1 is supported" in refused(L.DepthwiseConv2D(3, depth_multiplier=2))
    assert "100 units" in refused(L.Flatten(), L.Dense(100, activation="relu"), L.BatchNormalization(),
                                  lq.layers.QuantDense(3, kernel_quantizer="ste_sign"))  # fmt: skip
    assert "upsampling is not supported; end the net" in refused(L.UpSampling2D())
    assert "upsampling is not supported; end the net" in refused(L.Conv2DTranspose(4, 3))
    assert "only a final one" in refused(L.Flatten(), L.Dense(4, activation="softmax"), L.Dense(2))
    assert "use QuantConv2D" in refused(lq.layers.QuantDense(4, input_quantizer="ste_sign"))
    assert "reads signs" in refused(lq.layers.QuantConv2D(4, 3, input_quantizer="ste_sign"))
    assert "pad_values" in refused(lq.layers.QuantConv2D(4, 3, padding="same", pad_values=1.0))
    assert "only before a convolution" in refused(L.ZeroPadding2D(), L.MaxPooling2D())
    assert "no layer that computes anything" in refused(L.Dropout(0.5))
    assert "channels_last is supported" in refused(L.Flatten(data_format="channels_first"))
    assert "over the last one is supported" in refused(L.Softmax(axis=1))
    assert "expected a fixed" in refused(L.Conv2D(4, 3), shape=(None, None, 3))


def test_all_that_is_wrong_with_a_net_is_said_at_once() -> None:
    message = refused(
        L.Conv2D(4, 3, activation="softsign", name="first"), L.BatchNormalization(), L.UpSampling2D(name="larger"),
        L.DepthwiseConv2D(3, depth_multiplier=3, name="more"), L.Flatten(), L.Dense(3, name="logits"),
    )  # fmt: skip
    first, *others = re.split(r"[;:] \(\d\) ", message)
    assert first == "3 layers cannot be exported" and "\n" not in message  # a command says it in one line
    assert [line.partition(":")[0] for line in others] == ["first", "larger", "more"]


def test_what_is_supported_is_said_once_however_many_layers_are_not() -> None:
    apart = [L.LocallyConnected2D(2, 3) for _ in range(2)]
    message = refused(apart[0], L.Conv2D(4, 3), L.GaussianNoise(0.1), apart[1])
    assert message.count("supported are Conv2D") == 1 and message.count("LocallyConnected2D is not supported") == 2


def test_several_outputs_are_refused_with_what_to_do() -> None:
    image = L.Input((6, 6, 2))
    x = L.Flatten()(image)
    with pytest.raises(ExportError, match="2 outputs; one each is supported: join several outputs by a Concatenate"):
        from_keras(keras.Model(image, [L.Dense(2)(x), L.Dense(3)(x)]))
    agrees(keras.Model(image, L.Concatenate()([L.Dense(2)(x), L.Dense(3)(x)])))


def test_a_reshape_that_moves_values_and_readers_beside_it_are_refused() -> None:
    assert "a Reshape of 6×6×4 to 36×4 is not supported" in refused(L.Conv2D(4, 3), L.Reshape((36, 4)))
    assert "a Reshape of 4 to 2×2 is not supported" in refused(L.Flatten(), L.Dense(4), L.Reshape((2, 2)))
    image = L.Input((6, 4))
    both = L.Concatenate()([L.Flatten()(L.Reshape((6, 4, 1))(image)), L.Flatten()(L.Conv1D(3, 2)(image))])
    with pytest.raises(ExportError, match="beside a Reshape of it"):
        from_keras(keras.Model(image, L.Dense(2)(both)))
    pooled = L.GlobalAveragePooling2D()(L.Conv2D(3, 1)(picture := L.Input((6, 6, 2))))
    one = L.Flatten()(L.Conv2D(2, 1)(L.Reshape((1, 1, 3))(pooled)))
    with pytest.raises(ExportError, match="beside a Reshape of it"):
        from_keras(keras.Model(picture, L.Concatenate()([one, L.Dense(2)(pooled)])))


def test_rows_that_are_flattened_at_once_are_a_grey_picture() -> None:
    model = keras.Sequential([L.Input((7, 5)), L.Flatten(), L.Dense(4)])
    graph = from_keras(model)
    x = np.random.default_rng(0).normal(size=(3, 7, 5)).astype(np.float32)
    assert graph.tensors[graph.input].shape == (7, 5, 1)
    np.testing.assert_allclose(oracle.logits(graph, x[..., None]), model(x), rtol=1e-4, atol=1e-5)


def test_weights_that_are_no_numbers_are_refused_by_layer() -> None:
    model = build("vgg-small", (8, 8, 1), 10, Layers(width=0.2))
    kernel = model.get_layer("conv3").kernel
    kernel.assign(tf.fill(kernel.shape, np.nan))
    with pytest.raises(ExportError, match="conv3: its weights hold NaN or infinity"):
        from_keras(model)
    model = random_model("vgg-small")
    model.get_layer("conv2_bn").gamma.assign(tf.fill(model.get_layer("conv2_bn").gamma.shape, np.inf))
    with pytest.raises(ExportError, match=r"conv2: its (scale|bias) hold NaN or infinity"):
        from_keras(model)


def test_binary_means_two_values_of_one_size_in_each_filter() -> None:
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (3, 3, 2, 4))
    found = binary_filters(signs * [0.5, 1, 2, 3])
    assert found is not None
    assert (found[0] == signs).all()
    assert (found[1] == [0.5, 1, 2, 3]).all()
    assert binary_filters(np.where(signs > 0, signs, 0)) is None
    assert binary_filters(signs + np.linspace(0, 1, 2)[:, None]) is None


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_int8_stays_close_to_real_numbers_and_inside_32_bits(name: str) -> None:
    model = random_model(name)
    real, integer = int8_graph(model)
    x = images(model)
    expected, found = oracle.logits(real, x), oracle.logits(integer, x)
    most = 0.4 if name == "bireal" else 0.15  # a sign near zero turns by a rounding, and moves all that follows
    assert np.sqrt(np.mean((found - expected) ** 2)) < most * expected.std()
    for op in integer.weighted():
        r = op.requantize
        assert r is not None
        assert r.bias.dtype == np.int32
        if op.binary:
            inputs = op.weights.size // op.channels
            reach = (1 if isinstance(op, BitConv) else 128) * inputs + np.abs(r.bias.astype(np.int64))
            assert 1 <= r.multiplier.min() <= r.multiplier.max() < 2**15
            assert (reach * r.multiplier + 2**r.shift // 2 < 2**31).all()


def test_negative_gains_of_float_layers_keep_their_sign_in_int8() -> None:
    model = random_model("resnet8", quantize="none")
    real, integer = int8_graph(model)
    x = images(model, 32)
    expected, found = oracle.logits(real, x), oracle.logits(integer, x)
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.05 * expected.std()


def test_a_dead_channel_is_exported() -> None:
    model = random_model("vgg-small")
    gamma = model.get_layer("conv2_bn").gamma
    gamma.assign(tf.concat([[0.0, 1e-12], gamma[2:]], 0))
    real, integer = int8_graph(model)
    x = images(model)
    expected, found = oracle.logits(real, x), oracle.logits(integer, x)
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.15 * expected.std()
    assert all(isinstance(op, Weighted) for op in integer.weighted())
