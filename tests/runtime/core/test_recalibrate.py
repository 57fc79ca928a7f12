"""Recalibrating in the C core: sums as a NumPy reader takes them, parameters as whole numbers say, and no harm."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from flipbit.runtime.core.learner import Learner, LearnerConfig
from flipbit.runtime.core.references import measure, watched
from flipbit.runtime.errors import ArgumentError, StateError
from flipbit.runtime.image import reference
from flipbit.runtime.image.kinds import REFERENCES, RELU
from flipbit.runtime.image.reader import Image, Operation, read_image
from tests.nets.small_nets import photos, referenced_image, small_image

RECALIBRATE = LearnerConfig(bits=False, recalibrate=1, prior=20)
ADAPT = LearnerConfig(bits=False, bias=True, gain=True, recalibrate=1, prior=20, augment=17, seed=5)
ONE = 1 << 16


def samples(n: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    inputs = (photos(n, seed).astype(int) - 128).astype(np.int8).transpose(0, 3, 1, 2)
    return inputs, np.random.default_rng(seed).integers(0, 5, n)


def dimmed(n: int) -> np.ndarray:
    return samples(n)[0] // 2


def referenced(image: Image) -> list[Operation]:
    return [op for op in image.operations if op.references is not None]


def results(image: Image, inputs: np.ndarray) -> dict[str, np.ndarray]:
    """What each layer's channels are looked at by, (channels, values), from the zero point."""
    tensors = reference.run(image, inputs)
    found = {}
    for op in referenced(image):
        source, target = image.tensors[op.inputs[0]], image.tensors[op.output]
        values = tensors[op.output].astype(np.int64) - target.zero_point
        if op.relu:  # once more: every other row and column, half the resolution, nothing cut off at zero
            strides = tuple(2 * s if side >= 4 else s for s, side in zip(op.stride, (target.height, target.width)))
            sides = [(side + 1) // 2 if side >= 4 else side for side in (target.height, target.width)]
            again = replace(op, flags=op.flags & ~RELU, stride=strides, shift=op.shift + 1)
            smaller = replace(target, height=sides[0], width=sides[1], zero_point=0)
            values = reference._KERNELS[op.kind](again, [source, smaller], tensors[op.inputs[0]]).astype(np.int64)
        found[op.name] = values.transpose(1, 0, 2, 3).reshape(target.channels, -1)
    return found


def test_sums_are_those_of_the_numpy_reader() -> None:
    image, inputs = read_image(referenced_image()), dimmed(9)
    assert [op.relu for op in referenced(image)] == [True, False, False, True]  # both ways are looked at
    expected = np.concatenate([np.stack([v.sum(1), (v * v).sum(1)], 1) for v in results(image, inputs).values()])
    learner = Learner(referenced_image(), RECALIBRATE)
    learner.begin(len(inputs))
    for x in inputs:
        learner.sample(x, 0)
    np.testing.assert_array_equal(learner.moments(len(expected)), expected)


def test_references_are_mean_and_deviation_on_the_images_they_were_taken_on() -> None:
    image = read_image(referenced_image())
    inputs = (photos(200, 5).astype(int) - 128).astype(np.int8).transpose(0, 3, 1, 2)
    for op, found in zip(referenced(image), results(image, inputs).values()):
        scale = 2 if op.relu else 1
        assert op.references is not None
        np.testing.assert_allclose(op.references[:, 0] / 128, scale * found.mean(1), atol=0.01)
        np.testing.assert_allclose(op.references[:, 1] / 128, scale * found.std(1), atol=0.01)
        assert watched(op, *(image.tensors[op.output].shape[1:]))[0] * 200 == found.shape[1]
    again = measure(referenced_image(), inputs)
    assert [pairs is not None for pairs in again] == [bool(op.flags & REFERENCES) for op in image.operations]


def expected_channel(op: Operation, o: int, values: np.ndarray, weight: int) -> tuple[int, int]:
    """Bias and multiplier of a channel after its first turn, in whole numbers: docs/numerics.md."""
    assert op.references is not None and op.bias is not None and op.multiplier is not None
    mean0, deviation = (2 * int(v) for v in op.references[o])
    multiplier, bias, n = int(op.multiplier[o]), int(op.bias[o]), len(values)
    step = 2 if op.relu else 1
    mean = step * math.trunc(int(values.sum()) * 256 / n)
    square = int((values * values).sum())
    square = step * step * ((square // n << 16) + (square % n << 16) // n)
    ratio = min(16 * ONE, (math.isqrt(max(0, square - mean * mean)) << 16) // deviation)
    ratio = math.isqrt((((ONE - weight) * ONE + weight * (ratio * ratio >> 16)) >> 16) << 16)
    new = max(1, ((multiplier << 16) + ratio // 2) // ratio)

    def as_sum(v: int, m: int) -> int:
        return int(math.copysign((abs(v) << op.shift) // m, v))

    was = (ONE - weight) * (as_sum(mean0, multiplier) - 256 * bias) + weight * (as_sum(mean, multiplier) - 256 * bias)
    return (as_sum(mean0, new) - math.trunc(was / ONE) + 128) >> 8, new


def test_the_first_layer_gets_the_parameters_that_whole_numbers_say() -> None:
    inputs = dimmed(12)
    before = read_image(referenced_image())
    classes = np.bincount(reference.run(before, inputs)[before.output].argmax(1), minlength=5).astype(int)
    diversity = ((12 * 12 << 16) // int((classes**2).sum()) - ONE) // 4
    n = 12 * min(ONE, ONE // 4 + 3 * diversity)
    weight = (n << 16) // (n + (20 << 16))
    learner = Learner(referenced_image(), RECALIBRATE)
    learner.begin(12)
    for x in inputs:
        learner.sample(x, 0)
    assert learner.end_pass()  # others have their turn later
    after = read_image(learner.image)
    first, found = referenced(before)[0], referenced(after)[0]
    expected = [expected_channel(first, o, v, weight) for o, v in enumerate(results(before, inputs)[first.name])]
    assert [(int(b), int(m)) for b, m in zip(found.bias, found.multiplier)] == expected
    assert expected != [(int(b), int(m)) for b, m in zip(first.bias, first.multiplier)]
    for old, new in zip(referenced(before)[1:], referenced(after)[1:]):
        np.testing.assert_array_equal(old.multiplier, new.multiplier)


def test_means_and_deviations_are_brought_back() -> None:
    inputs = dimmed(200)

    def error(image: bytes) -> list[float]:
        """Of deviations, as a share of what they should be, layer by layer."""
        read = read_image(image)
        values = results(read, inputs).values()
        scales = [2 if op.relu else 1 for op in referenced(read)]
        return [
            float(np.mean(np.abs(s * v.std(1) / (op.references[:, 1] / 128) - 1)))
            for op, v, s in zip(referenced(read), values, scales)
            if op.references is not None
        ]

    learner = Learner(referenced_image(), replace(RECALIBRATE, prior=0, first_op=0, last_op=0))
    learner.step(inputs, np.zeros(len(inputs), int))
    before, after = error(referenced_image())[0], error(learner.image)[0]
    assert before > 0.4 and after < 0.03


def test_a_prior_makes_few_samples_harmless() -> None:
    image = read_image(referenced_image())
    for prior, least, most in ((0, 0.02, 1.0), (10_000, 0.0, 0.002)):
        learner = Learner(referenced_image(), replace(RECALIBRATE, prior=prior))
        learner.step(samples(5)[0], np.zeros(5, int))
        changes = [
            np.abs(new.multiplier / old.multiplier - 1).mean()
            for old, new in zip(referenced(image), referenced(read_image(learner.image)))
        ]
        assert least <= max(changes) <= most, prior


def test_late_layers_stay_as_they_are_where_the_net_sees_one_class_only() -> None:
    one = np.repeat(samples(1)[0], 50, 0)
    learner = Learner(referenced_image(), replace(RECALIBRATE, prior=0))
    learner.step(one, np.zeros(50, int))
    layers = list(zip(referenced(read_image(referenced_image())), referenced(read_image(learner.image))))
    same = [
        np.array_equal(old.bias, new.bias) and np.array_equal(old.multiplier, new.multiplier) for old, new in layers
    ]
    assert same == [False, False, True, True]


def test_images_stay_valid_and_weights_as_they_were_whatever_it_sees() -> None:
    for inputs in (np.full((3, 3, 9, 8), -128, np.int8), np.full((3, 3, 9, 8), 127, np.int8), dimmed(3)):
        learner = Learner(referenced_image(), replace(RECALIBRATE, prior=0))
        for _ in range(3):
            learner.step(inputs, np.zeros(3, int))
        for old, new in zip(read_image(referenced_image()).operations, read_image(learner.image).operations):
            assert old.weights is None or np.array_equal(old.weights, new.weights)


@pytest.mark.parametrize("config", [RECALIBRATE, ADAPT, replace(ADAPT, bits=True, recalibrate=2)])
def test_going_on_from_a_checkpoint_after_any_pass_ends_with_the_same_image(config: LearnerConfig) -> None:
    inputs, labels = samples(3)
    arena = Learner(referenced_image(), config).arena_least + 600

    def train(stop_after: int | None) -> tuple[bytes, bytes, int]:
        learner, passes = Learner(referenced_image(), config, arena), 0
        for rate in (0.0, 0.05, 0.02, 0.3):
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
    assert image != referenced_image()
    for stop in range(1, passes + 1):
        assert train(stop) == (image, state, passes), f"stopped after pass {stop}"


def test_the_arena_changes_time_and_nothing_else() -> None:
    config = replace(ADAPT, bits=True)
    first, (inputs, labels) = Learner(referenced_image(), config), samples(8)
    found, passes = set(), set()
    for arena in np.linspace(first.arena_least, first.arena_fast, 5).astype(int):
        learner = Learner(referenced_image(), config, int(arena))
        for rate in (0.0, 0.05, 0.03):
            step = learner.step(inputs, labels, rate, rate)
        found.add((learner.image, learner.state))
        passes.add(step.passes)
    assert len(found) == 1 and len(passes) > 1


def test_gains_alone_lower_the_loss_of_their_samples() -> None:
    inputs, labels = samples(16)
    learner = Learner(small_image(), LearnerConfig(bits=False, gain=True))
    losses = [learner.step(inputs, labels, 0.0, 0.5 * (1 - i / 20)).loss for i in range(20)]
    assert losses[-1] < losses[0] - 0.02
    old, new = read_image(small_image()).operations, read_image(learner.image).operations
    weighted = [(a, b) for a, b in zip(old, new) if a.weights is not None]
    assert all(np.array_equal(a.bias, b.bias) and np.array_equal(a.weights, b.weights) for a, b in weighted)
    assert all(not np.array_equal(a.multiplier, b.multiplier) for a, b in weighted)


def test_gradients_of_gains_are_those_of_the_loss() -> None:
    """By small changes of a multiplier: the loss of many samples goes where the gradient says."""
    inputs, labels = samples(64)
    learner, found = Learner(small_image(), LearnerConfig(bits=False, gain=True)), {}
    learner.on_gradient(lambda op, o, part, g: found.setdefault((op, o), int(g[0])) if part == 2 else None)
    learner.step(inputs, labels)
    read = read_image(small_image())
    last = max(i for i, op in enumerate(read.operations) if op.weights is not None)
    logits = reference.logits(read, inputs)
    op, out = read.operations[last], read.tensors[read.output]
    share = np.exp(logits - logits.max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    share[np.arange(len(labels)), labels] -= 1  # the gradient of the loss
    expected = (share * logits).sum(0) * op.multiplier
    mine = np.array([found[last, o] for o in range(out.channels)], float)
    assert np.dot(mine, expected) / np.linalg.norm(mine) / np.linalg.norm(expected) > 0.97


def test_copies_of_a_sample_are_the_same_in_every_run_and_differ_from_step_to_step() -> None:
    inputs, labels = samples(4)
    config = LearnerConfig(bits=False, bias=True, augment=31)
    images = [Learner(small_image(), replace(config, seed=seed)) for seed in (1, 1, 2)]
    losses = [
        [learner.step(inputs, labels).loss for _ in range(3)] for learner in images
    ]  # rates of 0: nothing changes
    assert losses[0] == losses[1] != losses[2]
    assert len(set(losses[0])) > 1


def test_a_net_without_references_is_not_recalibrated() -> None:
    for config in (RECALIBRATE, ADAPT):
        with pytest.raises(ArgumentError):
            Learner(small_image(), config)
    Learner(small_image(), replace(ADAPT, recalibrate=0, prior=0))


def test_a_state_that_is_none_is_refused() -> None:
    learner = Learner(referenced_image(), RECALIBRATE)
    state = learner.state
    Learner(referenced_image(), RECALIBRATE, state=state)
    for at in (0, 8, 28, 30, len(state) - 1):
        damaged = bytearray(state)
        damaged[at] ^= 255
        with pytest.raises(StateError):
            Learner(referenced_image(), RECALIBRATE, state=bytes(damaged))
