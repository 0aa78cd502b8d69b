// Which language into which: the two lists, what was detected, and the page's address.

import { Picker } from "./picker.js";
import { capital, named, tr } from "./tr.js";

const AUTO = "auto";
const EXAMPLES = {
  de: "Entschuldigung, wo ist der Bahnhof? Der Zug fährt in zehn Minuten.",
  en: "Excuse me, where is the station? The train leaves in ten minutes.",
  es: "Disculpe, ¿dónde está la estación? El tren sale en diez minutos.",
  fr: "Excusez-moi, où est la gare ? Le train part dans dix minutes.",
  it: "Mi scusi, dov'è la stazione? Il treno parte tra dieci minuti.",
  nl: "Pardon, waar is het station? De trein vertrekt over tien minuten.",
  pl: "Przepraszam, gdzie jest dworzec? Pociąg odjeżdża za dziesięć minut.",
  pt: "Com licença, onde fica a estação? O trem parte em dez minutos.",
};

export class Languages {
  // languages: answer of /languages; changed: called when the user has chosen others
  constructor(languages, defaults, changed) {
    this.all = languages;
    this.from = document.querySelector("#source");
    this.into = document.querySelector("#target");
    this.badge = document.querySelector("#detected");
    this.found = null;
    this.moved = () => {}; // called after every change of the pair
    this.from.append(option(AUTO, tr("Auto-detect")), ...languages.map((l) => option(l.code, this.name(l.code))));
    this.pickers = [new Picker(this.from), new Picker(this.into)];
    this.unknown = this.#choose(defaults);
    this.from.addEventListener("change", () => this.#changed(changed));
    this.into.addEventListener("change", () => this.#changed(changed));
  }

  get source() {
    return this.from.value;
  }

  get target() {
    return this.into.value;
  }

  get pair() {
    return { source: this.source, target: this.target };
  }

  // Returns an example text for a pair with a model, or "".
  get example() {
    const codes = this.source === AUTO ? this.all.map((language) => language.code) : [this.source];
    const code = codes.find((one) => EXAMPLES[one] && this.#targets(one).includes(this.target));
    return EXAMPLES[code] ?? "";
  }

  name(code) {
    return named(code, this.all.find((language) => language.code === code)?.name ?? code);
  }

  // Returns a target of `code` other than itself, or null.
  other(code) {
    return this.#targets(code).find((target) => target !== code) ?? null;
  }

  // Returns the languages that can be translated into `target`, except itself.
  sources(target) {
    return this.all.map(({ code }) => code).filter((code) => code !== target && this.#targets(code).includes(target));
  }

  // Shows a detected language. found: {language, confidence} of an answer, or null
  detected(found) {
    this.found = found && found.confidence > 0 ? found.language : null;
    const share = found ? Math.round(found.confidence) : 0;
    this.badge.textContent = this.found ? `${capital(this.name(this.found))}, ${share} %` : "";
  }

  set(source, target) {
    this.from.value = source;
    this.#offer(target);
    this.detected(null);
    this.#address();
  }

  // Swaps the languages. Returns false without a source, or without a model for the opposite direction.
  swap() {
    const source = this.source === AUTO ? (this.found ?? this.other(this.target)) : this.source;
    if (!source || !this.#targets(this.target).includes(source)) return false;
    this.set(this.target, source);
    return true;
  }

  // Chooses the languages of the page's address, or the server's defaults. Returns unknown codes.
  #choose({ source, target }) {
    const asked = new URLSearchParams(location.search);
    const wanted = [asked.get("source") ?? source?.code ?? AUTO, asked.get("target") ?? target?.code ?? ""];
    const known = (code) => this.all.some((language) => language.code === code);
    const unknown = wanted.filter((code) => code && code !== AUTO && !known(code));
    this.from.value = known(wanted[0]) ? wanted[0] : AUTO;
    this.#offer(wanted[1]);
    return unknown;
  }

  #changed(changed) {
    this.#offer(this.target);
    this.detected(null);
    this.#address();
    changed();
  }

  #offer(wanted) {
    const codes = this.#targets(this.source);
    this.into.replaceChildren(...codes.map((code) => option(code, this.name(code))));
    this.into.value = codes.includes(wanted) ? wanted : (codes[0] ?? "");
    for (const picker of this.pickers) picker.draw();
    this.moved();
  }

  // Returns the targets of a source, without itself.
  #targets(source) {
    const from = source === AUTO ? this.all : this.all.filter((language) => language.code === source);
    const codes = new Set(from.flatMap((language) => language.targets.filter((code) => code !== language.code)));
    return this.all.map((language) => language.code).filter((code) => codes.has(code));
  }

  #address() {
    history.replaceState(null, "", `?${new URLSearchParams(this.pair)}${location.hash}`);
  }
}

function option(code, name) {
  return new Option(capital(name), code);
}
