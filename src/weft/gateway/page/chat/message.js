/** The views of items: what is drawn of a message, of reasoning, of anything else. */

import { button, fill, h } from "../ui/dom.js";
import { clipped, duration, size } from "../ui/format.js";
import { valueView } from "../ui/json-view.js";
import { GrowingMarkdown, link, markdown } from "../ui/markdown.js";

/**
 * The text of one content part, while it streams. The deltas are drawn as they come; what counts is
 * the server's own text at the end, and a difference between the two is shown.
 */
class StreamedText {
  #deltas = [];
  #growing = new GrowingMarkdown();

  get element() {
    return this.#growing.element;
  }

  append(delta) {
    this.#deltas.push(delta);
    this.#growing.append(delta);
  }

  /** Whether the deltas were this text. */
  equals(text) {
    let at = 0;
    for (const delta of this.#deltas) {
      if (!text.startsWith(delta, at)) return false;
      at += delta.length;
    }
    return at === text.length;
  }
}

/** A message of the assistant. */
export class MessageView {
  #streamed = new Map();
  #body = h("div", { class: "markdown-parts" });
  #response;

  constructor(item, context) {
    this.#response = context.responseId;
    const heading = h("h2", { class: "unseen" }, "Answer");
    this.element = h("article", { class: "message assistant", "aria-label": "Answer" }, heading, this.#body);
  }

  delta(event) {
    if (typeof event.delta !== "string") return;
    const key = event.content_index ?? 0;
    if (!this.#streamed.has(key)) {
      this.#streamed.set(key, new StreamedText());
      this.#body.append(this.#streamed.get(key).element);
    }
    this.#streamed.get(key).append(event.delta);
  }

  finish(item) {
    const parts = contentParts(item);
    const differs = [...this.#streamed].some(([key, text]) => !text.equals(partText(parts[key])));
    this.text = parts.map(partText).filter(Boolean);
    fill(this.#body, parts.map(partElement), differs ? differenceNote(this.#response()) : null);
    this.element.classList.toggle("cut", item.status === "incomplete");
  }
}

const differenceNote = (id) =>
  h(
    "p",
    { class: "note red", role: "note" },
    "✗ streamed ≠ final: the server’s finished text is shown. ",
    id ? h("a", { href: `#/r/${id}` }, "Inspect") : null,
  );

function contentParts(item) {
  return typeof item.content === "string" ? [{ type: "output_text", text: item.content }] : (item.content ?? []);
}

const partText = (part) => part?.text ?? part?.refusal ?? "";

function partElement(part) {
  switch (part.type) {
    case "output_text":
    case "input_text":
    case "text":
      return h("div", { class: "markdown" }, markdown(part.text ?? ""), sources(part.annotations ?? []));
    case "refusal":
      return h("div", { class: "markdown refusal" }, h("p", { class: "note" }, "Refused"), markdown(part.refusal ?? ""));
    default:
      return attachment(part);
  }
}

function sources(annotations) {
  const cited = annotations.filter((one) => one.type === "url_citation" && one.url);
  if (!cited.length) return null;
  const unique = [...new Map(cited.map((one) => [one.url, one])).values()];
  const list = unique.map((one) => h("li", {}, link(one.url, one.title || one.url)));
  return h("div", { class: "sources" }, h("span", {}, "Sources"), h("ol", {}, list));
}

/** A file of a message. Images are shown where their bytes are here, never from another host. */
export function attachment(part) {
  const data = part.image_url ?? part.file_data ?? "";
  const blob = typeof data === "string" && /^data:image\/(png|jpeg|gif|webp);base64,/.test(data) ? blobOf(data) : null;
  if (blob) {
    const url = URL.createObjectURL(blob);
    const release = () => URL.revokeObjectURL(url); // what was drawn stays
    return h("img", { class: "attached", src: url, alt: part.filename ?? "attached image", onload: release, onerror: release });
  }
  const name = part.filename ?? (part.type === "input_image" ? "image" : part.type);
  const about = data.startsWith?.("data:") ? ` (${size(Math.round(data.length * 0.75))})` : "";
  if (/^https?:/.test(data)) return h("p", { class: "file" }, "▤ ", link(data, clipped(data)));
  return h("p", { class: "file" }, `▤ ${name}${about}`);
}

/** The bytes of a data URL, or null if they are not base64. */
function blobOf(dataUrl) {
  const [head, data] = dataUrl.split(",");
  try {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    return new Blob([bytes], { type: head.slice(5).split(";")[0] });
  } catch {
    return null;
  }
}

/** What the user wrote. */
export function userMessage(item, { onEdit, onCopy }) {
  const parts = contentParts(item);
  const text = parts.map(partText).filter(Boolean);
  const body = parts.map((part) =>
    partText(part) ? h("p", { class: "plain" }, partText(part)) : attachment(part),
  );
  const actions = h(
    "div",
    { class: "actions" },
    onEdit ? button("Edit", onEdit, { kind: "quiet small" }) : null,
    button("Copy", () => onCopy(text.join("\n")), { kind: "quiet small" }),
  );
  const bubble = h("div", { class: "bubble" }, body);
  const attributes = { class: "message user", "aria-label": "You", "data-item": item.id };
  return h("article", attributes, h("h2", { class: "unseen" }, "You"), bubble, actions);
}

/** Reasoning: open while it streams, folded afterwards unless the user opened it. */
export class ReasoningView {
  #began = performance.now();
  #isLive = false;
  #wasTouched = false;
  #label = h("span", {}, "Reasoning");
  #body = h("div", { class: "reasoning-text" });
  #parts = new Map();

  constructor() {
    const summary = h("summary", { onclick: () => (this.#wasTouched = true) }, this.#label);
    this.element = h("details", { class: "reasoning" }, summary, this.#body);
  }

  delta(event) {
    if (typeof event.delta !== "string") return;
    if (!this.#isLive) {
      this.#isLive = true;
      this.element.open = true;
      this.#label.textContent = "Reasoning…";
    }
    const key = event.summary_index ?? event.content_index ?? 0;
    if (!this.#parts.has(key)) {
      this.#parts.set(key, new GrowingMarkdown());
      this.#body.append(this.#parts.get(key).element);
    }
    this.#parts.get(key).append(event.delta);
  }

  finish(item) {
    const texts = [...(item.summary ?? []), ...(item.content ?? [])].map(partText).filter(Boolean);
    const seconds = (performance.now() - this.#began) / 1000;
    // A resumed stream comes at once: how long that took says nothing.
    const took = this.#isLive && seconds >= 0.1 ? ` (${duration(seconds)})` : "";
    this.#label.textContent = `Reasoning${took}`;
    if (texts.length) {
      fill(this.#body, texts.map((text) => h("div", { class: "markdown" }, markdown(text))));
    } else {
      this.#label.textContent += item.encrypted_content ? ": kept, not readable" : ": nothing was told";
      fill(this.#body, h("p", {}, "The upstream sent it encrypted. It goes back to that upstream with the next turn."));
    }
    if (!this.#wasTouched) this.element.open = false;
  }
}

/** An item that has no view of its own. */
export class OtherView {
  #body = h("div", {});

  constructor(item) {
    this.element = h("details", { class: "other" }, h("summary", {}, clipped(String(item.type ?? "item"), 80)), this.#body);
    this.finish(item);
  }

  delta() {}

  finish(item) {
    fill(this.#body, valueView(item, { open: 2 }));
  }
}
