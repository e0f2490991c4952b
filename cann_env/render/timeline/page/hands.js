// What the user does with pointer, wheel and keys.

import { blockTip, commandTip, hostTip, moveTip } from "./facts.js";
import { AXIS, GUTTER, OVERVIEW } from "./paper.js";
import { signed } from "./words.js";

export class Hands {
  constructor(page) {
    this.page = page;
    this.#listen();
  }

  #listen() {
    const on = (type, handle, options) => this.page.frontCanvas.addEventListener(type, handle, options);
    on("wheel", (event) => this.#wheel(event), { passive: false });
    on("pointerdown", (event) => this.#down(event));
    on("pointermove", (event) => this.#move(event));
    on("pointerup", (event) => this.#up(event));
    on("pointercancel", () => { this.drag = null; this.page.ghost = null; this.page.redraw(true); });
    on("pointerleave", () => { this.page.pointer = null; this.#hover(null); });
    on("dblclick", (event) => {
      const place = this.#place(event), bar = this.page.under(...place);
      if (bar && bar.i >= 0) {
        const wide = bar.lane.finish[bar.i] - bar.lane.start[bar.i];
        this.page.show(bar.lane.start[bar.i] - wide, bar.lane.finish[bar.i] + wide);
      } else this.page.fit();
    });
    this.page.root.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.page.resize()).observe(this.page.board);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.page.chosenTheme ?? this.page.setTheme(null));
    new MutationObserver(() => this.page.chosenTheme ?? this.page.setTheme(null)).observe(document.body,
      { attributes: true, attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind", "class"] });
  }

  #place(event) {
    const box = this.page.frontCanvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #wheel(event) {
    const [x, y] = this.#place(event);
    // Inside a longer page the wheel belongs to the page, until the timeline is being used.
    if (this.page.embedded && !event.ctrlKey && !event.metaKey && document.activeElement !== this.page.frontCanvas) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : 1;
    if (x < GUTTER && y > this.page.height - this.page.curvesHeight) { this.page.curveScroll += event.deltaY * unit; this.page.arrange(); this.page.redraw(); }
    else if (x < GUTTER || event.altKey) this.page.roll(event.deltaY * unit);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.page.pan((event.deltaX || event.deltaY) * unit);
    else this.page.zoom(Math.exp(event.deltaY * unit * 0.0016), x);
  }

  #down(event) {
    if (event.button !== 0) return;
    const [x, y] = this.#place(event);
    this.page.frontCanvas.setPointerCapture(event.pointerId);
    this.page.frontCanvas.focus({ preventScroll: true });
    const bar = this.page.under(x, y);
    const divides = Math.abs(y - (this.page.height - this.page.curvesHeight)) < 4 && this.page.curvesHeight > 0;
    const kind = divides ? "split" : y < OVERVIEW ? "jump" : event.shiftKey ? "measure" : this.#editable(bar) ? "edit" : "pan";
    this.drag = { kind, x, y, bar, far: false, last: [x, y] };
    if (kind === "jump") this.#jump(x);
    if (kind === "measure") this.page.measure = [this.page.at(x), this.page.at(x)];
    this.page.tip.hidden = true;
  }

  #jump(x) {
    const wide = this.page.view.to - this.page.view.from;
    const middle = ((x - GUTTER) / (this.page.width - GUTTER)) * this.page.end;
    this.page.show(middle - wide / 2, middle + wide / 2);
  }

  #editable(bar) {
    if (!this.page.editing || !bar || bar.i < 0 || bar.number !== 0 || this.page.mode !== "streams" || this.page.busy) return false;
    if (bar.lane.what === "moves") return bar.side.data.moves.which[bar.lane.row[bar.i]] !== null;
    return bar.lane.what === "stream";
  }

  #move(event) {
    const [x, y] = this.#place(event);
    this.page.pointer = x;
    const { drag } = this;
    if (!drag) { this.#hover(this.page.under(x, y), x, y); return; }
    drag.far ||= Math.hypot(x - drag.x, y - drag.y) > 4;
    if (drag.kind === "jump") this.#jump(x);
    else if (drag.kind === "split") {
      this.page.split = Math.min(Math.max((this.page.height - y) / this.page.height, 0.05), 0.8);
      this.page.arrange();
      this.page.redraw();
    } else if (drag.kind === "measure") { this.page.measure[1] = this.page.at(x); this.page.redraw(true); }
    else if (drag.far && drag.kind === "pan") {
      this.page.frontCanvas.classList.add("drag");
      this.page.pan(drag.last[0] - x);
      if (this.page.bodyEnd > this.page.height - this.page.curvesHeight) this.page.roll(drag.last[1] - y);
    } else if (drag.far && drag.kind === "edit") this.#ghost(x, y);
    drag.last = [x, y];
  }

  #ghost(x, y) {
    const { bar } = this.drag;
    const box = this.page.barBox(bar.lane, bar.i);
    const by = this.page.at(x) - this.page.at(this.drag.x);
    if (bar.lane.what === "moves") {
      this.page.ghost = { ...box, x: box.x + x - this.drag.x, text: `ask ${signed(by)}`, by };
    } else {
      const lane = this.page.under(x, y)?.lane;
      const to = lane?.what === "stream" && this.page.sides[0].lanes.streams.includes(lane) ? lane : this.#beyond(y);
      const top = to ? to.top - this.page.scroll + 1 : box.y;
      const stream = to ? to.number : bar.lane.number;
      this.page.ghost = { ...box, x: box.x + x - this.drag.x, y: top, text: `stream ${stream}`, stream,
        at: Math.abs(x - this.drag.x) > 10 ? bar.lane.start[bar.i] + by : null };
    }
    this.page.redraw(true);
  }

