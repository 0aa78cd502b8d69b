// The desk: a text on the left, its translation or summary on the right.

import { Answer } from "./answer.js";
import { Failure, stream } from "./api.js";
import { HeatMap } from "./heatmap.js";
import { counted, language, tr } from "./tr.js";
import { locate, merged, wordsOf } from "./words.js";

const LIVE = 2000; // longest text, in characters, that is translated while it is typed
const EXPLAINED = 4000; // longest text, in characters, whose attention and coverage are requested
const SPOKEN = 300; // longest answer, in characters, that a screen reader reads at once
const NAMED = 5; // most words with little attention that are named
const OTHERS = 3; // most alternatives
const GUESSED = 50; // percent; a detected language with less confidence is a guess
const PROPOSED = 3; // most languages that are proposed instead of a guessed one
const TASKS = {
  translate: { title: tr("Translate"), text: tr("Text to translate"), answer: tr("Translation"), field: "translatedText" },
  summarize: { title: tr("Summarize"), text: tr("Text to summarize"), answer: tr("Summary"), field: "summaryText" },
};
const RIGHT_TO_LEFT = new Set(["ar", "arc", "ckb", "dv", "fa", "he", "ks", "ps", "sd", "ug", "ur", "yi"]);
const $ = (id) => document.getElementById(id);

export class Desk {
  // server: {settings, models, alternatives}; languages: Languages; fail: shows a Failure
  // choices: returns the fields that the reader chose: languages and words
  // history: History, which keeps texts
  constructor(server, languages, choices, history, fail) {
    Object.assign(this, { server, languages, choices, history, fail, task: null, kept: { ...history.texts }, map: null });
    this.text = $("text");
    this.answer = new Answer((sentence, word) => this.#lightWord(sentence, word));
    this.map = new HeatMap((sentence, weights) => this.#light(sentence, weights));
    this.text.addEventListener("input", () => this.#typed());
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.run();
    });
    $("run").addEventListener("click", () => (this.controller ? this.stop() : this.run()));
    $("clear").addEventListener("click", () => this.write(""));
    $("swap").addEventListener("click", () => this.#swap());
    $("example").addEventListener("click", () => {
      this.write(this.languages.example);
      this.run();
    });
  }

  // Switches to another task; each task keeps its text.
  open(task) {
    // at the start a visitor may have typed before this script ran
    if (this.task || this.text.value) this.kept[this.task ?? task] = this.text.value;
    this.stop();
    this.task = task;
    const words = TASKS[task];
    $("title").textContent = words.title;
    $("run").textContent = words.title;
    $("text-label").textContent = this.text.placeholder = words.text;
    $("answer").ariaLabel = $("answer").dataset.empty = words.answer;
    this.#forget();
    this.write(this.kept[task] ?? "");
  }

  write(text) {
    this.text.value = text;
    this.#typed();
    this.text.focus();
  }

  // Shows an entry of the history and translates its text again.
  reopen([source, target, text]) {
    if (this.languages.sources(target).includes(source)) this.languages.set(source, target);
    this.changed();
    this.write(text);
    this.run();
  }

  stop() {
    clearTimeout(this.timer);
    this.controller?.abort();
  }

  async run() {
    this.stop();
    const text = this.text.value;
    if (!text.trim() || this.#tooLong()) return;
    const controller = (this.controller = new AbortController());
    const { field } = TASKS[this.task];
    const began = performance.now();
    this.#busy(true);
    try {
      const grow = (beginning) => controller === this.controller && this.#grow(beginning);
      const result = await stream(this.task, this.#body(text), grow, controller.signal);
      const texts = [result[field], ...(result.alternatives ?? [])];
      this.fail(null);
      this.#show(text, texts, result, (performance.now() - began) / 1000);
    } catch (error) {
      if (error.name !== "AbortError") this.#failed(error);
    } finally {
      if (controller === this.controller) this.#busy(false);
    }
  }

  // Languages or limits changed: the shown answer is outdated.
  changed() {
    this.#forget();
    this.#typed();
  }

  // The reader's own words changed: the text is translated again.
  reworded() {
    this.#typed();
  }

  #typed() {
    this.stop();
    const size = [...this.text.value].length;
    const limit = this.server.settings.charLimit;
    $("count").textContent = limit < 0 ? counted(size, "character|characters") : tr("{size} of {most}", { size: size.toLocaleString(language), most: counted(limit, "character|characters") });
    $("count").classList.toggle("over", this.#tooLong());
    this.text.setAttribute("aria-invalid", this.#tooLong());
    $("clear").hidden = !size;
    $("hint").hidden = Boolean(size);
    $("example").hidden = !this.languages.example;
    this.answer.stale(true);
    this.marks = this.places = null;
    this.#mark([]);
    $("missed").textContent = "";
    this.history.text(this.task, this.text.value);
    this.#waits(this.text.value);
  }

  #waits(text) {
    const { answer, title } = TASKS[this.task];
    const asked = text.trim() && (this.task !== "translate" || text.length > LIVE);
    $("answer").dataset.empty = asked ? tr("Press “{run}” or Ctrl+Enter", { run: title }) : answer;
    if (!text.trim()) {
      this.#forget();
      this.fail(null);
    } else if (this.#tooLong()) {
      this.#forget();
      this.fail(new Failure(tr("The text is longer than this server takes. Shorten it, or send it in parts."), { again: false }));
    } else if (this.task === "translate" && text.length <= LIVE) {
      this.timer = setTimeout(() => this.run(), this.server.settings.frontendTimeout);
    } else if (this.task === "translate") {
      this.#forget(); // hide the old answer until the reader asks for a new one
    }
  }

  #tooLong() {
    const limit = this.server.settings.charLimit;
    return limit >= 0 && [...this.text.value].length > limit;
  }

  #body(text) {
    const models = this.server.models.filter((model) => model.task === this.task);
    const explained = text.length <= EXPLAINED && models.every((model) => model.limits.attention);
    const beams = models.map((model) => Math.min(model.limits.beams, model.options.beam_size));
    const limit = this.server.alternatives < 0 ? OTHERS : this.server.alternatives;
    const body = {
      q: text,
      alternatives: Math.max(0, Math.min(OTHERS, limit, ...beams.map((width) => width - 1))),
      scores: true,
      timings: true,
      repetition: true,
      alignment: explained,
      coverage: explained,
    };
    return this.task === "summarize" ? { ...body, truncate: true } : { ...body, ...this.choices(), forced: true, via: models.some((model) => model.remote) };
  }

  #busy(on) {
    if (!on) this.controller = null;
    $("run").textContent = on ? tr("Stop") : TASKS[this.task].title;
    $("answer").setAttribute("aria-busy", on);
    document.body.classList.toggle("busy", on);
    if (on) $("status").textContent = tr("Working");
    else this.answer.settle();
  }

  #grow(beginning) {
    this.answer.clear();
    $("doubts").replaceChildren();
    this.map.show([], "", false);
    this.answer.stale(false);
    this.answer.grow(beginning);
  }

