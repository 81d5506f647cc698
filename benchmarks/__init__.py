"""Benchmarks and figures: `python -m benchmarks [NAME]...` prints one JSON object per line."""
