"""Which modules of the standard library are documents, and why the others are not.

Everything public is taken: each top-level name of ``sys.stdlib_module_names`` and, through packages,
each submodule, as long as no part of the dotted name begins with an underscore and none is named below.
A module that cannot be imported on this platform (``winreg`` on Linux, ``fcntl`` on Windows, ``dbm.gnu``
without its library) is left out silently: it is the platform's choice, and no judgement depends on it.
"""
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType

#: Dotted prefixes that are never imported, with the reason.
SKIPPED = {
    **dict.fromkeys(('antigravity', 'this'), 'opens a browser or prints when imported'),
    **dict.fromkeys(('readline', 'rlcompleter'), 'installs hooks into the terminal when imported'),
    **dict.fromkeys(('idlelib', 'tkinter', 'turtle', 'turtledemo'), 'needs a screen and the Tk library'),
    **dict.fromkeys(('test', 'ctypes.test', 'unittest.test', 'sqlite3.test'), 'tests'),
    **dict.fromkeys(('ensurepip', 'sitecustomize', 'usercustomize'), 'belongs to the installation'),
    **dict.fromkeys(('pydoc_data',), 'data: its topics are documents of their own'),
    **dict.fromkeys(('sre_compile', 'sre_constants', 'sre_parse', 'nturl2path', 'xml.etree.cElementTree'),
                    'deprecated names of internals'),
    **dict.fromkeys(('posix', 'nt'), "the platform's copy of os"),
    **dict.fromkeys(
        ('aifc', 'asynchat', 'asyncore', 'audioop', 'cgi', 'cgitb', 'chunk', 'crypt', 'distutils', 'imghdr', 'imp',
         'importlib.metadata.diagnose', 'lib2to3', 'mailcap', 'msilib', 'nis', 'nntplib', 'ossaudiodev', 'pipes',
         'smtpd', 'sndhdr', 'spwd', 'sunau', 'telnetlib', 'uu', 'xdrlib'),
        'removed from later Pythons: the collection should differ little between versions'),
}


def is_public(name: str) -> bool:
    """Whether the module of this dotted name is a document of the collection (if it can be imported)."""
    parts = name.split('.')
    prefixes = ('.'.join(parts[:end]) for end in range(1, len(parts) + 1))
    return not any(part.startswith('_') for part in parts) and SKIPPED.keys().isdisjoint(prefixes)


def public_modules() -> Iterator[ModuleType]:
    """Imports and yields the public modules, packages before their submodules, in the order of their names."""
    for name in sorted(sys.stdlib_module_names):
        yield from _with_submodules(name)


def _with_submodules(name: str) -> Iterator[ModuleType]:
    if not is_public(name):
        return
    try:
        module = importlib.import_module(name)
    except ImportError:
        return
    yield module
    for child in sorted(info.name for info in pkgutil.iter_modules(getattr(module, '__path__', ()))):
        yield from _with_submodules(f'{name}.{child}')
