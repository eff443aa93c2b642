// Histograms that can be grabbed: a click or a drag sets the threshold.
const CHART_HEIGHT = 230;
const SIDE = { left: 40, right: 14, top: 26, bottom: 30 };
const BARS = 80;
let patterns = 0;
const STEEP = 40; // times the bar in the middle: then a log scale shows more

function niceStep(span, most) {
  const power = 10 ** Math.floor(Math.log10(span / most));
  return [1, 2, 5, 10].map((k) => k * power).find((step) => span / step <= most);
}

// Bins as bars: `merge` of them are one. What is above no threshold goes with the first.
function barsOf(measure) {
  const sums = columns(measure.counts);
  let last = sums.length - 1;
  while (last > 1 && !sums[last]) last--;
  if (measure === measures.norm) last = Math.max(last, measure.most);
  const merge = [1, 2, 4, 5, 10, 20].find((size) => last / size <= BARS);
  const bars = Array.from({ length: Math.ceil(last / merge) }, () => [0, 0, 0]);
  measure.counts.forEach((counts, kind) => {
    for (let k = 0; k <= last; k++) bars[Math.floor(Math.max(k - 1, 0) / merge)][kind] += counts[k];
  });
  return { bars, merge, last: bars.length * merge };
}

class Chart {
  constructor(svg, by) {
    this.svg = svg;
    this.by = by;
    this.measure = measures[by];
    Object.assign(this, barsOf(this.measure));
    // The range ends where error norms end, not in the middle of a bar.
    if (by === "norm") this.last = this.measure.most;
    this.highest = Math.max(1, ...this.bars.map(total));
    this.hatch = `hatch-${patterns++}`;
    const sorted = this.bars.map(total).filter(Boolean).sort((a, b) => a - b);
    this.toggle = $(`${by}-log`);
    this.scale(sorted.length > 4 && this.highest > STEEP * sorted[sorted.length >> 1]);
    this.toggle.addEventListener("click", () => {
      this.scale(!this.logarithmic);
      this.paint();
    });
    svg.addEventListener("pointerdown", (event) => this.grab(event));
    svg.addEventListener("pointermove", (event) => {
      if (svg.hasPointerCapture(event.pointerId)) this.move(event);
    });
    new ResizeObserver(() => this.paint()).observe(svg);
  }

  scale(logarithmic) {
    this.logarithmic = logarithmic;
    this.toggle.setAttribute("aria-pressed", logarithmic);
  }

  grab(event) {
    if (event.button) return;
    event.preventDefault();
    this.svg.setPointerCapture(event.pointerId);
    this.move(event);
  }

  move(event) {
    const box = this.svg.getBoundingClientRect();
    const share = (event.clientX - box.left - SIDE.left) / (box.width - SIDE.left - SIDE.right);
    setLevel(Math.max(0, Math.min(1, share)) * this.last, this.by);
  }

  x(level) {
    return SIDE.left + (level / this.last) * (this.width - SIDE.left - SIDE.right);
  }

  y(count) {
    const share = this.logarithmic ? Math.log1p(count) / Math.log1p(this.highest) : count / this.highest;
    return CHART_HEIGHT - SIDE.bottom - share * (CHART_HEIGHT - SIDE.top - SIDE.bottom);
  }

