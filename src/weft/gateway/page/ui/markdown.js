/**
 * Markdown as DOM nodes, made of tokens: no HTML string exists on the way.
 *
 * HTML in a text is shown as text. Links lead to http, https and mailto only, and images are links:
 * what a model writes never makes the browser send a request to another host.
 */

import { append, fill, h, oncePerFrame } from "./dom.js";
import { tokensOf } from "./tokens.js";

const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
const SAFE_PROTOCOLS = ["http:", "https:", "mailto:"];

/** Milliseconds from which a drawing is noticeable, and the pause after it, as a multiple of it. */
const SLOW_DRAWING = 8;
const PAUSE = 5;

/** The level of the heading above a text. */
const OUTER_LEVEL = 2;

/** Returns the nodes of a text. Its headings skip no level, for people who navigate by headings. */
export function markdown(text) {
  const tokens = tokensOf(text);
  let last = OUTER_LEVEL;
  for (const token of tokens.filter((one) => one.type === "heading")) {
    last = token.level = Math.min(token.depth + OUTER_LEVEL, last + 1, 6);
  }
  return blocks(tokens);
}

/**
 * A text that grows. Only the last block is parsed again with each delta; the blocks before it are final.
 */
export class GrowingMarkdown {
  #open = h("div", { class: "open-block" });
  #rest = "";
  #pending = [];
  /** When the next drawing may begin: a block that takes long is drawn less often. */
  #next = 0;
  #timer = 0;
  #draw = oncePerFrame(() => this.#drawNow());

  constructor() {
    this.element = h("div", { class: "markdown growing" }, this.#open);
  }

  append(delta) {
    this.#pending.push(delta);
    const wait = this.#next - performance.now();
    if (wait <= 0) this.#draw();
    else this.#timer ||= setTimeout(this.#draw, wait);
  }

  #drawNow() {
    this.#timer = 0;
    const start = performance.now();
    this.flush();
    const end = performance.now();
    this.#next = end + (end - start > SLOW_DRAWING ? PAUSE * (end - start) : 0);
  }

  flush() {
    if (!this.#pending.length) return;
    this.#rest = (this.#rest + this.#pending.splice(0).join("")).replaceAll("\r\n", "\n");
    const tokens = tokensOf(this.#rest);
    // A blank line may be inside of a list that goes on: the block before it is still open.
    const last = tokens.findLastIndex((token) => token.type !== "space");
    const done = tokens.slice(0, Math.max(0, last));
    for (const node of blocks(done)) this.#open.before(node);
    fill(this.#open, ...blocks(tokens.slice(done.length)));
    // Not the raw text of the last token, which may lack a blank at its end.
    this.#rest = this.#rest.slice(done.reduce((sum, token) => sum + token.raw.length, 0));
  }
}

// Blocks

function blocks(tokens) {
  return tokens.map((token) => (BLOCKS[token.type] ?? unknown)(token)).filter(Boolean);
}

const BLOCKS = {
  space: () => null,
  def: () => null,
  hr: () => h("hr"),
  heading: (token) => h(`h${token.level ?? Math.min(6, token.depth + OUTER_LEVEL)}`, {}, inline(token.tokens)),
  paragraph: (token) => h("p", {}, inline(token.tokens)),
  text: (token) => h("span", {}, token.tokens ? inline(token.tokens) : plain(token.text)),
  html: (token) => h("p", {}, token.raw),
  blockquote: (token) => h("blockquote", {}, blocks(token.tokens)),
  code: (token) =>
    h(
      "figure",
      { class: "code" },
      token.lang ? h("figcaption", {}, token.lang.split(/\s/)[0]) : null,
      h("pre", { tabindex: 0 }, h("code", {}, token.text)),
    ),
  list: (token) =>
    h(
      token.ordered ? "ol" : "ul",
      { start: token.ordered && token.start !== 1 ? token.start : null },
      token.items.map(listItem),
    ),
  table: (token) =>
    h(
      "div",
      { class: "table", tabindex: 0 },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, token.header.map((cell) => h("th", {}, inline(cell.tokens))))),
        h(
          "tbody",
          {},
          token.rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, inline(cell.tokens))))),
        ),
      ),
    ),
};

function listItem(item) {
  const box = item.task ? h("input", { type: "checkbox", disabled: true, checked: item.checked, "aria-label": "done" }) : null;
  const rest = item.tokens.filter((token) => token.type !== "checkbox");
  return h("li", { class: item.task ? "task" : null }, box, blocks(rest));
}

// Inside of a block

function inline(tokens) {
  return (tokens ?? []).map((token) => (INLINE[token.type] ?? unknown)(token));
}

const INLINE = {
  text: (token) => (token.tokens ? inline(token.tokens) : plain(token.text)),
  escape: (token) => plain(token.text),
  strong: (token) => h("strong", {}, inline(token.tokens)),
  em: (token) => h("em", {}, inline(token.tokens)),
  del: (token) => h("del", {}, inline(token.tokens)),
  codespan: (token) => h("code", {}, token.text),
  br: () => h("br"),
  html: (token) => token.raw,
  link: (token) => link(token.href, inline(token.tokens)),
  image: (token) => {
    const name = ["image: ", plain(token.text) || token.href];
    return link(token.href, h("span", { class: "image" }, ...name));
  },
  checkbox: () => null,
};

const unknown = (token) => document.createTextNode(token.raw ?? "");

/** A link, or its text if it leads nowhere that is safe. */
export function link(href, content) {
  const url = safeUrl(href);
  if (url === null) return h("span", { class: "dead-link", title: String(href) }, content);
  const attributes = { href: url, target: "_blank", rel: "noopener noreferrer nofollow", title: url };
  return h("a", attributes, content);
}

/** Returns an address that may be opened, or null. */
export function safeUrl(href) {
  try {
    const url = new URL(plain(String(href)));
    return SAFE_PROTOCOLS.includes(url.protocol) ? url.href : null;
  } catch {
    return null; // a relative one would lead into this page
  }
}

/** The tokens have the entities of the text: here they become their characters. */
function plain(text) {
  return text.replace(/&(#x[0-9a-f]{1,6}|#\d{1,7}|\w{2,6});/gi, (all, name) => {
    if (name[0] !== "#") return ENTITIES[name.toLowerCase()] ?? all;
    const code = /^#x/i.test(name) ? parseInt(name.slice(2), 16) : Number(name.slice(1));
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : all;
  });
}

/** A whole text in an element. */
export function markdownElement(text) {
  const element = h("div", { class: "markdown" });
  append(element, markdown(text));
  return element;
}
