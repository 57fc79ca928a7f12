"""A net as a picture: boxes from top to bottom, arrows along the data, shortcuts beside the path."""

from __future__ import annotations

from pathlib import Path

from flipbit.export.commands.describe import Description, Node
from flipbit.runtime.files import replacing

COLOURS = {1: "#cde7d8", 8: "#fbe3c0", 16: "#fbe3c0", 32: "#f3cfcf", None: "#e8e8ee"}


def places(nodes: list[Node]) -> dict[str, tuple[float, float]]:
    """(column, row) of each node: a row is the longest way from the input; branches move to the right."""
    row: dict[str, int] = {}
    writer = {name: node.name for node in nodes for name in node.outputs}
    for node in nodes:
        before = [row[writer[name]] for name in node.inputs if name in writer]
        row[node.name] = 1 + max(before, default=-1)
    taken: dict[int, int] = {}
    found = {}
    for node in nodes:
        column = taken.get(row[node.name], 0)
        taken[row[node.name]] = column + 1
        found[node.name] = (float(column), float(row[node.name]))
    return found


def draw(description: Description, path: Path, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import FancyBboxPatch

    nodes = description.nodes
    where = places(nodes)
    columns = 1 + max(x for x, _ in where.values())
    rows = 1 + max(y for _, y in where.values())
    figure, axis = pyplot.subplots(figsize=(3.4 * columns + 1, 0.55 * rows + 1))
    writer = {name: node.name for node in nodes for name in node.outputs}
    for node in nodes:
        x, y = where[node.name]
        axis.add_patch(
            FancyBboxPatch(
                (x - 0.42, -y - 0.3), 0.84, 0.6, "round,pad=0.02", fc=COLOURS.get(node.bits, "#eee"), ec="#555"
            )
        )
        shape = "×".join(str(n) for n in node.shape)
        size = f"  {node.bytes:,} B" if node.bytes else ""
        axis.text(x, -y, f"{node.name}\n{node.kind}  {shape}{size}", ha="center", va="center", fontsize=6)
        for name in node.inputs:
            if name in writer:
                x0, y0 = where[writer[name]]
                far = y - y0 > 1
                style = {"arrowstyle": "-|>", "color": "#555", "connectionstyle": f"arc3,rad={-0.3 if far else 0}"}
                start = (x0 + (0.44 if far else 0), -y0 - (0 if far else 0.32))
                end = (x + (0.44 if far else 0), -y + (0 if far else 0.32))
                axis.annotate("", end, start, arrowprops=style)
    axis.set_xlim(-0.6, columns - 0.2)
    axis.set_ylim(-rows + 0.4, 0.6)
    axis.axis("off")
    axis.set_title(f"{title}: {description.format}, {description.file_bytes:,} bytes", fontsize=9)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120, bbox_inches="tight")
    pyplot.close(figure)
