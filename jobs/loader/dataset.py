"""The loader as a data set of `torch.utils.data.DataLoader`, read by worker processes."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from jobs.errors import UserError
from jobs.loader.batches import BatchLoader

if TYPE_CHECKING:
    from jobs.loader.mixture import MixtureLoader


class ShardDataset(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """The batches of a loader from its place to the end of the epoch or mixture, shared among the DataLoader's workers.

    Worker w of n yields batches w, w + n, w + 2 n …; the DataLoader takes them in turns, so they come in the order in
    which the loader itself gives them. Give it to ``DataLoader(dataset, batch_size=None, num_workers=n)``, since its
    items are whole batches. It is `Stateful` for torchdata's StatefulDataLoader, which itself insists on the same
    number of workers; a loader's own `num_workers` does not.

    Call `set_epoch` before each epoch, as with torch's DistributedSampler: workers begin with what the main process
    has, and cannot tell it where they ended. Its length is the loader's.

    Parameters
    ----------
    loader : BatchLoader or MixtureLoader
        It is copied; its place is where the data set begins.
    """

    def __init__(self, loader: "BatchLoader | MixtureLoader") -> None:
        self._loader = loader.alone()
        self._taken = 0  # by this worker, since the place
        self._n_workers: int | None = None  # that the batches taken were shared among

    def set_epoch(self, epoch: int) -> None:
        """See `BatchLoader.set_epoch`."""
        before = self._loader.position
        self._loader.set_epoch(epoch)
        if self._loader.position != before:
            self._taken = 0

    def __len__(self) -> int:
        """Batches of all workers, in an epoch or in the mixture."""
        return len(self._loader)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Batches of this worker; of all, where there are no workers."""
        worker = get_worker_info()
        first, n_workers = (worker.id, worker.num_workers) if worker else (0, 1)
        if self._taken and self._n_workers != n_workers:
            raise UserError(
                f"the state was saved by one of {self._n_workers} workers, and there are {n_workers} now; use as many, "
                "or iterate over the loader itself, whose num_workers can change"
            )
        loader, left, self._n_workers = self._loader, self._loader.left, n_workers
        while (number := first + self._taken * n_workers) < left:
            self._taken += 1
            yield loader.ahead(number)
        loader.skip(left)
        self._taken = 0

    def state_dict(self) -> dict[str, int]:
        """The loader's, where this worker's batches are counted from, and how many it has yielded since."""
        return {**self._loader.state_dict(), "taken": self._taken, "n_workers": self._n_workers or 1}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict` of the same worker, or of a loader.

        Raises
        ------
        UserError
            See `BatchLoader.load_state_dict`. Iterating raises it where the number of workers is another.
        """
        self._loader.load_state_dict(state)
        self._taken, self._n_workers = int(state.get("taken", 0)), int(state.get("n_workers", 1))


def read_ahead(loader: BatchLoader) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches from the loader's place to the end of its epoch, in order, read by its workers."""
    return iter(
        DataLoader(
            ShardDataset(loader),
            batch_size=None,
            num_workers=loader.num_workers,
            prefetch_factor=loader.prefetch,
            pin_memory=loader.pin_memory and torch.accelerator.is_available(),
        )
    )