  paint() {
    const width = this.svg.clientWidth;
    if (!width) return;
    this.width = width;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${CHART_HEIGHT}`);
    this.svg.replaceChildren(
      draw("defs", {}, draw("pattern", { id: this.hatch, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        draw("rect", { width: 2.2, height: 5, class: "hatch" }))),
      ...this.grid(), ...this.shapes(), ...this.ticks());
    this.shade = draw("rect", { class: "shade", y: SIDE.top - 4, height: CHART_HEIGHT - SIDE.top - SIDE.bottom + 4, fill: `url(#${this.hatch})` });
    this.line = draw("line", { class: "cut", y1: SIDE.top - 8, y2: CHART_HEIGHT - SIDE.bottom });
    this.knob = draw("circle", { class: "knob", cy: CHART_HEIGHT - SIDE.bottom, r: 6 });
    this.flag = draw("text", { class: "flag", y: SIDE.top - 13 });
    this.svg.append(this.shade, this.line, this.knob, this.flag);
    this.mark();
  }

  grid() {
    const marks = [];
    if (this.logarithmic) for (let value = 1; value <= this.highest; value *= 10) marks.push(value);
    else for (let step = niceStep(this.highest, 4), value = step; value <= this.highest; value += step) marks.push(value);
    const sparse = marks.length > 5 ? marks.filter((_, k) => k % 2 === 0) : marks;
    return sparse.flatMap((value) => [
      draw("line", { class: "grid", x1: SIDE.left, x2: this.width - SIDE.right, y1: this.y(value), y2: this.y(value) }),
      draw("text", { class: "tick", x: SIDE.left - 6, y: this.y(value) + 3.5, "text-anchor": "end" }, short.format(value)),
    ]);
  }

  // On a log scale a bar is divided by its share, for heights do not add up there.
  shapes() {
    const paths = ["", "", ""];
    const base = CHART_HEIGHT - SIDE.bottom;
    this.bars.forEach((parts, k) => {
      const [left, right] = [this.x(k * this.merge), this.x(Math.min((k + 1) * this.merge, this.last))];
      const gap = right - left > 4 ? 0.6 : 0.2;
      const sum = total(parts);
      let from = base;
      parts.forEach((count, kind) => {
        if (!count) return;
        const to = from - Math.max((count / sum) * (base - this.y(sum)), 0.7);
        paths[kind] += `M${(left + gap).toFixed(1)} ${from.toFixed(1)}V${to.toFixed(1)}H${(right - gap).toFixed(1)}V${from.toFixed(1)}z`;
        from = to;
      });
    });
    return paths.map((path, kind) => draw("path", { class: `bar b${kind}`, d: path }));
  }

  ticks() {
    const base = CHART_HEIGHT - SIDE.bottom;
    const last = (this.last * STEP) / this.measure.unit;
    const step = this.by === "norm" ? (this.width < 340 ? 0.4 : 0.2) : niceStep(last, this.width < 340 ? 5 : 10);
    const made = [draw("line", { class: "axis", x1: SIDE.left, x2: this.width - SIDE.right, y1: base, y2: base })];
    for (let value = 0; value <= last * 1.0001; value += step) {
      const x = this.x((value * this.measure.unit) / STEP);
      made.push(draw("text", { class: "tick", x, y: base + 20, "text-anchor": "middle" }, value.toFixed(step < 1 ? 1 : 0)));
    }
    return made;
  }

  mark() {
    if (!this.line) return;
    const active = state.by === this.by;
    const x = this.x(Math.min(state.levels[this.by], this.last));
    const count = this.measure.above[state.levels[this.by]];
    this.shade.setAttribute("x", x);
    this.shade.setAttribute("width", Math.max(0, this.width - SIDE.right - x + 1));
    this.shade.toggleAttribute("hidden", !active);
    for (const part of [this.line, this.knob, this.flag]) part.classList.toggle("off", !active);
    this.line.setAttribute("x1", x);
    this.line.setAttribute("x2", x);
    this.knob.setAttribute("cx", x);
    const end = x > this.width - 130;
    this.flag.setAttribute("x", x + (end ? 4 : -4));
    this.flag.setAttribute("text-anchor", end ? "end" : "start");
    this.flag.textContent = active ? `${percent(count, data.counts.tokens)} dropped` : "";
    const at = fixed(state.levels[this.by] * STEP, this.measure.unit, this.measure.digits);
    this.svg.setAttribute("aria-label", `Histogram of the ${this.measure.name} of ${number(data.counts.tokens)} tokens. ${percent(count, data.counts.tokens)} are above ${at}.`);
  }
}

// Which value a share of the tokens is not above; as exact as a step.
function quantile(measure, share) {
  return (levelFor(measure, 1 - share) * STEP) / measure.unit;
}

function startCharts() {
  const charts = [new Chart($("norm-chart"), "norm"), new Chart($("loss-chart"), "loss")];
  for (const [by, digits] of [["norm", 2], ["loss", 1]]) {
    const of = measures[by];
    const marks = [["mean", of.mean], ["median", quantile(of, 0.5)], ["90 %", quantile(of, 0.9)], ["99 %", quantile(of, 0.99)]];
    $(`${by}-stats`).textContent = marks.map(([name, value]) => `${name} ${value.toFixed(digits)}`).join(" · ");
  }
  watchers.level.push(() => charts.forEach((chart) => chart.mark()));
}
