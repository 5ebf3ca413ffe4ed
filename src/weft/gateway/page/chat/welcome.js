/** What a new conversation shows: prompts to try, and how to add a model. */

import { h } from "../ui/dom.js";
import { SAMPLES } from "./tools.js";

const PROMPTS = [
  { title: "Watch it reason", about: "Reasoning streams in a fold of its own.", model: "demo/reasoner", text: "Why does a stream need an end mark?" },
  { title: "Answer its tools", about: "Two calls at once; you type what they return.", model: "demo/tools", text: "What are the weather and the time in Oslo?", tools: SAMPLES.slice(0, 2) },
  { title: "Approve a refund", about: "An agent looks up an order and asks before it pays.", isAgent: true, text: "What is the status of order A-17? Please refund it." },
  { title: "See it fail", about: "An error in the middle of an answer, and what you can do then.", model: "demo/error-midstream", text: "Tell me something, then break." },
];

const SNIPPET = `[upstreams.openai]        # knows its address and OPENAI_API_KEY
[upstreams.local]
dialect = "openai-chat"
base_url = "http://127.0.0.1:11434/v1"
models = ["qwen3"]`;

/** @param {{ names: string[], agents: Set<string> }} models @param {(prompt: any) => void} onTry */
export function welcome({ names, agents }, onTry) {
  const agent = [...agents].find((name) => names.includes(name));
  const possible = PROMPTS.map((one) => (one.isAgent ? { ...one, model: agent } : one)).filter((one) => names.includes(one.model));
  const hasOther = names.some((name) => !name.startsWith("demo/") && !agents.has(name) && !name.startsWith("weft-agents/"));
  const cards = possible.map((one) =>
    h("button", { type: "button", class: "prompt", onclick: () => onTry(one) }, h("strong", {}, one.title), h("span", {}, one.about), h("code", {}, one.model)),
  );
  return h(
    "div",
    { class: "welcome" },
    h("h2", {}, "Ask a model, or try one of these"),
    h("p", { class: "soft" }, "Every answer is stored, can be resumed, and can be looked into frame by frame."),
    cards.length ? h("div", { class: "prompts" }, cards) : null,
    hasOther ? null : h("details", { class: "snippet-box", open: !cards.length }, h("summary", {}, "Only the demo model is here. Add your own in weft.toml"), h("pre", { class: "snippet", tabindex: 0 }, SNIPPET)),
  );
}
