"""Training topics by weak supervision: sentences of the collection that their documents then go without.

A sentence of a documentation states something its document can tell, so the document is relevant to it. As the
sentence itself would give the answer away, it is taken out of the collection for good: training and test share
one fixed collection, and a document has to be found by what is left of it. Prose of 7 to 30 words qualifies that
does not lean on the sentence before it (``This ...``, ``Otherwise ...``), and a pseudo-random share of it (`_SHARE`
percent, drawn from a checksum of the query) is taken. A sentence that stands in several documents is removed from,
and relevant to, all of them; one in more than `MAX_DOCUMENTS` is boilerplate and stays. So does a sentence whose
first seven words also stand where they are no such sentence, and every sentence of a paragraph that holds the
evidence of a test judgement.

Queries are cheaply brought closer to what a person would type: ``Return the ...`` becomes ``how to get the ...``,
an imperative becomes ``how to ...``, markup and the full stop go.
"""
import re
import string
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

MAX_DOCUMENTS = 3
_SHARE = 40  # percent of the sentences that qualify
_DEV_SHARE = 8  # percent of the topics

_PARAGRAPH = re.compile(r'^( *)(?! )\S.*(?:\n\1(?! )\S.*)*', re.MULTILINE)
_SENTENCE_END = re.compile(r'(?<!e\.g)(?<!i\.e)(?<!etc)\.(?=\s+[A-Z`*"]|\s*\Z)')
_PROSE = re.compile(r"""[A-Z][a-z]+\s(?:[\w\s,;:'"’“”()/*`%-]|\.(?=\w))+\.""")
_UNANCHORED = re.compile(
    r'(?:Also|Defaults?|Here|However|It|Note|Otherwise|See|Such|That|These|They|This|Those|Thus)\s')
_RETURN = re.compile(r'(?:Return|Returns|Get|Gets)\s+(?:the\s+|an?\s+)?(?=\w)')
_IMPERATIVE = re.compile(
    r'(?:Add|Append|Apply|Build|Call|Change|Check|Clear|Close|Compare|Compile|Compute|Connect|Construct|Convert|'
    r'Copy|Create|Decode|Delete|Determine|Display|Encode|Execute|Extract|Find|Format|Generate|Insert|Iterate|List|'
    r'Load|Make|Open|Parse|Print|Process|Raise|Read|Receive|Register|Remove|Replace|Run|Search|Send|Set|Show|Sort|'
    r'Split|Start|Stop|Store|Test|Try|Turn|Update|Use|Wait|Wrap|Write)\s')


class WeakTopic(NamedTuple):
    """A training topic: id, query, the documents its sentence was taken from, and ``train`` or ``dev``."""
    qid: str
    query: str
    docnos: tuple[str, ...]
    split: str


class Spot(NamedTuple):
    """Where a sentence stands."""
    docno: str
    start: int
    end: int


def take_topics(texts: Mapping[str, str],
                evidence: Mapping[str, Iterable[str]]) -> tuple[dict[str, str], list[WeakTopic]]:
    """Takes the training topics out of a collection.

    Args:
        texts: The documents' texts by docno.
        evidence: Phrases by docno; a paragraph of the document that holds (part of) one is left whole.

    Returns:
        The texts without the sentences taken, and the topics in the order of their queries.
    """
    spots_by_query = _without_repeated(_spots_by_query(texts, evidence), texts)
    taken = {query: spots for query, spots in sorted(spots_by_query.items())
             if _checksum(query) % 100 < _SHARE and len({spot.docno for spot in spots}) <= MAX_DOCUMENTS}
    cuts = defaultdict(list)
    for spot in (spot for spots in taken.values() for spot in spots):
        cuts[spot.docno].append(spot)
    return ({docno: _without(text, cuts[docno]) for docno, text in texts.items()},
            [_topic(query, {spot.docno for spot in spots}) for query, spots in taken.items()])


def to_query(sentence: str) -> str:
    """Turns a sentence of a documentation into something closer to a query."""
    words = ' '.join(re.sub(r'[*`"“”]', '', sentence).split()).rstrip('.')
    if found := _RETURN.match(words):
        return 'how to get the ' + words[found.end():]
    lowered = words[0].lower() + words[1:]
    return 'how to ' + lowered if _IMPERATIVE.match(words) else lowered


def find_phrase(phrase: str, text: str) -> Iterator[tuple[int, int]]:
    """Yields the start and end of a phrase in a text, whatever its letters' case and the white space between words."""
    pattern = r'\s+'.join(map(re.escape, phrase.split()))
    return (match.span() for match in re.finditer(pattern, text, re.IGNORECASE))


def _spots_by_query(texts: Mapping[str, str], evidence: Mapping[str, Iterable[str]]) -> dict[str, list[Spot]]:
    """Where each query's sentence stands, less the sentences next to evidence anywhere."""
    spots_by_query, kept = defaultdict(list), set()
    for docno, text in texts.items():
        guarded = [span for phrase in evidence.get(docno, ()) for span in find_phrase(phrase, text)]
        for paragraph in _PARAGRAPH.finditer(text):
            keep = any(start < paragraph.end() and paragraph.start() < end for start, end in guarded)
            for start, end in _prose_sentences(text, *paragraph.span()):
                query = to_query(text[start:end])
                spots_by_query[query].append(Spot(docno, start, end))
                if keep:
                    kept.add(query)
    return {query: spots for query, spots in spots_by_query.items() if query not in kept}


def _without_repeated(spots_by_query: dict[str, list[Spot]], texts: Mapping[str, str]) -> dict[str, list[Spot]]:
    """Drops the queries whose sentence begins like text elsewhere: it could not be removed everywhere."""
    heads = {query: _heads(texts[spots[0].docno][spots[0].start:spots[0].end])[0]
             for query, spots in spots_by_query.items()}
    wanted = set(heads.values())
    counts = Counter(head for text in texts.values() for head in _heads(text) if head in wanted)
    return {query: spots for query, spots in spots_by_query.items() if counts[heads[query]] == len(spots)}


def _heads(text: str) -> list[tuple[str, ...]]:
    """Every seven words in sequence."""
    words = [word.strip(string.punctuation) for word in text.lower().split()]
    return list(zip(*(words[start:] for start in range(7)), strict=False))


def _prose_sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields start and end of the sentences of a paragraph that qualify as topics."""
    for stop in _SENTENCE_END.finditer(text, start, end):
        sentence = text[start:stop.end()].lstrip()
        if (7 <= len(sentence.split()) <= 30 and _PROSE.fullmatch(sentence) and not _UNANCHORED.match(sentence)):
            yield stop.end() - len(sentence), stop.end()
        start = stop.end()


def _checksum(query: str) -> int:
    return zlib.crc32(query.encode())


def _topic(query: str, docnos: set[str]) -> WeakTopic:
    number = _checksum(query)
    split = 'dev' if number // 100 % 100 < _DEV_SHARE else 'train'
    return WeakTopic(f'w{number:08x}', query, tuple(sorted(docnos)), split)


def _without(text: str, cuts: list[Spot]) -> str:
    kept, position = [], 0
    for cut in sorted(cuts):
        kept.append(text[position:cut.start])
        position = cut.end
    return ''.join([*kept, text[position:]])
