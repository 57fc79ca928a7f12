"""Devices that learn together, each from its own samples: simulated here, or a real fleet.

examples:
  flipbit fleet simulate resnet8.fbit --data cifar10 --drift dim:2 --devices 100 --each 20 -o runs/fleet
  flipbit fleet simulate digits.fbit --data digits --drift noise:3 --way sum --alpha 0.1 --local -o runs/digits
  flipbit fleet report runs/fleet --plot fleet.png

To resume a run that was stopped, give the same command again. Servers, boards and keys: docs/fleet.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from flipbit.runtime.core.learner_config import LearnerConfig
from flipbit.runtime.core.model import Model
from flipbit.runtime.data.drift import apply_drift
from flipbit.runtime.data.load import load_data
from flipbit.runtime.data.pictures import add_resize_option
from flipbit.runtime.data.sets import open_arrays
from flipbit.runtime.errors import ArgumentError, InputError
from flipbit.runtime.exits import CommandParser, guarded, tell
from flipbit.runtime.files import check_place, write_json
from flipbit.runtime.image.inputs import to_planes
from flipbit.runtime.shown import shown_json
from flipbit.runtime.text_table import text_table
from flipbit.runtime.tune.methods import METHODS, PRIOR
from flipbit.studies.fleet.lead import WAYS, Plan, Round
from flipbit.studies.fleet.report import HEAD, cells, plot
from flipbit.studies.fleet.run import LOG, SHARES, FleetJob, Run, device_of, in_process, read_share, write_shares
from flipbit.studies.fleet.split import amounts, by_group, dirichlet

PROG = "flipbit fleet"
DEVICES, EACH, HELD_BACK = 10, 20, 1000
# Flips that many devices agree on go further than as many drawn by chance: docs/results/fleet.md.
FLIPS_RATE = 0.0002
EXACT = 32  # bits of a sum
PATIENCE = 600.0  # seconds for a round of a simulation: nobody is late there, the first waits for Ray
OWN_GROUPS = "group"
STOPPED = dict.fromkeys(("simulate", "serve"), "stopped: the same command goes on from the last round")
LEARNING = ("sr", "sr+bias", "gain+bias", "bias", "buffer", "recalibrate", "adapt")


def parser(prog: str = PROG) -> CommandParser:
    p = CommandParser(prog=prog, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = p.add_subparsers(dest="verb", metavar="VERB", required=True)
    simulate = verbs.add_parser("simulate", help="devices in this machine, on Flower and Ray, or in this process")
    _add_simulate(simulate)
    compared = verbs.add_parser("fedavg", help="for comparison: the same devices by Flower's FedAvg of float weights")
    _add_fedavg(compared)
    _add_deployed(verbs)
    report = verbs.add_parser("report", help="table and plot of a run")
    report.add_argument("folder", type=Path, metavar="FOLDER", help="folder that a run wrote (its -o)")
    report.add_argument("--plot", type=Path, metavar="FILE", help="draw accuracy and bytes")
    report.add_argument("--json", action="store_true", help="print JSON")
    return p


def _add_deployed(verbs: Any) -> None:
    """A fleet of processes and machines."""
    p = verbs.add_parser("keys", help="certificates and device keys for a real fleet")
    p.add_argument("--devices", type=int, default=DEVICES, metavar="N", help=f"number of devices ({DEVICES})")
    p.add_argument("--host", default="127.0.0.1", help="name or address by which devices reach the server")
    p.add_argument("-o", "--out", type=Path, required=True, metavar="FOLDER", help="folder to write")
    p = verbs.add_parser("serve", help="lead a fleet: a SuperLink, and the rounds")
    p.add_argument("image", metavar="IMAGE", help="a .fbit file: the image that devices were installed with")
    p.add_argument("--keys", type=Path, required=True, metavar="FOLDER", help="folder written by flipbit fleet keys")
    p.add_argument("--devices", type=int, default=DEVICES, metavar="N", help="let in devices 0 to N−1")
    p.add_argument("--wait-for", type=int, metavar="N", help="devices that must be connected to begin a round (all)")
    p.add_argument("--boards", type=int, default=1, metavar="N", help="boards that may share a device's key (1)")
    p.add_argument("--patience", type=float, default=60.0, metavar="S", help="seconds to wait for a reply (60)")
    p.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    p.add_argument("--port", type=int, default=9092, help="port to listen on (9092)")
    p.add_argument("--test", metavar="DATA", help="labelled samples to test the fleet's image on")
    _add_learning(p)
    p = verbs.add_parser("join", help="take part in a fleet: a SuperNode and its device")
    p.add_argument("image", type=Path, metavar="IMAGE", help="the image that the device was installed with")
    p.add_argument("--number", type=int, required=True, metavar="N", help="number of this device; its key is device-N")
    p.add_argument("--keys", type=Path, required=True, metavar="FOLDER", help="folder with ca.crt and device-N")
    p.add_argument("--server", required=True, metavar="HOST:PORT", help="address of the server")
    p.add_argument("--samples", type=Path, required=True, metavar="FILE", help="an .npz with this device's x and y")
    p.add_argument(
        "--flash", type=Path, required=True, metavar="FOLDER", help="the device's flash: keeps image and state"
    )
    p.add_argument(
        "--port", action="append", metavar="PORT",
        help="the device is a board: /dev/ttyACM0, tcp:HOST:PORT, qemu:BOARD; again: devices N+1, N+2, …",
    )  # fmt: skip
    p.add_argument("--baud", type=int, default=115200, metavar="N", help="of serial ports (115200)")


def _add_fedavg(p: argparse.ArgumentParser) -> None:
    _add_split(p)
    p.add_argument("--model", type=Path, required=True, metavar="FILE", help="the Keras model that IMAGE comes from")
    p.add_argument(
        "--lr", type=float, required=True, help="rate of Adam on the devices; 0.0001 is too much for resnet8"
    )
    p.add_argument("--rounds", type=int, default=20, metavar="N", help="number of rounds (20)")
    p.add_argument("--seed", type=int, default=1, metavar="N", help="seed of all random choices (1)")
    p.add_argument("-o", "--out", type=Path, required=True, metavar="FOLDER", help="log, as simulate writes it")
    p.add_argument("--plot", type=Path, metavar="FILE", help="draw accuracy and bytes")
    p.add_argument("--json", action="store_true", help="print JSON")


def _add_simulate(p: argparse.ArgumentParser) -> None:
    _add_split(p)
    p.add_argument("--liars", type=int, default=0, metavar="N", help="devices that send garbage (0)")
    _add_learning(p)
    p.add_argument("--cores", type=int, default=1, metavar="N", help="devices computed at once, with Ray (1)")
    p.add_argument("--local", action="store_true", help="run in this process, without Flower and Ray: the same bits")


def _add_split(p: argparse.ArgumentParser) -> None:
    p.add_argument("image", metavar="IMAGE", help="a .fbit file: what every device starts with")
    p.add_argument("--data", required=True, metavar="DATA", help="labelled samples, as for flipbit finetune")
    p.add_argument("--drift", metavar="CHANGE", help="a change of the camera, such as dim:2")
    p.add_argument("--devices", type=int, default=DEVICES, metavar="N", help=f"number of devices ({DEVICES})")
    p.add_argument(
        "--each", default=str(EACH), metavar="N", help=f"samples per device; 10-50: drawn from this range ({EACH})"
    )
    p.add_argument(
        "--alpha", type=float, default=1.0, help="how alike devices are: 0.1: a class or two each, 100: all (1)"
    )
    p.add_argument(
        "--by",
        metavar="GROUP",
        help="'group': a device per person or speaker of the data set; or an .npy file with a group per sample",
    )
    p.add_argument("--held-back", type=int, default=HELD_BACK, metavar="N", help=f"samples to test on ({HELD_BACK})")
    add_resize_option(p)


def _add_learning(p: argparse.ArgumentParser) -> None:
    p.add_argument("--way", choices=WAYS, default="flips", help="how the fleet adds up (flips)")
    p.add_argument("--method", choices=LEARNING, help="what learns, as for flipbit finetune (sr)")
    p.add_argument("--rounds", type=int, default=20, metavar="N", help="number of rounds (20)")
    p.add_argument("--rate", type=float, help="share of the bits that flip in the first round (by method)")
    p.add_argument("--quorum", type=int, default=2, metavar="N", help="votes that a flip needs (2)")
    p.add_argument(
        "--sum-bits", type=int, choices=(8, EXACT), default=EXACT, help="bits per sum on the network (32: exact)"
    )
    p.add_argument("--share", type=float, default=1.0, help="share of the devices that a round asks (1)")
    p.add_argument("--seed", type=int, default=1, metavar="N", help="seed of all random choices (1)")
    p.add_argument("-o", "--out", type=Path, required=True, metavar="FOLDER", help="folder for image, log and progress")
    p.add_argument("--plot", type=Path, metavar="FILE", help="draw accuracy and bytes")
    p.add_argument("--json", action="store_true", help="print JSON")


def main(argv: list[str] | None = None, prog: str = PROG) -> int:
    verb = next((word for word in (sys.argv[1:] if argv is None else argv) if not word.startswith("-")), "")
    return guarded(lambda: _main(argv, prog), stopped=STOPPED.get(verb, "stopped"), extras="fleet")


def _main(argv: list[str] | None, prog: str) -> int:
    given = parser(prog).parse_args(argv)
    verbs: dict[str, Callable[[argparse.Namespace], int]] = {
        "simulate": _simulate, "fedavg": _fedavg, "report": _report, "keys": _keys, "serve": _serve, "join": _join,
    }  # fmt: skip
    return verbs[given.verb](given)


def plan_of(given: argparse.Namespace) -> tuple[Plan, LearnerConfig]:
    """What learns, and how fast."""
    usual = FLIPS_RATE if given.way == "flips" else None
    name = given.method or ("recalibrate" if given.way == "recalibrate" else "sr")
    method = METHODS[name]
    rate = given.rate if given.rate is not None else usual or method.rate_bits
    if given.way == "recalibrate" and name != "recalibrate":
        raise ArgumentError(f"--way recalibrate measures without labels: --method {name} does not; leave it out")
    if given.way == "flips" and name != "sr":
        raise ArgumentError(f"--way flips carries bits, by --method sr; --method {name} needs --way sum")
    if given.rate is not None and not method.bits:
        raise ArgumentError(f"--rate {given.rate:g} is of bits, and --method {name} flips none: leave it out")
    if given.sum_bits != EXACT and given.way != "sum":
        raise ArgumentError(f"--sum-bits {given.sum_bits} is for --way sum, not for --way {given.way}: leave it out")
    for option, value, low, high in (
        ("--rounds", given.rounds, 1, 10_000), ("--quorum", given.quorum, 1, 10_000),
        ("--share", given.share, 0.001, 1),
        ("--seed", given.seed, 0, 1_000_000), ("--rate", rate, 0, 1),
    ):  # fmt: skip
        if not low <= value <= high:
            raise ArgumentError(f"{option} {value:g}: expected {low:g} to {high:,g}")
    rounds = 1 if name == "recalibrate" else given.rounds
    config = LearnerConfig(
        given.seed, method.buffer_bits, (1 << method.buffer_bits) // 4, method.bits, method.bias, gain=method.gain,
        recalibrate=1 if method.recalibrate else 0, prior=PRIOR if method.recalibrate else 0,
    )  # fmt: skip
    return Plan(
        given.way, rounds, rate, method.rate_bias, quorum=given.quorum, bits=given.sum_bits, share=given.share,
        seed=given.seed,
    ), config  # fmt: skip


def _check_split(given: argparse.Namespace, *more: tuple[str, float, float, float]) -> None:
    for option, value, low, high in (
        ("--devices", given.devices, 1, 10_000), ("--held-back", given.held_back, 1, 1_000_000), *more,
    ):  # fmt: skip
        if not low <= value <= high:
            raise ArgumentError(f"{option} {value:g}: expected {low:g} to {high:,g}")
    if not 0.001 <= given.alpha <= 1e6:
        raise ArgumentError(f"--alpha {given.alpha:g}: expected 0.001 to 1,000,000")
    given.each = _each(given)


def _fedavg(given: argparse.Namespace) -> int:
    """Float weights, by Flower's strategy."""
    _check_split(
        given, ("--rounds", given.rounds, 1, 10_000), ("--lr", given.lr, 1e-6, 1), ("--seed", given.seed, 0, 1_000_000)
    )
    if given.out.exists() and not given.out.is_dir():
        raise InputError(f"{given.out}: is a file; -o takes a folder")
    model = Model(given.image)
    given.out.mkdir(parents=True, exist_ok=True)
    check_place(given.out / LOG, given.plot)
    shares, (pixels, labels) = _pixels(given, model)
    if model.pixels is None:
        raise InputError(f"{given.image}: takes no pixels; this comparison does")
    if find_spec("tensorflow") is None:
        raise InputError("tensorflow is not installed here: pip install 'flipbit[fleet,train]'")
    from flipbit.studies.fleet.fedavg import FloatFleet

    def real(x: np.ndarray) -> np.ndarray:
        values: np.ndarray = model.pixels(x).astype(np.float32)  # type: ignore[misc]
        return values

    fleet = FloatFleet(
        given.model, [(real(x), y) for x, y in shares], (real(pixels), labels.astype(np.int64)), given.lr, given.seed
    )
    before, rows, show = fleet.accuracy(), [], _table(quiet=given.json)
    tell(f"{given.devices} devices, {sum(given.each):,} samples, FedAvg; accuracy before {100 * before:.2f} %")
    log: dict[str, Any] = {}
    for number in range(given.rounds):
        rows.append(fleet.round(number))
        log = {
            "plan": {"way": "fedavg", "lr": given.lr, "rounds": given.rounds, "seed": given.seed},
            "before": before,
            "rounds": [asdict(row) for row in rows],
        }
        write_json(given.out / LOG, log)
        show(rows[-1])
    return _finish(given, log)


