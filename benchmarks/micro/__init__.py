"""Micro-benchmarks for pytest-benchmark, to run while working on a kernel: `pytest benchmarks/micro`."""
