/** What stands below an answer: errors, findings, usage, and what can be done with it. */

import { get } from "../api.js";
import { button, fill, h } from "../ui/dom.js";
import { count, dollars, plural } from "../ui/format.js";
import { copy } from "../ui/status.js";

const SHOWN_FINDINGS = 20;

/**
 * Fills the footer of a turn that has ended.
 * @param {import("./turn.js").Turn} turn
 * @param {{ onRetry: (() => void) | null, copyAs: () => void, findings?: number, cost?: number | null }} options
 *   `findings` and `cost` are those of the list of responses, if it was read
 */
export function fillFooter(turn, { onRetry, copyAs, findings, cost }) {
  const { response, refusal, id } = turn;
  const run = response?.metadata?.weft_run ?? turn.run;
  const retry = onRetry ? button("Retry", onRetry, { kind: "quiet small" }) : null;
  const text = turn.texts.join("\n\n");
  const failed = refusal ? refusalCard(refusal, onRetry) : response ? errorCard(response, onRetry) : null;
  const facts = h("span", { class: "facts" }, usage(response?.usage, cost));
  fill(
    turn.footer,
    failed,
    h(
      "div",
      { class: "actions" },
      text ? button("Copy", () => copy(text), { kind: "quiet small" }) : null,
      failed ? null : retry,
      id ? h("a", { class: "button quiet small", href: `#/r/${id}` }, "Inspect") : null,
      run ? h("a", { class: "button quiet small", href: `#/runs/${encodeURIComponent(run)}` }, "Run") : null,
      copyAs ? button("Copy as…", copyAs, { kind: "quiet small" }) : null,
      facts,
    ),
  );
  if (id && response?.usage && (cost === undefined || (cost === null && run))) showCost(id, run, facts, response.usage);
  // Of a response that failed before any content, the error says all there is to say.
  const isOnlyError = response?.status === "failed" && !response.output.length;
  if (id && response && !isOnlyError && findings !== 0) showFindings(id, turn.footer);
}

async function showCost(id, run, place, used) {
  // What an agent has cost is known of its run, which may have several answers in the chat.
  const path = run ? `/v1/runs/${encodeURIComponent(run)}` : `/v1/responses/${encodeURIComponent(id)}/usage`;
  const { cost } = await get(path).catch(() => ({ cost: null }));
  if (cost !== null) fill(place, usage(used, cost, run ? "run " : ""));
}

/** `cost` is what the ledger says, `of` what has cost it; some upstreams tell one themselves. */
function usage(usage, cost = null, of = "") {
  if (!usage) return null;
  const cached = usage.input_tokens_details?.cached_tokens;
  const reasoning = usage.output_tokens_details?.reasoning_tokens;
  const about = [
    cached ? `${count(cached)} of the input were cached` : null,
    reasoning ? `${count(reasoning)} of the output are reasoning` : null,
  ].filter(Boolean);
  const price = cost ?? usage.cost;
  const words = `${count(usage.input_tokens)} in · ${count(usage.output_tokens)} out${typeof price === "number" ? ` · ${of}${dollars(price)}` : ""}`;
  return h("span", { class: "usage", title: about.join("\n") || null }, words);
}

async function showFindings(id, place) {
  const { data } = await get(`/v1/responses/${encodeURIComponent(id)}/findings`).catch(() => ({ data: [] }));
  if (!data?.length) return;
  const rows = data.slice(0, SHOWN_FINDINGS).map((one) => h("li", {}, h("code", {}, one.code), ` ${one.detail ?? ""}`));
  const rest = data.length > SHOWN_FINDINGS ? h("li", {}, h("a", { href: `#/r/${id}` }, `${count(data.length - SHOWN_FINDINGS)} more`)) : null;
  place.append(h("details", { class: "findings" }, h("summary", { class: "finding" }, `⚠ ${plural(data.length, "finding")}`), h("ul", {}, rows, rest)));
}

function errorCard(response, onRetry) {
  if (response.status === "cancelled" || (response.status === "incomplete" && !response.error)) {
    return endNote(response);
  }
  if (response.status !== "failed") return null;
  const error = response.error ?? {};
  return card(error.code ?? "error", error.message ?? "The response failed.", [["response", response.id], ["model", response.model]], onRetry);
}

function endNote(response) {
  const reason = response.incomplete_details?.reason;
  if (response.status === "cancelled" || reason === "cancelled") return h("p", { class: "note" }, "■ Stopped");
  if (response.required_action) return null;
  if (!reason) return null;
  const words = { max_output_tokens: "the limit of output tokens was reached", content_filter: "a content filter stopped it" };
  return h("p", { class: "note amber" }, `⚠ Incomplete: ${words[reason] ?? reason}`);
}

function refusalCard(error, onRetry) {
  const facts = [["status", error.status], ["upstream", error.upstream], ["request", error.requestId], ["field", error.param]];
  return card(error.code ?? `HTTP ${error.status}`, error.message, facts, onRetry);
}

function card(kind, message, facts, onRetry) {
  const known = facts.filter(([, value]) => value);
  return h(
    "div",
    { class: "error-card", role: "alert" },
    h("p", { class: "kind" }, h("span", { "aria-hidden": "true" }, "✗ "), String(kind).replaceAll("_", " ")),
    h("p", {}, message),
    known.length ? h("dl", {}, known.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: "mono" }, String(value))))) : null,
    onRetry ? button("Retry", onRetry, { kind: "primary" }) : null,
  );
}
