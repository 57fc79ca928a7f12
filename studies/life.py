"""The life of a device whose camera changes twice: accuracy and energy, with flipbit and without.

Three devices see the same stream. One runs the net it was delivered with. One has the guard: it watches what it
classifies and recalibrates without labels. One has the guard too, and later gets labels of its last images, once after
each change, from which ``adapt`` learns.

What they compute is the C core's, in integers; energy is that of a simulated board (runtime/simulate), from a battery.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.board.plan import board_plan
from flipbit.runtime.core.learner import LearnerConfig
from flipbit.runtime.core.model import Model
from flipbit.runtime.core.target import run_steps
from flipbit.runtime.data.drift import apply_drift
from flipbit.runtime.files import replacing
from flipbit.runtime.image.inputs import to_planes
from flipbit.runtime.link.guard import PRIOR
from flipbit.runtime.simulate.power import BoardPower, load_device
from flipbit.runtime.simulate.simulator import SimulatedDevice
from flipbit.runtime.simulate.supply import Supply, parse_supply
from flipbit.runtime.text_table import text_table
from flipbit.runtime.tune.job import Job
from flipbit.runtime.tune.methods import augmenting
from flipbit.runtime.tune.plot import pyplot

Array = np.ndarray
Result = dict[str, Any]
KINDS = ALONE, GUARDED, LABELLED = ("left alone", "guard, no labels", "guard, then labels")
WATCHING = LearnerConfig(bits=False, recalibrate=1, prior=PRIOR)
BOARD, SUPPLY = "nrf52840-dk", "battery:220"  # a coin cell


@dataclass(frozen=True)
class Story:
    """What happens, in windows of images."""

    windows: int = 32
    window: int = 500  # more than the guard's own: against its prior, 500 images move a net 2/3 of the way, 200 less
    threshold: float = 0.1  # of the guard; chosen on training images: 0.25 does not notice the second change
    changes: tuple[tuple[int, str], ...] = ((4, "dim:2"), (18, "dim:2+blur:2"))
    labels: tuple[int, ...] = (12, 26)  # when the last `samples` images get labels
    tested: int = 2000  # images that accuracy is measured on, at most

    def camera(self, window: int) -> str:
        """The change that is in force; "" at first."""
        return next((change for start, change in reversed(self.changes) if window >= start), "")


class Guarded:
    """A simulated board with the guard on: the decisions of firmware/app/fb_commands_guard.c.

    ``adapted``: the net has learned from labels and no longer matches the references. What its first window leaves of
    the drift is then taken as settled, as after a recalibration.
    """

    def __init__(self, device: SimulatedDevice, threshold: float, adapted: bool = False):
        self.device, self.threshold = device, threshold
        self.settled, self._fresh, self._open = 0.0, adapted, False

    def window(self, inputs: Array) -> bool:
        """Classify a window; whether the net was changed by it."""
        self.device.begin(len(inputs), 0.0, 0.0)
        for x in inputs:
            self.device.sample(x, 0)
        drift = self.device.drift
        if self._fresh:
            self.settled = drift
        self._fresh = False
        if not self._open and (drift <= self.threshold or drift - self.threshold < self.settled):
            return False  # the next window begins the pass again
        self._open = self.device.end_pass()
        if not self._open:
            self._fresh = True
            self.device.close()
        return True


@dataclass
class LivingDevice:
    """One of the three, on its way through the story."""

    kind: str
    board: BoardPower
    image: bytes
    supply: Supply
    seed: int
    threshold: float
    spent: float = 0.0  # joules of boards that are done with
    guarded: Guarded | None = field(default=None, init=False)
    _one: float = field(default=0.0, init=False)  # cycles of an inference, where nothing watches

    def __post_init__(self) -> None:
        if self.kind == ALONE:
            cycles = board_plan(Model(self.image), self.board.name).cycles
            # Where nobody counted this net's kernels: as much as with the guard, which is a fifth too much.
            self._one = SimulatedDevice(self.board, self.image, WATCHING).cost.recalibrate if cycles is None else cycles
        else:
            self._watch(adapted=False)

    def _watch(self, adapted: bool) -> None:
        self.guarded = Guarded(
            SimulatedDevice(self.board, self.image, WATCHING, supply=self.supply), self.threshold, adapted
        )

    @property
    def joules(self) -> float:
        return self.spent + (self.guarded.device.meter.joules if self.guarded else 0.0)

    def classify(self, inputs: Array) -> bool:
        """A window of the stream; whether the net was changed by it."""
        if self.guarded is None:
            joules = self.board.joules(self._one * len(inputs))
            self.supply.draw(joules, self.board.seconds(self._one * len(inputs)))
            self.spent += joules
            return False
        changed = self.guarded.window(inputs)
        self.image = self.guarded.device.image
        return changed

    def learn(self, inputs: Array, labels: Array) -> None:
        """From labelled images; the guard then watches the net they made."""
        self.spent, self.guarded = self.joules, None
        job = Job("adapt", seed=self.seed, augment=augmenting(None, Model(self.image).image))
        device = SimulatedDevice(self.board, self.image, job.config, supply=self.supply)
        for _ in run_steps(device, inputs, labels, job.rates):
            pass
        device.close()
        self.image, self.spent = device.image, self.spent + device.meter.joules
        self._watch(adapted=True)


def live(
    image: bytes, pixels: Array, labels: Array, seed: int, samples: int, story: Story, said: Callable[[str], None]
) -> list[Result]:
    """All three devices. A seed halves the images anew: a stream, and images to measure accuracy on after every window
    that changed the net or the camera."""
    order = np.random.default_rng(seed).permutation(len(labels))
    shown, tested = np.array_split(order, 2)
    tested = tested[: story.tested]
    model, board = Model(image), load_device(BOARD)
    source = model.image.tensors[model.image.input]
    cameras = {
        camera: apply_drift(pixels, camera) if camera else pixels for camera in map(story.camera, range(story.windows))
    }
    known: dict[tuple[str, str], float] = {}

    def accuracy(net: bytes, camera: str) -> float:
        key = hashlib.sha256(net).hexdigest(), camera
        if key not in known:
            answers = Model(net).predict(cameras[camera][tested], raw=True).reshape(len(tested), -1).argmax(1)
            known[key] = float(np.mean(answers == labels[tested]))
        return known[key]

    found: list[Result] = []
    for kind in KINDS:
        supply = parse_supply(SUPPLY, board.volts, board.figure("voltage", "brown_out"))
        device = LivingDevice(kind, board, image, supply, seed, story.threshold)
        rows: list[Result] = [{"images": 0, "accuracy": accuracy(image, ""), "joules": 0.0, "event": ""}]
        for window in range(story.windows):
            camera, event = story.camera(window), ""
            at = np.arange(window * story.window, (window + 1) * story.window)
            if kind == LABELLED and window in story.labels:  # of the images seen last
                some = shown[(at[0] - samples + np.arange(samples)) % len(shown)]
                device.learn(to_planes(cameras[story.camera(window - 1)][some], source, model.pixels)[0], labels[some])
                event = "labels"
            if device.classify(to_planes(cameras[camera][shown[at % len(shown)]], source, model.pixels)[0]):
                event = event or "recalibrated"
            rows.append({
                "images": int(at[-1]) + 1, "accuracy": accuracy(device.image, camera), "joules": device.joules,
                "event": event,
            })  # fmt: skip
        share = device.joules / supply.capacity
        said(f"seed {seed}  {kind:18s}  {100 * rows[-1]['accuracy']:.1f} % at the end, {device.joules:.3g} J")
        found.append({"seed": seed, "kind": kind, "battery": share, "rows": rows})
    return found


def life_table(results: list[Result], story: Story) -> str:
    """Accuracy of each device at the end of each part of the story, and energy: means over seeds."""
    ends = sorted({start for start, _ in story.changes} | set(story.labels) | {story.windows})
    rows = []
    for kind in KINDS:
        some = [r for r in results if r["kind"] == kind]
        shares = [[100 * r["rows"][end]["accuracy"] for r in some] for end in ends]
        cells = [f"{np.mean(s):.1f} ± {np.std(s, ddof=1) if len(s) > 1 else 0:.1f}" for s in shares]
        lives = [100 * np.mean([row["accuracy"] for row in r["rows"][1:]]) for r in some]
        joules = np.mean([r["rows"][-1]["joules"] for r in some])
        share = 100 * np.mean([r["battery"] for r in some])
        rows.append([kind, *cells, f"{np.mean(lives):.1f}", f"{joules:.1f}", f"{share:.2f}", len(some)])
    heads = [f">{story.window * end:,} images" for end in ends]
    return text_table(["device", *heads, ">mean of the life", ">J", ">% of the battery", ">seeds"], rows)


def plot_life(results: list[Result], story: Story, path: Path) -> None:
    """Accuracy and energy over the images seen: means over seeds, and what lies between them."""
    plt = pyplot("--plot")
    figure, (top, bottom) = plt.subplots(2, 1, sharex=True, figsize=(8, 6), height_ratios=(1.6, 1))
    for kind, colour in zip(KINDS, ("#718096", "#c05621", "#2f855a")):
        lives = [r["rows"] for r in results if r["kind"] == kind]
        images = [row["images"] for row in lives[0]]
        shares = 100 * np.array([[row["accuracy"] for row in rows] for rows in lives])
        top.plot(images, shares.mean(0), color=colour, label=kind)
        top.fill_between(images, shares.min(0), shares.max(0), color=colour, alpha=0.2, linewidth=0)
        bottom.plot(images, np.mean([[row["joules"] for row in rows] for rows in lives], axis=0), color=colour)
    marks = [(start, change) for start, change in story.changes] + [(at, "labels") for at in story.labels]
    for window, text in sorted(marks):
        for axes in (top, bottom):
            style = ":" if text == "labels" else "-"
            axes.axvline(window * story.window, color="#a0aec0", linewidth=0.8, linestyle=style)
        top.text(window * story.window, 1.01, text, transform=top.get_xaxis_transform(), fontsize="small", ha="center")
    top.set_ylabel("accuracy (%)")
    top.set_ylim(0, 100)
    top.legend(loc="lower left", fontsize="small")
    bottom.set_ylabel(f"energy so far (J),\n{BOARD}")
    bottom.set_xlabel("images the device has seen")
    figure.tight_layout()
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120, format=path.suffix[1:] or "png")
    plt.close(figure)
