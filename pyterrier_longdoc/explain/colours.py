"""From weights to colours, and the style sheet of highlighted documents.

Colours are thin layers over whatever the notebook's theme is, so that light and dark ones work alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: Red, green and blue of positive and negative weights; told apart by colour-blind people too.
_POSITIVE, _NEGATIVE = "245 140 20", "50 120 255"
#: Everything is below the class ``ld``, so that the rest of a notebook is left alone.
STYLE = """
.ld{font:15px/1.55 system-ui,sans-serif;max-width:58em;text-align:left;
  --line:rgb(128 128 128/.28);--soft:rgb(128 128 128/.1)}
.ld .query{font-size:1.2em;font-weight:600;margin:1.4em 0 .2em}
.ld .note,.ld .facts,.ld .legend{font-size:.82em;opacity:.78}
.ld .legend{display:flex;flex-wrap:wrap;gap:.2em 1.2em;align-items:center;margin:.2em 0 .9em}
.ld .scale{display:inline-block;width:9em;height:.75em;border-radius:3px;margin:0 .5em;vertical-align:-.05em}
.ld .doc{border:1px solid var(--line);border-radius:8px;margin:0 0 1em;overflow:hidden}
.ld .head{display:flex;flex-wrap:wrap;gap:.2em .8em;align-items:baseline;padding:.55em .9em;background:var(--soft)}
.ld .docno{font-family:ui-monospace,monospace;font-weight:600;overflow-wrap:anywhere}
.ld .head .facts{margin-left:auto}
.ld .map{position:relative;height:14px;border-block:1px solid var(--line)}
.ld .map a,.ld .map span{position:absolute;top:0;bottom:0;min-width:4px}
.ld .map .unread,.ld .scale.unread{background:repeating-linear-gradient(135deg,var(--line) 0 3px,transparent 3px 7px)}
.ld .tags{display:flex;flex-wrap:wrap;gap:.35em .5em;padding:.6em .9em 0;font-size:.85em}
.ld .tags a{color:inherit;text-decoration:none;border-radius:1em;padding:.05em .7em .05em .15em;
  border:1px solid var(--line)}
.ld .tags a:hover{border-color:currentColor}
.ld .n{display:inline-block;min-width:1.5em;text-align:center;font:700 .78em/1.5 system-ui,sans-serif;border-radius:1em;
  color:#fff;background:#b45309;margin-right:.35em;padding:0 .2em;user-select:none}
.ld .n.neg{background:#2563eb}
.ld .n::before{content:attr(data-n)}
.ld .n:target{outline:3px solid currentColor;outline-offset:2px}
.ld .text{padding:.6em .9em .8em;white-space:pre-wrap;overflow-wrap:anywhere}
.ld mark{color:inherit;border-radius:3px;padding:.1em 0;
  box-decoration-break:clone;-webkit-box-decoration-break:clone}
.ld .mark{background:rgb(POS/var(--a))}
.ld .mark.neg{background:rgb(NEG/var(--a))}
.ld .faint{opacity:.5}
.ld details{margin:.35em 0}
.ld summary{cursor:pointer;font-size:.8em;opacity:.7;list-style:none;display:flex;align-items:center;gap:.8em}
.ld summary::-webkit-details-marker{display:none}
.ld summary::before,.ld summary::after{content:"";flex:1;border-top:1px dashed var(--line)}
.ld summary:hover{opacity:1}
.ld details[open]>summary{margin-bottom:.4em}
""".replace("POS", _POSITIVE).replace("NEG", _NEGATIVE)


class Scale(NamedTuple):
    """From weights to colours: from zero to both sides, or, where signs mean nothing, from the lowest to the highest.

    Attributes:
        low: Lowest weight shown.
        high: Highest weight shown.
        signed: Whether weights under zero speak against a document.
    """

    low: float
    high: float
    signed: bool

    @classmethod
    def of(cls, weights: Sequence[float], signed: bool) -> Scale:
        """The scale of some weights."""
        low, high = min(weights, default=0.0), max(weights, default=0.0)
        if signed:
            high = max(abs(low), abs(high))
            low = -high if low < 0 else 0.0
        return cls(low, high, signed)

    def strength(self, weight: float) -> float:
        """How strong a weight's colour is, from 0 to 1."""
        if self.signed:
            return abs(weight) / (self.high or 1.0)
        return (weight - self.low) / (self.high - self.low) if self.high > self.low else 1.0

    def style(self, weight: float, listed: bool) -> str:
        """The CSS variable of the same; what is listed can always be seen."""
        least = 0.18 if listed else 0.0
        return f"--a:{least + (0.62 - least) * self.strength(weight):.2f}"

    def side(self, weight: float) -> str:
        """The CSS class of weights that speak against a document."""
        return " neg" if self.signed and weight < 0 else ""

    def html(self) -> str:
        """The scale as a strip between its ends."""
        both = self.signed and self.low < 0
        left = f"rgb({_NEGATIVE}/.62),transparent" if both else f"rgb({_POSITIVE}/.1)"
        colours = f"background:linear-gradient(90deg,{left},rgb({_POSITIVE}/.62))"
        return f'{self.low:.4g}<span class="scale" style="{colours}"></span>{self.high:.4g}'
