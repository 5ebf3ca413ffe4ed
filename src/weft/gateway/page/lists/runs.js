/** The runs of agents: a list, and one run with what it waits for. */

import { get } from "../api.js";
import { h } from "../ui/dom.js";
import { ago, duration, exactTime } from "../ui/format.js";
import { started } from "../ui/screen.js";
import { RunView } from "./run.js";
import { ObjectTable, status } from "./table.js";

const STATUSES = ["", "running", "waiting", "finished", "failed", "cancelled"].map((one) => [one, one || "any"]);

const spec = (agents) => ({
  title: "Runs",
  path: "/v1/runs",
  address: "#/runs",
  filters: [
    { name: "status", label: "Status", options: STATUSES },
    { name: "agent", label: "Agent", options: [["", "any"], ...agents.map((name) => [name, name])] },
  ],
  columns: [
    { label: "Status", cell: (row) => status(row.status) },
    { label: "Run", cell: (row) => h("a", { class: "mono", href: `#/runs/${encodeURIComponent(row.id)}` }, `${row.id.slice(0, 14)}…`) },
    { label: "Agent", cell: (row) => row.agent },
    { label: "Events", cell: (row) => row.events, class: "number" },
    { label: "Time", cell: (row) => (row.ended_at === null ? "–" : duration(row.ended_at - row.created_at)), class: "number" },
    { label: "Started", cell: (row) => h("time", { title: exactTime(row.created_at) }, ago(row.created_at)) },
  ],
  empty: () => [
    h("h2", {}, "No runs yet"),
    h("p", {}, "An agent is a model with tools. Choose one as the model of a chat, or ", h("code", {}, "POST /v1/runs"), "."),
    h("a", { class: "button primary", href: "#/" }, "Start a chat"),
  ],
});

export async function mount(root, route) {
  const id = route.path[1];
  const screen = id ? new RunView(root, id) : new ObjectTable(root, spec((await get("/v1/agents")).data.map((one) => one.id)));
  await started(screen, id ? screen.start() : screen.update(route));
  return {
    title: screen.title,
    // From the list to one run and back: another view.
    update: (next) => (next.path[1] === id && !id ? screen.update(next) : false),
    close: () => screen.close(),
  };
}
