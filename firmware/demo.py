"""The whole way on one page: train a net with one-bit weights, put it on a board, let it learn there.

1. train a net on real handwritten digits (scikit-learn's, bundled) with BinaryConnect,
2. export it as a device image,
3. build the firmware, flash it into an emulated board (QEMU) over GDB, and hold every layer against this machine's,
4. dim the light: the same digits, darker; let the board learn from some of them,
5. report.

Everything is written to runs/demo-…; Ctrl-C stops at any time.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
BOARD = "netduinoplus2"
DRIFT = "dim:2"


def run(title: str, *command: str | Path) -> None:
    """Show a command and run it; its output is the demonstration."""
    shown = " ".join(str(part) for part in command)
    print(f"\n== {title}\n$ {shown}", flush=True)
    words = [str(part) for part in command]
    program = [sys.executable] if words[0] == "python" else [str(Path(sys.executable).with_name(words[0]))]
    status = subprocess.run([*program, *words[1:]], cwd=HERE).returncode
    if status:
        sys.exit(f"\nstopped: that ended with status {status}")


def main() -> int:
    start = time.monotonic()
    folder = Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    image, tuned = folder / "model.fbit", folder / "tuned.fbit"
    run("train one-bit weights on handwritten digits", "python", "train/run.py", "--method", "bc", "-o", folder)
    run("write the device image", "python", "export/to_fbit.py", folder / "model.h5")
    board = ("--port", f"qemu:{BOARD}", "--model", image)
    run(f"flash an emulated {BOARD}", "flipbit", "flash", "--board", BOARD, "--model", image, "--qemu")
    run("digits on the board", "flipbit", "device", "infer", "digits", *board, "--limit", "8")
    run("is every layer on the board the same as here?", "flipbit", "device", "verify", "digits", *board)
    run(
        "the light is dimmed: let the board learn", "python", "runtime/finetune.py", image, "--data", "digits",
        "--drift", DRIFT, "--target", f"qemu:{BOARD}", "--method", "sr+bias", "--samples", "80", "--steps", "15",
        "-o", tuned,
    )  # fmt: skip
    run("what changed in the image", "flipbit", "compare", image, tuned)
    print(f"\nDone in {time.monotonic() - start:.0f} s. The net is {image}, what the board made of it is {tuned}.")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nstopped")
