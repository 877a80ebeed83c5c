"""Published results on TREC Deep Learning, document ranking: re-rankings of the official top 100 of each query.

To be printed beside one's own, never compared without a look at what differs: first stage, training, hardware.
"""

from __future__ import annotations

import pandas as pd

#: Key -> where a value was published.
SOURCES = {
    "TKL": "Table 1 of Hofstätter et al., SIGIR 2020 (TKL)",
    "FAA": 'table of "Fine-grained attention alignment for cascading document ranking"',
    "ICLI": "tables of Li and Gaussier, SIGIR 2022 (ICLI); TKL retrained there on 3,000 tokens",
    "PARADE": "Li et al., PARADE (TOIS)",
    "TREC": "runs in usnistgov/trec-browser, trec28 and trec29, deep",
    "QDS run": "recomputed from trec19.run of hallogameboy/QDS-Transformer",
    "KeyB2": "abstract of arXiv 2411.06254v3",
}
#: System, nDCG@10 and AP of 2019, nDCG@10 and AP of 2020, source; None: not published there.
_VALUES = (
    ("BM25", 0.488, 0.234, None, None, "TKL"),
    ("BM25", 0.5176, 0.2434, 0.5286, 0.3793, "ICLI"),
    ("MatchPyramid (200 words)", 0.567, 0.232, None, None, "TKL"),
    ("PACRR (200 words)", 0.606, 0.228, None, None, "TKL"),
    ("CO-PACRR (200 words)", 0.550, 0.231, None, None, "TKL"),
    ("KNRM (200 words)", 0.496, 0.214, None, None, "TKL"),
    ("Conv-KNRM (200 words)", 0.565, 0.241, None, None, "TKL"),
    ("BERT-CAT (FirstP, 200 words)", 0.642, 0.257, None, None, "TKL"),
    ("TK (200 words)", 0.594, 0.252, None, None, "TKL"),
    ("TK", 0.5850, 0.2491, 0.5732, 0.3660, "ICLI"),
    ("TK: run TUW19-d1-re", 0.5930, 0.2524, None, None, "TREC"),
    ("TKL (2,000 words)", 0.634, 0.264, None, None, "TKL"),
    ("TKL (4,000 words)", 0.644, 0.277, None, None, "TKL"),
    ("TKL", 0.644, 0.277, 0.585, 0.381, "FAA"),
    ("TKL (3,000 tokens)", 0.6213, 0.2656, 0.5677, 0.3633, "ICLI"),
    ("TKL's forerunner: run TUW19-d3-re", 0.6443, 0.2709, None, None, "TREC"),
    ("TKL: run TUW-TKL-2k", None, None, 0.5852, 0.3810, "TREC"),
    ("TKL: run TUW-TKL-4k", None, None, 0.5749, 0.3749, "TREC"),
    ("BERT-CAT (FirstP)", 0.6519, 0.2627, 0.6211, 0.4112, "ICLI"),
    ("BERT-MaxP", 0.642, 0.257, 0.630, 0.420, "FAA"),
    ("BERT-MaxP: run ucas_runid1", 0.6437, 0.2642, None, None, "TREC"),
    ("Sparse-Transformer", 0.634, 0.257, None, None, "FAA"),
    ("Longformer-QA", 0.627, 0.255, None, None, "FAA"),
    ("Transformer-XH", 0.646, 0.256, None, None, "FAA"),
    ("QDS-Transformer", 0.667, 0.278, None, None, "FAA"),
    ("QDS-Transformer", 0.6668, 0.2779, None, None, "QDS run"),
    ("PARADE-Max", 0.679, 0.287, 0.613, 0.420, "FAA"),
    ("PARADE-Max", 0.679, 0.287, 0.613, 0.420, "PARADE"),
    ("PARADE-Max: run mpii_run2", None, None, 0.6135, 0.4205, "TREC"),
    ("PARADE-TF", 0.650, 0.274, 0.601, 0.404, "FAA"),
    ("PARADE-TF", 0.650, 0.274, 0.601, 0.403, "PARADE"),
    ("PARADE-TF: run mpii_run1", None, None, 0.6017, 0.4030, "TREC"),
    ("IDCM", 0.679, 0.273, None, None, "FAA"),
    ("KeyBLD", 0.707, 0.281, 0.618, 0.415, "FAA"),
    ("ICLI-dot", 0.7048, 0.2768, 0.6042, 0.3938, "ICLI"),
    ("FAA", 0.685, 0.275, 0.647, 0.424, "FAA"),
    ("KeyB2+", 0.738, None, None, None, "KeyB2"),
    ("best re-ranking run, idst_bert_r1", 0.7189, 0.2915, None, None, "TREC"),
    ("best re-ranking run, ICIP_run1", None, None, 0.6623, 0.4333, "TREC"),
)


def published(dataset: str) -> pd.DataFrame:
    """Published results on a data set.

    Args:
        dataset: Its name, such as ``irds:msmarco-document/trec-dl-2019/judged``.

    Returns:
        Columns ``name``, ``nDCG@10``, ``AP`` and ``source``, the best first; empty for any other data set.
    """
    years = {"trec-dl-2019": 1, "trec-dl-2020": 3}
    column = next((place for year, place in years.items() if f"msmarco-document/{year}" in dataset), None)
    rows = () if column is None else (row for row in _VALUES if row[column] is not None)
    table = pd.DataFrame(
        [(row[0], row[column], row[column + 1], SOURCES[row[5]]) for row in rows],
        columns=["name", "nDCG@10", "AP", "source"],
    )
    return table.sort_values("nDCG@10", ascending=False, kind="stable", ignore_index=True)
