"""Reports for people: one HTML file out of a `privrl.run.study.Study`; nothing to load or run."""

from privrl.report.page import render, write

__all__ = ["render", "write"]
