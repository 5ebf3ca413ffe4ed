/** Where the user writes: text, files, the model, tools and options; Send and Stop. */

import { get } from "../api.js";
import { button, fill, h } from "../ui/dom.js";
import { size } from "../ui/format.js";
import { toast } from "../ui/status.js";
import { editOptions } from "./options.js";
import { editTools } from "./tools.js";

const MAX_FILE_SIZE = 8_000_000;
const ESCAPE_TWICE = 600;

export class Composer {
  #chat;
  #files = [];
  #escaped = 0;
  #isSending = false;
  #field = h("textarea", { class: "input", rows: 1, placeholder: "Message…", "aria-label": "Message" });
  #model = h("select", { class: "model", "aria-label": "Model" });
  #chips = h("div", { class: "chips" });
  #picker = h("input", { type: "file", multiple: true, hidden: true, "aria-label": "Attach files" });
  #tools = button("Tools", () => this.#editTools(), { kind: "quiet small" });
  #attach = button("Attach", () => this.#picker.click(), { kind: "quiet small" });
  #modalities = new Map();
  #options = button("Options", () => this.#editOptions(), { kind: "quiet small" });
  #send = button("Send", () => this.#submit(), { kind: "primary", title: "Send (Enter)" });
  #stop = button("■ Stop", () => this.#chat.stop(), { kind: "danger", title: "Stop (Esc Esc)", hidden: true });

