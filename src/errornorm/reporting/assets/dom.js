// Building the page. Text from the corpus comes in as text nodes, and in no other way.
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("aria-")) node.setAttribute(name, String(value));
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const bdi = (text, kind) => el("bdi", { class: kind }, text);

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

function number(value) {
  return whole.format(value);
}

function plural(count, name) {
  return `${number(count)} ${name}${count === 1 ? "" : "s"}`;
}

// With as many digits as say something: 43 %, 4.3 %, 0.43 %, and never 0 % or 100 % for what is neither.
function percent(part, whole_) {
  if (!whole_) return "0 %";
  const share = (100 * part) / whole_;
  if (part && share < 0.01) return "< 0.01 %";
  if (part < whole_ && share >= 99.95) return "> 99.9 %";
  const digits = share === 0 || share === 100 ? 0 : share < 1 ? 2 : share < 99.95 ? 1 : 0;
  return `${share.toFixed(digits)} %`;
}

function fixed(value, unit, digits) {
  return value < 0 ? "–" : (value / unit).toFixed(digits);
}

// A probability in words of two digits.
function chance(p) {
  if (p >= 0.9995) return "> 99.9 %";
  if (p >= 0.01) return `${(100 * p).toFixed(p >= 0.0995 && p < 0.985 ? 0 : 1)} %`;
  if (p >= 0.00005) return `${(100 * p).toPrecision(1)} %`;
  return "< 0.01 %";
}

function button(text, act, attributes = {}) {
  const made = el("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", act);
  return made;
}