  /** Below the last stream in use stands for the next one, if there is one. */
  #beyond(y) {
    const lanes = this.page.sides[0].lanes.streams.filter((lane) => lane.what === "stream");
    const last = lanes.at(-1);
    if (y <= last.top + last.height - this.page.scroll || last.number + 1 >= this.page.sides[0].data.streams) return null;
    return { number: last.number + 1, top: last.top + last.height };
  }

  #up(event) {
    const { drag } = this;
    this.drag = null;
    this.page.frontCanvas.classList.remove("drag");
    if (!drag) return;
    if (drag.kind === "measure" && !drag.far) this.page.measure = null;
    if (drag.kind === "edit" && drag.far) this.#drop(drag);
    else if (!drag.far && (drag.kind === "pan" || drag.kind === "edit")) {
      const bar = this.page.under(...this.#place(event));
      const c = bar && bar.i >= 0 ? bar.lane.command[bar.i] : -1;
      const mine = bar && c >= 0 && bar.number > 0 ? this.page.sides[0].index.get(bar.side.commands.name[c]) ?? -1 : c;
      this.page.select(mine, { reveal: false });
    }
    this.page.redraw(true);
  }

  #drop({ bar }) {
    const { ghost } = this.page;
    this.page.ghost = null;
    if (!ghost) return;
    const row = bar.lane.row[bar.i];
    if (bar.lane.what === "moves") {
      const { buffer, which } = this.page.sides[0].data.moves;
      this.page.edit({ op: "shift", buffer: buffer[row], by_ns: Math.round(ghost.by), which: which[row] });
    } else this.page.edit({ op: "move", command: row, stream: ghost.stream, at_ns: ghost.at === null ? null : Math.round(ghost.at) });
  }

  #hover(bar, x = 0, y = 0) {
    const known = bar && bar.i >= 0 ? bar : null;
    this.page.hover = known;
    this.page.frontCanvas.classList.toggle("edit", Boolean(this.#editable(bar)));
    this.page.tip.hidden = !known;
    if (known) {
      const { side, lane, i } = known, row = lane.row[i];
      const tips = { stream: commandTip, blocks: blockTip, moves: moveTip, host: hostTip };
      if (this.told !== `${known.number}/${lane.what}/${row}` || this.toldOf !== side) {
        this.page.tip.replaceChildren(...tips[lane.what](side, row));
        this.told = `${known.number}/${lane.what}/${row}`;
        this.toldOf = side;
      }
      const { offsetWidth: wide, offsetHeight: tall } = this.page.tip;
      this.page.tip.style.left = `${Math.max(4, x + 18 + wide > this.page.width ? x - wide - 12 : x + 18)}px`;
      this.page.tip.style.top = `${Math.max(4, Math.min(y + 16, this.page.height - tall - 6))}px`;
    }
    this.page.redraw(true);
  }

  #key(event) {
    if (event.target === this.page.searchBox) {
      if (event.key === "Enter") this.page.step(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") { this.page.searchBox.value = ""; this.page.search(""); this.page.frontCanvas.focus(); }
      event.stopPropagation(); // a notebook has keys of its own
      return;
    }
    if (this.page.help.open) return;
    if (this.page.embedded) event.stopPropagation(); // else a letter typed here could delete a cell
    const name = `${event.ctrlKey || event.metaKey ? "ctrl+" : ""}${event.altKey ? "alt+" : ""}${event.key}`;
    const act = this.#keys()[name];
    if (!act || (event.target !== this.page.frontCanvas && /^(Arrow|Enter| )/.test(event.key))) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  #keys() {
    const around = (by) => () => this.#neighbour(by);
    return {
      ArrowLeft: () => this.page.pan(-80), ArrowRight: () => this.page.pan(80), ArrowUp: () => this.page.roll(-40), ArrowDown: () => this.page.roll(40),
      "+": () => this.page.zoom(1 / 1.4), "=": () => this.page.zoom(1 / 1.4), "-": () => this.page.zoom(1.4), 0: () => this.page.fit(), Home: () => this.page.fit(),
      "[": around(-1), "]": around(1), p: () => this.#along("before"), n: () => this.#along("after"),
      c: () => this.page.togglePath(), v: () => this.page.setMode(this.page.mode === "streams" ? "engines" : "streams"),
      t: () => this.page.setTheme(this.page.dark ? "light" : "dark"), "/": () => this.page.searchBox.focus(), "?": () => this.page.help.showModal(),
      Enter: () => this.page.selected >= 0 && this.page.reveal(this.page.selected),
      Escape: () => { this.page.measure = null; this.page.select(-1); this.page.say(""); },
      ...(this.page.editing ? {
        "alt+ArrowUp": () => this.page.shiftStream(-1), "alt+ArrowDown": () => this.page.shiftStream(1),
        "ctrl+z": () => this.page.edit({ op: "undo" }), "ctrl+y": () => this.page.edit({ op: "redo" }), "ctrl+Z": () => this.page.edit({ op: "redo" }),
      } : {}),
    };
  }

  #neighbour(by) {
    const side = this.page.sides[0];
    if (this.page.selected < 0) {
      const { start } = side.commands;
      const inView = [...start.keys()].filter((c) => side.commands.finish[c] >= this.page.view.from);
      this.page.select(inView.reduce((a, b) => (start[b] < start[a] ? b : a), inView[0] ?? 0));
      return;
    }
    const { lane, at } = side.neighbours(this.page.selected);
    if (lane.row[at + by] !== undefined) this.page.select(lane.row[at + by]);
  }

  #along(which) {
    if (this.page.selected < 0) return;
    const side = this.page.sides[0], { finish, start, before } = side.commands;
    const found = which === "before" ? before[this.page.selected] : side.after[this.page.selected];
    if (!found.length) return;
    this.page.select(found.reduce((a, b) => (which === "before" ? (finish[b] > finish[a] ? b : a) : start[b] < start[a] ? b : a)));
  }
}
