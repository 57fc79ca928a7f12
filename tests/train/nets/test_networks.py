"""The nets against the figures their papers state."""

from __future__ import annotations

import numpy as np
import pytest

from flipbit.train.nets.networks import NETWORKS, Layers, PadShortcut, build, quantized_layers
from flipbit.train.report.summary import layer_rows
from flipbit.train.settings import NETWORK_NAMES, InputError

CIFAR, IMAGENET = (32, 32, 3), (224, 224, 3)


def millions(name: str) -> tuple[float, float]:
    """Weights of conv and of fully connected layers."""
    model = build(name, IMAGENET if name == "resnet18" else CIFAR, 1000 if name == "resnet18" else 10)
    kernels = [layer.kernel for layer in model.layers if hasattr(layer, "kernel")]
    conv = sum(int(np.prod(k.shape)) for k in kernels if k.shape.rank == 4)
    dense = sum(int(np.prod(k.shape)) for k in kernels if k.shape.rank == 2)
    return conv / 1e6, dense / 1e6


@pytest.mark.parametrize(
    ("name", "conv", "dense"),
    [("vgg9", 1.7, 1.1), ("vgg-bc", 4.6, 9.4), ("resnet56", 0.84, 0.0006), ("wrn-56-2", 3.4, 0.001),
     ("resnet18", 11.2, 0.5)],
)  # fmt: skip
def test_parameter_counts_are_the_papers(name: str, conv: float, dense: float) -> None:
    found = millions(name)
    # The paper states two figures, cut or rounded: 848,304 became 0.84 there.
    assert found[0] == pytest.approx(conv, rel=0.025)
    assert found[1] == pytest.approx(dense, rel=0.3 if dense < 0.01 else 0.05)


def test_resnet8_is_mlperf_tinys_topology() -> None:
    rows = layer_rows(build("resnet8", CIFAR, 10))
    convs = [row for row in rows if "conv" in row.kind]
    assert [row.output for row in convs] == [(32, 32, 16)] * 3 + [(16, 16, 32)] * 3 + [(8, 8, 64)] * 3
    assert sum(row.weights for row in convs) == 76_720
    assert sum(row.macs for row in rows) == 12_501_632  # 12.5 M, as MLPerf Tiny states


@pytest.mark.parametrize(
    ("name", "bits", "macs"),
    [("flip-s", 111_024, 15_925_728), ("flip-m", 237_744, 24_035_968), ("flip-l", 293_040, 38_191_744)],
)
def test_the_nets_drawn_for_one_bit_weights_have_one_large_stage_without_a_shortcut(
    name: str, bits: int, macs: int
) -> None:
    rows = layer_rows(build(name, CIFAR, 10))
    assert [row.name for row in rows if row.output == (32, 32, 16) and row.weights] == ["conv1", "conv2"]
    assert sum(row.weights for row in rows if "conv" in row.kind) == bits
    assert sum(row.macs for row in rows) == macs


def test_bireal_reads_signs_in_all_convolutions_but_the_first_each_with_a_shortcut_around_it() -> None:
    model = build("bireal", CIFAR, 10)
    first, *others = quantized_layers(model)
    assert first.input_quantizer is None
    assert all(type(layer.input_quantizer).__name__ == "SteSign" for layer in others)
    adds = [layer for layer in model.layers if type(layer).__name__ == "Add"]
    assert len(adds) == len(others) == 4
    rows = layer_rows(model)
    assert sum(row.weights for row in rows if "conv" in row.kind) == 277_344
    assert sum(row.macs for row in rows) == 29_197_568


def test_resnet56_has_55_convolutions() -> None:
    assert len(quantized_layers(build("resnet56", CIFAR, 10))) == 55


@pytest.mark.parametrize("name", sorted(set(NETWORKS) - {"resnet18", "vgg-bc", "wrn-56-2", "resnet56"}))
@pytest.mark.parametrize("width", [0.5, 2.0])
def test_width_scales_the_filters(name: str, width: float) -> None:
    plain = {layer.name: layer.kernel.shape[-1] for layer in quantized_layers(build(name, CIFAR, 10))}
    wide = build(name, CIFAR, 10, Layers(width=width))
    assert {layer.name: layer.kernel.shape[-1] for layer in quantized_layers(wide)} == {
        key: width * filters for key, filters in plain.items()
    }


def test_odd_widths_round_to_at_least_one_filter() -> None:
    model = build("resnet8", CIFAR, 7, Layers(width=0.8))
    assert model.output_shape == (None, 7)
    assert build("vgg-small", CIFAR, 2, Layers(width=0.01)).output_shape == (None, 2)


def test_every_name_on_the_command_line_is_a_net() -> None:
    assert set(NETWORK_NAMES) == set(NETWORKS)


def test_convolutions_have_no_bias_and_are_followed_by_batch_norm() -> None:
    model = build("resnet20", CIFAR, 10)
    names = {layer.name for layer in model.layers}
    for layer in quantized_layers(model):
        assert not layer.use_bias
        assert f"{layer.name}_bn" in names


def test_only_convolutions_are_quantized_unless_all_is_asked_for() -> None:
    assert {layer.kernel.shape.rank for layer in quantized_layers(build("vgg9", CIFAR, 10))} == {4}
    every = quantized_layers(build("vgg9", CIFAR, 10, Layers(quantize="all")))
    assert {layer.kernel.shape.rank for layer in every} == {2, 4}
    assert quantized_layers(build("vgg9", CIFAR, 10, Layers(quantize="none"))) == []


def test_the_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    def first(seed: int) -> np.ndarray:
        return np.asarray(build("resnet8", CIFAR, 10, Layers(seed=seed)).get_weights()[0])

    assert (first(1) == first(1)).all()
    assert (first(1) != first(2)).any()


def test_padding_shortcut_takes_every_second_pixel_and_adds_zero_channels() -> None:
    x = np.random.default_rng(0).normal(size=(2, 5, 7, 3)).astype(np.float32)
    layer = PadShortcut(8, 2)
    y = layer(x).numpy()
    assert (y[..., :3] == x[:, ::2, ::2]).all()
    assert (y[..., 3:] == 0).all()
    assert layer.compute_output_shape(x.shape) == y.shape


def test_an_image_too_small_for_the_pools_is_refused() -> None:
    with pytest.raises(InputError, match="vgg9 needs images of at least 8×8, not 7×9"):
        build("vgg9", (7, 9, 1), 10)
