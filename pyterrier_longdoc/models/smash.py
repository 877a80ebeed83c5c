"""SMASH: HAN's towers at three depths, side by side (Jiang et al., WWW 2019; a baseline of the SMITH paper).

One tower reads a document as words, one as sentences of words, one as paragraphs of sentences of words. Their vectors,
one behind the other, are the vector of the document.
"""

from __future__ import annotations

from pyterrier_longdoc.models.han import HANModel


class SMASHModel(HANModel):
    """SMASH over token ids; settings as of HAN.

    Args:
        config: See :class:`~pyterrier_longdoc.models.han.HANConfig`.
    """

    depths = (1, 2, 3)
