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

_SMITH = """@inproceedings{Yang2020SMITH,
  author    = {Liu Yang and Mingyang Zhang and Cheng Li and Michael Bendersky and Marc Najork},
  title     = {Beyond 512 Tokens: Siamese Multi-depth Transformer-based Hierarchical Encoder for Long-Form Document
               Matching},
  booktitle = {Proceedings of CIKM},
  year      = {2020}
}"""

_SOCIALFORMER = """@inproceedings{Zhou2022Socialformer,
  author    = {Yujia Zhou and Zhicheng Dou and Huaying Yuan and Zhengyi Ma},
  title     = {Socialformer: Social Network Inspired Long Document Modeling for Document Ranking},
  booktitle = {Proceedings of the Web Conference},
  year      = {2022}
}"""

_IDCM = """@inproceedings{Hofstaetter2021IDCM,
  author    = {Sebastian Hofst{\\"a}tter and Bhaskar Mitra and Hamed Zamani and Nick Craswell and Allan Hanbury},
  title     = {Intra-Document Cascading: Learning to Select Passages for Neural Document Ranking},
  booktitle = {Proceedings of SIGIR},
  year      = {2021}
}"""

_LONGFORMER = """@article{Beltagy2020Longformer,
  author    = {Iz Beltagy and Matthew E. Peters and Arman Cohan},
  title     = {Longformer: The Long-Document Transformer},
  journal   = {arXiv preprint arXiv:2004.05150},
  year      = {2020}
}"""

_QDS = """@inproceedings{Jiang2020QDS,
  author    = {Jyun-Yu Jiang and Chenyan Xiong and Chia-Jung Lee and Wei Wang},
  title     = {Long Document Ranking with Query-Directed Sparse Transformer},
  booktitle = {Findings of EMNLP},
  year      = {2020}
}"""

_BIG_BIRD = """@inproceedings{Zaheer2020BigBird,
  author    = {Manzil Zaheer and Guru Guruganesh and Kumar Avinava Dubey and Joshua Ainslie and Chris Alberti and
               Santiago Onta{\\~n}{\\'o}n and Philip Pham and Anirudh Ravula and Qifan Wang and Li Yang and Amr Ahmed},
  title     = {Big Bird: Transformers for Longer Sequences},
  booktitle = {Proceedings of NeurIPS},
  year      = {2020}
}"""

_MODERN_BERT = """@article{Warner2024ModernBERT,
  author    = {Benjamin Warner and Antoine Chaffin and Benjamin Clavi{\\'e} and Orion Weller and
               Oskar Hallstr{\\"o}m and Said Taghadouini and Alexis Gallagher and Raja Biswas and Faisal Ladhak and
               Tom Aarsen and Nathan Cooper and Griffin Adams and Jeremy Howard and Iacopo Poli},
  title     = {Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder for Fast, Memory Efficient, and Long
               Context Finetuning and Inference},
  journal   = {arXiv preprint arXiv:2412.13663},
  year      = {2024}
}"""

_HAN = """@inproceedings{Yang2016HAN,
  author    = {Zichao Yang and Diyi Yang and Chris Dyer and Xiaodong He and Alex Smola and Eduard Hovy},
  title     = {Hierarchical Attention Networks for Document Classification},
  booktitle = {Proceedings of NAACL},
  year      = {2016}
}"""

_SMASH = """@inproceedings{Jiang2019SMASH,
  author    = {Jyun-Yu Jiang and Mingyang Zhang and Cheng Li and Michael Bendersky and Nadav Golbandi and Marc Najork},
  title     = {Semantic Text Matching for Long-Form Documents},
  booktitle = {Proceedings of the Web Conference},
  year      = {2019}
}"""

_COLDE = """@article{Jha2023CoLDE,
  author    = {Akshita Jha and Vineeth Rakesh and Jaideep Chandrashekar and Adithya Samavedhi and Chandan K. Reddy},
  title     = {Supervised Contrastive Learning for Interpretable Long-Form Document Matching},
  journal   = {ACM Transactions on Knowledge Discovery from Data},
  volume    = {17},
  number    = {2},
  year      = {2023}
}"""

_PASSAGES = """@inproceedings{Dai2019BERTMaxP,
  author    = {Zhuyun Dai and Jamie Callan},
  title     = {Deeper Text Understanding for IR with Contextual Neural Language Modeling},
  booktitle = {Proceedings of SIGIR},
  year      = {2019}
}"""

_PARADE = """@article{Li2023PARADE,
  author    = {Canjia Li and Andrew Yates and Sean MacAvaney and Ben He and Yingfei Sun},
  title     = {PARADE: Passage Representation Aggregation for Document Reranking},
  journal   = {ACM Transactions on Information Systems},
  year      = {2023}
}"""

#: Ranker -> BibTeX entry.
CITATIONS = {
    "FirstP": _PASSAGES, "MaxP": _PASSAGES, "SumP": _PASSAGES, "AvgP": _PASSAGES, "KMaxP": _PASSAGES, "PARADE": _PARADE,
    "IDCM": _IDCM, "Longformer": _LONGFORMER, "QDSTransformer": _QDS, "BigBird": _BIG_BIRD,
    "Socialformer": _SOCIALFORMER, "SMITH": _SMITH, "MatchBERT": _SMITH, "HAN": _HAN, "SMASH": _SMASH,
    "TKL": _TKL, "TK": _TK, "KNRM": _KNRM, "ConvKNRM": _CONV_KNRM,
    "LongCE": _MODERN_BERT, "CoLDE": _COLDE,
}
