// A sentence as a card, with its tokens in their colours.
const cards = new Map(); // of the sentences that are on the screen: the tokens' nodes

// What is not of the corpus has a direction of its own, so that it does not decide that of the text.
function tokenNode(sentence, place) {
  const text = nameless(sentence, place);
  return el("span", {
    class: `tok ${["", "y", "r"][classOf(sentence.norms[place])]} ${text ? "bare" : ""}`, "data-s": sentence.index, "data-t": place, tabindex: -1, dir: text ? "ltr" : null,
  }, text || sentence.pieces[place].trimStart());
}

// Tokens without characters of their own: the end, or the rest of a character that the token before has begun.
function nameless(sentence, place) {
  if (sentence.pieces[place].trim()) return "";
  return !sentence.pieces[place] && sentence.begin + place === sentence.total - 1 ? "end" : "·";
}

function words(sentence) {
  const labels = new Set(sentence.labels);
  const nodes = [];
  const tokens = [];
  sentence.pieces.forEach((piece, place) => {
    const space = piece.slice(0, piece.length - piece.trimStart().length);
    if (space) nodes.push(space);
    const token = tokenNode(sentence, place);
    token.classList.toggle("l", labels.has(place));
    tokens.push(token);
    nodes.push(token);
  });
  return { nodes, tokens };
}

function outside(count, where) {
  return count > 0 ? el("bdi", { class: "cutoff" }, where ? `… ${plural(count, "token")} before  ` : `  ${plural(count, "token")} more …`) : null;
}

function card(sentence, place) {
  const { nodes, tokens } = words(sentence);
  if (tokens.length) tokens[0].tabIndex = 0;
  const after = sentence.total - sentence.begin - tokens.length;
  const empty = !tokens.length && !sentence.rest;
  const made = el("article", { class: "card", tabindex: -1, "data-s": sentence.index, "aria-label": `Line ${number(sentence.line)}`, "aria-posinset": place, "aria-setsize": matching.length },
    el("header", {},
      el("span", { class: "where" }, `line ${number(sentence.line)}`),
      ...groupNames(sentence),
      el("span", { class: "scores" },
        score("max", fixed(sentence.max, measures.norm.unit, 2), ["", "y", "r"][classOf(sentence.max)]),
        score("mean", fixed(sentence.mean, measures.norm.unit, 2)), score("loss", fixed(sentence.loss, measures.loss.unit, 2)),
        score("dropped", "", "count"))),
    sentence.context ? el("p", { class: "context", dir: "auto" }, el("span", { class: "role" }, data.context), sentence.context) : null,
    el("p", { class: "text", dir: "auto" }, outside(sentence.begin, true), ...nodes, outside(after, false),
      sentence.rest.trim() ? el("span", { class: "rest", title: "Not scored" }, sentence.rest) : null, empty ? el("em", { class: "quiet" }, "empty") : null));
  cards.set(sentence, { tokens, count: made.querySelector(".count b") });
  return made;
}

function score(name, value, kind = "") {
  return el("span", { class: `score ${kind}` }, `${name} `, el("b", {}, value));
}

// Values of the fields, not of the length; a 0 alone says nothing.
function groupNames(sentence) {
  return sentence.groups.slice(0, -1).flatMap((place, k) => {
    if (place < 0) return [];
    const { name, groups } = data.groupings[k];
    const value = groups[place][0];
    return [el("bdi", { class: "group", title: `${name}: ${value}` }, value.length > 3 ? value : `${name} ${value}`)];
  });
}

// The third mark: what the slider drops.
function recolour(some = cards.keys()) {
  const cutAt = cut();
  const values = measure().values;
  for (const sentence of some) {
    const { tokens, count } = cards.get(sentence);
    let gone = 0;
    const numbers = sentence[values];
    tokens.forEach((token, place) => {
      const drop = numbers[place] > cutAt;
      gone += drop;
      token.classList.toggle("x", drop);
    });
    count.textContent = gone ? `${gone} of ${tokens.length}` : "none";
  }
}
