// The page's own language: the visitor's choice, or the browser's, among the languages of the tables; otherwise English.

import { DE } from "./de.js";
import { FR } from "./fr.js";

const STORAGE_KEY = "convoy-page-language"; // in localStorage: the visitor's choice
const TABLES = { en: {}, de: DE, fr: FR };
const SHOWN = ["aria-label", "title", "placeholder", "alt", "data-empty"]; // attributes with texts
export const NAMES = { en: "English", de: "Deutsch", fr: "Français" };
export const language = chosen() ?? preferred();
const table = TABLES[language];
const plurals = new Intl.PluralRules(language);
const displayed = nameIn(language);

// Returns the page's text in its language; {name} is replaced by the value of that name.
export function tr(text, values = {}) {
  return (table[text] ?? text).replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

// Returns a number with its noun. nouns: both forms, such as "token|tokens"
export function counted(number, nouns) {
  const [one, many] = tr(nouns).split("|");
  return `${number.toLocaleString(language)} ${plurals.select(number) === "one" ? one : many}`;
}

// Returns the name of a language by its code. english: its English name, for a code that the browser does not know
export function named(code, english) {
  return (language !== "en" && displayed(code)) || english;
}

// Returns a text with a capital at its beginning.
export function capital(text) {
  return text.slice(0, 1).toLocaleUpperCase(language) + text.slice(1);
}

// Translates the texts and the described attributes of an element and its descendants.
export function translated(root) {
  document.documentElement.lang = language;
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.data.trim();
    if (text in table) texts.currentNode.data = texts.currentNode.data.replace(text, () => table[text]);
  }
  for (const name of SHOWN) {
    for (const element of root.querySelectorAll(`[${name}]`)) element.setAttribute(name, tr(element.getAttribute(name)));
  }
}

// Stores the visitor's choice of the page's language, and shows the page in it.
export function choose(code) {
  try {
    localStorage.setItem(STORAGE_KEY, code);
  } catch {
    return; // the browser forbids storage
  }
  location.reload();
}

function chosen() {
  try {
    const code = localStorage.getItem(STORAGE_KEY);
    return Object.hasOwn(TABLES, code) ? code : null;
  } catch {
    return null;
  }
}

function preferred() {
  const codes = navigator.languages.map((tag) => tag.split("-")[0].toLowerCase());
  return codes.find((code) => Object.hasOwn(TABLES, code)) ?? "en";
}

function nameIn(own) {
  const names = new Intl.DisplayNames([own], { type: "language" });
  return (code) => {
    try {
      const name = names.of(code);
      return name === code ? "" : name;
    } catch {
      return ""; // no code of a language
    }
  };
}
