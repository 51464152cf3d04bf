"""Measurements: asv suite (suite/), comparison with other engines (compare.py, peers/), micro-benchmarks (micro/)."""