  #show(text, texts, result, seconds) {
    const translating = this.task === "translate";
    this.languages.detected(translating ? result.detectedLanguage : null);
    this.text.lang = this.languages.found ?? (this.languages.source === "auto" ? "" : this.languages.source);
    $("answer").lang = translating ? this.languages.target : this.#summaryLanguage(result);
    $("answer").dir = $("answer").lang ? directionOf($("answer").lang) : "auto";
    this.answer.stale(false);
    this.answer.show(texts, result, seconds);
    const via = result.scores?.via?.text ?? "";
    this.#locate(via ? [] : (result.alignment ?? []), text);
    this.map.show(result.alignment ?? [], via, !translating);
    if (translating && !via) this.#uncovered(text, result.coverage ?? []);
    this.#doubt(result);
    if (translating) this.history.add(this.languages.found ?? this.languages.source, this.languages.target, text, texts[0]);
    const { answer } = TASKS[this.task];
    $("status").textContent = texts[0].length > SPOKEN ? tr("{answer} ready", { answer }) : `${answer}: ${texts[0]}`;
  }

  // Returns the language of a summary: its model's, or "" if the model has several.
  #summaryLanguage({ scores }) {
    const targets = this.server.models.find((model) => model.name === scores?.model)?.targets ?? [];
    return targets.length === 1 ? targets[0] : "";
  }

  // Shows warnings about the answer.
  #doubt({ scores, repetition, truncated, forced, detectedLanguage, via }) {
    const notes = [];
    const asked = new Set([scores?.model, scores?.insteadOf, ...(via ?? []).map((sentence) => sentence.model)].flatMap((name) => name?.split("+") ?? []).map((name) => name.split("@")[0]));
    for (const { name, remote } of this.server.models.filter((model) => model.remote && asked.has(model.name))) {
      notes.push(tr("The text was sent to {host} (model {name}).", { host: remote, name }));
    }
    if (forced) notes.push(tr("The model had lost {parts} that must stay; they were restored, perhaps not in the best place.", { parts: counted(forced, "part|parts") }));
    if (repetition?.loop) notes.push(tr("The answer repeats itself: do not trust it."));
    if (scores?.finish === "length") notes.push(tr("The answer was cut off at the greatest length allowed."));
    if (truncated) notes.push(tr("The text is longer than the model reads: this answer is for its beginning."));
    $("doubts").replaceChildren(notes.join(" "));
    if (!detectedLanguage) return;
    const { language: found, confidence } = detectedLanguage;
    const { target } = this.languages;
    const other = found === target ? this.languages.other(target) : null;
    if (other) {
      $("doubts").append(`${tr("This seems to be {language} already.", { language: this.languages.name(target) })} `);
      this.#propose(tr("Translate it into {language}", { language: this.languages.name(other) }), "auto", other);
    } else if (confidence > 0 && confidence < GUESSED) {
      $("doubts").append(`${tr("This may not be {language}: if it is not, choose its language.", { language: this.languages.name(found) })} `);
      const others = this.languages.sources(target).filter((code) => code !== found);
      if (others.length <= PROPOSED) for (const code of others) this.#propose(tr("It is {language}", { language: this.languages.name(code) }), code, target);
    }
  }

  // Adds a button that chooses other languages.
  #propose(words, source, target) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "link", textContent: words });
    button.addEventListener("click", () => {
      this.languages.set(source, target);
      this.changed();
      this.run();
    });
    $("doubts").append(button, " ");
  }

  #uncovered(text, coverage) {
    const words = coverage.flatMap((sentence) => sentence.words);
    const starts = coverage.map((_, i) => coverage.slice(0, i).reduce((sum, s) => sum + s.words.length, 0));
    const missed = coverage.flatMap((sentence, i) => sentence.missed.map((word) => starts[i] + word));
    const places = locate(text, words);
    this.marks = missed.filter((i) => places[i]).map((i) => ({ place: places[i], kind: "missed" }));
    this.#mark(this.marks);
    const named = missed.slice(0, NAMED).map((i) => `“${words[i]}”`).join(", ");
    const more = counted(missed.length - NAMED, "more word|more words");
    const shown = missed.length > NAMED ? tr("{words} and {more}", { words: named, more }) : named;
    $("missed").textContent = named ? tr("The model paid little attention to {words}: check that nothing is missing.", { words: shown }) : "";
  }

  // Finds the source words of each sentence in the text.
  #locate(alignment, text) {
    this.alignment = alignment;
    const groups = alignment.map(({ source }) => wordsOf(source));
    const places = locate(text, groups.flat().map((word) => (word.last ? "" : word.text)));
    this.places = groups.map((words) => places.splice(0, words.length));
  }

  #lightWord(sentence, word) {
    const found = this.alignment?.[sentence];
    if (!found) return this.#light(null);
    const row = [wordsOf(found.target)[word]];
    return this.#light(sentence, merged(found.matrix, row, wordsOf(found.source))[0]);
  }

  // Shades the words of the text by the attention of a word of the answer.
  #light(sentence, weights) {
    if (sentence === null || !this.places?.[sentence]) return this.#mark(this.marks ?? []);
    const most = Math.max(...weights);
    const marks = this.places[sentence].map((place, i) => ({ place, kind: "lit", weight: weights[i] / most }));
    return this.#mark(marks.filter((mark) => mark.place));
  }

  #mark(marks) {
    const text = this.text.value;
    const nodes = [];
    let at = 0;
    for (const { place: [begin, end], kind, weight } of marks) {
      const mark = Object.assign(document.createElement("mark"), { className: kind, textContent: text.slice(begin, end) });
      mark.style.setProperty("--w", (weight ?? 0).toFixed(3));
      nodes.push(text.slice(at, begin), mark);
      at = end;
    }
    nodes.push(`${text.slice(at)}\n`); // keeps the height of an empty last line
    $("backdrop").replaceChildren(...nodes);
  }

  #swap() {
    const before = this.answer.text;
    if (!this.languages.swap()) return;
    this.#forget();
    this.write(before || this.text.value);
  }

  // Clears the answer, which is outdated or incomplete.
  #failed(error) {
    this.answer.settle();
    this.#forget();
    this.fail(error);
  }

  #forget() {
    this.answer.clear();
    this.map.show([], "", false);
    this.marks = this.places = this.alignment = null;
    for (const id of ["doubts", "missed", "status"]) $(id).textContent = "";
    Object.assign($("answer"), { lang: "", dir: "auto" });
    this.languages.detected(null);
  }
}

// Returns the direction of a language's script.
function directionOf(code) {
  return RIGHT_TO_LEFT.has(code.split("-")[0]) ? "rtl" : "ltr";
}
