"""The papers' experiments, run again beside the numbers that the papers print."""
