/** The keyboard: single keys and sequences (`g c`), off while a field has focus. */

import { openDialog } from "./dialog.js";
import { h } from "./dom.js";

/** @typedef {{ keys: string, about: string, run: (event: KeyboardEvent) => void, group: string }} Binding */

/** @type {Set<Binding>} */
const bindings = new Set();
let prefix = "";
let prefixTimer = 0;

/**
 * Binds keys until the returned function is called. `keys` is a name as in KeyboardEvent.key, or
 * several separated by blanks that are pressed one after the other.
 * @param {string} group the heading in the list of shortcuts
 */
export function bind(group, keys, about, run) {
  const binding = { keys, about, run, group };
  bindings.add(binding);
  return () => bindings.delete(binding);
}

/** Whether the user types somewhere. */
export function isTyping(target) {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
  // They press the control that has focus.
  if (/^( |Enter)$/.test(event.key) && event.target.closest?.("a, button, summary")) return;
  clearTimeout(prefixTimer);
  const typed = prefix ? `${prefix} ${event.key}` : event.key;
  prefix = "";
  const found = [...bindings].findLast((one) => one.keys === typed);
  if (found) {
    event.preventDefault();
    found.run(event);
  } else if ([...bindings].some((one) => one.keys.startsWith(`${typed} `))) {
    prefix = typed;
    prefixTimer = setTimeout(() => (prefix = ""), 1500);
  }
});

/** Shows all shortcuts of the present screen. */
export function showKeys() {
  const groups = Map.groupBy(bindings, (one) => one.group);
  const shown = [...groups].map(([group, some]) => [
    h("h3", {}, group),
    h(
      "dl",
      { class: "keys" },
      some.map((one) => [h("dt", {}, keycaps(one.keys)), h("dd", {}, one.about)]),
    ),
  ]);
  return openDialog({ title: "Keyboard shortcuts", content: h("div", {}, shown), narrow: true });
}

const NAMES = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", " ": "Space", Escape: "Esc" };

function keycaps(keys) {
  const names = keys === " " ? [" "] : keys.split(" ");
  return names.map((name) => h("kbd", {}, NAMES[name] ?? name));
}
