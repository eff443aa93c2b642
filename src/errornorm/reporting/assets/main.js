// The bar with the slider, the texts around, and the keys.
const slider = $("slider");
let speak = 0;

function paintBar() {
  const now = measure();
  const level = state.levels[state.by];
  const { tokens, used } = data.counts;
  slider.max = now.most;
  slider.value = level;
  slider.style.setProperty("--at", `${(100 * level) / now.most}%`);
  const at = fixed(cut(), now.unit, now.digits);
  $("level").textContent = at;
  slider.setAttribute("aria-label", `Threshold of the ${now.name}`);
  slider.setAttribute("aria-valuetext", `${at}: ${percent(now.above[level], tokens)} of tokens dropped, ${percent(now.rows[level], used)} of sentences touched`);
  $("share-tokens").textContent = percent(now.above[level], tokens);
  $("share-tokens").title = `${number(now.above[level])} of ${number(tokens)}`;
  $("share-rows").textContent = percent(now.rows[level], used);
  $("share-rows").title = `${number(now.rows[level])} of ${number(used)}`;
  document.querySelector(`input[name="by"][value="${state.by}"]`).checked = true;
  for (const preset of $("presets").children) preset.setAttribute("aria-pressed", preset.level() === level);
  const lead = [el("b", {}, percent(now.above[level], tokens)), ` of ${number(tokens)} tokens have ${state.by === "norm" ? "an error norm" : "a loss"} above `, el("b", {}, String(Number(at))),
    `. They stand in `, el("b", {}, percent(now.rows[level], used)), ` of the sentences.`];
  $("lead").replaceChildren(...(tokens ? lead : ["No token was scored."]));
  clearTimeout(speak);
  speak = setTimeout(() => ($("said").textContent = slider.getAttribute("aria-valuetext")), 400);
}

function startBar() {
  const presets = [
    ["1.0", () => (state.by === "norm" ? YELLOW / STEP : 20)], ["1.3", () => (state.by === "norm" ? RED / STEP : 26)],
    ...[0.01, 0.05, 0.1].map((share) => [`${100 * share} %`, () => levelFor(measure(), share)]),
  ];
  for (const [name, level] of presets) {
    const made = button(name, () => setLevel(level()), { title: name.includes("%") ? `Drop at most ${name} of the tokens` : `A threshold of ${name}` });
    made.level = level;
    $("presets").append(made);
  }
  slider.min = 0;
  slider.step = 1;
  slider.addEventListener("input", () => setLevel(slider.value));
  for (const radio of document.querySelectorAll('input[name="by"]')) {
    radio.addEventListener("change", () => {
      setLevel(state.levels[radio.value], radio.value);
      changed("filter");
    });
  }
  watchers.level.push(paintBar);
  paintBar();
}

function pairs(id, rows) {
  $(id).append(...rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, bdi(value)))));
}

function startTexts() {
  const { records, used, quarantined, tokens, undefined: odd } = data.counts;
  document.title = `${data.title} · errornorm report`;
  $("title").textContent = data.title;
  $("counts").textContent = `${plural(records, "record")} = ${number(used)} used + ${number(quarantined)} quarantined${odd ? ` · ${plural(odd, "token")} without a number` : ""}`;
  const facts = new Map(data.facts);
  const brief = [["Model", facts.get("Model")], ["Class", facts.get("Class")], ["Corpus", facts.get("Corpus")], ["Data hash", facts.get("Data hash")?.slice(0, 16)]];
  pairs("facts", brief.filter(([, value]) => value));
  pairs("settings", data.facts);
  $("command").textContent = data.command || "a table in memory";
  $("sample").textContent = sentences.length === used
    ? `All ${plural(used, "sentence")} of the corpus.`
    : `${number(sentences.length)} of ${number(used)} are in this page: the worst by error norm and by loss, some at every level of the threshold, some of every group, and some at random. The numbers above are of all ${number(tokens)} tokens.`;
}

function startQuarantine() {
  const { reasons, kinds, lines } = data.quarantine;
  const count = data.counts.quarantined;
  $("quarantine-link").hidden = !count;
  $("quarantine").hidden = !count;
  if (!count) return;
  $("quarantine-said").textContent = `${plural(count, "line")} could not be used${lines.length < count ? `; ${number(lines.length)} of them are here` : ""}.`;
  $("kinds").append(...reasons.map(([reason, number_]) => el("span", {}, bdi(reason), el("b", {}, number(number_)))), kinds > reasons.length ? el("span", {}, `and ${number(kinds - reasons.length)} other reasons`) : "");
  $("lines").tBodies[0].append(...lines.map(([where, reason, text]) =>
    el("tr", {}, el("td", {}, bdi(where)), el("td", {}, bdi(reason)), el("td", {}, el("code", {}, bdi(text || "–"))))));
}

function startTheme() {
  const root = document.documentElement;
  const set = (theme) => (root.dataset.theme = theme);
  const isDark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  try {
    const kept = localStorage.getItem("errornorm-theme");
    if (kept === "dark" || kept === "light") set(kept);
  } catch { /* a page from a file may have no storage */ }
  $("theme").addEventListener("click", () => {
    set(isDark() ? "light" : "dark");
    try {
      localStorage.setItem("errornorm-theme", root.dataset.theme);
    } catch { /* as above */ }
  });
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches?.("input[type=search], select");
  if (event.key === "Escape") {
    hideTip();
    if (event.target === $("search")) {
      $("search").blur();
      if (state.search) {
        state.search = $("search").value = "";
        changed("filter");
      }
    }
    return;
  }
  if (typing || $("help").open) return;
  const acts = {
    j: () => step(1), k: () => step(-1), "/": () => $("search").focus(), "?": () => $("help").showModal(), t: () => $("theme").click(),
    "[": () => setLevel(state.levels[state.by] - 5), "]": () => setLevel(state.levels[state.by] + 5),
  };
  const act = acts[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

startTheme();
startTexts();
startBar();
startList();
startCharts();
startGroups();
startEdge();
startTip();
startQuarantine();
$("help-close").addEventListener("click", () => $("help").close());
$("help-open").addEventListener("click", () => $("help").showModal());
document.addEventListener("keydown", onKey);
document.documentElement.dataset.ready = "yes";
