/** Tool calls: one card for each, from its first argument to its result. */

import { append, button, fill, h, newId } from "../ui/dom.js";
import { duration, visible } from "../ui/format.js";
import { jsonView, valueView } from "../ui/json-view.js";
import { mismatch } from "../ui/schema.js";
import { attachment } from "./message.js";

const APPROVAL = "mcp_approval_request";
const IMAGE = "image_generation_call";
/** Calls that whoever sent the request has to run. */
const CLIENT_CALLS = ["function_call", "custom_tool_call"];

/** Events of a call whose arguments are all there: somebody runs it. */
const RUNNING = /_call\.(searching|interpreting|generating|calling)$|_call_\w+\.done$/;

const STATES = {
  streaming: ["…", "streaming arguments"],
  waiting: ["●", "waits for your output"],
  approval: ["●", "needs approval"],
  approved: ["✓", "approved"],
  denied: ["✗", "denied"],
  running: ["…", "running"],
  done: ["✓", "done"],
  failed: ["✗", "failed"],
  invalid: ["✗", "invalid, cannot be run"],
  unanswered: ["–", "no output"],
};

/** Whether an item is a call, with or without a card in the making. */
export const isCall = (item) => /_call$/.test(item.type ?? "") || item.type === APPROVAL;

/** Why a call cannot be run, or null. */
export function invalidReason(item) {
  if (!CLIENT_CALLS.includes(item.type)) return null;
  if (!item.name) return "the call has no name";
  if (item.status === "incomplete") return "the arguments were cut off";
  if (item.type === "function_call") {
    try {
      JSON.parse(item.arguments);
    } catch {
      return "the arguments are not JSON";
    }
  }
  return null;
}

export class ToolCard {
  /** What the card waits for: "output", "approval" or null. */
  pending = null;
  #item;
  #schema;
  #began = performance.now();
  #isLive = false;
  #decision = null;
  #onChange = () => {};
  #name = h("strong", { class: "mono" });
  #executor = h("span", { class: "executor" });
  #state = h("span", { class: "state" });
  #arguments = h("div", { class: "arguments" });
  #result = h("div", { class: "result" });
  #ask = h("div", { class: "ask" });
  #text = document.createTextNode("");

