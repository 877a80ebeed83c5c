"""Trained rankers as PyTerrier artifacts: share them with ``to_hf``, fetch them with ``pt.Artifact.from_hf``."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyterrier as pt

from pyterrier_longdoc.citations import CITATIONS

if TYPE_CHECKING:
    from pyterrier_longdoc.reranker import ReRanker


class LongDocModel(pt.Artifact):
    """A trained ranker on disk: the directory that ``ranker.save`` wrote.

    Example::

        LongDocModel.save(tkl, "tkl-msmarco").to_hf("user/tkl-msmarco")
        tkl = pt.Artifact.from_hf("user/tkl-msmarco").reranker(device="cuda")

    Args:
        path: The directory.
    """

    ARTIFACT_TYPE = "reranker"
    ARTIFACT_FORMAT = "longdoc"
    ARTIFACT_PACKAGE_HINT = "pyterrier-longdoc"

    def __init__(self, path: str | Path) -> None:
        super().__init__(str(path))

    @classmethod
    def save(cls, ranker: ReRanker, path: str | Path) -> LongDocModel:
        """Saves a ranker and returns its artifact."""
        from pyterrier_longdoc.checkpoint import save

        metadata = {"type": cls.ARTIFACT_TYPE, "format": cls.ARTIFACT_FORMAT, "package_hint": cls.ARTIFACT_PACKAGE_HINT}
        save(ranker, path, {"pt_meta.json": json.dumps(metadata)})
        return cls(path)

    def reranker(self, **options: Any) -> ReRanker:  # noqa: ANN401
        """Loads the ranker, whichever it is; options as in :class:`~pyterrier_longdoc.reranker.ReRanker`."""
        from pyterrier_longdoc.reranker import ReRanker

        return ReRanker.from_pretrained(str(self.path), **options)

    def _hf_readme(
        self, *, repo: str, branch: str | None = "main", pretty_name: str | None = None, metadata: dict | None = None
    ) -> str:
        name = repo if branch in (None, "main") else f"{repo}@{branch}"
        usage = f'import pyterrier as pt\nranker = pt.Artifact.from_hf("{name}").reranker()'
        return model_card(Path(self.path), pretty_name or repo.split("/")[-1], usage)


def push_to_hub(ranker: ReRanker, repo: str, *, private: bool | None = None) -> str:
    """Uploads a ranker, with a model card, as a model repository of the Hugging Face hub.

    Args:
        ranker: The ranker.
        repo: ``user/model``; ``ReRanker.from_pretrained`` takes the same name.
        private: Whether a new repository is private.

    Returns:
        The address of the commit.
    """
    import huggingface_hub

    from pyterrier_longdoc.checkpoint import save

    with tempfile.TemporaryDirectory() as parent:
        directory = Path(parent) / "model"
        save(ranker, directory)
        usage = f'from pyterrier_longdoc import {type(ranker).__name__}\n'
        usage += f'ranker = {type(ranker).__name__}.from_pretrained("{repo}")'
        (directory / "README.md").write_text(model_card(directory, repo.split("/")[-1], usage), encoding="utf-8")
        huggingface_hub.create_repo(repo, private=private, exist_ok=True)
        return str(huggingface_hub.upload_folder(repo_id=repo, folder_path=directory))


def model_card(directory: Path, title: str, usage: str) -> str:
    """The text of README.md for a checkpoint: what it is, how to use it, how it was set, whom to cite.

    Args:
        directory: The checkpoint.
        title: Its name.
        usage: Python lines that load it into ``ranker``.
    """
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    ranker, limit = config["ranker"], config["options"]["max_doc_tokens"]
    settings = "\n".join(f"| {name} | {value} |" for name, value in config["model"].items())
    reads = "whole documents" if limit is None else f"the first {limit} tokens of a document"
    return f"""---
library_name: pyterrier-longdoc
pipeline_tag: text-ranking
tags:
- pyterrier
- pyterrier-artifact
- pyterrier-artifact.reranker
- pyterrier-artifact.reranker.longdoc
---

# {title}

A **{ranker}** re-ranker for long documents, for [PyTerrier](https://pyterrier.readthedocs.io). It reads {reads};
what is longer is reported, never cut in silence. Trained from `{config["model_name"]}`.

## Usage

```python
{usage}
pipeline = first_stage % 100 >> dataset.text_loader() >> ranker
```

Install with `pip install pyterrier-longdoc` (version {config["version"]} wrote this model).

## Settings

| setting | value |
|---|---|
{settings}

## Citation

```bibtex
{CITATIONS[ranker]}
```
"""
