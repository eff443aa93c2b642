"""All tables and figures, by name."""

from __future__ import annotations

from ..plan import Item
from . import (
    examples,
    figure_dynamics,
    figure_example,
    figure_noise_rate,
    figure_openings,
    figure_pruning,
    figure_separation,
    figure_start,
    table_bilingual,
    table_everyday,
    table_lm,
    table_misordered,
    table_multilingual,
    table_natural_noise,
    table_summarization,
    table_temperature,
    table_unseen,
    table_untranslated,
)

ITEMS: dict[str, Item] = {
    item.name: item
    for item in (
        figure_example.ITEM,
        figure_dynamics.ITEM,
        figure_separation.ITEM,
        figure_pruning.ITEM,
        table_untranslated.ITEM,
        table_misordered.ITEM,
        table_lm.ITEM,
        figure_start.ITEM,
        table_multilingual.ITEM,
        table_temperature.ITEM,
        table_bilingual.ITEM,
        table_summarization.ITEM,
        examples.ITEM,
        table_natural_noise.ITEM,
        table_everyday.ITEM,
        table_unseen.ITEM,
        figure_openings.ITEM,
        figure_noise_rate.ITEM,
    )
}
