"""What a training needs to go on after it was killed, beside the weights, and where it is kept.

``last`` and ``best`` are complete checkpoints of the ranker. ``last`` also holds ``training.json`` (this state) and
``optimizer.safetensors``. It is always written before ``best``: if a kill leaves a ``best`` that is one behind, then
``last`` itself holds the best weights. So at every moment both can be had from the directory.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyterrier_longdoc.checkpoint import _load_weights, fingerprint, save, write_directory

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from pyterrier_longdoc.reranker import ReRanker

_STATE, _OPTIMIZER, _WEIGHTS = "training.json", "optimizer.safetensors", "model.safetensors"


@dataclass
class State:
    """Where a training stands.

    Attributes:
        step: Steps done.
        sums: Sums over the examples since the last row of the history: ``loss``, and what else the task measures.
        examples: How many those are.
        history: Rows of the history.
        best_score: Highest value of the deciding measure.
        best_id: Fingerprint of the weights that reached it.
        waited: Validations since.
        finished: Whether training is over.
    """

    step: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    examples: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    best_score: float | None = None
    best_id: str | None = None
    waited: int = 0
    finished: bool = False


class Folder:
    """The ``last`` and ``best`` checkpoints of a training.

    Args:
        path: The directory that holds both.
        settings: Settings of the training, as JSON types.
        data: Fingerprints of its data.
    """

    def __init__(self, path: str | Path, settings: dict[str, Any], data: dict[str, str | None]) -> None:
        self.path = Path(path)
        self._settings = json.loads(json.dumps(settings))
        self._data = data

    def claim(self) -> None:
        """Makes sure that no other training is here.

        Raises:
            ValueError: If there is one.
        """
        if (self.path / "last").exists() or list(self.path.glob(".last.old.*/last")):
            raise ValueError(
                f"{self.path} already holds a training: go on with it by resume={str(self.path)!r}, or choose "
                "another output_dir"
            )

    def write_last(self, ranker: ReRanker, optimizer: torch.optim.Optimizer, state: State) -> None:
        """Writes the ranker and all that training needs to go on, in one step."""
        from safetensors.torch import save_file

        def write(directory: Path) -> None:
            save(ranker, directory)  # itself one step, into the directory that the next one puts in place
            save_file(_flat(optimizer), directory / _OPTIMIZER)
            content = {"settings": self._settings, "data": self._data, "state": asdict(state)}
            (directory / _STATE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

        ranker.weights_changed()
        write_directory(self.path / "last", write)

    def write_best(self, ranker: ReRanker) -> None:
        """Writes the ranker alone."""
        ranker.weights_changed()
        save(ranker, self.path / "best")

    def clean(self) -> None:
        """Puts right what a kill in the middle of writing left behind."""
        for name in ("last", "best"):
            for old in self.path.glob(f".{name}.old.*/{name}"):
                if not (self.path / name).exists():
                    os.replace(old, self.path / name)
            for rest in (*self.path.glob(f".{name}.*"), *self.path.glob(f"..{name}.*")):
                shutil.rmtree(rest)

    def read_state(self) -> State:
        """The state that ``last`` holds.

        Raises:
            ValueError: If there is none, or it is of a training with other settings or data.
        """
        path = self.path / "last" / _STATE
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            state = State(**content["state"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"no training to resume in {self.path}; begin one with output_dir ({error})") from error
        before = content["settings"]
        changed = [
            f"{name}={before.get(name)!r} then, {self._settings.get(name)!r} now"
            for name in {**before, **self._settings}
            if before.get(name) != self._settings.get(name)
        ]
        if changed:
            raise ValueError(f"cannot resume {self.path} with other settings: {'; '.join(changed)}")
        if content["data"] != self._data:
            raise ValueError(f"cannot resume {self.path}: results, judgements or the model are not those of then")
        return state

    def load_last(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Puts the last weights and the optimizer's moments in place."""
        from safetensors.torch import load_file

        _load_weights(model, self.path / "last" / _WEIGHTS)
        moments: dict[int, dict[str, Tensor]] = defaultdict(dict)
        for name, tensor in load_file(self.path / "last" / _OPTIMIZER).items():
            number, key = name.split(".")
            moments[int(number)][key] = tensor
        optimizer.load_state_dict({"state": dict(moments), "param_groups": optimizer.state_dict()["param_groups"]})

    def load_best(self, model: nn.Module, best_id: str) -> bool:
        """Puts the best weights in place, from ``best`` or, if it is behind, from ``last``.

        Returns:
            Whether ``best`` held them.

        Raises:
            ValueError: If neither does.
        """
        for name in ("best", "last"):
            if (self.path / name).exists():
                _load_weights(model, self.path / name / _WEIGHTS)
                if fingerprint(model) == best_id:
                    return name == "best"
        raise ValueError(f"{self.path} no longer holds the best weights ({best_id}); its files were changed")


def _flat(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{number}.{key}": tensor
        for number, moments in optimizer.state_dict()["state"].items()
        for key, tensor in moments.items()
    }
