/** A request of the page as a command or a program, to be tried outside of it. */

import { key } from "../api.js";
import { button, h } from "../ui/dom.js";
import { openDialog } from "../ui/dialog.js";
import { copy } from "../ui/status.js";

/** The same request, without what only this page needs. */
function withoutPageFields({ background, conversation, include, ...body }) {
  return { ...body, stream: true };
}

export function asCurl(body) {
  const lines = [
    `curl -N ${location.origin}/v1/responses`,
    "-H 'content-type: application/json'",
    ...(key.get() ? ['-H "authorization: Bearer $WEFT_KEY"'] : []),
    `-d '${JSON.stringify(withoutPageFields(body)).replaceAll("'", "'\\''")}'`,
  ];
  return lines.join(" \\\n  ");
}

export function asPython(body) {
  const { stream, ...rest } = withoutPageFields(body);
  const secret = key.get() ? 'os.environ["WEFT_KEY"]' : '"none"';
  const given = Object.entries(rest).map(([name, value]) => `    ${name}=${python(value)},`);
  return [
    ...(key.get() ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url="${location.origin}/v1", api_key=${secret})`,
    "with client.responses.stream(",
    ...given,
    ") as stream:",
    "    for event in stream:",
    '        if event.type == "response.output_text.delta":',
    '            print(event.delta, end="", flush=True)',
    "",
  ].join("\n");
}

/** JSON as a Python expression. */
export function python(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  const pairs = Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${python(one)}`);
  return `{${pairs.join(", ")}}`;
}

/** Shows both, each with a button that copies it. */
export function showSnippets(body) {
  const part = (name, text) => [
    h("div", { class: "snippet-head" }, h("h3", {}, name), button("Copy", () => copy(text), { kind: "small" })),
    h("pre", { class: "snippet", tabindex: 0 }, text),
  ];
  const content = h("div", {}, part("curl", asCurl(body)), part("Python", asPython(body)));
  return openDialog({ title: "Copy as…", content });
}
