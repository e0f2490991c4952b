// The page: what is shown, how it is moved about, and what it says.

import { Board } from "./board.js";
import { make, panel } from "./facts.js";
import { Hands } from "./hands.js";
import { STYLE, THEMES, themeAround } from "./looks.js";
import { Side } from "./model.js";
import { signed, size, time } from "./words.js";

const KEYS = [
  ["wheel, + −", "zoom; with shift, or sideways: along the time"],
  ["drag, ← → ↑ ↓", "move about; drag the small picture above to jump"],
  ["double click, 0", "everything; on a command: that command"],
  ["shift + drag", "measure a stretch of time"],
  ["drag the line above the curves", "give them more room, or less"],
  ["click, tab, [ ]", "select a command; the one before or behind it on its stream"],
  ["p, n", "select the predecessor it waited for last; its first successor"],
  ["c", "the critical path"],
  ["v", "streams or engines"],
  ["/", "search; enter and shift + enter go through what was found"],
  ["t", "light or dark"],
  ["escape", "let go of what is selected or measured"],
];
const EDIT_KEYS = [
  ["drag a command", "to another stream, or to another place on its own"],
  ["drag a prefetch", "ask for the buffer earlier or later"],
  ["alt + ↑ ↓", "the selected command to the stream above or below"],
  ["ctrl + z, ctrl + y", "undo, do again"],
];

const NO_ENGINE = "Asking 'what if' needs the engine, which this file does not have. Run `cann-env timeline "
  + "SOURCE --serve`, or show Timeline(schedule) in a notebook.";

/**
 * Shows a document inside an element.
 *
 * @param root where it goes; it takes the height of it
 * @param document_ what `cann_env.render.timeline.document` made
 * @param backend `{edit(request) -> Promise(reply)}` that asks the engine, or null without one
 */
export class Timeline extends Board {
  constructor(root, document_, backend = null) {
    super();
    Object.assign(this, { root, backend, editing: false, busy: false, chosenTheme: null });
    this.#build();
    this.load(document_);
    this.fit();
    this.hands = new Hands(this);
  }

  // --- the document --------------------------------------------------------------------------------------------

  load(document_) {
    this.document = document_;
    this.sides = document_.schedules.map((data) => new Side(data, document_.colours));
    this.end = Math.max(...this.sides.map((side) => side.data.makespan_ns));
    const keys = [...new Set(this.sides.flatMap((side) => side.data.curves.map((each) => each.key)))];
    this.curves = keys.map((key) => this.sides.map((side) => side.data.curves.find((each) => each.key === key) ?? null));
    for (const each of this.curves.flat()) if (each) each.peak = each.values.reduce((a, b) => Math.max(a, b), 0) || 1;
    this.hover = this.ghost = null;
    if (this.selected >= this.sides[0].count) this.selected = -1;
    if (this.searchBox.value) this.search(this.searchBox.value);
    this.#head();
    this.arrange();
    this.#legend();
    this.#panel();
    this.redraw();
  }

  select(c, { reveal = true } = {}) {
    this.selected = c;
    if (c >= 0 && reveal) this.reveal(c);
    this.#panel();
    const side = this.sides[0];
    this.live.textContent = c < 0 ? "nothing is selected"
      : `${side.commands.name[c]}, stream ${side.commands.stream[c]}, ${time(side.commands.start[c])} to `
        + `${time(side.commands.finish[c])}`;
    this.redraw(true);
  }

  setMode(mode) {
    this.mode = mode;
    this.root.dataset.view = mode;
    for (const [name, button] of Object.entries(this.modeButtons)) button.setAttribute("aria-pressed", name === mode);
    this.scroll = 0;
    this.hover = null;
    this.arrange();
    this.redraw();
  }

  togglePath() {
    this.showPath = !this.showPath;
    this.pathButton.setAttribute("aria-pressed", this.showPath);
    if (this.showPath) {
      const { length_ns: parts } = this.sides[0].data.path;
      const total = this.sides[0].data.makespan_ns;
      const words = Object.entries(parts).filter(([, ns]) => ns > 0).sort((a, b) => b[1] - a[1])
        .map(([part, ns]) => `${part} ${time(ns)} (${((100 * ns) / total).toFixed(1)} %)`);
      this.say(`Critical path: ${words.join(", ")}`);
    } else this.say("");
    this.redraw();
  }

