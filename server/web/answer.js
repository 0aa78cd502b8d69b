// The answer: its growing text, words shaded by their probability, alternatives, speed and statistics.

import { counted, language, tr } from "./tr.js";
import { locate, sentencesOf, summed, wordsOf } from "./words.js";

const SURE = 0.6; // words with at least this probability are not shaded
const $ = (id) => document.getElementById(id);

export class Answer {
  // lit: called with the sentence and word of the answer under the pointer, or null
  constructor(lit) {
    this.box = $("answer");
    this.first = this.chosen = 0;
    this.box.addEventListener("pointerover", (event) => {
      const word = event.target.closest(".word");
      if (word) lit(Number(word.dataset.sentence), Number(word.dataset.word));
    });
    this.box.addEventListener("pointerleave", () => lit(null));
    $("shades").addEventListener("change", () => this.box.classList.toggle("plain", !$("shades").checked));
    $("copy").addEventListener("click", () => copy(this.text, $("copy")));
    $("alternatives").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.#take(Number(button.dataset.choice));
    });
  }

  get text() {
    return this.choices?.[this.chosen] ?? this.box.textContent;
  }

  clear() {
    this.choices = this.words = null;
    this.box.replaceChildren();
    for (const id of ["copy", "shades-label", "others", "figures"]) $(id).hidden = true;
    $("speed").textContent = "";
  }

  // Shows the beginning of an unfinished answer.
  grow(text) {
    this.box.textContent = text;
    this.box.classList.add("growing");
  }

  // Marks the answer as outdated, or not.
  stale(yes) {
    this.box.classList.toggle("stale", yes);
  }

  settle() {
    this.box.classList.remove("growing");
  }

  // texts: the best answer and its alternatives; result: the server's answer
  show(texts, result, seconds) {
    this.settle();
    [this.choices, this.chosen] = [texts, 0];
    this.words = located(texts[0], result);
    this.#draw();
    $("copy").hidden = false;
    figures(result, seconds);
  }

  #take(choice) {
    this.chosen = choice;
    this.#draw();
    this.box.focus();
  }

  #draw() {
    const best = this.chosen === 0;
    const known = best ? this.words : [];
    this.box.replaceChildren(...spans(this.choices[this.chosen], known));
    $("shades-label").hidden = !known.some((word) => word.doubt > 0);
    const others = this.choices.map((text, i) => [text, i]).filter(([, i]) => i !== this.chosen);
    $("others").hidden = !others.length;
    $("alternatives").replaceChildren(...others.map(([text, i]) => alternative(text, i, this.box.lang)));
  }
}

// Returns the words of a text with their places, probabilities, and sentence and number in the alignment.
function located(text, { scores, alignment }) {
  const tokens = sentencesOf(scores?.tokens ?? []);
  const pieces = alignment?.length ? alignment.map((sentence) => sentence.target) : tokens;
  const same = pieces.flat().length === (scores?.tokenScores.length ?? 0); // otherwise a placeholder was restored
  let read = 0;
  const words = pieces.flatMap((sentence, number) => {
    const groups = wordsOf(sentence);
    const known = same ? summed(scores.tokenScores.slice(read, read + sentence.length), groups) : [];
    read += sentence.length;
    const found = groups.map((group, i) => ({ text: group.text, last: group.last, sentence: number, word: i, sum: known[i] }));
    return found.filter((word) => !word.last);
  });
  const places = locate(text, words.map((word) => word.text));
  return words
    .map((word, i) => {
      const probability = Math.exp(word.sum ?? NaN);
      return { ...word, place: places[i], probability, doubt: Math.max(0, (SURE - probability) / SURE) || 0 };
    })
    .filter((word) => word.place);
}

function spans(text, words) {
  const nodes = [];
  let at = 0;
  for (const { place: [begin, end], probability, doubt, sentence, word } of words) {
    nodes.push(text.slice(at, begin), span(text.slice(begin, end), probability, doubt, sentence, word));
    at = end;
  }
  nodes.push(text.slice(at));
  return nodes;
}

function span(text, probability, doubt, sentence, word) {
  const element = document.createElement("span");
  element.className = doubt > 0 ? "word doubtful" : "word";
  element.textContent = text;
  [element.dataset.sentence, element.dataset.word] = [sentence, word];
  if (!Number.isNaN(probability)) element.title = tr("{share} % sure", { share: Math.round(100 * probability) });
  element.style.setProperty("--w", doubt.toFixed(3));
  return element;
}

function alternative(text, choice, language) {
  const [item, button] = [document.createElement("li"), document.createElement("button")];
  Object.assign(button, { type: "button", textContent: text, dir: "auto", lang: language });
  button.dataset.choice = choice;
  item.append(button);
  return item;
}

function figures({ scores, timings }, seconds) {
  if (!scores?.tokens.length || !timings) {
    $("figures").hidden = true;
    $("speed").textContent = time(seconds);
    return;
  }
  const work = timings.encode + timings.decode;
  const rate = Math.round(scores.targetTokens / work);
  $("speed").textContent = `${time(timings.queue + work)} · ${counted(rate, "token|tokens")}/s`;
  const ended = scores.finish === "length" ? tr("cut off at the greatest length allowed") : tr("by itself");
  const rows = {
    [tr("Model")]: scores.model,
    [tr("Probability of a token, on average")]: `${Math.round(100 * Math.exp(mean(scores.tokenScores)))} %`,
    [tr("Score")]: scores.score === null ? tr("none") : fixed(scores.score, 3),
    [tr("Tokens read and written")]: `${counted(scores.sourceTokens, "token|tokens")}, ${counted(scores.targetTokens, "token|tokens")}`,
    [tr("Ended")]: ended,
    [tr("Waited in the queue")]: time(timings.queue),
    [tr("Read (encoder)")]: time(timings.encode),
    [tr("Wrote (decoder)")]: tr("{time} in {steps}", { time: time(timings.decode), steps: counted(timings.steps, "step|steps") }),
    [tr("From here to the answer")]: time(seconds),
  };
  $("figures").hidden = false;
  $("numbers").replaceChildren(...Object.entries(rows).map(([name, value]) => row(name, value)));
}

function row(name, value) {
  const parts = ["dt", "dd"].map((kind) => document.createElement(kind));
  [parts[0].textContent, parts[1].textContent] = [name, value];
  const group = document.createElement("div");
  group.append(...parts);
  return group;
}

function time(seconds) {
  return seconds < 0.9995 ? `${Math.max(1, Math.round(1000 * seconds))} ms` : `${fixed(seconds, 1)} s`;
}

function fixed(number, digits) {
  return number.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function mean(numbers) {
  return numbers.reduce((sum, n) => sum + (n ?? NaN), 0) / numbers.length;
}

// Copies a text. Pages over plain HTTP have no clipboard: there the browser copies a selection.
async function copy(text, button) {
  const done = navigator.clipboard ? await navigator.clipboard.writeText(text).then(() => true, () => false) : selected(text);
  const name = button.textContent;
  button.textContent = done ? tr("Copied") : tr("Select it and press Ctrl+C");
  $("status").textContent = button.textContent;
  setTimeout(() => (button.textContent = tr("Copy")), name === tr("Copy") ? 2000 : 0);
}

function selected(text) {
  const area = Object.assign(document.createElement("textarea"), { value: text, className: "hidden" });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
