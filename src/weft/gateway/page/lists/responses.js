/** The list of responses: what is running, failed, repaired. */

import { h } from "../ui/dom.js";
import { ago, dollars, duration, exactTime, plural } from "../ui/format.js";
import { started } from "../ui/screen.js";
import { ObjectTable, status } from "./table.js";

const STATUSES = [["", "any"], ["queued,in_progress", "running"], ["completed", "completed"], ["incomplete", "incomplete"], ["failed", "failed"], ["cancelled", "cancelled"]];

const SPEC = {
  title: "Responses",
  path: "/v1/responses",
  address: "#/responses",
  filters: [
    { name: "status", label: "Status", options: STATUSES },
    { name: "findings", label: "Findings", options: [["", "with and without"], ["any", "with findings"]] },
    { name: "model", label: "Model" },
  ],
  columns: [
    { label: "Status", cell: (row) => status(row.status) },
    { label: "Model", cell: (row) => h("a", { class: "mono", href: `#/r/${encodeURIComponent(row.id)}`, title: row.id }, row.model || row.id) },
    { label: "Dialect", cell: (row) => row.dialect, class: "optional" },
    { label: "Findings", cell: (row) => (row.findings ? h("span", { class: "finding" }, `⚠ ${plural(row.findings, "finding")}`) : h("span", { class: "soft" }, "–")) },
    { label: "Time", cell: (row) => (row.seconds === null ? "–" : duration(row.seconds)), class: "number" },
    { label: "Cost", cell: (row) => (row.cost === null ? h("span", { class: "soft" }, "–") : dollars(row.cost)), class: "number" },
    { label: "Started", cell: (row) => h("time", { title: exactTime(row.created_at) }, ago(row.created_at)) },
    { label: "Chat", cell: (row) => (row.conversation ? h("a", { href: `#/c/${encodeURIComponent(row.conversation.id)}` }, "open") : h("span", { class: "soft" }, "–")) },
  ],
  empty: () => [
    h("h2", {}, "No responses yet"),
    h("p", {}, "What the gateway stores appears here: every answer of the chat, and every response with ", h("code", {}, '"store": true'), "."),
    h("a", { class: "button primary", href: "#/" }, "Start a chat"),
  ],
};

export function mount(root, route) {
  const table = new ObjectTable(root, SPEC);
  return started(table, table.update(route));
}