  search(text) {
    const sets = this.sides.map((side) => side.search(text));
    this.found = sets[0] ? { list: sets[0], sets: sets.map((list) => new Set(list)), at: -1 } : null;
    this.foundLabel.textContent = this.found ? `${this.found.list.length} found` : "";
    this.redraw();
  }

  step(by) {
    if (!this.found?.list.length) return;
    const { list } = this.found;
    this.found.at = (this.found.at + by + list.length) % list.length;
    this.foundLabel.textContent = `${this.found.at + 1} of ${list.length}`;
    this.select(list[this.found.at]);
  }

  setTheme(name) {
    this.chosenTheme = name;
    this.theme = THEMES[name ?? themeAround()];
    this.root.classList.toggle("dark", this.dark);
    this.redraw();
  }

  say(text, wrong = false) {
    this.said.hidden = !text;
    this.said.classList.toggle("wrong", wrong);
    this.said.replaceChildren(text);
  }

  // --- the page around -----------------------------------------------------------------------------------------

  #build() {
    const button = (text, title, onclick, given = {}) => make("button", { type: "button", title, onclick, ...given }, text);
    this.root.classList.add("cet");
    this.title = make("h1");
    this.figures = make("div", { class: "figures" });
    this.searchBox = make("input", { type: "search", placeholder: "Search commands", "aria-label": "Search commands",
      oninput: () => this.search(this.searchBox.value) });
    this.foundLabel = make("span", { class: "found", "aria-live": "polite" });
    this.modeButtons = {
      streams: button("Streams", "Rows are streams (v)", () => this.setMode("streams"), { "aria-pressed": "true" }),
      engines: button("Engines", "Rows are cores and channels (v)", () => this.setMode("engines"), { "aria-pressed": "false" }),
    };
    this.pathButton = button("Critical path", "What made the makespan (c)", () => this.togglePath(), { "aria-pressed": "false" });
    this.colourBox = make("select", { "aria-label": "Colour of commands", onchange: () => {
      this.colourBy = this.colourBox.value;
      this.#legend();
      this.redraw();
    } }, make("option", { value: "class" }, "by class"), make("option", { value: "request" }, "by request"));
    this.editButton = button("What if", "Change the schedule and let the engine play it again", () => this.#toggleEdit(), { "aria-pressed": "false" });
    this.editTools = make("span", { class: "group", hidden: true });
    this.undoButton = button("Undo", "Take the last change back (ctrl + z)", () => this.edit({ op: "undo" }), { disabled: true });
    this.redoButton = button("Redo", "Do it again (ctrl + y)", () => this.edit({ op: "redo" }), { disabled: true });
    this.resetButton = button("Reset", "Back to the schedule as it was", () => this.edit({ op: "reset" }), { disabled: true });
    this.editTools.append(this.undoButton, this.redoButton, this.resetButton);
    const tools = make("div", { class: "tools", role: "toolbar", "aria-label": "Timeline" },
      this.searchBox, this.foundLabel, make("span", { class: "group" }, ...Object.values(this.modeButtons)), this.pathButton,
      this.colourBox, this.editButton, this.editTools,
      make("span", { class: "group" },
        button("−", "Less detail (−)", () => this.zoom(1.6), { "aria-label": "Zoom out" }),
        button("+", "More detail (+)", () => this.zoom(1 / 1.6), { "aria-label": "Zoom in" }),
        button("Fit", "Everything (0)", () => this.fit())),
      button("◐", "Light or dark (t)", () => this.setTheme(this.dark ? "light" : "dark"), { "aria-label": "Light or dark" }),
      button("?", "Keys", () => this.help.showModal(), { "aria-label": "Keys" }));
    this.said = make("div", { class: "said", role: "status", hidden: true });
    this.backCanvas = make("canvas", { "aria-hidden": "true" });
    this.frontCanvas = make("canvas", { class: "front", tabindex: 0, role: "application",
      "aria-label": "Timeline of commands; arrow keys move, plus and minus zoom, brackets select, question mark lists keys" });
    this.tip = make("div", { class: "tip", hidden: true });
    this.board = make("div", { class: "board" }, this.backCanvas, this.frontCanvas, this.tip);
    this.side = make("aside", { hidden: true, "aria-label": "Selected command" });
    this.legendBox = make("div", { class: "legend" });
    this.live = make("div", { class: "quiet", "aria-live": "polite" });
    const row = ([keys, what]) => make("tr", {}, make("td", {}, make("kbd", {}, keys)), make("td", {}, what));
    this.help = make("dialog", {}, make("h1", {}, "Keys"),
      make("table", {}, ...KEYS.map(row), ...(this.backend ? EDIT_KEYS.map(row) : [])),
      make("form", { method: "dialog" }, make("button", {}, "Close")));
    this.root.replaceChildren(make("style", {}, STYLE),
      make("header", {}, make("div", {}, this.title, this.figures), tools), this.said,
      make("div", { class: "middle" }, this.board, this.side),
      make("footer", {}, this.legendBox, make("span", { class: "hint" }, "? lists the keys")), this.help, this.live);
    this.root.dataset.view = this.mode;
    this.back = this.backCanvas.getContext("2d", { alpha: false });
    this.front = this.frontCanvas.getContext("2d");
    this.setTheme(null);
  }

