"""Draws the year from the windows: three calendars of delay, and the days on which much did not fly."""

from datetime import date, timedelta
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap

from docs.examples.flights.data import AIRPORTS

INK = "#1f2a37"
FAINT = "#8a94a3"
RULE = "#e3e7ec"
ACCENT = "#c2410c"
DELAY_COLORS = LinearSegmentedColormap.from_list("delay", ["#eef4f8", "#bcd7e6", "#f6c26b", "#e4703a", "#8c1d18"])
DELAY_MAX = 60  # minutes; longer means get the last color

YEAR = 2013
MIDNIGHT_UTC = 5  # Eastern Standard Time
REMEMBERED = {date(2013, 2, 8): "snow storm Nemo, Feb 8"}


def daily(windows: pl.DataFrame) -> pl.DataFrame:
    """Of the windows those that end at midnight in New York, carriers added up.

    Columns: day, origin, flights, departed, mean_delay.
    """
    return (
        windows.filter(pl.col("window_end").dt.hour() == MIDNIGHT_UTC)
        .with_columns(day=(pl.col("window_end") - timedelta(hours=MIDNIGHT_UTC, days=1)).dt.date())
        .filter(pl.col("day").dt.year() == YEAR)
        .group_by("day", "origin")
        .agg(
            pl.col("flights", "departed").sum(),
            mean_delay=(pl.col("mean_delay") * pl.col("departed")).sum() / pl.col("departed").sum(),
        )
        .sort("day", "origin")
    )


def _draw_calendar(axes: Axes, days: pl.DataFrame, title: str) -> QuadMesh:
    """One cell a day: weeks to the right, Monday on top."""
    first = date(YEAR, 1, 1)
    cells = np.full((7, 53), np.nan)
    for day, delay in zip(days["day"], days["mean_delay"], strict=True):
        week = ((day - first).days + first.weekday()) // 7
        cells[day.weekday(), week] = np.nan if delay is None else delay
    mesh = axes.pcolormesh(
        np.arange(54), np.arange(8), cells, cmap=DELAY_COLORS, vmin=0, vmax=DELAY_MAX, edgecolors="white", linewidth=1.2
    )
    axes.invert_yaxis()
    axes.set_aspect("equal")
    axes.set_yticks([0.5, 2.5, 4.5, 6.5], ["Mon", "Wed", "Fri", "Sun"])
    axes.set_xticks([])
    axes.set_title(title, loc="left", fontsize=10.5, color=INK, fontweight="bold", pad=5)
    axes.tick_params(length=0, labelsize=7.5, colors=FAINT)
    for month in range(1, 13):
        start = date(YEAR, month, 1)
        week = ((start - first).days + first.weekday()) // 7
        axes.text(week + 0.1, 7.9, start.strftime("%b"), fontsize=7.5, color=FAINT, ha="left", va="center")
    for spine in axes.spines.values():
        spine.set_visible(False)
    return mesh


def _draw_cancellations(axes: Axes, days: pl.DataFrame) -> None:
    """Cancelled flights a day, the worst of them with their share."""
    totals = days.group_by("day").agg(pl.col("flights", "departed").sum()).sort("day")
    cancelled = (totals["flights"] - totals["departed"]).to_numpy()
    axes.bar(totals["day"].to_numpy(), cancelled, width=1.0, color=INK, linewidth=0)
    axes.set_title("Cancelled flights a day", loc="left", fontsize=10.5, color=INK, fontweight="bold", pad=5)
    top = int(cancelled.max())
    axes.set_ylim(0, top * 1.2)
    labelled: list[date] = []
    for row in (
        totals.with_columns(cancelled=pl.col("flights") - pl.col("departed")).sort(-pl.col("cancelled")).to_dicts()
    ):
        if any(abs((row["day"] - day).days) < 21 for day in labelled):
            continue
        labelled.append(row["day"])
        name = REMEMBERED.get(row["day"], f"{row['day']:%b} {row['day'].day}")
        axes.annotate(
            f"{name}: {row['cancelled'] / row['flights']:.0%}",
            (row["day"], row["cancelled"]),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8,
            color=ACCENT,
        )
        if len(labelled) == 5:
            break
    axes.set_xlim(date(YEAR, 1, 1), date(YEAR, 12, 31))
    axes.set_xticks([date(YEAR, month, 1) for month in range(1, 13)])
    axes.set_xticklabels([date(YEAR, month, 1).strftime("%b") for month in range(1, 13)], ha="left")
    axes.set_yticks(range(0, top + 1, 200))
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=7.5, colors=FAINT)
    for spine in axes.spines.values():
        spine.set_visible(False)


def draw(windows: pl.DataFrame, path: Path) -> None:
    """Write the picture of a run's windows; the format is that of the path's suffix."""
    days = daily(windows)
    plt.rcParams["font.family"] = "DejaVu Sans"
    figure = plt.figure(figsize=(11, 8.6), facecolor="white")
    grid = figure.add_gridspec(
        4, 1, height_ratios=[1, 1, 1, 0.95], hspace=0.36, left=0.065, right=0.9, top=0.885, bottom=0.05
    )
    mesh = None
    calendars = []
    for index, (code, name) in enumerate(AIRPORTS.items()):
        axes = figure.add_subplot(grid[index])
        own = days.filter(origin=code)
        flown = int(own["departed"].sum())
        mean = float((own["mean_delay"] * own["departed"]).sum()) / flown
        mesh = _draw_calendar(axes, own, f"{name}  ·  {flown:,} flights, on average {mean:.0f} min late")
        calendars.append(axes)
    _draw_cancellations(figure.add_subplot(grid[3]), days)
    assert mesh is not None
    bar = figure.colorbar(mesh, ax=calendars, fraction=0.018, pad=0.02, aspect=38, extend="max")
    bar.set_label("mean delay of the day, minutes", fontsize=8, color=FAINT)
    bar.ax.tick_params(length=0, labelsize=7.5, colors=FAINT)
    bar.outline.set_visible(False)
    figure.text(0.065, 0.962, "How late New York left in 2013", fontsize=17, fontweight="bold", color=INK)
    figure.text(
        0.065,
        0.934,
        "Departure delay by airport, each day one 24-hour window of jetfast's demo; early departures count as negative",
        fontsize=9,
        color=FAINT,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
