/** The inspector without a trace: drop a capture, open the sample, or one of the latest repairs. */

import { get } from "../api.js";
import { button, fill, h, newId } from "../ui/dom.js";
import { ago, plural } from "../ui/format.js";
import { DIALECTS, QUIRKS, captureSource, fileBytes } from "./source.js";

export const FILE_ADDRESS = "#/inspect/file";

/** @type {import("./source.js").Source | null} the capture that was dropped last: in memory only */
let dropped = null;
export const droppedSource = () => dropped;

/** Takes a file of the user and goes to it; `onProblem` is called with what is wrong with it. */
export async function take(file, reading, onProblem) {
  try {
    dropped = captureSource(file.name, await fileBytes(file), FILE_ADDRESS, reading);
    if (location.hash === FILE_ADDRESS) window.dispatchEvent(new HashChangeEvent("hashchange"));
    else location.hash = FILE_ADDRESS;
  } catch (error) {
    onProblem(error.message);
  }
}

/** Lets files be dropped on an element; the last `onFile` of an element gets them. */
export function acceptDrops(element, onFile) {
  element.ondragover = (event) => {
    event.preventDefault();
    element.classList.add("dropping");
  };
  element.ondragleave = (event) => {
    if (!element.contains(event.relatedTarget)) element.classList.remove("dropping");
  };
  element.ondrop = (event) => {
    event.preventDefault();
    element.classList.remove("dropping");
    const [file] = event.dataTransfer.files;
    if (file) onFile(file);
  };
}

/** Fills the screen; `message` says why there is nothing to see. */
export async function showStart(root, message = "") {
  const [dialect, habit, field] = [newId("dialect"), newId("quirks"), newId("capture")];
  const problem = h("p", { class: "red", role: "alert" }, message);
  const from = /** @type {HTMLSelectElement} */ (
    h("select", { id: dialect }, h("option", { value: "" }, "find out"), DIALECTS.map(([name, label]) => h("option", { value: name }, label)))
  );
  const file = /** @type {HTMLInputElement} */ (h("input", { id: field, type: "file", class: "unseen", tabindex: -1, "aria-label": "Capture" }));
  const quirks = /** @type {HTMLSelectElement} */ (
    h("select", { id: habit }, h("option", { value: "" }, "none"), QUIRKS.map(([label], index) => h("option", { value: index }, label)))
  );
  const accept = (one) => take(one, readingOf(from.value, quirks.value), (text) => (problem.textContent = text));
  file.addEventListener("change", () => file.files[0] && accept(file.files[0]));
  const recent = h("section", { class: "recent" });
  const zone = h(
    "div",
    { class: "drop-zone" },
    h("p", { class: "drop-sign", "aria-hidden": "true" }, "⇣"),
    h("h2", {}, "Drop a capture here"),
    h("p", { class: "soft" }, "The bytes of a streamed answer, as ", h("code", {}, "curl -sN … > stream.sse"), " writes them. They stay in memory; up to 20 MB."),
    h("div", { class: "drop-actions" }, button("Choose a file…", () => file.click(), { kind: "primary" }), file, h("span", { class: "labelled" }, h("label", { for: dialect }, "Dialect"), from), h("span", { class: "labelled" }, h("label", { for: habit }, "Quirks"), quirks)),
    problem,
  );
  acceptDrops(root, accept);
  fill(
    root,
    h(
      "div",
      { class: "page inspect-start" },
      h("header", {}, h("h1", {}, "Inspect a stream"), h("p", { class: "soft" }, "See what each frame of an upstream became: the parts that were read, the repairs, and the events of any dialect.")),
      zone,
      h("div", { class: "sample" }, h("div", {}, h("h2", {}, "Nothing at hand?"), h("p", { class: "soft" }, "A stream that repeats the id of a call in every chunk, sends a call without a name and is cut off.")), h("a", { class: "button", href: "#/inspect/sample" }, "Open the broken sample")),
      recent,
    ),
  );
  const { data } = await get("/v1/responses", { findings: "any", limit: 5 }).catch(() => ({ data: [] }));
  if (data.length) fill(recent, h("h2", {}, "Latest responses with findings"), h("ul", {}, data.map(recentRow)));
}

/** How to read a capture. Quirks belong to a dialect, so they also say which. */
function readingOf(from, index) {
  if (index === "") return from ? { from } : {};
  const [, dialect, quirks] = QUIRKS[index];
  return { from: from || dialect, quirks: JSON.stringify(quirks) };
}

const recentRow = (row) =>
  h("li", {}, h("a", { href: `#/r/${encodeURIComponent(row.id)}` }, row.model || row.id), h("span", { class: "amber" }, `⚠ ${plural(row.findings, "finding")}`), h("span", { class: "soft" }, ago(row.created_at)));
