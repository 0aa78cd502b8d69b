// Attention between the words of a sentence and those of its translation (Gehring et al. 2017, figure 3):
// a grid with a row for each word of the answer. A cell's colour shows the attention of the row's word to the column's, relative to the greatest of the sentence.

import { language, tr } from "./tr.js";
import { merged, piecesOf, wordsOf } from "./words.js";

const MAX_CELLS = 6000; // cells of the largest grid that is drawn
const STEPS = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  Home: [0, -Infinity],
  End: [0, Infinity],
  PageUp: [-Infinity, 0],
  PageDown: [Infinity, 0],
};
const $ = (id) => document.getElementById(id);

export class HeatMap {
  // lit: called with the sentence and the weights of the row under the pointer, or null
  constructor(lit) {
    this.lit = lit;
    this.sentences = [];
    $("sentence").addEventListener("change", () => this.#draw());
    $("pieces").addEventListener("change", () => this.#draw());
    const map = $("map");
    map.addEventListener("keydown", (event) => this.#move(event));
    map.addEventListener("focusin", (event) => this.#point(event.target));
    map.addEventListener("pointerover", (event) => this.#point(event.target));
    map.addEventListener("pointerleave", () => this.#leave());
    map.addEventListener("focusout", () => this.#leave());
  }

  // sentences: `alignment` of the answer; via: the text between two models, or ""
  show(sentences, via, summary) {
    this.sentences = sentences;
    $("attention").hidden = !sentences.length;
    if (!sentences.length) return;
    const rows = summary ? tr("Each row is a word of the summary.") : tr("Each row is a word of the translation.");
    const colours = tr("The stronger a cell’s colour, the more attention the model paid to that word of the text.");
    const between = via ? tr("The text was first translated into “{via}”, which the second model read.", { via }) : "";
    $("attention-note").textContent = `${rows} ${colours} ${between}`.trim();
    const starts = sentences.map(({ source }, i) => new Option(`${i + 1}. ${beginning(source)}`, i));
    $("sentence").replaceChildren(...starts);
    $("sentence-choice").hidden = sentences.length < 2;
    this.#draw();
  }

  #draw() {
    const { source, target, matrix } = this.sentences[Number($("sentence").value) || 0];
    const split = $("pieces").checked ? piecesOf : wordsOf;
    [this.columns, this.rows] = [split(source), split(target)];
    $("readout").textContent = "";
    if (this.columns.length * this.rows.length > MAX_CELLS) {
      $("map").replaceChildren(tr("This sentence is too long to draw. Point at the words of the answer instead."));
      return;
    }
    this.weights = merged(matrix, this.rows, this.columns);
    this.most = Math.max(...this.weights.flat()) || 1;
    $("most").textContent = percent(this.most);
    $("map").replaceChildren(this.#table());
    this.#hint();
  }

  #table() {
    const table = make("table", { role: "grid", ariaLabel: tr("Attention, words of the answer by words of the text") });
    const corner = make("td");
    const heads = this.columns.map((word) => header(word, "col"));
    table.createTHead().insertRow().append(corner, ...heads);
    const body = table.createTBody();
    this.cells = this.weights.map((weights, r) => {
      const cells = weights.map((weight, c) => this.#cell(weight, r, c));
      body.insertRow().append(header(this.rows[r], "row"), ...cells);
      return cells;
    });
    if (this.cells[0]?.[0]) this.cells[0][0].tabIndex = 0;
    return table;
  }

  #cell(weight, r, c) {
    const cell = make("td", { tabIndex: -1, className: "cell" });
    cell.style.setProperty("--w", (weight / this.most).toFixed(4));
    cell.dataset.weight = weight;
    [cell.dataset.row, cell.dataset.column] = [r, c];
    cell.ariaLabel = `${this.rows[r].text}, ${this.columns[c].text}: ${percent(weight)}`;
    return cell;
  }

  #move(event) {
    const at = event.target.closest(".cell");
    const step = STEPS[event.key];
    if (!at || !step) return;
    event.preventDefault();
    const [rows, columns] = [this.cells.length, this.cells[0].length];
    const r = clamp(Number(at.dataset.row) + step[0], rows);
    const c = clamp(Number(at.dataset.column) + step[1], columns);
    at.tabIndex = -1;
    this.cells[r][c].tabIndex = 0;
    this.cells[r][c].focus();
  }

  #point(element) {
    const cell = element.closest(".cell");
    if (!cell) return;
    const [r, c] = [Number(cell.dataset.row), Number(cell.dataset.column)];
    this.#mark(r, c);
    const [to, from] = [this.rows[r], this.columns[c]];
    const name = (word) => (word.last ? tr("the end of the sentence") : `“${word.text}”`);
    $("readout").textContent = tr("For {to} the model looked at {from} with {share}.", {
      to: name(to),
      from: name(from),
      share: percent(this.weights[r][c]),
    });
    const sentence = Number($("sentence").value) || 0;
    this.lit(sentence, merged(this.sentences[sentence].matrix, [to], wordsOf(this.sentences[sentence].source))[0]);
  }

  #mark(r, c) {
    for (const marked of $("map").querySelectorAll(".at")) marked.classList.remove("at");
    $("map").querySelectorAll("tbody th")[r]?.classList.add("at");
    $("map").querySelectorAll("thead th")[c]?.classList.add("at");
  }

  #leave() {
    this.lit(null);
    for (const marked of $("map").querySelectorAll(".at")) marked.classList.remove("at");
    this.#hint();
  }

  #hint() {
    $("readout").textContent = tr("Point at a cell, or use the arrow keys.");
  }
}

export function percent(share) {
  const digits = share > 0.0995 ? 0 : 1;
  const shown = (100 * share).toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return `${shown} %`;
}

function header(word, scope) {
  const head = make("th", { scope, className: word.last ? "last" : "" });
  head.append(make("span", { textContent: word.text, dir: "auto" }));
  return head;
}

function beginning(pieces) {
  const text = wordsOf(pieces).filter((word) => !word.last).map((word) => word.text).join(" ");
  return text.length > 40 ? `${text.slice(0, 39)}…` : text;
}

function clamp(number, count) {
  return Math.max(0, Math.min(count - 1, number));
}

function make(name, values = {}) {
  const { role, ...rest } = values;
  const element = Object.assign(document.createElement(name), rest);
  if (role) element.setAttribute("role", role);
  return element;
}
