"""Cells as jobs of a Slurm cluster, by submitit. Rows come to the same folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

from . import grid, methods, work
from .cells import Cell
from .store import Store

JOB = "slurm.json"  # beside a cell's run: the job that it was submitted as
CPUS = 4  # for each GPU
HOURS = 24  # limit of a job


def submit(cells: Sequence[Cell], how: grid.Grid, partition: str, gpus: int = 4, cluster: str = "slurm") -> list[str]:
    """Submit what is missing and not in the queue, each cell as a job; return the jobs' names.

    A job that ends without a row, as at its time limit, is submitted again by the next call, and goes on.

    Args:
        cells: Some of which may have rows, or wait in the queue.
        how: Where rows and runs go.
        partition: Of the cluster.
        gpus: Of a job, on one node; a process for each.
        cluster: Where else submitit can run jobs: "local" or "debug".
    """
    submitit = _submitit(cluster)
    place = work.Place(how.place.work.absolute(), how.place.data and how.place.data.absolute())
    store, folder = Store(how.store.folder.absolute()), place.work / "slurm"
    executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
    executor.update_parameters(
        name="errornorm", timeout_min=60 * HOURS, nodes=1, gpus_per_node=gpus, tasks_per_node=max(1, gpus),
        cpus_per_task=CPUS, slurm_partition=partition,
    )  # fmt: skip
    with FileLock(folder / ".lock"):  # two calls at a time must not submit the same
        missing = {cell.hash: cell for cell in cells if store.find(cell) is None and not queued(cell, place, cluster)}
        if not missing:
            return []
        with executor.batch():
            jobs = [executor.submit(_job, cell, store, place, _file(how)) for cell in missing.values()]
        for cell, job in zip(missing.values(), jobs, strict=True):
            path = place.folder(cell) / JOB
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"job": job.job_id}), encoding="utf-8")
    return [str(job.job_id) for job in jobs]


def _submitit(cluster: str) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise ImportError("Slurm jobs need submitit: pip install errornorm[slurm]") from error
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise ValueError("there is no Slurm here (no sbatch): start it where jobs are submitted, or without --slurm")
    return submitit


def queued(cell: Cell, place: work.Place, cluster: str = "slurm") -> bool:
    """Whether the cell's last job waits or runs. One whose state the cluster does not tell counts as such."""
    path = place.folder(cell) / JOB
    if not path.is_file():
        return False
    from submitit import SlurmJob
    from submitit.core.utils import JobPaths

    name, folder = json.loads(path.read_text(encoding="utf-8"))["job"], place.work / "slurm"
    if cluster == "slurm":
        return not SlurmJob(folder, name).done(force_check=True)
    return not JobPaths(folder, name, 0).result_pickle.exists()


def _file(how: grid.Grid) -> Path | None:
    given = how.method_file
    return given if given is None or str(given) == methods.RELEASED else given.absolute()


def _job(cell: Cell, store: Store, place: work.Place, method_file: Path | None) -> None:
    """A task of a job: one rank of the run."""
    import submitit

    if submitit.JobEnvironment().num_tasks > 1:
        submitit.helpers.TorchDistributedEnvironment().export(set_cuda_visible_devices=False, overwrite=True)
    with grid.one_thread():
        grid.one(cell, store, place, method_file)
