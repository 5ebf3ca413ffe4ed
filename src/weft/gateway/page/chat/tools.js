/** The tools of a conversation, which the user runs: a definition each, as JSON. */

import { openDialog } from "../ui/dialog.js";
import { button, h, newId } from "../ui/dom.js";

const text = (description) => ({ type: "string", description });

export const SAMPLES = [
  {
    name: "get_weather",
    description: "Returns the weather in a city.",
    parameters: { type: "object", properties: { city: text("The name of the city.") }, required: ["city"] },
    output_schema: { type: "object", properties: { celsius: { type: "number" } }, required: ["celsius"] },
  },
  {
    name: "get_time",
    description: "Returns the local time in a city.",
    parameters: { type: "object", properties: { city: text("The name of the city.") }, required: ["city"] },
  },
  {
    name: "search_notes",
    description: "Searches the user's notes.",
    parameters: { type: "object", properties: { query: text("Words to search for."), limit: { type: "integer" } }, required: ["query"] },
  },
];

const NAME = /^[\w-]{1,64}$/;

/** Returns the tools of the dialog, or null. */
export function editTools(tools) {
  const list = h("div", { class: "tool-list" });
  const add = (tool) => list.append(toolEditor(tool));
  for (const tool of tools) add(tool);
  const samples = SAMPLES.map((sample) => button(`+ ${sample.name}`, () => add(sample), { kind: "small" }));
  const content = [
    h("p", {}, "The model may call these, and you type what they return. ", h("code", {}, "output_schema"), " is optional: what you type is checked against it."),
    list,
    h("div", { class: "samples" }, samples, button("+ empty", () => add({ name: "", description: "", parameters: { type: "object", properties: {} } }), { kind: "small" })),
  ];
  const save = () => {
    const found = [...list.children].map((one) => one.read());
    return found.includes(null) ? undefined : found;
  };
  const actions = [{ label: "Cancel", value: null }, { label: "Save", value: save, kind: "primary" }];
  return openDialog({ title: "Tools", content, actions });
}

function toolEditor(tool) {
  const [id, problemId] = [newId("tool"), newId("problem")];
  const field = h("textarea", { id, class: "mono", rows: 8, spellcheck: false, "aria-describedby": problemId });
  field.value = JSON.stringify(tool, null, 2);
  const problem = h("p", { id: problemId, class: "note red", role: "alert" });
  const remove = button("Remove", () => editor.remove(), { kind: "quiet small" });
  const editor = h("div", { class: "tool-editor" }, h("div", { class: "snippet-head" }, h("label", { for: id }, "Definition"), remove), field, problem);
  /** The definition, or null if it has a problem, which is shown. */
  editor.read = () => {
    const [value, wrong] = parseTool(field.value);
    problem.textContent = wrong ?? "";
    field.setAttribute("aria-invalid", String(Boolean(wrong)));
    return wrong ? null : value;
  };
  return editor;
}

/** A tool, and what is wrong with it. */
export function parseTool(source) {
  let tool;
  try {
    tool = JSON.parse(source);
  } catch (problem) {
    return [null, `not JSON: ${problem.message}`];
  }
  if (!NAME.test(tool?.name ?? "")) return [null, "name: expected 1 to 64 letters, digits, _ and -"];
  const { parameters } = tool;
  if (parameters === null || typeof parameters !== "object" || Array.isArray(parameters)) return [null, "parameters: expected a JSON Schema"];
  return [tool, null];
}
