"""What SuperLink and SuperNodes run: the lead, and a device. Started by Flower, not by people (deploy.py)."""

from __future__ import annotations

import threading
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from flipbit.runtime.core.learner_config import LearnerConfig
from flipbit.runtime.errors import FlipbitError
from flipbit.studies.fleet.flower import Boards, answered, asking, nodes, served
from flipbit.studies.fleet.lead import Plan
from flipbit.studies.fleet.run import FleetJob, read_deployed

client, server = ClientApp(), ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    run, node = context.run_config, context.node_config
    job = FleetJob(
        Path(str(node["image"])).read_bytes(), LearnerConfig.unpack(bytes.fromhex(str(run["config"]))),
        Plan(way=str(run["way"]), seed=int(run["seed"])), int(run["arena"]),
    )  # fmt: skip
    if "gateway" in node:
        return served(message, Path(str(node["gateway"])), job)
    flash = Path(str(node["flash"]))
    flash.mkdir(parents=True, exist_ok=True)
    return answered(message, context, job, Path(str(node["samples"])), int(node["number"]), flash)


@server.main()
def lead(grid: Grid, context: Context) -> None:
    settings = context.run_config
    said, stop = Path(str(settings["said"])), threading.Event()
    patience, devices = float(settings["patience"]), int(settings["devices"])
    try:
        run = read_deployed(Path(str(settings["folder"])))
        ask = asking(grid, patience, stop)
        boards = Boards(ask, int(settings["boards"]))
        run.rounds(ask, lambda: nodes(grid, devices, patience, stop, boards), lambda row: None)
        said.write_text("done")
    except FlipbitError as error:
        said.write_text(str(error))
    except OSError as error:
        said.write_text(f"{error.filename or 'output'}: {error.strerror or error}")
    except BaseException as error:
        said.write_text(f"{type(error).__name__}: {error}")
        raise
