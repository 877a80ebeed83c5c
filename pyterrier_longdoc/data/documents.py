"""Starts the interpreter that renders Python's documentation.

Rendering imports several hundred modules, so it happens in an interpreter of its own with a fixed environment.
The caller's process stays clean, and neither its hash seed nor its working directory, home, environment or
imported libraries can change a document.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_PROGRAM = Path(__file__).with_name('render.py')
_NEEDED = ('SYSTEMROOT', 'LD_LIBRARY_PATH')  # without these an interpreter may not start
_FIXED = {'PYTHONHASHSEED': '0', 'PYTHONUTF8': '1', 'PYTHONDONTWRITEBYTECODE': '1', 'TERM': 'dumb', 'TZ': 'UTC'}


def render_documents() -> list[dict[str, str]]:
    """Renders the documentation of the running Python: dicts of docno, title and text, modules first, by name.

    Raises:
        RuntimeError: If the interpreter that renders fails.
    """
    environment = {name: os.environ[name] for name in _NEEDED if name in os.environ} | _FIXED
    command = [sys.executable, '-S', str(_PROGRAM)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                              check=False)
    if done.returncode:
        raise RuntimeError(f"rendering Python's documentation failed in {command}:\n{done.stderr.decode()}")
    return json.loads(done.stdout)
