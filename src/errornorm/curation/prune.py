"""Remove the worst part of a corpus by its scores: texts, whole sources, or single tokens by a weight of 0.

No line is lost: records = kept + pruned + quarantined, counted anew from the files before they get their names.
Memory: a few numbers for each text, none for tokens, however many there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa

from ..data.lines import read_lines
from ..scoring.memory import scores_of
from ..scoring.objects import fields_of
from ..scoring.rank import lists
from ..scoring.table import Scores
from ..training.disk import room_for
from ..training.stops import at_once
from .groups import LENGTH, check_field
from .prune_choose import Chosen, Group, Rule, Tokens, choose, choose_sources
from .prune_edge import Edge
from .prune_input import Input, require_lines, states_of
from .prune_places import Counted, Places
from .prune_write import LONGEST, Spans, all_or_none, recount, write_kept, write_removed, write_weighted

WEIGHTS = "token_weights"


@dataclass(frozen=True)
class Pruned:
    """What `prune` did: `records` = `kept` + `pruned` + `quarantined`, and of `units` exactly `dropped` went.

    Of `unit` "token" all records are kept, and `units` are the tokens that have characters.
    """

    by: str
    unit: str
    fraction: float | None
    threshold: float | None
    cutoff: float | None  # the worst score that stays, or the threshold
    units: int
    dropped: int
    unscored: int  # units without a score, which stay
    records: int
    kept: int
    pruned: int
    quarantined: int
    sources: list[Group]  # that were dropped
    next_source: Group | None  # did not fit into the fraction
    limit: int | None  # of the scoring: later records are not in the output, nor in any of these counts
    output: str | None = None
    output_pair: str | None = None
    removed: str | None = None
    rows: Callable[[], pa.Table] | None = field(default=None, repr=False, compare=False)

    def table(self) -> pa.Table:
        """Of each record that was scored: `record`, `line`, and `score`, `dropped`; of tokens, `token_weights`."""
        assert self.rows is not None
        return self.rows()

    def to_dict(self) -> dict[str, Any]:
        """All but the table."""
        found = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "rows"}
        found["sources"] = [_named(group) for group in self.sources]
        found["next_source"] = _named(self.next_source) if self.next_source else None
        found["cutoff"] = self.cutoff if self.cutoff is None or math.isfinite(self.cutoff) else str(self.cutoff)
        return found


def _named(group: Group) -> dict[str, Any]:
    return {"name": group.name, "records": group.records, "score": group.score}


def prune(
    scores: Any,
    *,
    by: str = "error_norm",
    fraction: float | None = None,
    threshold: float | None = None,
    unit: str = "sequence",
    group_by: str | None = None,
    seed: int = 0,
    output: Path | str | None = None,
    output_pair: Path | str | None = None,
    removed: Path | str | None = None,
    corpus: Path | str | None = None,
    pair: Path | str | None = None,
    weights_field: str = WEIGHTS,
    download: bool = False,
) -> Pruned:
    """Drop the worst texts, tokens or sources of a corpus that was scored.

    Args:
        scores: What `score` made: a folder, its `Scores`, a pyarrow table or a pandas data frame.
        by: A score: error_norm, nll, entropy, p_target, margin; of texts with _mean, _max, _first or _sum, and above.
            "random" is for comparison.
        fraction: Drop this share: exactly floor(fraction * units), the worst; of equal ones the earlier.
        threshold: Or drop what is above this score (below, for p_target and margin).
        unit: "sequence": whole texts. "source": whole groups by `group_by`, worst mean first, as long as they fit into
            the fraction. "token": all texts stay, and get spans of weight 0.
        group_by: Field that names the source of a record, or "length".
        seed: Of "random".
        output: The kept corpus, in the input's form; JSONL for tokens, data sets and tables. None: only look.
        output_pair: Its target side, for aligned text.
        removed: What went and why, as JSONL; beside the output if not given.
        corpus, pair: Where the scored files are now, if not where they were.
        weights_field: Of tokens: the field that gets the spans [start, end, weight], in characters of the text.
        download: Fetch the scored data set from the Hub again; without this, it is a folder.

    Example:
        >>> import errornorm
        >>> done = errornorm.prune("scores", fraction=0.1, output="clean.jsonl")  # doctest: +SKIP
        >>> done.records, done.kept, done.pruned, done.quarantined  # doctest: +SKIP
        (1000, 898, 99, 3)
    """
    rule = Rule(by, fraction, threshold, unit, group_by, seed)
    table = scores_of(scores)
    if output is None:
        if given := [name for name, value in (("output_pair", output_pair), ("removed", removed)) if value is not None]:
            raise ValueError(f"{given[0]} is given without output: give both")
        chosen, edge = _chosen(table, rule)
        return _pruned(table, chosen, edge, Counted.of_table(table, chosen), {})
    source = Input.of(table, corpus, pair, download)
    places = Places.of(source, unit, output, output_pair, removed)
    source.verify()
    if unit == "token":
        _refuse_field(table, source, weights_field)
    chosen, edge = _chosen(table, rule)
    with at_once("; no half-written file is left"), room_for(places.output):
        counted = _write(source, table, chosen, edge, places, weights_field)
    return _pruned(table, chosen, edge, counted, places.names())


def _chosen(table: Scores, rule: Rule) -> tuple[Chosen, Edge | None]:
    """What goes; of tokens, also the edge to find them by."""
    if rule.unit == "token":
        edge, chosen = Tokens(table, rule).choose()
        return chosen, edge
    if rule.group_by not in (None, LENGTH):
        check_field(table, str(rule.group_by))
    return (choose_sources if rule.unit == "source" else choose)(table, rule), None


def _write(source: Input, table: Scores, chosen: Chosen, edge: Edge | None, places: Places, name: str) -> Counted:
    lines = numpy.concatenate([numpy.zeros(0, numpy.int64), *(b["line"].to_numpy() for b in table.batches(["line"]))])
    records, last = (table.meta["records"], None) if source.form == "table" else source.extent()
    require_lines(lines, last, table.folder)
    states = states_of(lines, chosen.dropped)
    with all_or_none(*places.files) as parts:
        if edge is None:
            write_kept(source, table, states, parts[0], parts[1] if places.pair else None)
            write_removed(source, table, chosen, parts[-1])
        else:
            write_weighted(source, table, states, spans_of(Tokens(table, chosen.rule), edge), parts[0], name)
        counted = Counted(
            records=records,
            kept=recount(parts[0], parts[1] if places.pair else None, places.form, source),
            pruned=0 if edge is not None else sum(1 for _ in read_lines(parts[-1], LONGEST)),
            quarantined=_quarantined(table),
        )
        counted.check(table.folder)
    return counted


def _quarantined(table: Scores) -> int:
    """Counted where they are; the table's own count if there is no such file."""
    path = table.quarantine
    return int(table.meta["quarantined"]) if path is None else sum(1 for _ in read_lines(path, LONGEST))


