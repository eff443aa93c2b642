// Tables of sources, labels and lengths: exact counts, and a click that filters.
let grouping = 0;
let order = { by: 4, down: true };

// A group: name, texts, tokens, mean error norm, mean loss, counts by threshold of the norm and of the loss.
function groupRows() {
  const { groups, rest } = data.groupings[grouping];
  const level = state.levels[state.by];
  const rows = groups.map((group, place) => ({ group, place }));
  if (rest) rows.push({ group: rest, place: -1 });
  for (const row of rows) {
    row.group.above ??= { norm: above(row.group[5]), loss: above(row.group[6]) };
    row.share = (row.group.above[state.by][level] ?? 0) / Math.max(row.group[2], 1);
  }
  const keys = [(row) => row.place, (row) => row.group[1], (row) => row.group[2], (row) => row.group[state.by === "norm" ? 3 : 4], (row) => row.share];
  const key = keys[order.by];
  const sign = order.down ? -1 : 1;
  return rows.sort((a, b) => (a.place < 0) - (b.place < 0) || sign * (key(a) - key(b)) || a.place - b.place);
}

function groupRow({ group, place, share }, most) {
  const { values, groups } = data.groupings[grouping];
  const selected = state.groups.get(grouping) === place;
  const name = place < 0 ? `${number(values - groups.length)} others` : group[0];
  const act = () => {
    if (selected) state.groups.delete(grouping);
    else state.groups.set(grouping, place);
    state.only = null;
    changed("filter");
  };
  const bar = el("i");
  bar.style.setProperty("--w", `${((100 * share) / most).toFixed(1)}%`);
  const made = el("tr", { class: selected && "selected" },
    el("th", { scope: "row" }, button(bdi(name), act, { "aria-pressed": selected, "data-place": place })),
    el("td", {}, short.format(group[1])),
    el("td", {}, short.format(group[2])),
    el("td", {}, group[state.by === "norm" ? 3 : 4].toFixed(2)),
    el("td", { class: "share" }, percent(share, 1), bar));
  made.addEventListener("click", (event) => event.target.closest("button") || act());
  return made;
}

function paintGroups() {
  const table = $("groups");
  const keep = document.activeElement.closest?.("#groups") ? document.activeElement : null;
  const remember = keep && [keep.dataset.place, keep.dataset.column];
  const titles = [data.groupings[grouping].name, "texts", "tokens", "mean", "dropped"];
  const heads = titles.map((title, k) =>
    el("th", { scope: "col", "aria-sort": order.by === k ? (order.down ? "descending" : "ascending") : "none" },
      button(bdi(title), () => {
        order = { by: k, down: order.by === k ? !order.down : k > 0 };
        paintGroups();
      }, { "data-column": k })));
  table.tHead.replaceChildren(el("tr", {}, ...heads));
  const rows = groupRows();
  const most = Math.max(...rows.map((row) => row.share)) || 1;
  table.tBodies[0].replaceChildren(...rows.map((row) => groupRow(row, most)));
  if (remember) {
    const [place, column] = remember;
    table.querySelector(place !== undefined ? `[data-place="${CSS.escape(place)}"]` : `[data-column="${CSS.escape(column)}"]`)?.focus();
  }
  $("group-caption").textContent = `Counts by ${data.groupings[grouping].name}, of the whole corpus`;
}

function describeGroups() {
  const { name, groups, values, more } = data.groupings[grouping];
  const part = values > groups.length ? `${groups.length} of ${number(values)}${more ? " or more" : ""} values of ${name}: the largest, and those of the highest mean. ` : "";
  $("group-note").textContent = `${part}Of the whole corpus; mean ${measure().name}, and share of the tokens dropped. A click shows the sentences.`;
}

function startGroups() {
  const tabs = data.groupings.map(({ name }, k) =>
    button(bdi(name), () => {
      grouping = k;
      tabs.forEach((tab, other) => tab.setAttribute("aria-pressed", other === k));
      // Lengths and the like have an order of their own.
      order = k === data.groupings.length - 1 ? { by: 0, down: false } : { by: 4, down: true };
      paintGroups();
      describeGroups();
    }, { "aria-pressed": k === 0 }));
  $("group-tabs").append(...tabs);
  if (data.groupings.length === 1) order = { by: 0, down: false };
  watchers.level.push(() => { paintGroups(); describeGroups(); });
  watchers.filter.push(paintGroups);
  paintGroups();
  describeGroups();
}
