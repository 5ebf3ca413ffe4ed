/** The chat: the list of conversations, the thread, and where the user writes. */

import { post } from "../api.js";
import { button, fill, h } from "../ui/dom.js";
import { clipped } from "../ui/format.js";
import { bind } from "../ui/keys.js";
import { started } from "../ui/screen.js";
import { Composer } from "./composer.js";
import { ConversationList, titleOf } from "./conversations.js";
import * as stored from "./settings.js";
import { Thread } from "./thread.js";
import { welcome } from "./welcome.js";

export function mount(root, route) {
  const chat = new Chat(root);
  return started(chat, chat.start(route));
}

export class Chat {
  settings = stored.load("");
  #root;
  #models = { names: [], agents: new Set() };
  #thread = null;
  /** Resolves when the thread shows its conversation. */
  #opened = Promise.resolve();
  #outbox = null;
  #place = h("div", { class: "thread-place" });
  #heading = h("h1", { class: "thread-title" });
  #origin = h("span", { class: "origin" });
  #composer = new Composer(this);
  #conversations = null;
  #unbind = [];
  #isClosed = false;

  constructor(root) {
    this.#root = root;
  }

  get title() {
    return this.conversation ? titleOf(this.conversation) : "Chat";
  }

  get conversation() {
    return this.#thread?.conversation ?? null;
  }

  get isRunning() {
    return Boolean(this.#thread?.running);
  }

  async start(route) {
    this.#models = await this.#composer.readModels();
    this.#conversations = new ConversationList(this);
    const drawer = button("☰", () => this.#root.classList.toggle("listing"), { kind: "quiet icon drawer", "aria-label": "Conversations" });
    const head = h("header", { class: "thread-head" }, drawer, this.#heading, this.#origin);
    const pane = h("section", { class: "pane" }, head, this.#place, this.#composer.element);
    fill(this.#root, this.#conversations.element, pane);
    pane.addEventListener("pointerdown", (event) => {
      if (!event.target.closest(".drawer")) this.#root.classList.remove("listing");
    });
    this.#unbind = [
      bind("Chat", "n", "New conversation", () => (location.hash = "#/")),
      bind("Chat", "e", "Edit the last message", () => this.editLast()),
      bind("Chat", "c", "Write a message", () => this.#composer.focus()),
    ];
    await this.update(route);
  }

  /** Shows the conversation of an address. */
  async update(route) {
    const id = route.path[0] === "c" ? route.path[1] : null;
    this.#root.classList.remove("listing");
    if (id && id === this.conversation?.id) return this.#conversations.draw();
    this.#thread?.close();
    this.#thread = null;
    this.settings = this.#withModel(stored.load(id ?? ""));
    if (!id) {
      this.settings.tools = [];
      fill(this.#place, welcome(this.#models, (prompt) => this.#try(prompt)));
    } else await this.#open(id);
    this.#drawHead();
    this.#composer.update();
    this.#conversations.draw();
    if (!this.isRunning && !this.#place.contains(document.activeElement)) this.#composer.focus();
  }

  async #open(id) {
    const thread = new Thread(this);
    this.#thread = thread;
    fill(this.#place, thread.element);
    this.#opened = thread.open(id);
    await this.#opened;
    if (this.#thread !== thread || this.#outbox?.id !== id) return;
    const { input } = this.#outbox;
    this.#outbox = null;
    thread.send(input);
  }

  #withModel(settings) {
    const { names } = this.#models;
    const isUsable = names.includes(settings.model) || (settings.model && !settings.model.startsWith("demo/"));
    return isUsable ? settings : { ...settings, model: names.find((name) => name.includes("/")) ?? names[0] ?? "" };
  }

  #drawHead() {
    this.#heading.textContent = this.conversation ? titleOf(this.conversation) : "New conversation";
    const from = this.conversation?.metadata.forked_from;
    fill(this.#origin, from ? [h("span", { "aria-hidden": "true" }, "⑂ "), h("a", { href: `#/c/${from}` }, "from another conversation")] : null);
  }

  // What the user does

  /** Sends a message; returns once it is on its way, or false if something else runs here. */
  async send(input) {
    if (this.#thread) await this.#opened;
    else await this.#create(input);
    if (this.isRunning) return false;
    this.#thread?.send(input);
    return true;
  }

  async #create(input) {
    const text = input[0].content.find((part) => part.text)?.text ?? "File";
    const thread = new Thread(this);
    thread.conversation = await post("/v1/conversations", { metadata: { title: clipped(text) } });
    stored.save(thread.conversation.id, this.settings);
    if (this.#isClosed) {
      // The user has gone on to another screen: the message is sent, and nobody is brought back.
      const body = stored.requestBody(this.settings, thread.conversation.id, input);
      return post("/v1/responses", { ...body, stream: false });
    }
    this.#thread = thread;
    this.#opened = Promise.resolve();
    fill(this.#place, thread.element);
    location.hash = `#/c/${thread.conversation.id}`;
    this.#drawHead();
    document.title = `${this.title} · Weft`;
  }

  #try({ text, model, tools = [] }) {
    this.settings = { ...this.settings, model, tools };
    this.send([{ type: "message", role: "user", content: [{ type: "input_text", text }] }]);
  }

  stop() {
    return this.#thread?.running?.stop();
  }

  editLast() {
    this.#thread?.editLast();
  }

  /** Changes settings of this conversation. */
  change(settings) {
    this.settings = { ...this.settings, ...settings };
    stored.save(this.conversation?.id ?? "", this.settings);
    this.#composer.update();
  }

  allowAlways(name) {
    this.change({ always: [...new Set([...this.settings.always, name])] });
  }

  forbid(name) {
    this.change({ always: this.settings.always.filter((one) => one !== name) });
  }

  /** Goes to a new branch, and sends something there. */
  goTo(conversation, input) {
    stored.save(conversation.id, this.settings);
    this.#outbox = { id: conversation.id, input };
    location.hash = `#/c/${conversation.id}`;
  }

  // What happens

  onTurn() {
    this.#composer.update();
    this.#conversations.read().catch(() => {});
  }

  onRenamed(id, metadata) {
    if (this.conversation?.id !== id) return;
    this.conversation.metadata = metadata;
    this.#drawHead();
  }

  /** Another tab, or another client, may have gone on here. */
  onNewest(conversation, response) {
    if (conversation !== this.conversation?.id || this.isRunning || this.#thread.known.has(response)) return;
    this.#thread.close();
    this.#thread = null;
    this.update({ path: ["c", conversation], query: new URLSearchParams() });
  }

  close() {
    this.#isClosed = true;
    for (const unbind of this.#unbind) unbind();
    this.#thread?.close();
    this.#conversations?.close();
  }
}
