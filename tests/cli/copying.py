"""The pipeline of a file that tests give to commands: it copies numbers, at a rate if they want time."""

COPYING = """
import os
import pyarrow as pa
import jetfast as jf

def number(rows, random):
    return pa.record_batch({"row": rows})

rate = os.environ.get("RATE")
p = jf.Pipeline("copy")
source = jf.generator(number, rows=ROWS, rate=None if rate is None else float(rate), partitions=3)
p.read(source, name="numbers").write(jf.files("out", format="parquet"), name="out")
"""
