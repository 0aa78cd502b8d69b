// A long list of languages: a button in place of the list, which opens a search.

import { language, tr } from "./tr.js";

const LONG = 15; // longer lists get a search

export class Picker {
  // select: a <select> with a <label>; it has the value, and gets "change" events
  constructor(select) {
    this.select = select;
    const label = select.labels[0].textContent;
    const id = `${select.id}-found`;
    this.button = made("button", { type: "button", className: "picked", ariaHasPopup: "dialog" });
    this.search = made("input", { type: "search", placeholder: tr("Search"), autocomplete: "off", spellcheck: false });
    this.list = made("ul", { id, role: "listbox", ariaLabel: label });
    this.none = made("p", { className: "note", role: "status" });
    this.box = made("div", { className: "picker", popover: "auto", role: "dialog", ariaLabel: label });
    this.label = label;
    const roles = { role: "combobox", "aria-expanded": "true", "aria-autocomplete": "list", "aria-controls": id };
    for (const [name, value] of Object.entries({ ...roles, "aria-label": tr("{label}: search", { label }) })) this.search.setAttribute(name, value);
    this.box.append(this.search, this.list, this.none);
    select.after(this.button, this.box);
    this.button.addEventListener("click", () => this.#open());
    this.search.addEventListener("input", () => this.#find());
    this.search.addEventListener("keydown", (event) => this.#key(event));
    this.list.addEventListener("mousedown", (event) => event.preventDefault()); // keeps the focus in the search
    this.list.addEventListener("click", (event) => this.#pick(event.target.closest("li")));
    this.draw();
  }

  // Shows the current options of the <select>.
  draw() {
    const long = this.select.options.length > LONG;
    this.select.hidden = long;
    this.button.hidden = !long;
    this.button.textContent = this.select.selectedOptions[0]?.textContent ?? "";
    this.button.ariaLabel = `${this.label}: ${this.button.textContent}`;
  }

  #open() {
    this.search.value = "";
    this.box.showPopover();
    const { left, bottom } = this.button.getBoundingClientRect();
    const most = document.documentElement.clientWidth - this.box.offsetWidth - 8;
    this.box.style.setProperty("left", `${Math.max(8, Math.min(left, most)) + scrollX}px`);
    this.box.style.setProperty("top", `${bottom + scrollY + 4}px`);
    this.#find();
    this.search.focus();
  }

  #find() {
    const wanted = folded(this.search.value);
    const found = [...this.select.options]
      .map((option) => ({ option, place: placeOf(wanted, option) }))
      .filter(({ place }) => place < Infinity);
    if (wanted) found.sort((a, b) => a.place - b.place);
    this.list.replaceChildren(...found.map(({ option }, i) => this.#row(option, i)));
    this.none.textContent = found.length ? "" : tr("No language has this name.");
    const chosen = found.findIndex(({ option }) => option.selected);
    this.#light(wanted || chosen < 0 ? 0 : chosen);
  }

  #row(option, number) {
    const row = made("li", { id: `${this.list.id}-${number}`, role: "option", textContent: option.textContent });
    row.dataset.code = option.value;
    row.setAttribute("aria-selected", String(option.selected));
    return row;
  }

  #light(number) {
    const rows = [...this.list.children];
    rows.forEach((row, i) => row.classList.toggle("lit", i === number));
    this.lit = rows[number];
    if (this.lit) this.search.setAttribute("aria-activedescendant", this.lit.id);
    else this.search.removeAttribute("aria-activedescendant");
    this.lit?.scrollIntoView({ block: "nearest" });
  }

  #key(event) {
    const rows = [...this.list.children];
    const at = rows.indexOf(this.lit);
    const steps = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + 8, PageUp: at - 8 };
    if (event.key in steps) this.#light(Math.max(0, Math.min(rows.length - 1, steps[event.key])));
    else if (event.key === "Enter") this.#pick(this.lit);
    else if (event.key === "Tab") return this.box.hidePopover();
    else return;
    event.preventDefault();
  }

  #pick(row) {
    if (!row) return;
    this.box.hidePopover();
    this.button.focus();
    if (this.select.value === row.dataset.code) return;
    this.select.value = row.dataset.code;
    this.draw();
    this.select.dispatchEvent(new Event("change"));
  }
}

// Returns the place of an option in the results of a search by its code, and its names in English, its own and the reader's language.
function placeOf(wanted, option) {
  const code = folded(option.value);
  if (!wanted || code === wanted) return 0;
  const names = [option.textContent, ...["en", option.value, navigator.language, language].map((own) => nameIn(own, option.value))];
  const places = names.map((name) => folded(name).search(escaped(wanted))).filter((place) => place >= 0);
  return places.length ? 1 + Math.min(...places) : Infinity;
}

function nameIn(language, code) {
  try {
    return new Intl.DisplayNames([language], { type: "language" }).of(code) ?? "";
  } catch {
    return ""; // a code unknown to the browser
  }
}

// Returns a text without accents and capitals.
function folded(text) {
  return text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase().trim();
}

function escaped(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

function made(kind, properties) {
  return Object.assign(document.createElement(kind), properties);
}
