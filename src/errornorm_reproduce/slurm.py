"""Cells as jobs of a Slurm cluster. Needs submitit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from . import grid
from .cells import Cell


def submit(cells: Sequence[Cell], how: grid.Grid, partition: str, hours: int = 24, gpus: int = 4) -> list[str]:
    """Submit what is missing, each cell as a job; return the jobs' names. Rows come to the same folder."""
    try:
        import submitit
    except ImportError as error:
        raise ImportError("Slurm jobs need submitit: pip install submitit") from error
    todo = {cell.hash: cell for cell in cells if how.store.find(cell) is None}
    executor = submitit.AutoExecutor(folder=Path(how.place.work) / "slurm")
    executor.update_parameters(
        name="errornorm", slurm_partition=partition, timeout_min=60 * hours, gpus_per_node=gpus,
        tasks_per_node=max(1, gpus), nodes=1,
    )  # fmt: skip
    with executor.batch():
        jobs = [executor.submit(_job, cell, how) for cell in todo.values()]
    return [str(job.job_id) for job in jobs]


def _job(cell: Cell, how: grid.Grid) -> None:
    """A task of a job: one rank of the run."""
    import submitit

    submitit.helpers.TorchDistributedEnvironment().export(set_cuda_visible_devices=False)
    grid.one(cell, how.store, how.place, how.method_file)
