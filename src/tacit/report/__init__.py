"""Reports for people: one HTML file out of a `tacit.run.study.Study`; nothing to load or run."""

from tacit.report.page import render, write

__all__ = ["render", "write"]
