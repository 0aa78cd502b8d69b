// Starts the page: loads settings, languages and models, and connects tasks, keys and errors.

import { Failure, get, key } from "./api.js";
import { Desk } from "./desk.js";
import { Files } from "./files.js";
import { History } from "./history.js";
import { Languages } from "./languages.js";
import { Phrases } from "./phrases.js";
import { choose, language, NAMES, tr, translated } from "./tr.js";

const CODE = /^[a-z]{2,3}(-[a-z]{2,4})?$/i;
const MOST_NAMED = 12; // languages in a command
const $ = (id) => document.getElementById(id);
let again = start; // called by "Try again"

async function start() {
  try {
    const [settings, languages, models, version] = await Promise.all(
      ["frontend/settings", "languages", "models", "version"].map(get),
    );
    show(null);
    begin({ settings, models, alternatives: Number(document.body.dataset.alternatives) }, languages);
    $("version").textContent = `${version.name[0].toUpperCase()}${version.name.slice(1)} ${version.version}`;
  } catch (error) {
    show(error);
    if (!(error instanceof Failure)) throw error;
  }
}

function begin(server, list) {
  const languages = new Languages(list, server.settings.language, () => desk.changed());
  const phrases = new Phrases(server.models, languages, () => desk.reworded());
  const choices = () => ({ ...languages.pair, ...phrases.fields });
  const history = new History(languages, (entry) => desk.reopen(entry));
  const desk = new Desk(server, languages, choices, history, show);
  const files = new Files(server.settings.supportedFilesFormat, choices, show);
  const tasks = ["translate", "summarize"].filter((task) => server.models.some((model) => model.task === task));
  const open = () => {
    const asked = location.hash.slice(1);
    const task = tasks.includes(asked) ? asked : (tasks[0] ?? "translate");
    if (task !== document.body.dataset.task) show(null);
    files.clear();
    tab(task, tasks);
    desk.open(task);
  };
  again = () => desk.run();
  addEventListener("hashchange", open);
  keys(server.settings, () => desk.run());
  open();
  const fetching = server.models.some((model) => model.state === "fetching" || model.state === "waiting");
  if (!tasks.length && fetching) show(new Failure(tr("This server has loaded no models yet: it fetches some.")));
  else if (!tasks.length) show(new Failure(tr("This server has loaded no models that translate or summarize.")));
  const [unknown] = languages.unknown;
  if (unknown) show(new Failure(lacking(unknown, list, server.models), { again: false }));
  const text = new URLSearchParams(location.search).get("q");
  if (text) desk.write(text);
}

// Returns why a language is missing, and the commands that add it: to a running server, and at its next start.
// code: language in the page's address; served: answer of /languages
// models: answer of /models, where models without a task are not on disk
function lacking(code, served, models) {
  const awaited = models.filter((model) => !model.task && [model.source, model.target].includes(code));
  if (awaited.some((model) => model.state !== "failed")) return tr("The models for the language “{code}” are being fetched. Reload the page in a minute.", { code });
  const none = tr("This server has no model for the language “{code}”. Choose one from the lists.", { code });
  // the address may come from a foreign link, so that only a code gets into a command
  if (!CODE.test(code)) return none;
  const fetched = `convoy fetch --languages en,${code}`;
  const start = `CONVOY_LANGUAGES=${[...served.map((one) => one.code), code].join(",")} make serve`;
  if (served.length > MOST_NAMED) return `${none} ${tr("Its operator adds the language with: {fetched}", { fetched })}`;
  return `${none} ${tr("Its operator adds the language with: {fetched} or, at the next start, {start}", { fetched, start })}`;
}

function tab(task, tasks) {
  document.body.dataset.task = task;
  document.title = task === "translate" ? tr("Convoy: translate") : tr("Convoy: summarize");
  for (const link of document.querySelectorAll("nav a")) {
    link.hidden = !tasks.includes(link.dataset.for);
    if (link.dataset.for === task) link.ariaCurrent = "page";
    else link.removeAttribute("aria-current");
  }
}

function keys(settings, used) {
  $("key-button").hidden = !settings.apiKeys;
  $("key-button").addEventListener("click", () => {
    ask($("key").hidden);
    if (!$("key").hidden) $("key-field").focus();
  });
  $("key").addEventListener("submit", (event) => {
    event.preventDefault();
    use($("key-field").value.trim());
  });
  $("key-forget").addEventListener("click", () => use(""));
  const use = (value) => {
    key.set(value);
    $("key-field").value = "";
    ask(false);
    show(null);
    $("text").focus();
    if (value) used();
  };
  ask(settings.keyRequired && !key.get());
}

// Shows or hides the form for a key. why: the server's message, if it refused a key
function ask(open, why = tr("This server needs an API key.")) {
  $("key").hidden = !open;
  $("key-button").ariaExpanded = String(open);
  $("key-button").classList.toggle("set", Boolean(key.get()));
  $("key-forget").hidden = !key.get();
  $("key-text").textContent = why;
}

// Shows an error. error: a Failure, or null to hide the last one
function show(error) {
  if (error?.key) ask(true, error.message);
  const shown = Boolean(error) && !error.key;
  $("error").hidden = !shown;
  $("retry").hidden = !(error?.again ?? true);
  $("error-text").textContent = shown ? explained(error) : "";
}

function explained(error) {
  return error instanceof Failure ? error.message : tr("This page has failed ({reason}). Reload it.", { reason: error.message });
}

$("retry").addEventListener("click", () => again());
$("dismiss").addEventListener("click", () => show(null));
$("page-language").append(...Object.entries(NAMES).map(([code, name]) => new Option(name, code, false, code === language)));
$("page-language").addEventListener("change", () => choose($("page-language").value));
translated(document.documentElement);
start();
