// The list of sentences: which, in which order, and moving in it.
const PAGE = 20;
const list = $("list");
let matching = [];

const sorts = {
  max: ["worst token", (s) => -s.max],
  mean: ["mean error norm", (s) => -s.mean],
  loss: ["mean loss", (s) => -s.loss],
  share: ["share dropped", (s) => -dropped(s) / Math.max(s.norms.length, 1)],
  near: ["closest to the threshold", (s) => nearest(s)],
  best: ["cleanest first", (s) => (s.mean < 0 ? Infinity : s.mean)],
  long: ["longest", (s) => -s.total],
  brief: ["shortest", (s) => s.total],
  order: ["order of the corpus", (s) => s.record],
};
const LIVE = new Set(["share", "near"]);
let settling = 0;

// What depends on the slider waits until it rests: the sentence under the eye would be gone.
function settleList() {
  clearTimeout(settling);
  if (LIVE.has(state.sort) || state.touched !== "") settling = setTimeout(() => changed("filter"), 300);
}

function nearest(sentence) {
  const at = cut();
  return sentence[measure().values].reduce((best, value) => Math.min(best, Math.abs(value - at)), Infinity);
}

function haystack(sentence) {
  sentence.hay ??= `${sentence.pieces.join("")}\n${sentence.context}`.toLowerCase().replace(/\s+/g, " ");
  return sentence.hay;
}

function fits(sentence) {
  if (state.only !== null) return sentence.index === state.only;
  for (const [grouping, place] of state.groups) if (sentence.groups[grouping] !== place) return false;
  if (state.why !== "" && !(sentence.why & (1 << state.why))) return false;
  if (state.labelled !== "" && (sentence.labels.length > 0) !== (state.labelled === "yes")) return false;
  if (state.touched !== "" && dropped(sentence) > 0 !== (state.touched === "yes")) return false;
  return !state.search || haystack(sentence).includes(state.search);
}

function refresh() {
  const key = sorts[state.sort][1];
  const keyed = sentences.filter(fits).map((sentence) => [key(sentence), sentence]);
  matching = keyed.sort((a, b) => a[0] - b[0] || a[1].index - b[1].index).map((pair) => pair[1]);
  hideTip();
  cards.clear();
  list.replaceChildren();
  extend();
  describe();
}

function extend() {
  const next = matching.slice(cards.size, cards.size + PAGE);
  list.append(...next.map((sentence) => card(sentence, cards.size + 1)));
  const left = matching.length - cards.size;
  $("more").hidden = left === 0;
  $("more").textContent = `Show ${Math.min(left, PAGE)} more of ${number(left)}`;
  recolour(next);
  highlight();
}

function describe() {
  const all = sentences.length === data.counts.used ? "" : " in this page";
  $("found").textContent = matching.length === sentences.length ? `All ${plural(sentences.length, "sentence")}${all}` : `${number(matching.length)} of ${plural(sentences.length, "sentence")}${all}`;
  if (!matching.length) list.append(el("p", { class: "nothing" }, "No sentence is like this. Remove a filter, or move the threshold."));
  $("chips").replaceChildren(...chips());
}

function chips() {
  const made = [];
  const chip = (text, clear) => made.push(button(bdi(text), () => { clear(); changed("filter"); }, { class: "chip", title: "Remove this filter" }));
  if (state.only !== null) chip(`line ${number(sentences[state.only].line)}`, () => (state.only = null));
  for (const [grouping, place] of state.groups) {
    const { name, groups } = data.groupings[grouping];
    chip(`${name}: ${place < 0 ? "others" : groups[place][0]}`, () => state.groups.delete(grouping));
  }
  if (state.search) chip(`“${state.search}”`, () => { state.search = ""; $("search").value = ""; });
  for (const name of ["why", "touched", "labelled"]) {
    const select = $(name);
    if (state[name] !== "") chip(select.selectedOptions[0].textContent, () => { state[name] = ""; select.value = ""; });
  }
  return made;
}

// Found text is marked without touching the nodes, where the browser can do that.
function highlight() {
  if (!globalThis.Highlight) return;
  CSS.highlights.delete("found");
  if (!state.search) return;
  const ranges = [];
  for (const text of list.querySelectorAll(".text, .context")) {
    const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
    const nodes = [];
    let whole_ = "";
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      nodes.push([whole_.length, node]);
      whole_ += node.data.toLowerCase();
    }
    const end = (at) => {
      const [from, node] = nodes.findLast(([start]) => start <= at) ?? nodes[0];
      return [node, Math.min(at - from, node.data.length)];
    };
    for (let at = whole_.indexOf(state.search); at >= 0 && ranges.length < 500; at = whole_.indexOf(state.search, at + 1)) {
      const range = new Range();
      range.setStart(...end(at));
      range.setEnd(...end(at + state.search.length));
      ranges.push(range);
    }
  }
  CSS.highlights.set("found", new Highlight(...ranges));
}

function show(sentence) {
  state.only = sentence.index;
  refresh();
  list.firstElementChild.focus({ preventScroll: true });
  $("sentences").scrollIntoView();
}

function step(by) {
  const now = document.activeElement.closest?.(".card");
  let next = now ? (by > 0 ? now.nextElementSibling : now.previousElementSibling) : list.firstElementChild;
  if (now && !next && by > 0 && !$("more").hidden) {
    extend();
    next = now.nextElementSibling;
  }
  if (!next) return;
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

// One stop of the tab key for a sentence; the arrows go from token to token.
function stepToken(event) {
  const here = event.target.closest?.(".card");
  if (!here) return;
  const { tokens } = cards.get(sentences[here.dataset.s]) ?? { tokens: [] };
  const now = tokens.indexOf(event.target);
  const forward = getComputedStyle(here.querySelector(".text")).direction === "rtl" ? -1 : 1;
  const next = tokens[now < 0 ? 0 : now + (event.key === "ArrowRight" ? forward : -forward)];
  if (!next) return;
  event.preventDefault();
  for (const token of tokens) token.tabIndex = token === next ? 0 : -1;
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

function choose(select, options) {
  $(select).append(...options.map(([value, name]) => el("option", { value }, name)));
  $(select).addEventListener("change", () => {
    state[select] = $(select).value;
    changed("filter");
  });
}

function startList() {
  choose("sort", Object.entries(sorts).map(([name, [title]]) => [name, title]));
  const used = data.reasons.map((name, bit) => [bit, name]).filter(([bit]) => sentences.some((s) => s.why & (1 << bit)));
  choose("why", [["", "for any reason"], ...used]);
  choose("touched", []);
  choose("labelled", []);
  const labelled = sentences.some((s) => s.labels.length);
  $("labelled-field").hidden = !labelled;
  $("legend-label").hidden = !labelled;
  $("search").addEventListener("input", () => {
    state.search = $("search").value.toLowerCase().replace(/\s+/g, " ").trim();
    changed("filter");
  });
  $("more").addEventListener("click", () => {
    const next = cards.size;
    extend();
    list.children[next]?.focus({ preventScroll: true });
  });
  list.addEventListener("keydown", (event) => {
    if ((event.key === "ArrowRight" || event.key === "ArrowLeft") && !event.altKey && !event.metaKey) stepToken(event);
  });
  watchers.level.push(() => recolour(), settleList);
  watchers.filter.push(refresh);
  refresh();
}
