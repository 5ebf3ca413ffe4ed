/**
 * One answer: a response that is sent or resumed, drawn as it streams, and its end.
 *
 * Items are keyed by the server's ids. An item that comes again replaces its drawing, so a resumed
 * stream needs no merging.
 */

import { ApiError, ConnectionLost, follow, get, post, send } from "../api.js";
import { fill, h } from "../ui/dom.js";
import { announce, connection } from "../ui/status.js";
import { MessageView, OtherView, ReasoningView } from "./message.js";
import { followRun } from "./progress.js";
import { isCall, ToolCard } from "./tool-call.js";

const RUNNING = "queued,in_progress";
const LAST_EVENTS = ["response.completed", "response.failed", "response.incomplete"];
/** A call that an agent runs. */
const AGENT_CALL = "mcp_call";
const CANCEL_RETRY = 400;

/** A request that was refused: there is no response. */
class Refused extends Error {
  /** @param {ApiError} reason */
  constructor(reason) {
    super(reason.message);
    this.reason = reason;
  }
}

export class Turn {
  /** @type {string | null} */
  id = null;
  /** The final response object; null while it runs, or if there is none. */
  response = null;
  /** The error of a request that was refused. */
  refusal = null;
  /** The run of an agent that answers. @type {string | null} */
  run = null;
  isRunning = false;
  wantsStop = false;
  #last = -1;
  #views = new Map();
  #context;
  /** The calls that an agent has begun, if it has tools. @type {Map<string, any> | null} */
  #calls = null;
  #leave = new AbortController();
  #ended = new AbortController();

  /** @param {{ conversation: string, cards: Map<string, ToolCard>, outputSchema: (name: string) => any }} context */
  constructor(context) {
    this.#context = { ...context, responseId: () => this.id };
    this.items = h("div", { class: "items" });
    this.footer = h("div", { class: "turn-footer" });
    this.element = h("section", { class: "turn" }, this.items, this.footer);
  }

  /** Sends a new request; resolves at its end. */
  send(body) {
    // Made here and sent with each attempt: a request whose answer was lost is not run twice.
    const headers = { "idempotency-key": crypto.randomUUID() };
    return this.#run((signal) => send("POST", "/v1/responses", { body, headers, signal }));
  }

  /** Continues a response that waits for tools; this is the new response. */
  submit(id, outputs) {
    const body = { tool_outputs: outputs, stream: true };
    const path = `/v1/responses/${encodeURIComponent(id)}/submit_tool_outputs`;
    return this.#run((signal) => send("POST", path, { body, signal }));
  }

  /** Follows a response that exists, from its first event. */
  resume(id) {
    this.id = id;
    return this.#run(null);
  }

  /** Draws a finished item, without a stream. */
  show(item) {
    this.#view(item).finish(item);
  }

  /** Leaves the stream; the response goes on. */
  close() {
    this.#leave.abort();
  }

  /** Cancels the response, whether its id is known or not. */
  async stop() {
    this.wantsStop = true;
    announce("Stopping");
    while (this.isRunning && !this.#leave.signal.aborted) {
      if (await this.#cancel().catch(ignorePassing)) return;
      // The request is on its way, or the server is not there: there is nothing to cancel yet.
      await new Promise((resolve) => setTimeout(resolve, CANCEL_RETRY));
    }
  }

  /** Returns whether there was something to cancel. */
  async #cancel() {
    const ids = this.id ? [this.id] : await this.#runningIds();
    for (const id of ids) await post(`/v1/responses/${encodeURIComponent(id)}/cancel`, undefined);
    return ids.length > 0;
  }

  async #runningIds() {
    const query = { conversation: this.#context.conversation, status: RUNNING };
    return (await get("/v1/responses", query)).data.map((one) => one.id);
  }

