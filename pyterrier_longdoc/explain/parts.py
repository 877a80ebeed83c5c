"""What rankers make of the parts of a document: of the whole, of its sections and of its chunks.

Vectors of the same level can be compared. CoLDE computes them anyway; for other rankers, which make one vector of a
whole text, each part is read as if it were all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyterrier_longdoc.text.headings import heading_characters
from pyterrier_longdoc.text.sections import Sectioned, section_chunks
from pyterrier_longdoc.text.sentences import tokenize_sentences
from pyterrier_longdoc.text.tokens import character_spans

if TYPE_CHECKING:
    from pyterrier_longdoc.dual_encoder import DualEncoder
    from pyterrier_longdoc.windows import Windows

#: Tokens of the chunks of rankers that have none of their own.
_CHUNK = 128
#: Sections of a document, as for CoLDE.
SECTIONS = 2


@dataclass(frozen=True)
class Parts:
    """What a ranker makes of one document at three levels; vectors of the same level can be compared.

    Attributes:
        document: Vector of the whole, ``[d]``.
        sections: Vectors of its sections, ``[s, d']``.
        chunks: Vectors of its chunks, ``[c, d'']``.
        section_positions: Positions of each section's tokens in the document.
        chunk_positions: The same of each chunk.
        section_of: The section that each chunk begins in, int64 ``[c]``.
        attention: How much each chunk (row) looks at each other one, ``[c, c]``, if it does.
        kind: What the ranker calls its chunks.
    """

    document: np.ndarray
    sections: np.ndarray
    chunks: np.ndarray
    section_positions: Sequence[np.ndarray]
    chunk_positions: Sequence[np.ndarray]
    section_of: np.ndarray
    attention: np.ndarray | None = None
    kind: str = "chunk"


def parts_alone(
    ranker: DualEncoder,
    texts: Sequence[str],
    side: str = "documents",
    own: tuple[Windows, np.ndarray] | None = None,
) -> list[Parts]:
    """The parts of texts for a ranker that makes one vector of a whole text: each part is read as if it were all.

    Args:
        ranker: The ranker.
        texts: The texts.
        side: ``"queries"`` or ``"documents"``, which the ranker may read otherwise.
        own: Chunks of its own, over the texts as it reads them, and their vectors ``[c, d]``; if ``None``, sections
            are cut into stretches, which are read alone too.
    """
    of_queries = side == "queries"
    reads = ranker.tokenize if of_queries else ranker._read
    encode = ranker.encode_queries if of_queries else ranker.encode_docs
    read = reads(texts).lengths
    structured = tokenize_sentences(ranker.tokenizer, texts, headings=heading_characters)
    tokens = Sectioned.of(structured.head(read), SECTIONS)
    sections = section_chunks(tokens, max(1, int(read.max(initial=1)))).windows  # one chunk a section
    chunks = section_chunks(tokens, _CHUNK).windows if own is None else own[0]
    spans = [character_spans(ranker.tokenizer, text) for text in texts]
    pieces = [_pieces(texts, spans, windows) for windows in ([sections, chunks] if own is None else [sections])]
    vectors = encode([*texts, *(piece for each in pieces for piece in each)])
    whole, of_section, of_chunk = np.split(vectors, [len(texts), len(texts) + len(sections)])
    of_chunk = of_chunk if own is None else own[1]
    kind = "stretch" if own is None else ranker.window_kind
    begins = np.where(read[chunks.document] > 0, tokens.offsets[chunks.document] + chunks.positions[:, 0], -1)
    section = np.append(tokens.section, 0)[begins].astype(np.int64)  # the last one is that of empty documents
    found = []
    for document in range(len(texts)):
        mine, its = sections.document == document, chunks.document == document
        rows = sections.positions[mine], chunks.positions[its]
        positions = [[row[row >= 0] for row in each] for each in rows]
        found.append(
            Parts(whole[document], of_section[mine], of_chunk[its], *positions, section[its], kind=kind)
        )
    return found


def _pieces(texts: Sequence[str], spans: Sequence[np.ndarray], windows: Windows) -> list[str]:
    """The text of each window."""
    pieces = []
    for document, positions in zip(windows.document, windows.positions, strict=True):
        characters = spans[document][positions[positions >= 0]]
        pieces.append(texts[document][characters[0, 0] : characters[-1, 1]] if len(characters) else "")
    return pieces
