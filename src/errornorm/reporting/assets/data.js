// The data of the page. Error norms are whole numbers of 1/10,000, losses of 1/1,000: fifty are one step of the slider.
const data = JSON.parse(document.getElementById("data").textContent);
const STEP = 50;
const YELLOW = 10000;
const RED = 13000;
const SHARE_UNIT = 10000;
const KINDS = 3;

function total(counts) {
  return counts.reduce((sum, count) => sum + count, 0);
}

// How many values are above each threshold, from how many are above exactly 0, 1, 2, ... of them.
function above(counts) {
  const found = new Array(counts.length).fill(0);
  for (let k = counts.length - 2; k >= 0; k--) found[k] = found[k + 1] + counts[k + 1];
  return found;
}

function columns(tables) {
  return tables[0].map((_, k) => tables.reduce((sum, table) => sum + table[k], 0));
}

// By class, as the loss is: of the error norm, a bin has one class.
function byClass(counts) {
  return Array.from({ length: KINDS }, (_, kind) => counts.map((count, k) => (classOf(k * STEP) === kind ? count : 0)));
}

// Thresholds are half open: 1.0 itself is not above 1.0.
function classOf(norm) {
  return norm > RED ? 2 : norm > YELLOW ? 1 : 0;
}

const measures = {
  norm: {
    name: "error norm", unit: 10000, digits: 3, most: data.norm.length - 2, counts: byClass(data.norm), values: "norms",
    above: above(data.norm), rows: above(data.rows_by_norm), mean: data.means[0], max: "max", average: "mean",
  },
  loss: {
    name: "loss", unit: 1000, digits: 2, most: data.loss[0].length - 2, counts: data.loss, values: "nlls",
    above: above(columns(data.loss)), rows: above(data.rows_by_loss), mean: data.means[1],
  },
};

const sentences = data.sentences.map((s, index) => ({
  index, record: s[0], line: s[1], context: s[2], pieces: s[3], norms: s[4], nlls: s[5], entropies: s[6], alternatives: s[7],
  why: s[8], groups: s[9], total: s[10], begin: s[11], rest: s[12], max: s[13], mean: s[14], loss: s[15], labels: s[16],
}));

// The first threshold that drops no more than this share.
function levelFor(measure, share) {
  const level = measure.above.findIndex((count) => count <= share * data.counts.tokens);
  return level < 0 ? measure.most : Math.min(level, measure.most);
}

const state = {
  by: "norm",
  levels: { norm: RED / STEP, loss: 0 },
  search: "", sort: "max", why: "", touched: "", labelled: "", groups: new Map(), only: null,
};
state.levels.loss = levelFor(measures.loss, measures.norm.above[state.levels.norm] / Math.max(data.counts.tokens, 1));

function measure() {
  return measures[state.by];
}

// In the units of the values: what is above it is dropped.
function cut() {
  return state.levels[state.by] * STEP;
}

function dropped(sentence, cutAt = cut(), values = measure().values) {
  let count = 0;
  for (const value of sentence[values]) count += value > cutAt;
  return count;
}

const watchers = { level: [], filter: [] };
const waiting = new Set();

// Once for each picture on the screen, however often it is asked for.
function changed(what) {
  if (waiting.size === 0) {
    requestAnimationFrame(() => {
      const now = [...waiting];
      waiting.clear();
      for (const name of now) for (const watcher of watchers[name]) watcher();
    });
  }
  waiting.add(what);
}

function setLevel(level, by = state.by) {
  state.by = by;
  state.levels[by] = Math.max(0, Math.min(measures[by].most, Math.round(level)));
  changed("level");
}
