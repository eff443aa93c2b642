"use strict";
for (const bar of document.querySelectorAll("[data-filter]")) {
  const cards = [...document.querySelectorAll("#outputs .card")];
  const said = bar.querySelector("output");
  bar.hidden = false;
  bar.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const wanted = button.value;
    for (const other of bar.querySelectorAll("button")) other.setAttribute("aria-pressed", other === button);
    for (const card of cards) card.hidden = wanted !== "all" && !card.dataset.verdicts.split(" ").includes(wanted);
    said.textContent = `${cards.filter((card) => !card.hidden).length} of ${cards.length} shown`;
  });
}
// One stop of the tab key for a sentence; the arrows go from word to word.
for (const list of document.querySelectorAll(".tokens")) {
  const tokens = [...list.children];
  tokens.forEach((token, index) => (token.tabIndex = index ? -1 : 0));
  const forward = getComputedStyle(list).direction === "rtl" ? -1 : 1;
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: forward, ArrowLeft: -forward }[event.key];
    const next = tokens[tokens.indexOf(document.activeElement) + step];
    if (!next) return;
    event.preventDefault();
    tokens.forEach((token) => (token.tabIndex = token === next ? 0 : -1));
    next.focus();
  });
}
