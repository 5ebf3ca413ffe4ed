/** Modal dialogs, as promises. */

import { button, h, newId } from "./dom.js";

/**
 * Shows a dialog; returns the value of the action that closed it, or null.
 *
 * The value of an action may be a function: its result is returned, and while it returns undefined
 * the dialog stays open, so that it can show what is wrong.
 * @param {{ title: string, content: Node | Node[], narrow?: boolean,
 *   actions?: { label: string, value: unknown, kind?: string }[] }} options
 * @returns {Promise<any>}
 */
export function openDialog({ title, content, actions = [], narrow = false }) {
  const heading = newId("dialog");
  return new Promise((resolve) => {
    const close = button("×", () => dialog.close(), { kind: "quiet icon", "aria-label": "Close" });
    const form = h("form", { class: "dialog-body" }, content);
    const bar = h("footer", {}, actions.map((action) => actionButton(action)));
    const dialog = /** @type {HTMLDialogElement} */ (
      h(
        "dialog",
        { "aria-labelledby": heading, class: narrow ? "narrow" : null },
        h("header", {}, h("h2", { id: heading }, title), close),
        form,
        actions.length ? bar : null,
      )
    );
    let result = null;

    function actionButton({ label, value, kind }) {
      return button(label, () => finish(value), { kind });
    }
    async function finish(value) {
      const found = typeof value === "function" ? await value() : value;
      if (found === undefined) return;
      result = found;
      dialog.close();
    }
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const main = actions.find((action) => action.kind === "primary");
      if (main) finish(main.value);
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    // A click on the backdrop is one on the dialog itself.
    dialog.addEventListener("pointerdown", (event) => {
      if (event.target === dialog) dialog.close();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * Asks for one line of text; returns it, or null.
 * @param {{ title: string, label: string, value?: string, action?: string, type?: string }} options
 */
export function askText({ title, label, value = "", action = "Save", type = "text" }) {
  const id = newId("ask");
  const input = /** @type {HTMLInputElement} */ (h("input", { id, type, value, autofocus: true }));
  const content = [h("label", { for: id }, label), input];
  const actions = [
    { label: "Cancel", value: null },
    { label: action, value: () => input.value, kind: "primary" },
  ];
  return openDialog({ title, content, actions, narrow: true });
}
