"""Spark's Python workers import the jetfast that is tested, wherever they run."""

import os
from pathlib import Path

ROOT = str(Path(__file__).parents[2])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
