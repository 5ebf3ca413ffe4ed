/** One conversation: its turns, old and running, and what its last answer waits for. */

import { all } from "../api.js";
import { fill, h } from "../ui/dom.js";
import { plural } from "../ui/format.js";
import { announce, copy } from "../ui/status.js";
import { editor } from "./editor.js";
import { fillFooter } from "./footer.js";
import { branches, createFork, forkPoint, pager } from "./forks.js";
import { isAnswer, isUserMessage, readHistory } from "./history.js";
import { userMessage } from "./message.js";
import { askFor } from "./pending.js";
import { requestBody } from "./settings.js";
import { showSnippets } from "./snippets.js";
import { Turn } from "./turn.js";

/** Turns that are drawn at first, and each time the user scrolls to the top. */
const PAGE = 50;
const NEAR_END = 80;

/**
 * What the user asked: the items that were sent, the id of the message if it was read from the
 * conversation, and the turn that answers first.
 * @typedef {{ input: any[], id: string | null, element: HTMLElement, turn: Turn | null }} Question
 */

export class Thread {
  conversation = null;
  /** @type {Turn | null} */
  running = null;
  /** The responses that are shown here. */
  known = new Set();
  #items = [];
  /** The last read of new items. */
  #reading = Promise.resolve();
  #past = [];
  #cards = new Map();
  #answers = new Map();
  /** @type {Question | null} */
  #question = null;
  #chat;
  #isClosed = false;
  #earlier = h("div", { class: "earlier" });
  #list = h("div", { class: "turns" });
  #observer = new IntersectionObserver((seen) => {
    if (seen.some((one) => one.isIntersecting)) this.#drawEarlier();
  });

  /** @param {import("./chat.js").Chat} chat */
  constructor(chat) {
    this.#chat = chat;
    this.element = h("div", { class: "thread", tabindex: 0, role: "region", "aria-label": "Conversation" }, this.#earlier, this.#list);
    // What is drawn at the end stays in view, unless the user has scrolled away from it.
    new ResizeObserver(() => this.#isAtEnd && this.scrollToEnd()).observe(this.#list);
    this.element.addEventListener("scroll", () => {
      const { scrollTop, clientHeight, scrollHeight } = this.element;
      this.#isAtEnd = scrollTop + clientHeight > scrollHeight - NEAR_END;
    }, { passive: true });
  }

  #isAtEnd = true;

  scrollToEnd() {
    this.element.scrollTop = this.element.scrollHeight;
  }

  close() {
    this.#isClosed = true;
    this.running?.close();
    this.#observer.disconnect();
  }

  // What was before

  /** Shows a stored conversation, and follows what runs in it. */
  async open(id) {
    const { conversation, items, turns } = await readHistory(id);
    if (this.#isClosed) return;
    this.conversation = conversation;
    this.#items = items;
    for (const item of items.filter(isAnswer)) this.#answers.set(item.call_id ?? item.approval_request_id, item);
    const last = turns.at(-1);
    const running = last?.isRunning ? turns.pop() : null;
    this.#past = turns;
    this.#drawEarlier();
    this.#observer.observe(this.#earlier);
    this.scrollToEnd();
    if (running) this.#follow(running);
    else if (last?.turn) this.#askPending(last.turn);
    this.#showBranches();
  }

  #drawEarlier() {
    const some = this.#past.splice(-PAGE);
    const before = this.element.scrollHeight;
    const isFirst = !this.#list.childElementCount;
    const nodes = some.flatMap((past, index) => this.#drawPast(past, some[index + 1]));
    this.#list.prepend(...nodes);
    if (!isFirst) this.element.scrollTop += this.element.scrollHeight - before;
    fill(this.#earlier, this.#past.length ? plural(this.#past.length, "earlier turn") : null);
  }

  #drawPast(past, next) {
    if (past.listed) this.known.add(past.listed.id);
    // An attempt that failed and was repeated: the question stands once, with the answer.
    if (next && past.response?.status === "failed" && !past.outputs.length) return [failedAttempt(past)];
    const questions = past.inputs.filter(isUserMessage).map((item) => this.#ask([item], item.id));
    if (!past.outputs.length && !past.listed) return questions.map((one) => one.element);
    const turn = this.#newTurn();
    turn.id = past.listed?.id ?? null;
    turn.response = past.response;
    for (const item of past.outputs) turn.show(item);
    for (const card of turn.cards) {
      const answer = this.#answers.get(card.item.call_id) ?? this.#answers.get(card.item.id);
      if (answer) card.answered(answer);
    }
    for (const item of past.outputs) if (item.approval_request_id) turn.show(item);
    past.turn = turn;
    this.#finishTurn(turn, { listed: past.listed });
    return [...questions.map((one) => one.element), turn.element];
  }

  /** Follows a response that was running when the page was opened. */
  #follow(past) {
    this.#isAtEnd = true;
    for (const item of past.inputs.filter(isUserMessage)) this.#list.append(this.#ask([item], null).element);
    const turn = this.#newTurn();
    this.#drive(turn, turn.resume(past.listed.id), null);
  }

  // What happens now

  /** Sends something; returns when the answer has ended. */
  send(input) {
    this.#isAtEnd = true;
    this.#list.append(this.#ask(input, null).element);
    const body = requestBody(this.#chat.settings, this.conversation.id, input);
    const turn = this.#newTurn();
    return this.#drive(turn, turn.send(body), null);
  }

  #newTurn() {
    const outputSchema = (name) => this.#chat.settings.tools.find((tool) => tool.name === name)?.output_schema;
    const turn = new Turn({ conversation: this.conversation.id, cards: this.#cards, outputSchema });
    turn.question = this.#question;
    if (turn.question) turn.question.turn ??= turn;
    return turn;
  }

  async #drive(turn, ended, submitted) {
    this.running = turn;
    this.#list.append(turn.element);
    this.scrollToEnd();
    this.#chat.onTurn();
    await ended;
    if (this.#isClosed) return;
    this.running = null;
    if (turn.id) this.known.add(turn.id);
    this.#finishTurn(turn, { submitted });
    this.#chat.onTurn();
    announce(ending(turn));
    await this.#readNewItems();
    if (!this.#isClosed) this.#askPending(turn);
  }

  /** Reads what was added to the conversation, one read after the other, so that no item comes twice. */
  #readNewItems() {
    const path = `/v1/conversations/${encodeURIComponent(this.conversation.id)}/items`;
    const read = async () => this.#items.push(...(await all(path, { order: "asc", after: this.#items.at(-1)?.id }, Infinity)));
    this.#reading = this.#reading.then(read, read);
    return this.#reading;
  }

  /**
   * Where a question is among the items; -1 if it is not there. One that was asked here is found by
   * its answer, because the conversation gives it an id of its own.
   */
  #placeOf({ id, turn }) {
    if (id) return this.#items.findIndex((item) => item.id === id);
    const answered = new Set(turn?.itemIds);
    const first = this.#items.findIndex((item) => answered.has(item.id));
    return this.#items.slice(0, Math.max(first, 0)).findLastIndex(isUserMessage);
  }

  #finishTurn(turn, { listed, submitted }) {
    const canRetry = turn.question && turn.id !== null;
    const retry = () => (submitted && turn.response?.status === "failed" ? this.#submit(...submitted) : this.#retry(turn));
    fillFooter(turn, {
      findings: listed?.findings,
      cost: listed?.cost,
      onRetry: canRetry || turn.refusal ? retry : null,
      copyAs: turn.question ? () => showSnippets(requestBody(this.#chat.settings, "", turn.question.input)) : null,
    });
  }

  // Tools

  #askPending(turn) {
    const status = turn.response?.status;
    if (status !== "incomplete" && status !== "completed") return;
    const cards = turn.cards.filter((card) => isOpen(card, this.#answers));
    if (!cards.length) return;
    const bar = askFor(cards, {
      always: this.#chat.settings.always,
      onAlways: (name) => this.#chat.allowAlways(name),
      onSubmit: (outputs) => this.#submit(turn.id, outputs),
    });
    if (this.running) return; // all were approved at once
    turn.items.append(bar);
    announce(`${plural(cards.length, "call")} to answer`);
    cards[0].focus();
  }

  #submit(id, outputs) {
    for (const one of outputs) this.#answers.set(one.tool_call_id ?? one.approval_request_id, one);
    const turn = this.#newTurn();
    return this.#drive(turn, turn.submit(id, outputs), [id, outputs]);
  }

  // Questions, edits and branches

  #ask(input, id) {
    const question = { input: input.map(asInput), id, element: null, turn: null };
    const onEdit = () => this.#edit(question);
    question.element = userMessage(input[0], { onEdit, onCopy: (text) => copy(text) });
    this.#question = question;
    return question;
  }

  /** Turns the last message of the user into a field. */
  editLast() {
    if (this.#question && !this.running) this.#edit(this.#question);
  }

  #edit(question) {
    if (this.running) return;
    editor(question, (input) => this.#branch(question, input));
  }

  #retry(turn) {
    const isEmpty = !turn.items.childElementCount;
    if (!isEmpty) return this.#branch(turn.question, turn.question.input);
    turn.element.remove();
    return this.#branch({ ...turn.question, id: null, turn: null }, turn.question.input);
  }

  /** Asks something else at the place of a question: in a fork, or here if it was never answered. */
  async #branch(question, input) {
    if (question.id || question.turn?.itemIds.length) await this.#readNewItems();
    const index = this.#placeOf(question);
    if (index < 0) {
      question.element.remove();
      return this.send(input);
    }
    const point = forkPoint(this.conversation, this.#items, index);
    const fork = await createFork(point, this.conversation.metadata.title);
    this.#chat.goTo(fork, input);
  }

  async #showBranches() {
    const found = await branches(this.conversation);
    for (const [after, ids] of found) {
      const index = after ? this.#items.findIndex((item) => item.id === after) + 1 : 0;
      this.#markBranch(this.#items[index]?.id, ids);
    }
  }

  #markBranch(id, ids) {
    const shown = id ? this.#list.querySelector(`[data-item="${CSS.escape(id)}"] .actions`) : null;
    const last = this.#question?.element.querySelector(".actions");
    (shown ?? last)?.prepend(pager(ids, this.conversation.id));
  }
}

/** Whether a call still waits for its client. */
function isOpen(card, answers) {
  const { type, call_id: call, id } = card.item;
  const isForClient = ["function_call", "custom_tool_call", "mcp_approval_request"].includes(type);
  return isForClient && card.element.dataset.state !== "invalid" && !answers.has(call) && !answers.has(id);
}

/** An item as a request may contain it. */
function asInput({ type, role, content }) {
  return { type, role, content };
}

function ending(turn) {
  const status = turn.refusal ? "failed" : turn.response?.status;
  return { failed: "The answer failed", cancelled: "Stopped", completed: "Answer finished" }[status] ?? "Answer ended";
}

function failedAttempt({ response }) {
  const text = `✗ A failed attempt: ${response.error?.message ?? response.error?.code ?? "unknown"} `;
  return h("p", { class: "note attempt" }, text, h("a", { href: `#/r/${response.id}` }, "Inspect"));
}
