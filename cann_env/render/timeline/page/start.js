// The two ways in: as a widget of a notebook (the default export), or by a page that holds its document.

import { Timeline } from "./timeline.js";

/** Asks the kernel by messages; replies carry the number of their question. */
class Kernel {
  constructor(model) {
    this.model = model;
    this.open = new Map();
    this.last = 0;
    this.hear = (message) => {
      this.open.get(message.number)?.(message.reply);
      this.open.delete(message.number);
    };
    model.on("msg:custom", this.hear);
  }

  edit(request) {
    const number = ++this.last;
    this.model.send({ number, request });
    return new Promise((resolve) => { this.open.set(number, resolve); });
  }
}

/** Asks the server that the page came from. */
class Server {
  constructor(word) { this.word = word; }

  async edit(request) {
    const reply = await fetch("edit", {
      method: "POST", headers: { "Content-Type": "application/json", "X-Timeline": this.word }, body: JSON.stringify(request),
    });
    if (!reply.ok) throw new Error(`status ${reply.status}`);
    return reply.json();
  }
}

function render({ model, el }) {
  const root = document.createElement("div");
  root.style.height = `${model.get("height")}px`;
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab's name for: keys pressed in here are no commands
  el.append(root);
  const kernel = model.get("editable") ? new Kernel(model) : null;
  const shown = new Timeline(root, JSON.parse(model.get("document")), kernel);
  shown.embedded = true;
  root.timeline = shown;
  model.on("change:document", () => shown.load(JSON.parse(model.get("document"))));
  return () => kernel && model.off("msg:custom", kernel.hear);
}

const place = globalThis.document?.getElementById("cann-env-timeline");
if (place) {
  const held = JSON.parse(document.getElementById("cann-env-document").textContent);
  const word = place.dataset.word;
  place.timeline = new Timeline(place, held, word ? new Server(word) : null);
}

export default { render };
