// The last translations and the text of each task, kept in this browser unless the visitor turns it off.

import { guarded } from "./api.js";
import { capital, counted, tr } from "./tr.js";

const STORAGE_KEY = "convoy-history"; // in localStorage: [[source, target, text, answer], ...]
const TEXTS_KEY = "convoy-texts"; // in localStorage: {task: text}
const OFF_KEY = "convoy-history-off"; // in localStorage: set when the visitor has turned it off
const MOST_ENTRIES = 20;
const MOST_CHARACTERS = 5000; // longer texts are not kept
const $ = (id) => document.getElementById(id);

export class History {
  // languages: Languages; reopened: called with an entry that the visitor has chosen
  constructor(languages, reopened) {
    Object.assign(this, { languages, reopened });
    this.on = guarded(() => localStorage.getItem(OFF_KEY)) === null;
    this.texts = this.on ? storedTexts() : {};
    this.entries = this.on ? storedEntries() : [];
    $("history-on").checked = this.on;
    $("history-on").addEventListener("change", () => this.#switched());
    $("history-clear").addEventListener("click", () => this.#emptied());
    $("history-list").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.reopened(this.entries[Number(button.dataset.entry)]);
    });
    this.#draw();
  }

  // Keeps the text of a task, to show it after a reload.
  text(task, text) {
    if (!this.on) return;
    this.texts[task] = text.length <= MOST_CHARACTERS ? text : "";
    guarded(() => localStorage.setItem(TEXTS_KEY, JSON.stringify(this.texts)));
  }

  // Keeps a translation. The last entry is replaced if its text has only grown or shrunk: the visitor is typing.
  add(source, target, text, answer) {
    if (!this.on || source === "auto" || text.length > MOST_CHARACTERS || answer.length > MOST_CHARACTERS) return;
    const others = this.entries.filter(([from, into, old], i) => {
      const typing = i === 0 && (text.startsWith(old) || old.startsWith(text));
      return from !== source || into !== target || (old !== text && !typing);
    });
    this.entries = [[source, target, text, answer], ...others].slice(0, MOST_ENTRIES);
    guarded(() => localStorage.setItem(STORAGE_KEY, JSON.stringify(this.entries)));
    this.#draw();
  }

  #switched() {
    this.on = $("history-on").checked;
    guarded(() => (this.on ? localStorage.removeItem(OFF_KEY) : localStorage.setItem(OFF_KEY, "1")));
    if (!this.on) this.#emptied();
  }

  #emptied() {
    Object.assign(this, { texts: {}, entries: [] });
    for (const key of [STORAGE_KEY, TEXTS_KEY]) guarded(() => localStorage.removeItem(key));
    this.#draw();
  }

  #draw() {
    const count = this.entries.length;
    $("history-count").textContent = count ? counted(count, "text|texts") : "";
    $("history-clear").hidden = !count;
    $("history-list").replaceChildren(...this.entries.map((entry, i) => this.#row(entry, i)));
  }

  #row([source, target, text, answer], number) {
    const button = made("button", { type: "button" });
    button.dataset.entry = number;
    const pair = tr("{source} to {target}", { source: this.languages.name(source), target: this.languages.name(target) });
    button.append(made("small", { textContent: capital(pair) }), made("span", { textContent: text, lang: source, dir: "auto" }));
    button.append(made("span", { textContent: answer, lang: target, dir: "auto" }));
    const item = made("li");
    item.append(button);
    return item;
  }
}

function storedTexts() {
  const found = guarded(() => JSON.parse(localStorage.getItem(TEXTS_KEY))) ?? {};
  return Object.fromEntries(Object.entries(found).filter(([, text]) => typeof text === "string"));
}

function storedEntries() {
  const found = guarded(() => JSON.parse(localStorage.getItem(STORAGE_KEY)));
  const whole = (entry) => Array.isArray(entry) && entry.length === 4 && entry.every((part) => typeof part === "string");
  return Array.isArray(found) ? found.filter(whole).slice(0, MOST_ENTRIES) : [];
}

function made(kind, properties = {}) {
  return Object.assign(document.createElement(kind), properties);
}
