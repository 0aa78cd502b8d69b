// Requests to the server: plain answers, streams, and error messages for readers.

import { counted, tr } from "./tr.js";

const KEY = "convoy-key";
const REMEDY = {
  404: tr("Choose other languages or another task."),
  413: tr("Shorten the text, or send it in parts."),
  500: tr("The server failed; see its log. Try again."),
  502: tr("The proxy can't reach the server. Try again in a moment."),
  503: tr("The server is stopping or still starting. Try again in a moment."),
  504: tr("This took longer than the server allows. Try again with a shorter text."),
};
const SILENT = tr("The server does not answer. Check that it is running and that you are connected, then try again.");

export class Failure extends Error {
  // key: whether an API key is missing; again: whether the same request may succeed later
  constructor(text, { key = false, again = true } = {}) {
    super(text);
    Object.assign(this, { key, again });
  }
}

// The API key, stored until the tab is closed; if the browser forbids storage, until the page is left.
export const key = {
  value: guarded(() => sessionStorage.getItem(KEY)) ?? "",
  get() {
    return this.value;
  },
  set(value) {
    this.value = value;
    guarded(() => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)));
  },
};

export async function get(path) {
  return (await ask(path, {})).json();
}

export async function post(path, body, signal) {
  return (await ask(path, { method: "POST", body, signal })).json();
}

// Sends `body` as JSON with `stream`; calls `grow` with the text so far; returns the plain answer.
export async function stream(path, body, grow, signal) {
  const headers = { "Content-Type": "application/json" };
  const sent = JSON.stringify({ ...body, stream: true });
  const answer = await ask(path, { method: "POST", headers, body: sent, signal });
  for await (const { kind, data } of eventsOf(answer.body, signal)) {
    if (kind === "partial") grow(data.text);
    else if (kind === "error") throw new Failure(sentence(data.error));
    else if (kind === "result") return data;
  }
  throw new Failure(tr("The connection broke before the answer was complete. Try again."));
}

async function ask(path, options) {
  const headers = { ...options.headers };
  if (key.get()) headers["X-API-Key"] = key.get();
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, credentials: "same-origin" });
  } catch (error) {
    throw silent(error);
  }
  if (answer.ok) return answer;
  throw await failureOf(answer);
}

function silent(error) {
  return error.name === "AbortError" || error instanceof Failure ? error : new Failure(SILENT);
}

async function failureOf(answer) {
  const said = await answer.json().then((body) => body.error ?? body.message ?? "", () => "");
  const text = sentence(said.replace(/^Invalid request: /, ""));
  const wanted = answer.headers.has("WWW-Authenticate") || (answer.status === 403 && /API key/i.test(said));
  if (wanted) return new Failure(text, { key: true });
  if (answer.status === 429) {
    const seconds = Number(answer.headers.get("Retry-After") ?? 1);
    const wait = counted(seconds, "second|seconds");
    return new Failure(tr("The server is busy, or you have sent too many requests. Try again in {wait}.", { wait }));
  }
  const [, code] = /^(.+) is not supported$/.exec(said) ?? [];
  if (code) return new Failure(tr("This server has no model for “{code}”. Choose a language from the list.", { code }), { again: false });
  const remedy = REMEDY[answer.status] ?? "";
  const words = answer.status >= 500 ? remedy : `${text} ${remedy}`.trim();
  const final = answer.status >= 400 && answer.status < 500;
  return new Failure(words || tr("The server answers with status {status}. Try again later.", { status: answer.status }), { again: !final });
}

// Yields the server-sent events of a body (HTML standard, section 9.2.6), with their data parsed as JSON.
async function* eventsOf(body, signal) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    while (true) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const lines = block.split("\n").map((line) => line.split(/: (.*)/s));
        const found = Object.fromEntries(lines.filter(([name]) => name));
        if (found.data) yield { kind: found.event, data: JSON.parse(found.data) };
      }
    }
  } catch (error) {
    throw signal?.aborted ? new DOMException("stopped", "AbortError") : silent(error);
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Returns the result of `use`, or null if the browser forbids it, such as storage.
export function guarded(use) {
  try {
    return use();
  } catch {
    return null;
  }
}

function sentence(text) {
  const plain = text.trim();
  if (!plain) return "";
  return plain[0].toUpperCase() + plain.slice(1) + (/[.!?]$/.test(plain) ? "" : ".");
}
