// The reader's own words: a list of words with translations, or without one, stored in the browser.

import { guarded } from "./api.js";
import { counted, tr } from "./tr.js";

const STORAGE_KEY = "convoy-phrases"; // in localStorage: [[word, translation, target language], ...]
const $ = (id) => document.getElementById(id);

export class Phrases {
  // models: of /models; changed: called when the list has changed
  constructor(models, languages, changed) {
    Object.assign(this, { models, languages, changed });
    this.all = stored();
    this.list = $("phrases-list");
    this.list.addEventListener("input", () => this.#edited());
    this.list.addEventListener("paste", (event) => this.#pasted(event));
    this.list.addEventListener("click", (event) => event.target.closest("button") && this.#remove(event.target.closest("li")));
    languages.moved = () => this.#draw();
    this.#draw();
  }

  // Returns the fields of a request to translate.
  get fields() {
    const own = this.usable ? this.#own() : [];
    const ignore = own.filter(([, into]) => !into).map(([word]) => word);
    const glossary = Object.fromEntries(own.filter(([, into]) => into));
    return { ...(ignore.length && { ignore }), ...(Object.keys(glossary).length && { glossary }) };
  }

  // Whether every model that may answer has placeholder symbols, which keep words unchanged
  get usable() {
    const { source, target } = this.languages.pair;
    const fits = (model) => model.targets.includes(target) && (source === "auto" || model.sources.includes(source));
    const translating = this.models.filter((model) => model.task === "translate");
    const direct = translating.filter(fits);
    return (direct.length ? direct : translating).every((model) => model.placeholders > 0);
  }

  #own() {
    return this.all.filter(([, into, target]) => !into || target === this.languages.target);
  }

  #draw() {
    $("phrases-into").textContent = tr("In {language}", { language: this.languages.name(this.languages.target) });
    this.list.replaceChildren(...this.#own().map(([word, into]) => this.#row(word, into)), this.#row("", ""));
    this.#count();
  }

  #count() {
    const count = this.#own().length;
    $("phrases-count").textContent = count ? counted(count, "word|words") : "";
    $("phrases-off").hidden = this.usable || !count;
  }

  #row(word, into) {
    const row = document.createElement("li");
    row.className = "phrase";
    const field = (value, label, placeholder) => {
      const input = Object.assign(document.createElement("input"), { type: "text", value, placeholder, autocomplete: "off", dir: "auto" });
      input.ariaLabel = label;
      return input;
    };
    const remove = Object.assign(document.createElement("button"), { type: "button", className: "round", textContent: "×" });
    remove.ariaLabel = word ? tr("Remove {word}", { word }) : tr("Remove this row");
    row.append(field(word, tr("Word in the text"), tr("Word")), field(into, $("phrases-into").textContent, tr("unchanged")), remove);
    return row;
  }

  #rows() {
    return [...this.list.children].map((row) => [...row.querySelectorAll("input")].map((input) => input.value.trim()));
  }

  #edited() {
    const { target } = this.languages;
    const others = this.all.filter(([, into, own]) => into && own !== target);
    const rows = this.#rows().filter(([word]) => word);
    this.all = [...others, ...rows.map(([word, into]) => [word, into, into && target])];
    guarded(() => (this.all.length ? localStorage.setItem(STORAGE_KEY, JSON.stringify(this.all)) : localStorage.removeItem(STORAGE_KEY)));
    if (this.#rows().at(-1)?.some(Boolean) ?? true) this.list.append(this.#row("", ""));
    this.#count();
    this.changed();
  }

  // Pasted lines of a spreadsheet become rows.
  #pasted(event) {
    const text = event.clipboardData.getData("text/plain").replace(/[\r\n]+$/, "");
    if (!/[\t\n]/.test(text)) return;
    event.preventDefault();
    const lines = text.split(/\r?\n/).map((line) => line.split("\t").map((cell) => cell.trim()));
    const row = event.target.closest("li");
    row.before(...lines.filter(([word]) => word).map(([word, into]) => this.#row(word, into ?? "")));
    this.#edited();
    this.list.lastElementChild.querySelector("input").focus();
  }

  #remove(row) {
    const next = row.nextElementSibling ?? row.previousElementSibling;
    row.remove();
    this.#edited();
    (next ?? this.list.lastElementChild).querySelector("input").focus();
  }
}

function stored() {
  const found = guarded(() => JSON.parse(localStorage.getItem(STORAGE_KEY)));
  const whole = (entry) => Array.isArray(entry) && entry.length === 3 && entry.every((part) => typeof part === "string");
  return Array.isArray(found) ? found.filter(whole) : [];
}
