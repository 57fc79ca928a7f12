"""Learning in the C core, on the host: gradients, flips, buffers, memory and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.errors import ArenaError, ArgumentError, StateError
from flipbit.runtime.image import reference
from flipbit.runtime.image.reader import read_image
from tests.nets.small_nets import bits_image, newer_image, photos, small_image

BITS = LearnerConfig(bits=True, bias=False)
BOTH = LearnerConfig(bits=True, bias=True)


def samples(n: int = 24, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    inputs = (photos(n, seed).astype(int) - 128).astype(np.int8).transpose(0, 3, 1, 2)
    return inputs, np.random.default_rng(seed).integers(0, 5, n)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))


def summed_gradients(
    learner: Learner, inputs: np.ndarray, labels: np.ndarray, rate_bits: float = 0.0
) -> tuple[dict, dict]:
    """Per operation, of weights and of biases, from a step."""
    weights: dict[int, dict] = {}
    biases: dict[int, dict] = {}
    learner.on_gradient(lambda op, f, bias, g: (biases if bias else weights).setdefault(op, {}).__setitem__(f, g))
    learner.step(inputs, labels, rate_bits)
    return tuple(
        {op: np.stack([by_filter[f] for f in sorted(by_filter)]).astype(float) for op, by_filter in found.items()}
        for found in (weights, biases)
    )


# Gradients


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("net", [small_image, newer_image])
def test_gradients_of_every_kind_of_operation_agree_with_autograd(net: Callable[[int], bytes], seed: int) -> None:
    pytest.importorskip("torch")
    from tests.nets.straight_through import gradients

    image, (inputs, labels) = net(seed), samples(32, seed)
    expected = gradients(read_image(image), inputs, labels)
    weights, biases = summed_gradients(Learner(image, BOTH), inputs, labels)
    binary = [i for i, op in enumerate(read_image(image).operations) if op.weights is not None and op.binary]
    assert sorted(weights) == binary
    for op, found in weights.items():
        assert cosine(found, expected.weights[op]) > 0.97, read_image(image).operations[op].name
    for op, found in biases.items():
        assert cosine(found, expected.biases[op]) > 0.93, read_image(image).operations[op].name


def test_gradients_of_resnet8_on_real_images_agree_with_autograd(cifar10, tmp_path) -> None:
    pytest.importorskip("torch")
    from flipbit.export import convert
    from flipbit.train.data import batches as data
    from tests.nets.straight_through import gradients

    convert("models/cifar10-resnet8/model.h5", calibrate="cifar10").save(tmp_path / "m.fbit")
    pixels, labels = next(data.load("cifar10", None, "none", None).test_batches(64))
    inputs = (pixels.astype(int) - 128).astype(np.int8).transpose(0, 3, 1, 2)
    image = (tmp_path / "m.fbit").read_bytes()
    expected = gradients(read_image(image), inputs, labels)
    learner = Learner(image, BOTH)
    weights, _ = summed_gradients(learner, inputs, labels)
    found = {op: cosine(g, expected.weights[op]) for op, g in weights.items()}
    assert min(found.values()) > 0.95  # first layers
    assert found[max(found)] > 0.99 and found[max(found) - 1] > 0.99  # last ones
    assert learner.step(inputs, labels).loss == pytest.approx(expected.loss, abs=0.01)


# Memory


@pytest.mark.parametrize("config", [
    BOTH, replace(BITS, buffer_bits=3, start=2), replace(BOTH, sum_bits=16), replace(BITS, sum_bits=8),
    replace(BOTH, gain=True),
])  # fmt: skip
@pytest.mark.parametrize("net", [small_image, newer_image])
def test_the_arena_changes_time_and_nothing_else(net: Callable[[], bytes], config: LearnerConfig) -> None:
    image, (inputs, labels) = net(), samples()
    first = Learner(image, config)
    passes = set()
    for arena in np.linspace(first.arena_least, first.arena_fast, 6).astype(int):
        learner = Learner(image, config, int(arena))
        for rate in (0.05, 0.03):
            step = learner.step(inputs, labels, rate, rate)
        passes.add(step.passes)
        if arena == first.arena_least:
            expected = learner.image, learner.state
        assert (learner.image, learner.state) == expected
    assert len(passes) > 2 and 1 in passes


def test_an_arena_that_is_too_small_is_refused_with_what_it_needs() -> None:
    inputs, labels = samples(2)
    needed = Learner(small_image(), BOTH).arena_least
    with pytest.raises(ArenaError, match=f"{needed:,} bytes"):
        Learner(small_image(), BOTH, needed // 2).step(inputs, labels)


@pytest.mark.parametrize(("sum_bits", "like"), [(16, 0.999999), (8, 0.994)])
def test_narrow_sums_take_less_arena_and_are_those_of_32_bits_rounded_fairly(sum_bits: int, like: float) -> None:
    image, (inputs, labels) = small_image(), samples(48)
    wide, narrow = Learner(image, BITS), Learner(image, replace(BITS, sum_bits=sum_bits))
    assert narrow.arena_fast < wide.arena_fast
    exact, _ = summed_gradients(wide, inputs, labels)
    errors: dict[int, list[np.ndarray]] = {op: [] for op in exact}
    for seed in range(20):
        found, _ = summed_gradients(Learner(image, replace(BITS, sum_bits=sum_bits, seed=seed)), inputs, labels)
        for op, g in found.items():
            assert cosine(g, exact[op]) > like
            errors[op].append(g - exact[op])
    for several in errors.values():  # they cancel each other out
        one, mean = np.sqrt(np.mean(np.square(several))), np.sqrt(np.mean(np.square(np.mean(several, 0))))
        assert 0 < mean < 0.35 * one  # 1 / sqrt(20) = 0.22


# Updates


def test_flips_are_downhill_and_as_many_as_their_odds_say() -> None:
    image, (inputs, labels), rate = small_image(), samples(), 0.02
    before = read_image(image)
    flips, expected, variance = 0, 0.0, 0.0
    for seed in range(30):
        learner = Learner(image, replace(BITS, seed=seed))
        learner.step(inputs, labels)  # measures their means
        gradients, _ = summed_gradients(learner, inputs, labels, rate)
        after = read_image(learner.image)
        for op, g in gradients.items():
            channels = before.tensors[before.operations[op].inputs[0]].channels
            old, new = (reference.signs(i.operations[op], channels) for i in (before, after))
            old, new = (s.transpose(0, 3, 1, 2).reshape(len(g), -1) for s in (old, new))
            odds = np.where(g * old > 0, np.minimum(1, rate * np.minimum(4, np.abs(g) / np.abs(g).mean())), 0)
            assert not ((old != new) & (odds == 0)).any()
            flips += np.count_nonzero(old != new)
            expected += odds.sum()
            variance += (odds * (1 - odds)).sum()
    assert abs(flips - expected) < 4 * np.sqrt(variance)
    assert flips > 500


def test_images_stay_valid_and_the_oracle_follows_the_flips() -> None:
    image, (inputs, labels) = small_image(), samples()
    learner = Learner(image, BOTH)
    for _ in range(5):
        step = learner.step(inputs, labels, 0.05, 0.2)
        assert step.flips > 0
        changed = read_image(learner.image)  # checks CRC and bounds
    assert learner.image != image
    # A flip changes the zero point's share of the sum: Σ w·(x − z) is what the bias must keep exact.
    for op_before, op in zip(read_image(image).operations, changed.operations):
        if op.weights is None or not op.binary:
            continue
        source = changed.tensors[op.inputs[0]]
        signs = [reference.signs(o, source.channels).reshape(len(op.bias), -1).sum(1) for o in (op_before, op)]
        moved = op.bias + source.zero_point * signs[1] - (op_before.bias + source.zero_point * signs[0])
        assert np.abs(moved).max() < 4000  # by training alone, not by 2 · 128 per flip
    frozen = Learner(image, BITS)
    frozen.step(inputs, labels, 0.05)
    for op_before, op in zip(read_image(image).operations, read_image(frozen.image).operations):
        if op.weights is not None and op.binary:
            source = changed.tensors[op.inputs[0]]
            signs = [reference.signs(o, source.channels).reshape(len(op.bias), -1).sum(1) for o in (op_before, op)]
            expected = op_before.bias - source.zero_point * (signs[1] - signs[0])
            np.testing.assert_array_equal(op.bias, expected)


def test_only_the_chosen_layers_learn() -> None:
    image, (inputs, labels) = small_image(), samples()
    learner = Learner(image, replace(BOTH, first_op=4, last_op=9))
    for _ in range(3):
        learner.step(inputs, labels, 0.1, 0.1)
    for number, (old, new) in enumerate(zip(read_image(image).operations, read_image(learner.image).operations)):
        if old.weights is not None:
            same = np.array_equal(old.weights, new.weights) and np.array_equal(old.bias, new.bias)
            assert same == (not 4 <= number <= 9), old.name


@pytest.mark.parametrize("bits", [0, 1, 3, 8])
def test_learning_lowers_the_loss_of_its_samples(bits: int) -> None:
    inputs, labels = samples(16)
    learner = Learner(small_image(), replace(BOTH, buffer_bits=bits, start=(1 << bits) // 4))
    losses = [learner.step(inputs, labels, 0.03 * (1 - i / 20), 0.2 * (1 - i / 20)).loss for i in range(20)]
    assert losses[-1] < losses[0] - 0.03


def test_a_deeper_start_delays_flips() -> None:
    inputs, labels = samples()
    flips = []
    for start in (0, 3, 7):
        learner = Learner(small_image(), replace(BITS, buffer_bits=3, start=start))
        flips.append(sum(learner.step(inputs, labels, 0.1).flips for _ in range(3)))
    assert flips[0] > flips[1] > flips[2]


# Checkpoints


@pytest.mark.parametrize("config", [BOTH, replace(BOTH, buffer_bits=2, start=1)])
def test_going_on_from_a_checkpoint_after_any_pass_ends_with_the_same_bits(config: LearnerConfig) -> None:
    inputs, labels = samples(2)
    arena = Learner(small_image(), config).arena_least + 600  # fewer passes to stop after
    rates = (0.08, 0.05)

    def train(stop_after: int | None) -> tuple[bytes, bytes, int]:
        learner, passes = Learner(small_image(), config, arena), 0
        for rate in rates:
            learner.begin(len(inputs), rate, rate)
            more = True
            while more:
                for x, label in zip(inputs, labels):
                    learner.sample(x, label)
                more = learner.end_pass()
                passes += 1
                if passes == stop_after:  # the power fails: only image and state are left
                    learner = Learner(learner.image, config, arena, learner.state)
                    if more:
                        learner.begin(len(inputs), rate, rate)
        return learner.image, learner.state, passes

    image, state, passes = train(None)
    assert passes > 10
    for stop in range(1, passes + 1):
        assert train(stop) == (image, state, passes), f"stopped after pass {stop}"


def test_a_state_of_another_net_or_configuration_or_a_damaged_one_is_refused() -> None:
    inputs, labels = samples(4)
    learner = Learner(small_image(), BOTH)
    learner.step(inputs, labels, 0.05)
    image, state = learner.image, learner.state
    Learner(image, BOTH, state=state)
    for config in (replace(BOTH, seed=2), replace(BOTH, first_op=1)):
        with pytest.raises(StateError):
            Learner(image, config, state=state)
    with pytest.raises(StateError):
        Learner(small_image(1), BOTH, state=state)  # scales differ: another net
    with pytest.raises(StateError, match="bytes"):
        Learner(image, BOTH, state=state[:-8])
    for at in (0, 5, 40, len(state) // 2, len(state) - 1):
        damaged = bytearray(state)
        damaged[at] ^= 1
        with pytest.raises(StateError):
            Learner(image, BOTH, state=bytes(damaged))


def test_where_gradients_end_is_said_with_the_layers_behind_it() -> None:
    data = bits_image()
    operations = read_image(data).operations
    with pytest.raises(ArgumentError, match=r"gradients cannot pass \w+ \(conv_bits\)") as error:
        Learner(data, LearnerConfig(bits=False, bias=True))
    last = max(i for i, op in enumerate(operations) if op.kind == "conv_bits")
    first = next(i for i, op in enumerate(operations) if i > last and op.kind == "dense")
    assert f"--layers {first}-{len(operations) - 1} (first_op={first})" in str(error.value)
    Learner(data, LearnerConfig(bits=False, bias=True, first_op=first))


def test_arguments_that_make_no_sense_are_refused() -> None:
    inputs, _ = samples(2)
    with pytest.raises(ArgumentError, match="trainable"):
        Learner(small_image(), LearnerConfig(bits=False, bias=False))
    with pytest.raises(ArgumentError):
        Learner(small_image(), replace(BOTH, buffer_bits=9))
    with pytest.raises(ArgumentError):
        Learner(small_image(), replace(BOTH, buffer_bits=2, start=4))
    learner = Learner(small_image(), BOTH)
    with pytest.raises(ArgumentError, match="rates"):
        learner.begin(4, 1.5)
    with pytest.raises(ArgumentError, match="takes"):
        learner.sample(inputs[0, :1], 0)
    learner.begin(2, 0.1)
    with pytest.raises(ArgumentError):
        learner.sample(inputs[0], 5)  # five classes: 0 … 4
    learner.sample(inputs[0], 0)
    with pytest.raises(ArgumentError):
        learner.end_pass()  # one sample is missing
