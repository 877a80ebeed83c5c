"""Whom to cite for each ranker, in BibTeX."""

from __future__ import annotations

_TKL = """@inproceedings{Hofstaetter2020TKL,
  author    = {Sebastian Hofst{\\"a}tter and Hamed Zamani and Bhaskar Mitra and Nick Craswell and Allan Hanbury},
  title     = {Local Self-Attention over Long Text for Efficient Document Retrieval},
  booktitle = {Proceedings of SIGIR},
  year      = {2020}
}"""

_TK = """@inproceedings{Hofstaetter2020TK,
  author    = {Sebastian Hofst{\\"a}tter and Markus Zlabinger and Allan Hanbury},
  title     = {Interpretable \\& Time-Budget-Constrained Contextualization for Re-Ranking},
  booktitle = {Proceedings of ECAI},
  year      = {2020}
}"""

_KNRM = """@inproceedings{Xiong2017KNRM,
  author    = {Chenyan Xiong and Zhuyun Dai and Jamie Callan and Zhiyuan Liu and Russell Power},
  title     = {End-to-End Neural Ad-hoc Ranking with Kernel Pooling},
  booktitle = {Proceedings of SIGIR},
  year      = {2017}
}"""

_CONV_KNRM = """@inproceedings{Dai2018ConvKNRM,
  author    = {Zhuyun Dai and Chenyan Xiong and Jamie Callan and Zhiyuan Liu},
  title     = {Convolutional Neural Networks for Soft-Matching N-Grams in Ad-hoc Search},
  booktitle = {Proceedings of WSDM},
  year      = {2018}
}"""

#: Ranker -> BibTeX entry.
CITATIONS = {"TKL": _TKL, "TK": _TK, "KNRM": _KNRM, "ConvKNRM": _CONV_KNRM}
