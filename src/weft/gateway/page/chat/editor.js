/** A message of the user as a field, in its own place. */

import { button, h } from "../ui/dom.js";

/**
 * @param {import("./thread.js").Question} question
 * @param {(input: any[]) => void} onSend called with the changed items
 */
export function editor(question, onSend) {
  const [message] = question.input;
  const parts = typeof message.content === "string" ? [{ type: "input_text", text: message.content }] : message.content;
  const index = parts.findIndex((part) => typeof part.text === "string");
  const field = h("textarea", { rows: 2, "aria-label": "Edit the message" });
  field.value = parts[index]?.text ?? "";
  const close = () => form.replaceWith(question.element);
  const send = () => {
    const changed = { type: "input_text", text: field.value };
    const content = index < 0 ? [changed, ...parts] : parts.with(index, changed);
    close();
    onSend([{ ...message, content }]);
  };
  const form = h(
    "form",
    { class: "message user editor" },
    field,
    h("div", { class: "actions" }, button("Cancel", close), button("Send as a branch", send, { kind: "primary" })),
  );
  field.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      send();
    } else return;
    event.stopPropagation();
  });
  question.element.replaceWith(form);
  field.focus();
  field.setSelectionRange(field.value.length, field.value.length);
}