  async #run(start) {
    this.isRunning = true;
    this.element.classList.add("running");
    fill(this.footer, h("span", { class: "working" }, h("i"), h("i"), h("i"), h("span", { class: "unseen" }, "Working")));
    announce("Answer started");
    try {
      await follow({
        open: (signal) => (this.id === null ? firstAttempt(start, signal) : this.#reopen(signal)),
        onEvent: (event) => this.#onEvent(event),
        onState: (state, seconds) => connection(state === "open" ? "" : `Reconnecting (${seconds} s)`),
        signal: this.#leave.signal,
      });
    } catch (problem) {
      if (this.#leave.signal.aborted) return;
      if (problem instanceof Refused) this.refusal = problem.reason;
      else if (problem instanceof ApiError) this.refusal = problem;
      else throw problem;
    } finally {
      this.#ended.abort();
      connection("");
      this.isRunning = false;
      this.element.classList.remove("running");
      fill(this.footer);
    }
  }

  #reopen(signal) {
    const path = `/v1/responses/${encodeURIComponent(this.id)}?stream=true&starting_after=${this.#last}`;
    return send("GET", path, { signal });
  }

  /** Returns true at the last event. */
  #onEvent({ data }) {
    if (data === "[DONE]") return true;
    const event = JSON.parse(data);
    if (typeof event.sequence_number === "number") {
      // A proxy on the way has sent it once more.
      if (event.sequence_number <= this.#last) return false;
      this.#last = event.sequence_number;
    }
    if (event.response?.id && this.id === null) {
      this.id = event.response.id;
      if (this.wantsStop) this.stop();
    }
    this.run ??= event.response?.metadata?.weft_run ?? null;
    if (event.type === "response.output_item.added") {
      this.#view(event.item);
      if (event.item.type === AGENT_CALL) this.#followRun();
    }
    else if (event.type === "response.output_item.done") this.#view(event.item).finish(event.item);
    else if (event.item_id) {
      this.#views.get(event.item_id)?.delta(event);
      if (this.#calls) this.#showCalls(); // the event of the run may have come before the call
    }
    if (!LAST_EVENTS.includes(event.type)) return false;
    this.response = event.response;
    return true;
  }

  /** Shows which tools of an agent run, and what they say until they have a result. */
  #followRun() {
    if (this.#calls || !this.run) return;
    this.#calls = new Map();
    const ended = AbortSignal.any([this.#leave.signal, this.#ended.signal]);
    followRun(this.run, (calls) => {
      this.#calls = calls;
      this.#showCalls();
    }, ended);
  }

  #showCalls() {
    const open = this.cards.filter((card) => card.isOpen);
    for (const { name, arguments: text, place, text: said } of this.#calls.values()) {
      const equal = open.filter((card) => card.isCallOf(name, text));
      equal[Math.min(place, equal.length - 1)]?.progress(said);
    }
  }

  #view(item) {
    const known = this.#views.get(item.id);
    if (known) return known;
    const view = this.#existingCard(item) ?? this.#newView(item);
    this.#views.set(item.id, view);
    return view;
  }

  /** The call of a request that was approved goes on in the card of the request. */
  #existingCard(item) {
    return item.approval_request_id ? this.#context.cards.get(item.approval_request_id) : undefined;
  }

  #newView(item) {
    const kind = item.type === "message" ? MessageView : item.type === "reasoning" ? ReasoningView : isCall(item) ? ToolCard : OtherView;
    const view = new kind(item, this.#context);
    if (view instanceof ToolCard) {
      for (const id of [item.id, item.call_id]) if (id) this.#context.cards.set(id, view);
    }
    this.items.append(view.element);
    return view;
  }

  /** The cards of this turn. */
  get cards() {
    return [...this.#views.values()].filter((view) => view instanceof ToolCard);
  }

  /** The ids of what is shown. */
  get itemIds() {
    return [...this.#views.keys()];
  }

  /** The texts of the answer, for the clipboard. */
  get texts() {
    return [...this.#views.values()].flatMap((view) => (view instanceof MessageView ? (view.text ?? []) : []));
  }
}

async function firstAttempt(start, signal) {
  try {
    return await start(signal);
  } catch (problem) {
    // The user sees how the server answers a new request; it is not silently sent again.
    throw problem instanceof ApiError ? new Refused(problem) : problem;
  }
}

/** Returns whether that was all: 400 means that the response has ended by itself meanwhile. */
function ignorePassing(problem) {
  if (problem instanceof ConnectionLost) return false;
  if (problem instanceof ApiError) return !problem.isTemporary;
  throw problem;
}