  #head() {
    const [first, second] = this.sides.map((side) => side.data);
    this.title.textContent = `${first.graph} on ${first.device}`;
    const bold = (text) => make("b", {}, text);
    const gap = first.makespan_ns / first.lower_bound_ns - 1;
    const parts = [];
    if (!second) parts.push(first.label ? `${first.label}: ` : "", bold(time(first.makespan_ns)));
    else {
      const by = first.makespan_ns - second.makespan_ns;
      parts.push(`A ${first.label} `, bold(time(first.makespan_ns)), `   B ${second.label} `, bold(time(second.makespan_ns)),
        "   ", make("span", { class: by < 0 ? "less" : by > 0 ? "more" : "" },
          `A − B: ${signed(by)} (${((100 * by) / second.makespan_ns).toFixed(2)} %)`));
    }
    parts.push(`   ${(100 * gap).toFixed(1)} % over the bound   ${first.commands.name.length} commands   `
      + `AI cores at work ${(100 * first.figures.ai_core_busy).toFixed(1)} %   `
      + `peak HBM ${size(first.figures.peak_hbm_bytes)}`);
    this.figures.replaceChildren(...parts);
    this.figures.style.whiteSpace = "pre-wrap";
    const requests = this.sides.some((side) => side.requests.length > 1);
    this.colourBox.hidden = !requests;
    if (!requests) this.colourBy = "class";
  }

  #legend() {
    const seen = new Map(this.sides.flatMap((side) => side.legend(this.colourBy)));
    this.legendBox.replaceChildren(...[...seen].map(([name, colour]) => {
      const chip = make("span", { class: "chip" });
      chip.style.background = colour;
      return make("span", {}, chip, name);
    }));
  }

  #panel() {
    const hidden = this.side.hidden;
    this.side.hidden = this.selected < 0;
    if (this.selected >= 0) {
      this.side.replaceChildren(
        make("button", { class: "shut", type: "button", "aria-label": "Close", onclick: () => this.select(-1) }, "×"),
        ...panel(this.sides[0], this.selected, (c) => this.select(c)));
    }
    if (hidden !== this.side.hidden) this.resize();
  }

  // --- what if -------------------------------------------------------------------------------------------------

  #toggleEdit() {
    if (!this.backend) { this.say(NO_ENGINE); return; }
    this.editing = !this.editing;
    this.editButton.setAttribute("aria-pressed", this.editing);
    this.editTools.hidden = !this.editing;
    if (this.editing) this.setMode("streams");
    this.say(this.editing ? "Drag a command to another stream, or a prefetch to another time; the engine plays the schedule again." : "");
  }

  shiftStream(by) {
    if (this.selected < 0) return;
    this.edit({ op: "move", command: this.selected, stream: this.sides[0].commands.stream[this.selected] + by, at_ns: null });
  }

  async edit(request) {
    if (!this.backend || this.busy) return;
    this.busy = true;
    this.root.dataset.busy = "yes";
    try {
      const reply = await this.backend.edit(request);
      if (reply.error) { this.say(reply.error, true); return; }
      this.load(reply.document);
      this.show(this.view.from, this.view.to);
      this.undoButton.disabled = this.resetButton.disabled = !reply.can_undo;
      this.redoButton.disabled = !reply.can_redo;
      const by = reply.change_ns;
      this.say(make("span", {}, reply.change ? `${reply.change}: ` : "As it was: ", make("span",
        { class: by < 0 ? "less" : by > 0 ? "more" : "" }, `makespan ${signed(by)}`),
      ...reply.notes.map((note) => ` (${note})`)));
    } catch (error) {
      this.say(`The engine did not answer: ${error.message}`, true);
    } finally {
      this.busy = false;
      this.root.dataset.busy = "";
    }
  }
}
