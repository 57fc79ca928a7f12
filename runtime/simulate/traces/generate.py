"""Makes the harvesting traces in this folder: python runtime/simulate/traces/generate.py

A trace says how much power a harvester delivers, in steps of equal length; the simulator repeats it. These are drawn
from simple models with the parameters below, not recorded: shapes and orders of magnitude are those of small
harvesters, and anyone may put a recorded one in their place (two columns, seconds and microwatts).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

DAY = 24 * 60  # minutes


def indoor_solar(random: np.random.Generator) -> tuple[int, np.ndarray]:
    """A day of a 25 cm² amorphous cell in an office, in minutes: daylight through a window, and lamps (500 lx are about
    10 µW/cm²) that are on while people are there, now and then off in between, and off at night."""
    minute = np.arange(DAY)
    window = 120 * np.clip(np.sin((minute / 60 - 6.5) / 12 * np.pi), 0, None)
    clouds = np.interp(minute, np.arange(0, DAY + 30, 30), random.uniform(0.3, 1, DAY // 30 + 1))
    lamps = np.where((minute >= 8 * 60) & (minute < 18 * 60), 250.0, 0.0)
    for start in random.integers(8 * 60, 18 * 60, 6):
        lamps[start : start + random.integers(5, 40)] = 0
    return 60, window * clouds + lamps


def radio(random: np.random.Generator) -> tuple[int, np.ndarray]:
    """Twenty minutes of a rectifying antenna some metres from a transmitter, in seconds: bursts of half a second to
    some seconds, fading as people walk by, and a few microwatts in between."""
    power: np.ndarray = np.full(20 * 60, 4.0)
    at = 0
    while at < len(power):
        length = int(random.integers(1, 8))
        power[at : at + length] += random.exponential(180)
        at += length + int(random.exponential(6)) + 1
    return 1, power


def thermal(random: np.random.Generator) -> tuple[int, np.ndarray]:
    """A day of a thermoelectric generator on a hot pipe, in minutes: power grows with the square of the difference in
    temperature, which follows a pump that runs some hours in the morning and in the evening, slowly."""
    minute, kelvin, now = np.arange(DAY), np.zeros(DAY), 2.0
    for i in minute:
        running = 5 * 60 <= i < 9 * 60 or 16 * 60 <= i < 22 * 60
        now += ((14.0 if running else 2.0) - now) / 45 + random.normal(0, 0.05)
        kelvin[i] = max(0.0, now)
    return 60, 15 * kelvin**2


def main() -> None:
    for seed, (name, make) in enumerate({"indoor-solar": indoor_solar, "rf": radio, "thermal": thermal}.items()):
        step, power = make(np.random.default_rng(seed))
        lines = [f"{i * step},{p:.0f}" for i, p in enumerate(power)]
        path = Path(__file__).with_name(f"{name}.csv")
        path.write_text("seconds,microwatts\n" + "\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
