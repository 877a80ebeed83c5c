"""Rankers on disk: ``config.json``, ``model.safetensors`` and the tokenizer's files. No pickle is written or read.

A directory is complete or it is not there: it is written beside its place and moved in one step. What is loaded is
checked name by name, so that a truncated, foreign or mismatched checkpoint raises and never gives a half-loaded model.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyterrier_longdoc

if TYPE_CHECKING:
    from torch import nn

    from pyterrier_longdoc.reranker import ReRanker

#: Written into every config.json, and what makes a directory a checkpoint of ours.
FORMAT = "pyterrier_longdoc/1"
_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_OPTIONS = ("text_field", "max_doc_tokens")


def save(ranker: ReRanker, path: str | Path) -> None:
    """Writes a ranker into a directory; an older checkpoint there is replaced in one step."""
    from safetensors.torch import save_model

    def write(directory: Path) -> None:
        ranker.tokenizer.save_pretrained(directory)
        save_model(ranker.model, str(directory / _WEIGHTS))
        config = {
            "format": FORMAT,
            "version": pyterrier_longdoc.__version__,
            "ranker": type(ranker).__name__,
            "model_name": ranker.model_name,
            "model": ranker.model.config.to_dict(),
            "options": {name: getattr(ranker, name) for name in _OPTIONS},
        }
        (directory / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

    write_directory(Path(path), write)


def load(name_or_path: str | Path, expected: type[ReRanker], options: dict[str, Any]) -> ReRanker:
    """Loads a ranker; see :meth:`ReRanker.from_pretrained`."""
    from pyterrier_longdoc.text.tokens import load_tokenizer

    directory = _local(str(name_or_path))
    config = _read_config(directory)
    ranker_class = getattr(pyterrier_longdoc, config["ranker"])
    if not issubclass(ranker_class, expected):
        raise ValueError(f"{name_or_path} holds a {config['ranker']}; load it with {config['ranker']}.from_pretrained")
    settings = ranker_class.model_class.config_class
    try:
        model = ranker_class.model_class(settings.from_dict(config["model"]))
    except (TypeError, KeyError) as error:
        raise ValueError(f"{directory / _CONFIG}: settings do not fit {config['ranker']}: {error}") from error
    _load_weights(model, directory / _WEIGHTS)
    return ranker_class.from_model(
        model,
        load_tokenizer(str(directory)),
        **{"model_name": str(name_or_path), **config["options"], **options},
    )


def fingerprint(model: nn.Module) -> str:
    """A short hash of all weights."""
    digest = blake2b(digest_size=4)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def write_directory(path: Path, write: Callable[[Path], None]) -> None:
    """Fills a directory beside its place, then moves it there in place of what was there."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        write(fresh)
        fresh.chmod(0o755)
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
            os.replace(path, old / path.name)
            os.replace(fresh, path)
            shutil.rmtree(old)
        else:
            os.replace(fresh, path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _local(name_or_path: str) -> Path:
    if Path(name_or_path).is_dir():
        return Path(name_or_path)
    if Path(name_or_path).exists() or name_or_path.count("/") != 1 or name_or_path.startswith((".", "/", "~")):
        raise ValueError(f"{name_or_path!r} is neither a directory nor a hub name of the form user/model")
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name_or_path))


def _read_config(directory: Path) -> dict[str, Any]:
    path = directory / _CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{directory} is no checkpoint of pyterrier_longdoc: cannot read {_CONFIG} ({error})") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        found = config.get("format") if isinstance(config, dict) else None
        raise ValueError(f"{path}: 'format' must be {FORMAT!r}, found {found!r}: not a checkpoint of pyterrier_longdoc")
    if config.get("ranker") not in pyterrier_longdoc.__all__:
        raise ValueError(f"{path}: unknown ranker {config.get('ranker')!r}; is a newer version of the package needed?")
    return config


def _load_weights(model: nn.Module, path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    try:
        load_model(model, str(path))
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} is missing, truncated or damaged: {error}") from error
    except RuntimeError as error:  # names of missing, unexpected or misshapen parameters
        raise ValueError(f"{path} does not fit its {_CONFIG}: {error}") from error
