/** What the last answer waits for: outputs and approvals, sent together once all are there. */

import { button, fill, h } from "../ui/dom.js";
import { plural } from "../ui/format.js";

/**
 * Asks for the answer to each card, and calls `onSubmit` with the outputs.
 * @param {import("./tool-call.js").ToolCard[]} cards
 * @param {{ always: string[], onAlways: (name: string) => void, onSubmit: (outputs: any[]) => void }} options
 * @returns {HTMLElement} a bar for the end of the cards
 */
export function askFor(cards, { always, onAlways, onSubmit }) {
  const bar = h("div", { class: "pending-bar" });
  let isSent = false;

  const submit = () => {
    if (isSent) return;
    isSent = true;
    const outputs = cards.map((card) => card.answer);
    for (const card of cards) card.settle();
    bar.remove();
    onSubmit(outputs);
  };

  const update = () => {
    const open = cards.filter((card) => !card.answer);
    const approvals = open.filter((card) => card.pending === "approval");
    const typed = cards.filter((card) => card.pending === "output");
    // Approvals alone need no further click.
    if (!open.length && !typed.length) return submit();
    fill(
      bar,
      approvals.length > 1 ? approveAll(approvals) : null,
      typed.length
        ? button(`Send ${plural(typed.length, "output")}`, submit, { kind: "primary", disabled: open.length > 0 })
        : null,
      h("span", { class: "soft", role: "status" }, open.length ? `${plural(open.length, "call")} to answer` : ""),
    );
  };

  for (const card of cards) card.ask(update, { onAlways });
  // Several at once are approved together only if each was looked at.
  if (cards.filter((card) => card.pending === "approval").length > 1) {
    for (const card of cards) {
      card.details.open = false;
      card.wasExpanded = false;
    }
  }
  update();
  for (const card of cards) if (card.pending === "approval" && always.includes(card.name)) card.approve();
  return bar;
}

function approveAll(cards) {
  const unseen = cards.filter((card) => !card.wasExpanded).length;
  return button(`Approve all ${cards.length}`, () => cards.forEach((card) => card.approve()), {
    disabled: unseen > 0,
    title: unseen ? `Open ${plural(unseen, "call")} first` : null,
  });
}
