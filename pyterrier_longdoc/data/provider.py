"""Makes the data sets of this package known to ``pt.get_dataset("longdoc:...")``."""
from collections.abc import Iterable

import pyterrier as pt


class LongDocDatasetProvider(pt.datasets.DatasetProvider):
    """The provider behind the prefix ``longdoc:``, registered as entry point ``pyterrier.dataset_provider``."""

    def get_dataset(self, name: str) -> pt.datasets.Dataset:
        """Returns the data set of this name; the only one is ``python-docs``.

        Raises:
            KeyError: If there is no data set of this name.
        """
        if name not in self.list_dataset_names():
            raise KeyError(f'no data set {name!r} in longdoc; there are {list(self.list_dataset_names())}')
        from pyterrier_longdoc.data.python_docs import PythonDocs
        return PythonDocs()

    def list_dataset_names(self) -> Iterable[str]:
        """The names of the data sets."""
        return ['python-docs']