def _simulate(given: argparse.Namespace) -> int:
    _check_split(given, ("--liars", given.liars, 0, given.devices), ("--cores", given.cores, 1, 1024))
    plan, config = plan_of(given)
    if given.way != "flips" and plan.share == 1 and sum(given.each) > 0xFFFF:
        raise ArgumentError(f"{given.devices} devices with {sum(given.each):,} samples: at most 65,535 in a round")
    if given.out.exists() and not given.out.is_dir():
        raise InputError(f"{given.out}: is a file; -o takes a folder")
    if not given.local:
        _need_flower()
    model = Model(given.image)
    given.out.mkdir(parents=True, exist_ok=True)
    check_place(given.out / LOG, given.plot)
    shares, test = _split(given, model)
    path = given.out / SHARES
    write_shares(path, shares, given.liars)
    run = Run(FleetJob(model.image.data, config, plan), given.out, test)
    tell(
        f"{given.devices} devices, {sum(len(y) for _, y in shares):,} samples, {plan.way}; "
        f"accuracy before {100 * (run.before or 0):.2f} % on {len(test[1]):,} held back"
    )
    show = _table(quiet=given.json)
    for row in run.rows:
        show(row)
    if not run.done and given.local:
        devices = {number: device_of(run.job, path, number) for number in range(given.devices)}
        run.rounds(in_process(devices, run.flash), lambda: sorted(devices), show)
    elif not run.done:
        from flipbit.studies.fleet.flower import simulate

        simulate(run, path, given.devices, PATIENCE, show, given.cores)
    return _finish(given, run.log())


