"""Rankers on disk: ``config.json``, ``model.safetensors`` and the tokenizer's files. No pickle is written or read.

A directory is complete or it is not there: it is written beside its place and moved in one step. What is loaded is
checked name by name, so that a truncated, foreign or mismatched checkpoint raises and never gives a half-loaded model.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyterrier_longdoc

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedTokenizerBase

    from pyterrier_longdoc.reranker import ReRanker

#: Written into every config.json, and what makes a directory a checkpoint of ours.
FORMAT = "pyterrier_longdoc/1"
_CONFIG, _WEIGHTS = "config.json", "model.safetensors"


def save(ranker: ReRanker, path: str | Path, more: Mapping[str, str] | None = None) -> None:
    """Writes a ranker into a directory; an older checkpoint there is replaced.

    Args:
        ranker: The ranker.
        path: The directory.
        more: Names and texts of further files.
    """
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
            "options": {name: getattr(ranker, name) for name in ranker.saved_options},
        }
        for name, text in {**(more or {}), _CONFIG: json.dumps(config, indent=2) + "\n"}.items():
            (directory / name).write_text(text, encoding="utf-8")

    write_directory(Path(path), write)


def load(name_or_path: str | Path, expected: type[ReRanker], options: dict[str, Any]) -> ReRanker:
    """Loads a ranker; see :meth:`ReRanker.from_pretrained`."""
    directory = local_directory(str(name_or_path))
    config, ranker_class = _read_config(directory)
    if not issubclass(ranker_class, expected):
        raise ValueError(f"{name_or_path} holds a {config['ranker']}; load it with {config['ranker']}.from_pretrained")
    settings = ranker_class.model_class.config_class
    try:
        model = ranker_class.model_class(settings.from_dict(config["model"]))
    except (TypeError, KeyError, AttributeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{directory / _CONFIG}: settings do not fit {config['ranker']}: {error}") from error
    _load_weights(model, directory / _WEIGHTS)
    tokenizer = _load_tokenizer(directory, getattr(model.config, "vocabulary", None))
    name = config.get("model_name", directory.name) if directory == Path(name_or_path) else str(name_or_path)
    return ranker_class.from_model(model, tokenizer, **{"model_name": name, **config["options"], **options})


def fingerprint(weights: nn.Module | Iterable[Tensor]) -> str:
    """A short hash of some tensors, or of a model: its weights and settings (heads leave no trace in the weights)."""
    tensors = weights if not hasattr(weights, "state_dict") else dict(sorted(weights.state_dict().items())).values()
    digest = blake2b(repr(getattr(weights, "config", None)).encode(), digest_size=4)
    for tensor in tensors:
        digest.update(str(tuple(tensor.shape)).encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def write_directory(path: Path, write: Callable[[Path], None]) -> None:
    """Fills a directory beside its place, then moves it there in place of what was there.

    There is no instant with half a checkpoint. A process killed between the two moves leaves none at ``path``, and the
    old one in ``.<name>.old.*`` beside it.
    """
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        write(fresh)
        fresh.chmod(0o755)
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
            os.replace(path, old / path.name)
            try:
                os.replace(fresh, path)
            except BaseException:
                os.replace(old / path.name, path)
                raise
            finally:
                shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(fresh, path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def local_directory(name_or_path: str) -> Path:
    """A directory, or where a model of the hub was downloaded to.

    Raises:
        ValueError: If it is neither.
    """
    if Path(name_or_path).is_dir():
        return Path(name_or_path)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name_or_path) or Path(name_or_path).parent.exists():
        raise ValueError(f"{name_or_path!r} is neither a directory nor a hub name of the form user/model")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name_or_path))
    except Exception as error:  # of several libraries: no network, no such repository, no access
        raise ValueError(f"{name_or_path!r} is no directory here, and the hub does not give it: {error}") from error


def _read_config(directory: Path) -> tuple[dict[str, Any], type[ReRanker]]:
    from pyterrier_longdoc.reranker import ReRanker

    path = directory / _CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"{directory} is no checkpoint of pyterrier_longdoc: cannot read {_CONFIG} ({error})"
        raise ValueError(message) from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        found = config.get("format") if isinstance(config, dict) else None
        raise ValueError(f"{path}: 'format' must be {FORMAT!r}, found {found!r}: not a checkpoint of pyterrier_longdoc")
    name = config.get("ranker")
    ranker_class = getattr(pyterrier_longdoc, name) if name in pyterrier_longdoc.__all__ else None
    if not isinstance(ranker_class, type) or not issubclass(ranker_class, ReRanker) or ranker_class is ReRanker:
        raise ValueError(f"{path}: unknown ranker {name!r}; is a newer version of the package needed?")
    options = config.get("options")
    if not isinstance(options, dict) or not options.keys() <= set(ranker_class.saved_options):
        names = list(ranker_class.saved_options)
        raise ValueError(f"{path}: 'options' must map names among {names} to values, found {options!r}")
    return config, ranker_class


def _load_tokenizer(directory: Path, rows: int | None) -> PreTrainedTokenizerBase:
    from pyterrier_longdoc.text.tokens import check_vocabulary, load_tokenizer

    try:
        tokenizer = load_tokenizer(str(directory))
        if rows is not None:
            check_vocabulary(tokenizer, rows)
    except Exception as error:  # tokenizers raises its errors as plain Exceptions
        raise ValueError(f"{directory}: the tokenizer's files are missing or damaged: {error}") from error
    return tokenizer


def _load_weights(model: nn.Module, path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    try:
        load_model(model, str(path))
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} is missing, truncated or damaged: {error}") from error
    except RuntimeError as error:  # names of missing, unexpected or misshapen parameters
        raise ValueError(f"{path} does not fit its {_CONFIG}: {error}") from error