def _refuse_field(table: Scores, source: Input, name: str) -> None:
    """A field that is there already would be lost."""
    for batch in table.batches(["line", "fields"]):
        for line, others in zip(batch["line"].to_pylist(), fields_of(batch), strict=True):
            if name in source.names or name in others:
                raise ValueError(f"{source.where(line)} has a field {name!r} already: choose another weights_field")


def spans_of(tokens: Tokens, edge: Edge) -> Iterator[tuple[int, Spans]]:
    """The line of each text, and its spans of weight 0: tokens that stand side by side are one."""
    once = Edge(edge.value, edge.ties)
    for batch, values, bounds in tokens.batches("line", "text"):
        dropped = once.drop(values)
        (starts, _), (ends, _) = lists(batch["start"]), lists(batch["end"])
        for line, begin, end in zip(batch["line"].to_pylist(), bounds[:-1], bounds[1:], strict=True):
            yield line, _merged(numpy.flatnonzero(dropped[begin:end]) + begin, starts, ends)


def _merged(which: Any, starts: Any, ends: Any) -> Spans:
    spans: Spans = []
    last = -2
    for i in which.tolist():
        start, end = int(starts[i]), int(ends[i])
        if spans and (i == last + 1 or start < spans[-1][1]):
            spans[-1][1] = max(spans[-1][1], end)
        else:
            spans.append([start, end, 0])
        last = i
    return spans


def _pruned(
    table: Scores, chosen: Chosen, edge: Edge | None, counted: Counted, places: Mapping[str, str | None]
) -> Pruned:
    counted.check(table.folder)
    rule = chosen.rule

    def rows() -> pa.Table:
        found = table.table(["record", "line"])
        if edge is None:
            return found.append_column("score", [chosen.scores]).append_column("dropped", [chosen.dropped])
        spans = [own for _, own in spans_of(Tokens(table, rule), edge)]
        return found.append_column(WEIGHTS, [pa.array(spans, pa.list_(pa.list_(pa.float64())))])

    return Pruned(
        rule.name, rule.unit, rule.fraction, rule.threshold, chosen.cutoff, chosen.units, chosen.dropped_units,
        chosen.unscored, counted.records, counted.kept, counted.pruned, counted.quarantined, chosen.groups,
        chosen.next_group, (table.meta.get("corpus") or {}).get("limit"), **places, rows=rows,
    )  # fmt: skip