def _keys(given: argparse.Namespace) -> int:
    from flipbit.studies.fleet.keys import make_keys

    if not 1 <= given.devices <= 10_000:
        raise ArgumentError(f"--devices {given.devices}: expected 1 to 10,000")
    if given.out.exists() and not given.out.is_dir():
        raise InputError(f"{given.out}: is a file; -o takes a folder")
    make_keys(given.out, given.host, given.devices)
    print(f"{given.out}: keys of {given.devices} devices. Give device N ca.crt and device-N; keep ca.key offline.")
    return 0


def _serve(given: argparse.Namespace) -> int:
    from flipbit.studies.fleet import keys
    from flipbit.studies.fleet.deploy import Server
    from flipbit.studies.fleet.run import write_deployed

    wait = given.devices if given.wait_for is None else given.wait_for
    for option, value, low, high in (
        ("--devices", given.devices, 1, 10_000), ("--boards", given.boards, 1, 1000),
        ("--wait-for", wait, 1, given.devices * given.boards),
        ("--port", given.port, 1, 65_535),
        ("--patience", given.patience, 1, 86_400),
    ):  # fmt: skip
        if not low <= value <= high:
            raise ArgumentError(f"{option} {value:g}: expected {low} to {high:,}")
    plan, config = plan_of(given)
    model = Model(given.image)
    keys.there(given.keys, keys.CA, keys.SERVER, keys.SERVER_KEY, *map(keys.public_name, range(given.devices)))
    given.out.mkdir(parents=True, exist_ok=True)
    check_place(given.out / LOG, given.plot)
    test = None
    if given.test:
        data = load_data(given.test, model.input_shape, model.labels, front_end=model.image.front_end)
        test = (data.x, data.y)
    run = Run(FleetJob(model.image.data, config, plan), given.out, test)
    write_deployed(given.out, run.job, test)
    show, shown = _table(quiet=given.json), 0

    def done() -> bool:
        nonlocal shown
        rows = _rows(given.out / LOG)[1] if (given.out / LOG).exists() else []
        for row in rows[shown:]:
            show(row)
        shown = max(shown, len(rows))
        return shown >= plan.rounds

    with tempfile.TemporaryDirectory(prefix="flipbit-fleet-") as work:
        if not done():
            with Server(Path(work), given.keys.resolve(), given.host, given.port) as server:
                server.register(range(given.devices))
                most = given.devices * given.boards
                tell(f"listening on {given.host}:{given.port}; waiting for {wait} of {most} devices")
                server.start(run.job, given.out, wait, given.patience, given.boards)
                server.follow(done)
    return _finish(given, _rows(given.out / LOG)[0])


