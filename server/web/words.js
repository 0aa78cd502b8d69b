// Joins pieces of a vocabulary to words, and finds words in a text.

import { tr } from "./tr.js";

const SPACE = "\u2581"; // SentencePiece: beginning of a word
const MORE = "@@"; // subword-nmt: the word continues
const END = "</s>";
const WINDOW = 60; // longest gap between two words in a text, as tokenizers change characters
const ESCAPED = { "&apos;": "'", "&quot;": '"', "&lt;": "<", "&gt;": ">", "&#124;": "|", "&#91;": "[", "&#93;": "]", "&amp;": "&" };

// Returns groups of pieces: [{text, begin, end, last}]; `last` marks end-of-sentence.
export function wordsOf(pieces) {
  const spaced = pieces.some((piece) => piece.startsWith(SPACE));
  const words = [];
  pieces.forEach((piece, i) => {
    const last = piece === END;
    const open = words.length && !words.at(-1).last && !last;
    const joins = open && (spaced ? !piece.startsWith(SPACE) : pieces[i - 1].endsWith(MORE));
    if (joins) words.at(-1).end = i + 1;
    else words.push({ begin: i, end: i + 1, last });
  });
  return words.map((word) => ({ ...word, text: word.last ? tr("end") : plain(pieces.slice(word.begin, word.end)) }));
}

// Returns each piece as a group of its own.
export function piecesOf(pieces) {
  return pieces.map((piece, i) => ({ text: piece === END ? tr("end") : piece, begin: i, end: i + 1, last: piece === END }));
}

// Returns the attention between groups: the sum over a source group's pieces, the mean over a target group's rows.
export function merged(matrix, target, source) {
  return target.map(({ begin, end }) => {
    const rows = matrix.slice(begin, end);
    return source.map((column) => {
      const sums = rows.map((row) => row.slice(column.begin, column.end).reduce((sum, w) => sum + (w ?? 0), 0));
      return sums.reduce((sum, w) => sum + w, 0) / rows.length;
    });
  });
}

// Returns the place of each word in the text, in order: [begin, end], or null for a word that is not found.
export function locate(text, words) {
  const lower = text.toLowerCase();
  const same = lower.length === text.length ? lower : text; // some letters have another length in lower case
  let at = 0;
  return words.map((word) => {
    const wanted = same === text ? word : word.toLowerCase();
    const found = wanted ? same.indexOf(wanted, at) : -1;
    if (found < 0 || found - at > WINDOW) return null;
    at = found + wanted.length;
    return [found, at];
  });
}

// Returns the sum of natural logarithms of each group of tokens; NaN if one is missing.
export function summed(scores, groups) {
  return groups.map(({ begin, end }) => scores.slice(begin, end).reduce((sum, s) => sum + (s ?? NaN), 0));
}

// Splits tokens into sentences, after each end-of-sentence.
export function sentencesOf(tokens) {
  const found = [[]];
  for (const token of tokens) {
    found.at(-1).push(token);
    if (token === END) found.push([]);
  }
  return found.filter((sentence) => sentence.length);
}

function plain(pieces) {
  const joined = pieces.map((piece) => (piece.endsWith(MORE) ? piece.slice(0, -MORE.length) : piece)).join("");
  return joined.replaceAll(SPACE, "").replace(/&(apos|quot|lt|gt|amp|#124|#91|#93);/g, (found) => ESCAPED[found]);
}