  constructor(item, context) {
    this.#schema = context.outputSchema(item.name);
    this.wasExpanded = false;
    this.details = h("details", { open: true }, h("summary", {}, h("span", { class: "sign", "aria-hidden": "true" }, "⚙"), this.#name, this.#executor, this.#state), this.#arguments, this.#result);
    this.details.addEventListener("toggle", () => {
      if (this.details.open) this.wasExpanded = true;
      this.#onChange();
    });
    this.element = h("section", { class: "tool", tabindex: -1, "aria-label": `Tool call ${item.name ?? ""}` }, this.details, this.#ask);
    fill(this.#arguments, h("pre", { class: "growing" }, this.#text));
    this.#head(item);
    this.#set("streaming");
  }

  get item() {
    return this.#item;
  }

  get name() {
    return this.#item.name ?? "";
  }

  #head(item) {
    this.#item = { ...this.#item, ...item };
    this.#name.textContent = visible(this.#item.name ?? "") || this.#item.type?.replace(/_call$/, "") || "(no name)";
    this.#executor.textContent = executor(this.#item);
  }

  #set(name, more = "") {
    const [sign, word] = STATES[name];
    this.element.dataset.state = name;
    fill(this.#state, h("span", { "aria-hidden": "true" }, sign), ` ${word}${more}`);
  }

  /** Whether it has no result, and nobody is asked for one. */
  get isOpen() {
    return ["streaming", "running"].includes(this.element.dataset.state);
  }

  /** Whether this is what came of it. */
  isCallOf(name, text) {
    return this.name === name && this.#text.data === text;
  }

  /** An event of the call before its end. */
  delta(event) {
    this.#isLive = true;
    if (typeof event.delta === "string") this.#text.appendData(event.delta);
    if (typeof event.arguments === "string") {
      this.#head({ arguments: event.arguments });
      this.#showArguments(event);
    }
    if (RUNNING.test(event.type) && !CLIENT_CALLS.includes(this.#item.type)) this.#set("running");
    if (event.partial_image_b64) this.#show(image(event.partial_image_b64), "So far");
  }

  /** It runs. A preliminary result stands there until the next one, or the result, takes its place. */
  progress(text) {
    this.#set("running");
    if (text !== null) this.#show(text, "So far");
  }

  /** The finished item, or one that continues it: the call of an approved request. */
  finish(item) {
    this.#head(item);
    this.#showArguments(item);
    const reason = invalidReason(item);
    if (reason) {
      this.#set("invalid");
      this.element.classList.add("invalid");
      append(this.#arguments, h("p", { class: "note red" }, reason));
    } else if (item.type === APPROVAL) this.#set("approval");
    else if (CLIENT_CALLS.includes(item.type)) this.#set("unanswered");
    else this.#finishExecuted(item);
  }

  #showArguments(item) {
    const text = item.arguments ?? item.input;
    if (typeof text === "string") fill(this.#arguments, item.type === "custom_tool_call" ? h("pre", {}, visible(text)) : jsonView(text, { open: 2, root: false }));
    else fill(this.#arguments, valueView(hostedDetails(item), { open: 2, root: false }));
  }

  #finishExecuted(item) {
    const failed = item.error || item.status === "failed";
    const state = item.status === "in_progress" || item.status === "calling" ? "running" : failed ? "failed" : "done";
    const seconds = (performance.now() - this.#began) / 1000;
    this.#set(state, this.#isLive && seconds >= 0.1 ? ` · ${duration(seconds)}` : "");
    if (item.type === IMAGE && item.result) this.#show(image(item.result));
    if (item.output !== undefined && item.output !== null) this.#show(item.output);
    if (item.error) this.#show(item.error);
    if (state === "done") this.details.open = false;
  }

  /** The output of a call that the client ran, or an approval that was given. */
  answered(item) {
    this.settle();
    if (item.type === "mcp_approval_response") {
      this.#set(item.approve ? "approved" : "denied");
      if (item.reason) this.#show(item.reason);
    } else {
      this.#set("done");
      this.#show(item.output);
    }
    this.details.open = false;
  }

  #show(value, label = "Result") {
    const tree = { open: 2, root: false };
    const view = value instanceof Node ? value : typeof value === "string" ? jsonView(value, tree) : valueView(value, tree);
    fill(this.#result, h("span", { class: "label" }, label), view);
  }

  // What a person has to do

  /** Asks for an output or an approval; `onChange` is called whenever the answer changes. */
  ask(onChange, { onAlways }) {
    if (invalidReason(this.#item)) return;
    this.#onChange = onChange;
    this.pending = this.#item.type === APPROVAL ? "approval" : "output";
    this.#set(this.pending === "approval" ? "approval" : "waiting");
    if (this.pending === "approval") this.#askApproval(onAlways);
    else this.#askOutput();
  }

  #askApproval(onAlways) {
    const id = newId("reason");
    const reason = h("input", { id, placeholder: "Why not? The model is told.", hidden: true, "aria-label": "Reason to deny" });
    const decide = (approve) => {
      this.#decision = { approval_request_id: this.#item.id, approve, ...(reason.value ? { reason: reason.value } : {}) };
      this.#set(approve ? "approved" : "denied");
      for (const one of this.#ask.querySelectorAll("button, input")) one.disabled = true;
      this.#onChange();
    };
    const deny = button("Deny…", () => {
      if (!reason.hidden) return decide(false);
      reason.hidden = false;
      deny.textContent = "Deny";
      reason.focus();
    }, { kind: "danger" });
    reason.addEventListener("keydown", (event) => {
      if (event.key === "Enter") decide(false);
    });
    fill(
      this.#ask,
      button("Approve", () => decide(true), { kind: "primary" }),
      deny,
      reason,
      button("Always", () => {
        onAlways(this.name);
        decide(true);
      }, { kind: "quiet", title: "Approve this tool in this conversation from now on" }),
    );
  }

  approve() {
    this.#ask.querySelector("button.primary")?.click();
  }

  #askOutput() {
    const [id, problemId] = [newId("output"), newId("problem")];
    const problem = h("p", { id: problemId, class: "note red", role: "alert" });
    const field = h("textarea", { id, rows: 2, spellcheck: false, placeholder: "Text or JSON", "aria-describedby": problemId });
    field.addEventListener("input", () => {
      const [value, wrong] = this.#checked(field.value);
      problem.textContent = wrong ?? "";
      field.setAttribute("aria-invalid", String(Boolean(wrong)));
      this.#decision = wrong || !field.value ? null : { tool_call_id: this.#item.call_id, output: value };
      this.#onChange();
    });
    fill(this.#ask, h("label", { for: id }, `Output of ${this.name}`), field, problem);
  }

  /** The output to send, and what is wrong with it. */
  #checked(text) {
    const looksLikeJson = /^\s*[[{]/.test(text);
    if (!looksLikeJson && !this.#schema) return [text, null];
    let value;
    try {
      value = JSON.parse(text);
    } catch (problem) {
      return [null, `not JSON: ${problem.message}`];
    }
    return [text, this.#schema ? mismatch(this.#schema, value) : null];
  }

  /** The answer as submit_tool_outputs takes it, or null. */
  get answer() {
    return this.#decision;
  }

  /** Asks for nothing any more. */
  settle() {
    this.pending = null;
    this.#onChange = () => {};
    fill(this.#ask);
    if (this.element.dataset.state === "approval") this.#set("unanswered");
    if (this.element.dataset.state === "approved") this.#set("running");
    if (this.element.dataset.state === "waiting") this.#set("done");
  }

  focus() {
    const field = this.#ask.querySelector("textarea, button");
    (field ?? this.element).focus({ preventScroll: false });
  }
}

function executor(item) {
  if (CLIENT_CALLS.includes(item.type)) return "run by you";
  if (item.server_label) return `run by ${item.server_label}`;
  return "run by the provider";
}

/** What a call of a provider's own tool did, without what every item has. */
function hostedDetails({ id, type, status, output, result, ...rest }) {
  return type === IMAGE || result === undefined ? rest : { ...rest, result };
}

const image = (base64) => attachment({ image_url: `data:image/png;base64,${base64}`, filename: "generated image" });
