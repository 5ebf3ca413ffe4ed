/** What a run waits for, as cards with the decisions that can be made. */

import { button, h, newId } from "../ui/dom.js";
import { exactTime, plural, visible } from "../ui/format.js";
import { jsonView } from "../ui/json-view.js";

/** @typedef {(path: string, body: any, message: string) => Promise<void>} Act */

function card(call, what, ...content) {
  return h(
    "section",
    { class: "tool", "data-state": "approval", "aria-label": `${call.tool}: ${what}` },
    h("div", { class: "card-head" }, h("strong", { class: "mono" }, visible(call.tool)), h("span", { class: "state" }, `● ${what}`)),
    h("div", { class: "arguments" }, jsonView(call.arguments, { open: 2, root: false })),
    content,
  );
}

/** @param {any} call @param {Act} act */
export function approvalCard(call, act) {
  const reason = h("input", { placeholder: "Reason (optional)", "aria-label": "Reason" });
  const decide = (approve, scope = "call") => {
    const body = { approval_id: call.approval_id, approve, scope, ...(reason.value ? { reason: reason.value } : {}) };
    return act("approvals", body, approve ? "Approved" : "Denied");
  };
  return card(
    call,
    "needs approval",
    h("p", { class: "note inset" }, `Expires ${exactTime(call.expires_at)}`),
    h(
      "div",
      { class: "ask" },
      button("Approve", () => decide(true), { kind: "primary" }),
      button("Approve all calls of this tool", () => decide(true, "tool")),
      button("Deny", () => decide(false), { kind: "danger" }),
      reason,
    ),
  );
}

/** One card for all outputs: they may be sent together. */
export function outputCard(calls, act) {
  const fields = calls.map((call) => {
    const id = newId("output");
    const text = h("textarea", { id, rows: 2, placeholder: "Text or JSON", spellcheck: false });
    const isError = h("input", { type: "checkbox", id: `${id}-error` });
    const element = card(call, "waits for an output", h("div", { class: "ask" }, h("label", { for: id }, `Output of ${call.tool}`), text, h("span", { class: "check" }, isError, h("label", { for: `${id}-error` }, "It failed"))));
    return { element, read: () => ({ call_id: call.call_id, output: text.value, is_error: isError.checked }) };
  });
  const send = () => act("outputs", { outputs: fields.map((one) => one.read()) }, "Sent");
  return h("div", { class: "stack" }, fields.map((one) => one.element), button(`Send ${plural(calls.length, "output")}`, send, { kind: "primary" }));
}

/** A call whose outcome nobody knows: a person has to look it up. */
export function parkedCard(call, act) {
  const result = h("input", { placeholder: "What it returned", "aria-label": "Result" });
  const resolve = (action, more = {}) => act("resolve", { call_id: call.call_id, action, ...more }, "Resolved");
  return card(
    call,
    "outcome unknown",
    h("p", { class: "note inset" }, call.why, " Look for the key ", h("code", {}, call.key ?? "–"), `, intended ${exactTime(call.intended_at)}.`),
    h(
      "div",
      { class: "ask" },
      result,
      button("It happened", () => resolve("done", { result: result.value }), { kind: "primary" }),
      button("It did not: retry", () => resolve("retry")),
      button("Unknown: tell the model", () => resolve("abandon"), { kind: "danger" }),
    ),
  );
}