def _join(given: argparse.Namespace) -> int:
    from flipbit.studies.fleet import keys
    from flipbit.studies.fleet.deploy import address, join, supernode

    address(given.server)
    model = Model(given.image)
    takes, classes = int(np.prod(model.input_shape)), int(np.prod(model.output_shape))
    for board in range(len(given.port or [""])):
        x, y, _ = read_share(given.samples, given.number + board)
        if x[:1].size != min(len(x), 1) * takes or x.dtype != np.int8:
            raise InputError(
                f"{given.samples}: {x[:1].size:,} numbers per sample; {given.image} takes {takes:,} (int8)"
            )
        if len(y) and not 0 <= y.min() <= y.max() < classes:
            raise InputError(f"{given.samples}: labels {y.min()} to {y.max()}; {given.image} has 0 to {classes - 1}")
    if not 0 <= given.number < 10_000:
        raise ArgumentError(f"--number {given.number}: expected 0 to 9,999")
    keys.there(given.keys, keys.CA, keys.private_name(given.number))
    given.flash.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="flipbit-fleet-") as work, contextlib.ExitStack() as stack:
        gateway = stack.enter_context(_gateway(given, Path(work))) if given.port else None
        command, env = supernode(
            given.number, given.keys.resolve(), given.server, given.image, given.samples, given.flash, Path(work),
            gateway.path if gateway else None,
        )  # fmt: skip
        tell(f"device {given.number}: joining {given.server}; Ctrl-C leaves the fleet")
        join(command, env, given.server, Path(work) / "supernode.log", tell)
    return 0


