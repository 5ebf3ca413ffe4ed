/** The list of conversations beside the thread: search, rename, delete with undo, export. */

import { all, get, pages, post, send } from "../api.js";
import { askText } from "../ui/dialog.js";
import { button, fill, h, pressOf, refill } from "../ui/dom.js";
import { ago, exactTime } from "../ui/format.js";
import { download, toast } from "../ui/status.js";
import { forget } from "./settings.js";

const POLL = 5000;
const MAX_LISTED = 200;
const UNTITLED = "Untitled";

export const titleOf = (conversation) => conversation?.metadata?.title || UNTITLED;

export class ConversationList {
  #chat;
  #shown = [];
  #running = new Set();
  #timer = 0;
  #list = h("ul", {});
  #isPressed = pressOf(this.#list, () => this.draw());
  #search = h("input", { type: "search", placeholder: "Search", "aria-label": "Search conversations", "data-search": true });

  /** @param {import("./chat.js").Chat} chat */
  constructor(chat) {
    this.#chat = chat;
    const fresh = h("a", { class: "button", href: "#/" }, "+ New");
    this.element = h("nav", { class: "conversations", "aria-label": "Conversations" }, h("div", { class: "conversations-head" }, fresh, this.#search), this.#list);
    this.#search.addEventListener("input", () => this.read());
    this.#search.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.#search.blur();
    });
    document.addEventListener("visibilitychange", this.#poll);
    this.#poll();
  }

  close() {
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.#poll);
  }

  // Polled, not streamed: a tab that only lists must not hold one of the browser's connections.
  #poll = async () => {
    clearTimeout(this.#timer);
    if (document.visibilityState === "hidden") return;
    this.#timer = setTimeout(this.#poll, POLL);
    await this.read().catch(() => {}); // the thread tells what is wrong with the connection
  };

  async read() {
    const wanted = this.#search.value;
    const here = this.#chat.conversation?.id;
    const [found, running, newest] = await Promise.all([
      all("/v1/conversations", { q: wanted.trim() || undefined }, MAX_LISTED),
      get("/v1/responses", { status: "queued,in_progress", limit: 100 }),
      here ? get("/v1/responses", { conversation: here, limit: 1 }) : null,
    ]);
    if (wanted !== this.#search.value) return;
    this.#running = new Set(running.data.map((one) => one.conversation?.id));
    this.#shown = found.filter((one) => !deleted.has(one.id));
    this.draw();
    if (newest?.data.length) this.#chat.onNewest(here, newest.data[0].id);
  }

  draw() {
    const current = this.#chat.conversation?.id;
    if (!this.#shown.length) {
      const text = this.#search.value ? "Nothing found" : "No conversations yet";
      return fill(this.#list, h("li", { class: "soft" }, text));
    }
    // The menu of a row would close if the row were drawn anew, and a click on it be lost.
    if (this.#isPressed() || this.#list.querySelector(":popover-open")) return;
    const focused = document.activeElement?.closest?.("[data-id]")?.dataset.id;
    refill(this.#list, this.#shown.map((one) => this.#row(one, one.id === current)));
    if (focused) this.#list.querySelector(`[data-id="${CSS.escape(focused)}"] a`)?.focus();
  }

  #row(conversation, isCurrent) {
    const isRunning = this.#running.has(conversation.id);
    const link = h(
      "a",
      { href: `#/c/${encodeURIComponent(conversation.id)}`, "aria-current": isCurrent ? "page" : null, title: exactTime(conversation.created_at) },
      isRunning ? h("span", { class: "dot on", role: "img", "aria-label": "running" }) : null,
      conversation.metadata.forked_from ? h("span", { class: "sign", role: "img", "aria-label": "branch" }, "⑂") : null,
      h("span", { class: "title" }, titleOf(conversation)),
      h("span", { class: "when" }, ago(conversation.created_at)),
    );
    // A row whose metadata changed is another one, even if it looks the same: its menu knows them.
    return h("li", { "data-id": conversation.id, "data-metadata": JSON.stringify(conversation.metadata) }, link, this.#menu(conversation));
  }

  #menu(conversation) {
    const name = titleOf(conversation);
    const item = (label, run, kind = "quiet") =>
      button(label, () => {
        menu.hidePopover();
        run();
      }, { kind });
    const menu = h(
      "div",
      { popover: "auto", class: "menu" },
      item("Rename…", () => this.#rename(conversation)),
      item("Export as JSONL", () => exportLines(conversation)),
      item("Delete", () => this.#delete(conversation), "quiet danger"),
    );
    const opener = button("⋯", () => {
      const { bottom, right } = opener.getBoundingClientRect();
      menu.style.top = `${bottom + 4}px`;
      menu.style.left = `${Math.max(8, right - 170)}px`;
      menu.togglePopover();
    }, { kind: "quiet icon", "aria-label": `More about ${name}`, "aria-haspopup": "true" });
    return [opener, menu];
  }

  async #rename(conversation) {
    const title = await askText({ title: "Rename", label: "Title", value: conversation.metadata.title ?? "" });
    if (title === null || !title.trim()) return;
    const metadata = { ...conversation.metadata, title: title.trim().slice(0, 500) };
    await post(`/v1/conversations/${encodeURIComponent(conversation.id)}`, { metadata });
    this.#chat.onRenamed(conversation.id, metadata);
    await this.read();
  }

  #delete(conversation) {
    const { id } = conversation;
    deleted.add(id);
    this.#shown = this.#shown.filter((one) => one.id !== id);
    this.draw();
    if (this.#chat.conversation?.id === id) location.hash = "#/";
    const undo = () => {
      deleted.delete(id);
      this.read();
    };
    toast(`“${titleOf(conversation)}” deleted`, { label: "Undo", action: undo, onGone: () => finishDeletion(id) });
  }
}

// Deleted

/** Of this page, not of a screen: "Undo" is shown on whichever screen the user goes to. */
const deleted = new Set();

async function finishDeletion(id) {
  try {
    await send("DELETE", `/v1/conversations/${encodeURIComponent(id)}`, { keepalive: true });
    forget(id);
  } finally {
    deleted.delete(id); // if that failed, it is still there, and shown again
  }
}

// A page that is closed while "Undo" is shown: what was deleted is deleted.
window.addEventListener("pagehide", () => {
  for (const id of deleted) finishDeletion(id).catch(() => {});
});

async function exportLines(conversation) {
  const lines = [JSON.stringify(conversation)];
  const path = `/v1/conversations/${encodeURIComponent(conversation.id)}/items`;
  for await (const items of pages(path, { order: "asc" })) lines.push(...items.map((item) => JSON.stringify(item)));
  const name = titleOf(conversation).replace(/[^\w-]+/g, "-").slice(0, 40);
  download(`${name || "conversation"}.jsonl`, `${lines.join("\n")}\n`, "application/jsonl");
}