  /** @param {import("./chat.js").Chat} chat */
  constructor(chat) {
    this.#chat = chat;
    const row = h("div", { class: "composer-row" }, this.#model, this.#attach, this.#tools, this.#options, h("span", { class: "space" }), this.#stop, this.#send);
    this.element = h("form", { class: "composer" }, this.#chips, this.#field, this.#picker, row);
    this.element.addEventListener("submit", (event) => event.preventDefault());
    this.#field.addEventListener("keydown", (event) => this.#onKey(event));
    this.#field.addEventListener("input", () => this.update());
    this.#field.addEventListener("paste", (event) => this.#add(event.clipboardData?.files));
    this.#picker.addEventListener("change", () => this.#add(this.#picker.files));
    this.element.addEventListener("dragover", (event) => event.preventDefault());
    this.element.addEventListener("drop", (event) => {
      event.preventDefault();
      this.#add(event.dataTransfer?.files);
    });
    this.#model.addEventListener("change", () => this.#chat.change({ model: this.#model.value }));
  }

  /** Reads the models; returns their names. */
  async readModels() {
    const [models, agents] = await Promise.all([get("/v1/models"), get("/v1/agents").catch(() => ({ data: [] }))]);
    const names = models.data.map((one) => one.id);
    const agentNames = new Set(agents.data.map((one) => one.id));
    this.#modalities = new Map(models.data.map((one) => [one.id, one.input_modalities ?? null]));
    // An agent reads what its model reads.
    for (const { id, model } of agents.data) this.#modalities.set(id, this.#modalities.get(model) ?? null);
    const groups = Map.groupBy(names, (name) => (agentNames.has(name) ? "Agents" : name.includes("/") ? name.split("/")[0] : "Aliases"));
    const order = [...groups].sort(([one], [other]) => Number(other === "Agents") - Number(one === "Agents"));
    fill(this.#model, order.map(([group, some]) => h("optgroup", { label: group }, some.map((name) => h("option", { value: name }, name)))));
    return { names, agents: agentNames };
  }

  /** Shows what the settings and the running turn say. */
  update() {
    const { settings, isRunning } = this.#chat;
    if (settings.model && ![...this.#model.options].some((one) => one.value === settings.model)) {
      // A name that is not listed may exist nevertheless.
      this.#model.append(h("option", { value: settings.model }, settings.model));
    }
    this.#model.value = settings.model;
    this.#tools.textContent = settings.tools.length ? `Tools ${settings.tools.length}` : "Tools";
    this.#options.textContent = settings.instructions || Object.keys(settings.options).length ? "Options •" : "Options";
    const { images, files: others } = this.#takes;
    this.#attach.hidden = !images && !others;
    this.#picker.accept = others ? "" : "image/*";
    this.#stop.hidden = !isRunning;
    this.#send.hidden = isRunning;
    this.#send.disabled = !this.#field.value.trim() && !this.#files.length;
    const always = settings.always.map((name) => chip(`always approve ${name}`, () => this.#chat.forbid(name)));
    const files = this.#files.map((file) => chip(`${file.name} · ${size(file.size)}`, () => this.#drop(file)));
    fill(this.#chips, always, files);
  }

  /** What may be attached for the model: anything, unless it is known what the model reads. */
  get #takes() {
    const reads = this.#modalities.get(this.#chat.settings.model) ?? ["image", "file"];
    return { images: reads.includes("image"), files: reads.some((one) => !["text", "image"].includes(one)) };
  }

  get text() {
    return this.#field.value;
  }

  set text(text) {
    this.#field.value = text;
    this.update();
  }

  focus() {
    this.#field.focus();
  }

  #onKey(event) {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.#submit();
    } else if (event.key === "ArrowUp" && !this.text) {
      event.preventDefault();
      this.#chat.editLast();
    } else if (event.key === "Escape") {
      const isSecond = event.timeStamp - this.#escaped < ESCAPE_TWICE;
      this.#escaped = event.timeStamp;
      if (isSecond && this.#chat.isRunning) this.#chat.stop();
      else if (!this.#chat.isRunning) this.#field.blur();
    }
  }

  async #submit() {
    if (this.#isSending || this.#chat.isRunning || this.#send.disabled) return;
    const [text, files] = [this.text, this.#files];
    this.#isSending = true; // files are read and a conversation is made before anything runs
    this.#files = [];
    this.text = "";
    let isSent = false;
    try {
      const content = [...(text.trim() ? [{ type: "input_text", text }] : []), ...(await Promise.all(files.map(filePart)))];
      isSent = await this.#chat.send([{ type: "message", role: "user", content }]);
    } finally {
      this.#isSending = false;
      if (!isSent) this.#restore(text, files);
    }
  }

  /** What could not be sent is there again, before what was typed meanwhile. */
  #restore(text, files) {
    this.#files = [...files, ...this.#files];
    this.text = [text, this.text].filter(Boolean).join("\n");
  }

  #add(files) {
    const takes = this.#takes;
    for (const file of files ?? []) {
      const isTaken = file.type.startsWith("image/") ? takes.images : takes.files;
      if (!isTaken) toast(`${this.#chat.settings.model} does not read ${file.type.startsWith("image/") ? "images" : "files"}`);
      else if (file.size > MAX_FILE_SIZE) toast(`${file.name} is larger than ${size(MAX_FILE_SIZE)}`);
      else this.#files.push(file);
    }
    this.#picker.value = "";
    this.update();
  }

  #drop(file) {
    this.#files = this.#files.filter((one) => one !== file);
    this.update();
  }

  async #editTools() {
    const tools = await editTools(this.#chat.settings.tools);
    if (tools) this.#chat.change({ tools });
  }

  async #editOptions() {
    const changed = await editOptions(this.#chat.settings);
    if (changed) this.#chat.change(changed);
  }
}

function chip(text, onRemove) {
  return h("span", { class: "chip" }, text, button("×", onRemove, { kind: "quiet small", "aria-label": `Remove: ${text}` }));
}

/** A file that was moved or changed after it was chosen. */
class UnreadableFile extends Error {
  name = "UnreadableFile";
}

/** A file as the content of a message. Raises UnreadableFile. */
async function filePart(file) {
  const data = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new UnreadableFile(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
  if (file.type.startsWith("image/")) return { type: "input_image", image_url: data };
  return { type: "input_file", filename: file.name, file_data: data };
}
