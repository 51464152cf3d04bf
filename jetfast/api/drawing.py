"""Pipelines for people: the steps as text, and as an inline SVG for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from jetfast.api.naming import shorten
from jetfast.api.steps import (
    LATE_PORT,
    REJECTED_PORT,
    JoinStep,
    KeyedStateStep,
    Output,
    SinkStep,
    SourceStep,
    Step,
    WindowStep,
)
from jetfast.core.guarantee import Guarantee
from jetfast.core.joins import LATE_PORTS
from jetfast.core.routing import RoutingKind
from jetfast.errors import JobDefinitionError

if TYPE_CHECKING:
    from jetfast.api.pipeline import Pipeline

BOX_WIDTH, BOX_HEIGHT, COLUMN_GAP, ROW_GAP, MARGIN = 210, 46, 56, 18, 12
LABEL_LENGTH_MAX = 30


def describe_output(output: Output) -> str:
    """Name an output as its readers see it."""
    if isinstance(output.step, SourceStep) and output.port == REJECTED_PORT:
        return f"{output.step.name}.rejected_rows"
    if isinstance(output.step, WindowStep | KeyedStateStep) and output.port == LATE_PORT:
        return f"{output.step.name}.late_rows"
    if isinstance(output.step, JoinStep) and output.port in LATE_PORTS:
        return f"{output.step.name}.late_{('left', 'right')[LATE_PORTS.index(output.port)]}_rows"
    return output.step.name


def explain(pipeline: Pipeline, *, member_count: int, workers: int, two_stage: bool | None) -> str:
    """Return the steps with their columns, and the graph for so many members and workers (or what it lacks)."""
    lines = [f"pipeline {pipeline.name}", "", "steps"]
    for step in pipeline._iterate():
        inputs = ", ".join(describe_output(output) for output in step.inputs)
        what = step.describe()
        lines.append(
            f"  {step.name}" + (f": {what}" if what != step.name else "") + (f"  <- {inputs}" if inputs else "")
        )
        if 0 in step.schemas:
            lines.append("      " + ", ".join(f"{field.name}: {field.type}" for field in step.schemas[0]))
    try:
        dag = pipeline.plan(member_count=member_count, workers=workers, two_stage=two_stage)
    except JobDefinitionError as error:
        return "\n".join([*lines, "", f"no graph yet: {error}"])
    lines += ["", f"graph for {member_count} member{'s' * (member_count > 1)} of {workers} worker{'s' * (workers > 1)}"]
    sinks = dag.guarantees(Guarantee.EXACTLY_ONCE).sinks
    for vertex in dag.topological_order():
        parallelism = 1 if vertex.total_parallelism_one else (vertex.parallelism or workers) * member_count
        kept = sinks.get(vertex.name)
        guarantee = "" if kept is None else f", keeps {kept.name} at most"
        if kept is not None and not vertex.counts:
            guarantee += ", does not count"
        lines.append(f"  {vertex.name}  x {parallelism}{guarantee}")
        for edge in dag.inbound(vertex.name):
            kind = edge.routing.kind.value
            if edge.routing.kind is RoutingKind.PARTITIONED:
                kind += f" by {', '.join(edge.routing.keys) or 'nothing: all rows to one'}"
            port = f" (port {edge.source_port})" if edge.source_port else ""
            crossing = ", between members" if edge.distributed else ""
            lines.append(
                f"      <- {edge.source}{port}: {kind}{crossing}; {', '.join(edge.schema.names)}".replace("\x01", "~")
            )
    return "\n".join(lines)


def layers_of(steps: list[Step]) -> dict[str, int]:
    """Return the column of each step in a picture: one more than the rightmost step that it reads."""
    layers: dict[str, int] = {}
    for step in steps:
        layers[step.name] = 1 + max((layers[output.step.name] for output in step.inputs), default=-1)
    return layers


def pipeline_html(pipeline: Pipeline) -> str:
    """Return the steps as an inline SVG: sources left, sinks right. Self-contained, no script."""
    steps = list(pipeline._iterate())
    layers = layers_of(steps)
    rows_in_layer: dict[int, int] = {}
    positions: dict[str, tuple[int, int]] = {}
    for step in steps:
        layer = layers[step.name]
        row = rows_in_layer.get(layer, 0)
        rows_in_layer[layer] = row + 1
        positions[step.name] = (MARGIN + layer * (BOX_WIDTH + COLUMN_GAP), MARGIN + row * (BOX_HEIGHT + ROW_GAP))
    width = 2 * MARGIN + max(1, len(rows_in_layer)) * (BOX_WIDTH + COLUMN_GAP) - COLUMN_GAP
    height = 2 * MARGIN + max(rows_in_layer.values(), default=1) * (BOX_HEIGHT + ROW_GAP) - ROW_GAP
    parts = []
    for step in steps:
        x, y = positions[step.name]
        for output in step.inputs:
            from_x, from_y = positions[output.step.name]
            start_x, start_y, end_y = from_x + BOX_WIDTH, from_y + BOX_HEIGHT // 2, y + BOX_HEIGHT // 2
            bend = (x - start_x) // 2
            dashed = ' stroke-dasharray="4 3"' if output.port else ""
            parts.append(
                f'<path d="M{start_x},{start_y} C{start_x + bend},{start_y} {x - bend},{end_y} {x},{end_y}" '
                f'fill="none" '
                f'stroke="#888" stroke-width="1.4"{dashed} marker-end="url(#jetfast-arrow)"><title>'
                f"{escape(describe_output(output))}</title></path>"
            )
    for step in steps:
        x, y = positions[step.name]
        fill = "#e3f1e6" if isinstance(step, SourceStep) else "#fbe9dd" if isinstance(step, SinkStep) else "#e6edf8"
        columns = ", ".join(f"{field.name}: {field.type}" for field in step.schemas.get(0, ()))
        parts.append(
            f"<g><title>{escape(columns or step.describe())}</title>"
            f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" '
            f'rx="7" fill="{fill}" stroke="#667"/><text x="{x + 10}" y="{y + 19}" font-weight="600" fill="#223">'
            f"{escape(shorten(step.name, LABEL_LENGTH_MAX))}</text>"
            f'<text x="{x + 10}" y="{y + 36}" fill="#556" font-size="10">'
            f"{escape(shorten(step.describe(), LABEL_LENGTH_MAX + 6))}</text></g>"
        )
    return (
        f'<div style="overflow-x:auto"><svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" role="img" '
        f'aria-label="pipeline {escape(pipeline.name, quote=True)}"><defs>'
        f'<marker id="jetfast-arrow" viewBox="0 0 8 8" refX="8" refY="4" '
        f'markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#888"/></marker></defs>'
        f"{''.join(parts)}</svg></div>"
    )
