/** The instructions and parameters of a conversation. */

import { openDialog } from "../ui/dialog.js";
import { h, newId } from "../ui/dom.js";

const EFFORTS = ["", "none", "minimal", "low", "medium", "high"];

/** Returns the changed settings, or null. */
export function editOptions(settings) {
  const { options } = settings;
  const instructions = h("textarea", { id: newId("instructions"), rows: 4, placeholder: "How the model should behave" });
  instructions.value = settings.instructions;
  const temperature = number("0–2", options.temperature, { min: 0, max: 2, step: 0.1 });
  const limit = number("no limit", options.max_output_tokens, { min: 1, step: 1 });
  const effort = h("select", { id: newId("effort") }, EFFORTS.map((name) => h("option", { value: name }, name || "as the model likes")));
  effort.value = options.reasoning?.effort ?? "";
  const content = [
    field("Instructions", instructions),
    h("div", { class: "columns" }, field("Temperature", temperature), field("Output tokens", limit), field("Reasoning", effort)),
    h("p", {}, "Kept in this browser and sent with each message of this conversation. What a model cannot do is refused, or reported as a finding."),
  ];
  const read = () => ({
    instructions: instructions.value.trim(),
    options: {
      ...(temperature.value ? { temperature: Number(temperature.value) } : {}),
      ...(limit.value ? { max_output_tokens: Number(limit.value) } : {}),
      ...(effort.value ? { reasoning: { effort: effort.value } } : {}),
    },
  });
  const save = () => ([temperature, limit].every((one) => one.reportValidity()) ? read() : undefined);
  const actions = [{ label: "Cancel", value: null }, { label: "Save", value: save, kind: "primary" }];
  return openDialog({ title: "Options", content, actions });
}

function number(placeholder, value, limits) {
  return h("input", { id: newId("number"), type: "number", placeholder, value: value ?? null, ...limits });
}

const field = (label, input) => h("div", { class: "field" }, h("label", { for: input.id }, label), input);
