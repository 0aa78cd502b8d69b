// Files: dropped on the page or chosen, translated by the server, and offered for download.

import { post } from "./api.js";
import { tr } from "./tr.js";

const $ = (id) => document.getElementById(id);

export class Files {
  // formats: endings of file names that the server accepts, such as ".txt"; empty if it accepts no files
  // choices: returns the fields that the reader chose: languages and words
  constructor(formats, choices, fail) {
    Object.assign(this, { formats, choices, fail });
    $("files").hidden = !formats.length;
    $("file").accept = formats.join(",");
    $("formats").textContent = formats.length ? tr("Files: {formats}", { formats: formats.join(" ") }) : "";
    $("file").addEventListener("change", () => this.#send($("file").files));
    addEventListener("dragover", (event) => this.#over(event));
    addEventListener("dragleave", (event) => event.relatedTarget ?? this.#lit(false));
    addEventListener("drop", (event) => this.#dropped(event));
  }

  clear() {
    this.#report("");
  }

  get open() {
    return this.formats.length && document.body.dataset.task === "translate";
  }

  // Handles a file over any part of the page, which a browser would otherwise leave to show the file.
  #over(event) {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = this.open ? "copy" : "none";
    this.#lit(this.open);
  }

  #dropped(event) {
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    this.#lit(false);
    if (this.open) this.#send(event.dataTransfer.files);
  }

  async #send(files) {
    const [file, ...others] = files;
    if (!file) return;
    const known = this.formats.some((ending) => file.name.toLowerCase().endsWith(ending));
    if (!known || others.length) {
      this.fail(null);
      const wrong = others.length
        ? tr("One file at a time, please.")
        : tr("“{name}” has a format that this server does not translate.", { name: file.name });
      this.#report(`${wrong} ${tr("It translates files that end in {formats}.", { formats: this.formats.join(", ") })}`);
      return;
    }
    this.#report(tr("Translating “{name}” …", { name: file.name }));
    const body = new FormData();
    const { source, target, ignore = [], glossary = {} } = this.choices();
    const fields = { file, source, target, ignore: ignore.join("\n"), glossary: JSON.stringify(glossary) };
    for (const [name, value] of Object.entries(fields)) body.append(name, value);
    try {
      const { translatedFileUrl } = await post("translate_file", body);
      this.fail(null);
      this.#offer(translatedFileUrl, file.name, target);
    } catch (error) {
      this.#report("");
      this.fail(error);
    } finally {
      $("file").value = "";
    }
  }

  // Offers the file at the address of this page: behind a proxy the server may not know its own address.
  #offer(url, name, target) {
    const dot = name.lastIndexOf(".");
    const saved = `${name.slice(0, dot)}_${target}${name.slice(dot)}`;
    const link = Object.assign(document.createElement("a"), { download: saved, textContent: tr("Download {name}", { name: saved }) });
    link.href = `download_file/${url.split("/").pop()}`;
    this.#report(`${tr("Translated.")} `);
    $("file-news").append(link);
    link.focus();
  }

  #report(text) {
    $("file-news").hidden = !text;
    $("file-news").textContent = text;
  }

  #lit(on) {
    document.body.classList.toggle("dropping", Boolean(on));
  }
}
