"""Renders the documentation of the running Python as plain text, one document a module or language topic.

`pydoc` writes the documents, as ``help(json)`` and ``help('assignment')`` would show them, with two changes.
What is not documentation but a property of the machine is left out: the FILE, VERSION and similar sections,
the values of constants (paths, time zones, library versions) and object addresses. And what another document
says is not repeated: a class lists the members it defines or inherits within its own module or from a private one
behind it (``_random`` for ``random``), while those of other modules and of ``builtins`` are documented there;
a class that a module only passes on from another package is named, not described.

This file is the main program of an interpreter of its own, which `documents` starts: it prints the documents as
JSON. So it imports nothing but the standard library and its neighbour `stdlib_modules`.
"""
import contextlib
import inspect
import json
import pydoc
import re
import sys
import textwrap
import warnings
from types import ModuleType
from typing import Any

from stdlib_modules import is_public, public_modules

_MACHINE_SECTIONS = {'FILE', 'VERSION', 'DATE', 'AUTHOR', 'CREDITS', 'MODULE REFERENCE'}
_ADDRESS = re.compile(r' at 0x[0-9A-Fa-f]+')
_RULE = re.compile(r'\n *-{70}\n')
_INHERITED = r'\n *[A-Z][a-z ]+ inherited from {}:\n.*'


class PlainDoc(pydoc.TextDoc):
    """pydoc's text formatter without overstrikes, margins, properties of the machine and others' members."""

    def bold(self, text: str) -> str:
        """Plain: bold text is overstruck in pydoc."""
        return text

    def indent(self, text: str, prefix: str = '') -> str:
        """Four spaces, also where pydoc draws a margin."""
        return '\n'.join(('    ' + line).rstrip() for line in text.split('\n')) if text else ''

    def section(self, title: str, contents: str) -> str:
        """Leaves empty sections and those that describe the machine out."""
        return '' if title in _MACHINE_SECTIONS or not contents.strip() else super().section(title, contents)

    def docclass(self, object: type, name: str | None = None, mod: str | None = None, *args: Any) -> str:
        """Leaves out what other documents describe: foreign classes and foreign inherited members."""
        blocks = _RULE.split(super().docclass(object, name, mod, *args))
        if mod and _is_described_elsewhere(object, mod):
            return blocks[0].partition('\n')[0] + '\n'
        foreign = _foreign_members(object)
        own, *others = (foreign.sub('', '\n' + block).strip('\n') for block in blocks)
        return '\n\n'.join([own, *(block for block in others if '\n' in block)]) + '\n'

    def docdata(self, object: Any, name: str | None = None, *args: Any, **kwargs: Any) -> str:
        """Leaves out the slots that every class has."""
        return '' if name in ('__dict__', '__weakref__') else super().docdata(object, name, *args, **kwargs)

    docproperty = docdata

    def docother(self, object: Any, name: str | None = None, *args: Any, doc: str | None = None, **kwargs: Any) -> str:
        """Names a constant without its value."""
        if name == '__all__':
            return ''
        doc = doc or pydoc.getdoc(object)
        return (name or '') + ('\n' + self.indent(str(doc)) + '\n' if doc else '')


def render_module(module: ModuleType) -> dict[str, str]:
    """The document of a module: what ``help(module)`` shows, less the machine."""
    if not hasattr(module, '__all__'):  # without it, versions of pydoc differ in what they show
        module.__all__ = [name for name, value in vars(module).items() if _belongs_to(module, name, value)]
    title = ' — '.join(filter(None, (module.__name__, _synopsis(module))))
    text = _ADDRESS.sub('', PlainDoc().docmodule(module)).replace(repr(sys.executable), repr('python')).strip()
    return {'docno': f'module:{module.__name__}', 'title': title, 'text': text + '\n'}


def _synopsis(module: ModuleType) -> str:
    """The first sentence of the module's docstring, at most 100 characters of it."""
    sentence = re.split(r'\.\s|\n\s*\n|\n[=~-]+\n', (module.__doc__ or '').strip())[0]
    return textwrap.shorten(sentence.rstrip('.'), 100, placeholder=' …')


def _belongs_to(module: ModuleType, name: str, value: Any) -> bool:
    """Whether a public name is the module's own or taken from a private module such as ``_bisect``."""
    if name.startswith('_') or inspect.ismodule(value):
        return False
    owner = getattr(value, '__module__', None) or module.__name__
    return owner == module.__name__ or _is_private(owner) or not (inspect.isclass(value) or inspect.isroutine(value))


def _foreign_members(cls: type) -> re.Pattern[str]:
    """Matches the members inherited from where another document describes them, to the end of the block."""
    package = cls.__module__.split('.')[0].lstrip('_')
    bases = r'\S+' if package == 'builtins' else rf'(?!_{package}\.|{package}\.(?:\w+\.)*_)\S+\.\S+'
    return re.compile(_INHERITED.format(bases), re.DOTALL)


def _is_described_elsewhere(cls: type, mod: str) -> bool:
    """Whether another package's document describes a class that module ``mod`` passes on."""
    home = cls.__module__
    return (home.split('.')[0] != mod.split('.')[0] and is_public(home)
            and getattr(sys.modules.get(home), cls.__name__, None) is cls)


def _is_private(module: str) -> bool:
    return '._' in '.' + module


def render_topic(name: str, text: str) -> dict[str, str]:
    """The document of a topic of the language reference; its title is the first heading."""
    text = text.strip()
    return {'docno': f'topic:{name}', 'title': text.partition('\n')[0], 'text': text + '\n'}


def main() -> None:
    """Prints the documents as JSON: dicts of docno, title and text, modules first, by name."""
    from pydoc_data.topics import topics

    warnings.simplefilter('ignore')
    inspect.getcomments = lambda object: None  # pydoc's fallback: source code comments are no documentation, and slow
    with contextlib.redirect_stdout(sys.stderr):
        documents = [render_module(module) for module in public_modules()]
    documents += [render_topic(name, topics[name]) for name in sorted(topics)]
    json.dump(documents, sys.stdout)


if __name__ == '__main__':
    main()
