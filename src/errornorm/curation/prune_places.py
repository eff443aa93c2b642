"""Where pruning may write, and whether all records are accounted for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..data.files import real, require_place
from ..data.lines import NOT_UNPACKED, PACKED, DataError
from ..data.records import Corpus
from ..scoring.objects import AGAIN
from ..scoring.table import Scores, refuse_among_scores
from .prune_choose import Chosen
from .prune_input import Input


@dataclass(frozen=True, slots=True)
class Places:
    """Files to write. `form` is that of the output."""

    output: Path
    pair: Path | None
    removed: Path | None
    form: str

    @staticmethod
    def of(
        source: Input,
        unit: str,
        output: Path | str,
        pair: Path | str | None,
        removed: Path | str | None,
    ) -> Places:
        """Refuse what would overwrite an input, or could not be read by its name."""
        output = Path(output)
        tokens, own = unit == "token", source.form not in ("dataset", "table")
        form = source.form if own and not tokens else "jsonl"
        if tokens and removed is not None:
            raise ValueError("with unit='token' no text goes, so there is nothing for removed: leave it out")
        if form == "pairs" and pair is None:
            raise ValueError(
                f"{output}: the kept corpus is two aligned files: give the second too (--output-pair FILE)"
            )
        if form != "pairs" and pair is not None:
            raise ValueError(f"{pair}: the kept corpus is one file, {output}: leave out the second")
        wanted = "text" if form == "pairs" else form
        for number, place in enumerate(Path(path) for path in (output, pair) if path is not None):
            said = Corpus(place).format
            if said != wanted and not (own and not tokens and said == Corpus(source.files[number]).format):
                raise ValueError(f"{place} has the name of {said}, and the output is {wanted}: choose such a name")
        if form == "parquet" and output.suffix.lower() in PACKED:
            raise ValueError(f"{output}: Parquet is packed inside: leave out {output.suffix}")
        for place in (Path(path) for path in (output, pair, removed) if path is not None):
            if place.suffix.lower() in NOT_UNPACKED:
                raise ValueError(f"{place}: {place.suffix} cannot be written: use .gz or .zst, or leave it out")
        beside = None if tokens else Path(removed or output.with_name(output.name + ".removed.jsonl"))
        places = Places(output, None if pair is None else Path(pair), beside, form)
        places._refuse(source.files)
        return places

    @property
    def files(self) -> list[Path]:
        return [path for path in (self.output, self.pair, self.removed) if path is not None]

    def names(self) -> dict[str, str | None]:
        named = {"output": self.output, "output_pair": self.pair, "removed": self.removed}
        return {name: None if path is None else str(path) for name, path in named.items()}

    def _refuse(self, inputs: list[Path]) -> None:
        seen: set[Path] = set()
        for path in self.files:
            place = real(path)
            require_place(path)
            if place in seen:
                raise ValueError(f"{path} is the name of two outputs: choose another for one of them")
            seen.add(place)
            if any(place == real(other) or (path.exists() and other.exists() and path.samefile(other))
                   for other in inputs):  # fmt: skip
                raise ValueError(f"{path} is also the input: choose another name for the output")
            refuse_among_scores(path, path.name)


@dataclass(frozen=True, slots=True)
class Counted:
    """Records, each counted from the file where they are."""

    records: int
    kept: int
    pruned: int
    quarantined: int

    @staticmethod
    def of_table(scores: Scores, chosen: Chosen) -> Counted:
        """Before anything is written."""
        pruned = int(chosen.dropped.sum())
        meta = scores.meta
        return Counted(int(meta["records"]), len(chosen.dropped) - pruned, pruned, int(meta["quarantined"]))

    def __str__(self) -> str:
        return f"{self.records} records = {self.kept} kept + {self.pruned} pruned + {self.quarantined} quarantined"

    def check(self, scores: Path) -> None:
        """Refuse to lose a record."""
        if self.records != self.kept + self.pruned + self.quarantined:
            told = str(self).replace(" = ", ", but ")
            raise DataError(f"{scores}: {told}: nothing was written; {AGAIN}")
