// Examples on both sides of the threshold, from the sentences of this page.
const EXAMPLES = 4;
const AROUND = 60; // characters on each side

function closest(keep) {
  const at = cut();
  const values = measure().values;
  const best = [];
  for (const sentence of sentences) {
    let place = -1;
    let distance = Infinity;
    sentence[values].forEach((value, k) => {
      if (value < 0 || value > at === keep || Math.abs(value - at) >= distance) return;
      distance = Math.abs(value - at);
      place = k;
    });
    if (place < 0 || (best.length === EXAMPLES && distance >= best.at(-1).distance)) continue;
    best.push({ sentence, place, distance });
    best.sort((a, b) => a.distance - b.distance || a.sentence.index - b.sentence.index);
    best.length = Math.min(best.length, EXAMPLES);
  }
  return best;
}

function snippet({ sentence, place }) {
  const whole_ = sentence.pieces;
  const [before, after] = [whole_.slice(0, place), whole_.slice(place + 1)].map((pieces) => [...pieces.join("")]);
  const space = whole_[place].slice(0, whole_[place].length - whole_[place].trimStart().length);
  const left = before.length > AROUND ? `…${before.slice(-AROUND).join("").replace(/^\S{0,12}\s/, "")}` : before.join("");
  const right = after.length > AROUND ? `${after.slice(0, AROUND).join("").replace(/\s\S{0,12}$/, "")}…` : after.join("");
  const token = tokenNode(sentence, place);
  token.tabIndex = 0;
  token.classList.toggle("x", sentence[measure().values][place] > cut());
  const { unit, digits } = measure();
  return el("li", {},
    el("span", { class: "value" }, fixed(sentence[measure().values][place], unit, digits + 1)),
    el("p", { class: "text", dir: "auto" }, left, space, token, right),
    button("see", () => show(sentence), { class: "plain", "aria-label": `See line ${number(sentence.line)}` }));
}

function paintEdge() {
  for (const [id, keep] of [["edge-kept", true], ["edge-dropped", false]]) {
    const found = closest(keep);
    const none = el("li", { class: "nothing" }, `No token in this page is ${keep ? "kept" : "dropped"}.`);
    $(id).replaceChildren(...(found.length ? found.map(snippet) : [none]));
  }
}

// The same threshold in the words of the other verbs.
function paintNext() {
  const at = Number(fixed(cut(), measure().unit, measure().digits));
  const score = state.by === "norm" ? "error_norm" : "nll";
  const steps = [
    ["Give these tokens a weight of 0", `errornorm prune scores --unit token --by ${score} --threshold ${at} -o weighted.jsonl`],
    ["Drop the sentences with such a token", `errornorm prune scores --by ${score}_max --threshold ${at} ${data.kept}`],
  ];
  if (state.by === "norm") steps.push(["Leave such tokens out in training", `errornorm train run.yaml --set objective="ent_threshold(${at})"`]);
  $("next").replaceChildren(...steps.flatMap(([name, code]) => [el("dt", {}, name), el("dd", {}, el("code", {}, code))]));
}

function startEdge() {
  watchers.level.push(paintEdge, paintNext);
  paintEdge();
  paintNext();
}
