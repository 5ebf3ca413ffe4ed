/** Messages outside of the screens: for screen readers, for a few seconds, and about the connection. */

import { button, find, h } from "./dom.js";

/** Announces a state for screen readers: a turn that began or ended, never its tokens. */
export function announce(text) {
  find("#live").textContent = text;
}

/**
 * Shows a message for some seconds. With an action, a button that runs it, and the message goes.
 * @param {string} text
 * @param {{ label?: string, action?: () => void, seconds?: number, onGone?: () => void }} [options]
 */
export function toast(text, { label, action, seconds = 6, onGone } = {}) {
  const shown = h("div", { class: "toast", role: "status" }, h("span", {}, text));
  let isOver = false;
  const remove = () => {
    if (isOver) return;
    isOver = true;
    clearTimeout(timer);
    shown.remove();
  };
  const timer = setTimeout(() => {
    remove();
    onGone?.();
  }, 1000 * seconds);
  if (label && action) {
    shown.append(
      button(label, () => {
        remove();
        action();
      }),
    );
  }
  find("#toasts").append(shown);
}

/** Shows a bar while there is no connection; an empty text removes it. */
export function connection(text) {
  const bar = find("#connection");
  bar.textContent = text;
  bar.hidden = !text;
}

/** Copies a text; says so. */
export async function copy(text, what = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
    toast(what, { seconds: 2 });
  } catch {
    // Without permission, or not over https: a selection can still be copied by hand.
    toast("The browser does not allow copying here");
  }
}

/** Lets the user save a text as a file. */
export function download(name, text, type = "application/json") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