def _gateway(given: argparse.Namespace, work: Path) -> Any:
    from flipbit.studies.fleet.board import Port
    from flipbit.studies.fleet.gateway import Gateway

    real = [port for port in given.port if not port.startswith("qemu:")]
    if len(set(real)) < len(real):
        raise ArgumentError("--port: one port is named twice")
    ports = [
        Port(name, given.image, given.flash / f"board-{given.number + i}", given.baud)
        for i, name in enumerate(given.port)
    ]
    return Gateway(ports, given.number, given.samples, work, tell)


def _need_flower() -> None:
    for package in ("flwr", "ray"):
        if find_spec(package) is None:
            raise InputError(f"{package} is not installed here: pip install 'flipbit[fleet]', or add --local")


def _split(given: argparse.Namespace, model: Model) -> tuple[list[tuple[np.ndarray, np.ndarray]], Any]:
    """Samples of each device, as the core takes them, and those held back."""
    shares, test = _pixels(given, model)
    planes, _ = to_planes(np.concatenate([x for x, _ in shares]), model.image.tensors[model.image.input], model.pixels)
    ends = np.cumsum([len(y) for _, y in shares])
    return [(planes[end - len(y) : end], y) for end, (_, y) in zip(ends, shares)], test


def _pixels(given: argparse.Namespace, model: Model) -> tuple[list[tuple[np.ndarray, np.ndarray]], Any]:
    """Samples of each device and those held back, as they come."""
    data = load_data(given.data, model.input_shape, model.labels, given.resize, front_end=model.image.front_end)
    classes = int(np.prod(model.output_shape))
    if not data.labelled or data.y.max() >= classes:
        raise InputError(f"{given.data}: every sample needs a label from 0 to {classes - 1}")
    order = np.random.default_rng(given.seed).permutation(len(data.x))
    if given.by:
        places = by_group(_groups(given.by, given.data, len(data.x)), given.each, given.seed)
        rest = np.setdiff1d(order, np.concatenate(places), assume_unique=True)[: given.held_back]
    else:
        rest, pool = order[: given.held_back], order[given.held_back :]
        dealt = dirichlet(data.y[pool], given.each, given.alpha, given.seed)
        places = [pool[mine] for mine in dealt]
    if not len(rest):
        raise ArgumentError(f"the devices have all {sum(given.each):,} samples: nothing is left to test on")
    pixels = data.x[np.concatenate([*places, rest])]
    if given.drift:
        pixels = apply_drift(pixels, given.drift, given.seed)
    ends = np.cumsum([len(mine) for mine in places])
    shares = [(pixels[end - len(mine) : end], data.y[mine].astype(np.int64)) for mine, end in zip(places, ends)]
    return shares, (pixels[ends[-1] :], data.y[rest])


