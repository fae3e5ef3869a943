"""A study's report: one HTML file that needs no network, its figures and its tables as CSV."""

from anyformer.study.report.files import write
from anyformer.study.report.page import page

__all__ = ["page", "write"]
