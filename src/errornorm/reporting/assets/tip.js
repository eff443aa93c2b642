// What is known about a token, beside it; on a narrow screen, at the bottom.
const tip = $("tip");
let tipped = null; // the token it is about

function tokenOf(node) {
  const token = node instanceof Element ? node.closest(".tok[data-s]") : null;
  return token && { node: token, sentence: sentences[token.dataset.s], place: Number(token.dataset.t) };
}

function nameOf(sentence, place) {
  const piece = sentence.pieces[place];
  if (piece.trim()) return piece.trim();
  if (piece) return "white space";
  return sentence.begin + place === sentence.total - 1 ? "end of the text" : "part of a character";
}

function line(name, value, kind) {
  return el("div", { class: kind }, el("dt", {}, name), el("dd", {}, value));
}

function choice(name, p, own) {
  const bar = el("i");
  bar.style.setProperty("--w", `${Math.max(100 * Math.min(p, 1), 0.5)}%`);
  return el("li", { class: own && "own" }, bdi(name || "␣"), bar, el("span", {}, chance(p)));
}

// The model's best entries, and where among them the token itself is.
function choices({ sentence, place }, p) {
  const found = sentence.alternatives.find((entry) => entry[0] === place);
  if (!found) return [el("p", { class: "quiet" }, `What the model would have said is kept above an error norm of ${data.cutoff}.`)];
  const [, rank, texts, shares] = found;
  const items = texts.map((text, k) => choice(text.trim(), shares[k] / SHARE_UNIT, k + 1 === rank));
  if (rank > texts.length) items.push(choice(nameOf(sentence, place), p, true));
  return [el("p", { class: "quiet" }, "What the model would have said"), el("ol", {}, ...items)];
}

function showTip(token) {
  if (tipped && tipped.node === token.node) return;
  hideTip();
  const { node, sentence, place } = token;
  const norm = sentence.norms[place];
  const nll = sentence.nlls[place];
  const p = Math.exp(-nll / measures.loss.unit);
  const gone = sentence[measure().values][place] > cut();
  const kind = ["", "y", "r"][classOf(norm)];
  const rank = sentence.alternatives.find((entry) => entry[0] === place)?.[1];
  tip.replaceChildren(
    el("p", { class: "head" }, bdi(nameOf(sentence, place)), el("span", { class: `state ${gone ? "gone" : ""}` }, gone ? "dropped" : "kept")),
    el("dl", {},
      line("p", nll < 0 ? "–" : chance(p)), line("error norm", fixed(norm, measures.norm.unit, 3), kind), line("loss", fixed(nll, measures.loss.unit, 2)),
      line("entropy", (sentence.entropies[place] / 100).toFixed(2)), rank ? line("rank", number(rank)) : null),
    ...choices(token, p));
  tipped = token;
  tip.hidden = false;
  node.classList.add("current");
  node.setAttribute("aria-describedby", "tip");
  placeTip(node, true);
}

function placeTip(node, fresh = false) {
  if (matchMedia("(max-width: 40rem)").matches) {
    tip.style.removeProperty("left");
    tip.style.removeProperty("top");
    const hidden = node.getBoundingClientRect().bottom + 16 - (innerHeight - tip.offsetHeight);
    if (fresh && hidden > 0) scrollBy({ top: hidden });
    return;
  }
  const box = node.getClientRects()[0] ?? node.getBoundingClientRect();
  const room = 8;
  const left = Math.max(room, Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - room));
  const below = box.bottom + room;
  const fits = below + tip.offsetHeight < innerHeight - room;
  tip.style.setProperty("left", `${left}px`);
  tip.style.setProperty("top", `${fits ? below : Math.max(room, box.top - tip.offsetHeight - room)}px`);
}

function hideTip() {
  if (!tipped) return;
  tipped.node.classList.remove("current");
  tipped.node.removeAttribute("aria-describedby");
  tipped = null;
  tip.hidden = true;
}

function startTip() {
  // A mouse shows it while it is there; a tap or the focus, until something else is touched.
  document.addEventListener("pointerover", (event) => {
    if (event.pointerType !== "mouse") return;
    const token = tokenOf(event.target);
    if (token) showTip(token);
    else if (!tipped || document.activeElement !== tipped.node) hideTip();
  });
  document.addEventListener("click", (event) => {
    const token = tokenOf(event.target);
    if (token) showTip(token);
    else hideTip();
  });
  document.addEventListener("focusin", (event) => {
    const token = tokenOf(event.target);
    if (token) showTip(token);
    else hideTip();
  });
  document.addEventListener("scroll", () => tipped && placeTip(tipped.node), { passive: true });
  watchers.level.push(hideTip);
}
