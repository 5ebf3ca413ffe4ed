/** Saves what the upstream sent as a regression test: a scrubbed capture, and the parts it must give. */

import { send, withQuery } from "../api.js";
import { openDialog } from "../ui/dialog.js";
import { button, fill, h, newId } from "../ui/dom.js";
import { plural, size } from "../ui/format.js";
import { download } from "../ui/status.js";

const NAME = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$/;
/** What stands in the place of a secret. */
const SCRUBBED = "***";
const PREVIEW = 4000;
const LOCAL_FILE = 0x04034b50;

/** Yields the files of a zip archive as the server writes it: sizes are in front of each file. */
export async function* unzip(buffer) {
  const view = new DataView(buffer);
  for (let at = 0; at + 30 <= buffer.byteLength && view.getUint32(at, true) === LOCAL_FILE; ) {
    const [packed, nameLength, extra] = [view.getUint32(at + 18, true), view.getUint16(at + 26, true), view.getUint16(at + 28, true)];
    const name = new TextDecoder().decode(new Uint8Array(buffer, at + 30, nameLength));
    const start = at + 30 + nameLength + extra;
    const data = new Blob([new Uint8Array(buffer, start, packed)]).stream();
    yield { name, text: await new Response(data.pipeThrough(new DecompressionStream("deflate-raw"))).text() };
    at = start + packed;
  }
}

/** Shows what would be saved, and saves it. */
export async function saveCase(source) {
  if (!source.id) return explain(source);
  const field = newId("case");
  const input = /** @type {HTMLInputElement} */ (h("input", { id: field, value: "broken-stream", autocomplete: "off", autofocus: true }));
  const problem = h("p", { class: "red", role: "alert" });
  const preview = h("div", { class: "case-preview" }, h("p", {}, "Reading…"));
  const path = `/v1/responses/${encodeURIComponent(source.id)}/case`;
  const load = async (name) => (await send("GET", withQuery(path, { name }))).arrayBuffer();
  const value = async () => {
    const name = input.value.trim();
    if (!NAME.test(name)) {
      problem.textContent = "A name has up to 100 letters, digits and ._- and begins with a letter or a digit.";
      return undefined;
    }
    try {
      return { name, data: await load(name) };
    } catch (error) {
      problem.textContent = error.message;
      return undefined;
    }
  };
  const content = [
    h("p", {}, "Keys are removed; the words of the model are not. Read it before you share it, unpack it into a folder, and run ", h("code", {}, "weft test FOLDER"), "."),
    h("label", { for: field }, "Name"),
    input,
    problem,
    preview,
  ];
  load("preview")
    .then((data) => fillPreview(preview, data))
    .catch((error) => fill(preview, h("p", { class: "red" }, error.message)));
  const saved = await openDialog({ title: "Save as test", content, actions: [{ label: "Cancel", value: null }, { label: "Download", value, kind: "primary" }] });
  if (saved) download(`${saved.name}.zip`, saved.data, "application/zip");
}

async function fillPreview(place, data) {
  const shown = [];
  for await (const { name, text } of unzip(data)) {
    const scrubbed = text.split(SCRUBBED).length - 1;
    shown.push(h("h3", {}, name.replace(/^preview/, "NAME"), h("span", { class: "soft" }, ` ${size(text.length)}${scrubbed ? ` · ${plural(scrubbed, "value")} removed (${SCRUBBED})` : " · nothing had to be removed"}`)));
    shown.push(h("pre", { tabindex: 0 }, text.slice(0, PREVIEW)));
  }
  fill(place, shown);
}

/** A capture that was dropped in is in the user's hands already. */
function explain(source) {
  const name = source.title.replace(/\.[a-z]+$/i, "");
  const content = [
    h("p", {}, "This capture is a file of yours. Put it into a folder; the first command writes the parts that it gives now, the second compares with them from then on."),
    h("pre", { tabindex: 0 }, `mkdir -p cases && cp ${source.title} cases/${name}.sse\nweft test cases --update\nweft test cases`),
    button("Download the capture", () => download(source.title, source.capture, "text/plain")),
  ];
  return openDialog({ title: "Save as test", content });
}
