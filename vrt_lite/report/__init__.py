"""A report: one HTML file that shows a judgement, a ranking or an evaluation, offline.

read_case   JSON of a judgement -> Case           case
Album       frames, decoded again, as pictures    pictures
pair_page   Case -> nodes                         pair, rounds, charts
to_html     nodes -> text, all of it escaped      nodes, page
"""

from __future__ import annotations

from vrt_lite.report.write import write_report

__all__ = ["write_report"]
