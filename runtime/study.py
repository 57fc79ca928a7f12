"""Studies of learning on a device: ``flipbit.studies.learning``. See --help."""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("flipbit.studies.learning", run_name="__main__")