def _each(given: argparse.Namespace) -> list[int]:
    """Samples of each device."""
    least, _, most = str(given.each).partition("-")
    if not (least.isdecimal() and (most or least).isdecimal() and 1 <= int(least) <= int(most or least) <= 1000):
        raise ArgumentError(f"--each {given.each}: expected a number from 1 to 1,000, or two such as 10-50")
    if not most:
        return [int(least)] * given.devices
    return amounts(int(least), int(most), given.devices, given.seed)


def _groups(source: str, data: str, samples: int) -> np.ndarray:
    """Whose each sample is: as a file says, or the data set itself, which knows persons or speakers."""
    if source == OWN_GROUPS:
        found = open_arrays(data)
        groups = found.examples("test").groups if found and found.examples else None
        if groups is None or len(groups) != samples:
            raise InputError(f"{data}: does not say whose its samples are: give --by an .npy file")
        return np.asarray(groups)
    try:
        groups = np.load(source, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{source}: no .npy file of groups ({error})") from None
    if not isinstance(groups, np.ndarray) or groups.shape != (samples,):
        raise InputError(f"{source}: expected an array with a group for each of {samples:,} samples")
    return groups


def _table(quiet: bool) -> Callable[[Round], None]:
    """A line per round, as it ends."""
    lines = text_table(HEAD, [cells(Round(999, 1000, 1000, down=10**9, up=10**9))]).splitlines()
    began, shown = time.monotonic(), [quiet]

    def show(row: Round) -> None:
        if quiet:
            return
        if shown[0] is False:
            print("\n".join(lines[:2]))
            shown[0] = True
        widths = [len(part) for part in lines[1].split("  ")]
        print("  ".join(text.rjust(width) for text, width in zip(map(str, cells(row)), widths)), flush=True)
        for note in row.notes[:3]:
            tell(f"  {note}")
        if sys.stderr.isatty():
            print(f"\r{time.monotonic() - began:.0f} s", end="\r", file=sys.stderr)

    return show


def _finish(given: argparse.Namespace, log: dict[str, Any]) -> int:
    if given.plot:
        plot({log["plan"]["way"]: log}, given.plot)
    if given.json:
        print(shown_json(log))
    return 0


def _rows(path: Path) -> tuple[dict[str, Any], list[Round]]:
    """A log and its rounds."""
    try:
        log = json.loads(path.read_text())
        names = {field.name for field in fields(Round)}
        rows = [Round(**{name: value for name, value in row.items() if name in names}) for row in log["rounds"]]
        log["plan"]["way"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: is not the log of a fleet") from None
    return log, rows


def _report(given: argparse.Namespace) -> int:
    log, rows = _rows(given.folder / LOG)
    if not given.json:
        print(text_table(HEAD, [cells(row) for row in rows]))
    return _finish(given, log)


__all__ = ["main", "parser"]
if __name__ == "__main__":
    sys.exit(main())
