// Where everything lies: the stretch of time in view, the places of lanes and bars, and when to draw.

import { drawFront } from "./arrows.js";
import { drawBack } from "./draw.js";
import { THEMES } from "./looks.js";
import { AXIS, CURVE, GUTTER, HEAD, OVERVIEW } from "./paper.js";

export class Board {
  constructor() {
    Object.assign(this, { mode: "streams", colourBy: "class", showPath: false, found: null, scroll: 0, curveScroll: 0 });
    Object.assign(this, { selected: -1, hover: null, pointer: null, measure: null, ghost: null });
    Object.assign(this, { fades: new Map(), arrows: 0, drawn: 0, split: null, view: { from: 0, to: 1 } });
  }

  /** The command of another side with the same name; undefined if there is none. */
  same(number, c) {
    return number === 0 ? c : this.sides[number].index.get(this.sides[0].commands.name[c]);
  }

  // --- geometry ------------------------------------------------------------------------------------------------

  x(at) { return GUTTER + ((at - this.view.from) / (this.view.to - this.view.from)) * (this.width - GUTTER); }

  at(x) { return this.view.from + ((x - GUTTER) / (this.width - GUTTER)) * (this.view.to - this.view.from); }

  get dark() { return this.theme === THEMES.dark; }

  faded(colour) {
    const key = `${colour}${this.dark}`;
    if (!this.fades.has(key)) {
      const mix = (i) => {
        const ground = parseInt(this.theme.ground.slice(i, i + 2), 16);
        return Math.round(parseInt(colour.slice(i, i + 2), 16) * 0.24 + ground * 0.76).toString(16).padStart(2, "0");
      };
      this.fades.set(key, `#${mix(1)}${mix(3)}${mix(5)}`);
    }
    return this.fades.get(key);
  }

  /** Where a command is drawn; null if its lane is not shown. */
  boxOf(side, c) {
    const lane = side.lanes[this.mode][side.place[this.mode][c]];
    if (!lane) return null;
    const x = this.x(side.commands.start[c]);
    return { x, y: lane.top - this.scroll, width: this.x(side.commands.finish[c]) - x, height: lane.height };
  }

  barBox(lane, i) {
    const x = this.x(lane.start[i]);
    return { x, y: lane.top - this.scroll + 1, width: Math.max(this.x(lane.finish[i]) - x, 1), height: lane.height - 4 };
  }

  arrange() {
    if (!this.height) return;
    this.headings = [];
    let y = OVERVIEW + AXIS + 4;
    this.sides.forEach((side, number) => {
      this.headings[number] = y;
      if (this.sides.length > 1) y += HEAD;
      for (const lane of side.lanes[this.mode]) {
        lane.top = y;
        y += lane.height;
      }
      y += 12;
    });
    this.bodyEnd = y;
    const wanted = this.curves.length * CURVE;
    const part = this.split ?? (this.sides.length > 1 ? 0.27 : 0.36);
    const least = this.split === null ? this.height - y : 0; // what the lanes do not need is theirs
    this.curvesHeight = Math.min(wanted, Math.max(least, Math.floor(this.height * part)));
    this.scroll = Math.max(0, Math.min(this.scroll, y - (this.height - this.curvesHeight)));
    this.curveScroll = Math.max(0, Math.min(this.curveScroll, wanted - this.curvesHeight));
  }

  /** What lies at a place of the board: side, lane and bar. */
  under(x, y) {
    if (x < GUTTER || y < OVERVIEW + AXIS || y > this.height - this.curvesHeight) return null;
    const tolerance = (3 * (this.view.to - this.view.from)) / (this.width - GUTTER);
    for (const [number, side] of this.sides.entries()) {
      for (const lane of side.lanes[this.mode]) {
        const top = lane.top - this.scroll;
        if (y < top || y >= top + lane.height) continue;
        const i = lane.at(this.at(x), tolerance);
        return { number, side, lane, i };
      }
    }
    return null;
  }

  // --- moving about --------------------------------------------------------------------------------------------

  fit() { this.show(0, this.end * 1.012); }

  show(from, to) {
    const least = 20, most = this.end * 1.6;
    const wide = Math.min(Math.max(to - from, least), most);
    const middle = (from + to) / 2;
    let first = middle - wide / 2;
    first = Math.max(Math.min(first, this.end - wide * 0.08), -wide * 0.08);
    if (wide >= this.end) first = Math.max(Math.min(first, 0), this.end - wide);
    this.view = { from: first, to: first + wide };
    this.redraw();
  }

  zoom(factor, x = (this.width + GUTTER) / 2) {
    const at = this.at(x);
    const { from, to } = this.view;
    const scale = Math.max(factor, 20 / (to - from));
    this.show(at - (at - from) * scale, at + (to - at) * scale);
  }

  pan(pixels) {
    const by = (pixels * (this.view.to - this.view.from)) / (this.width - GUTTER);
    this.show(this.view.from + by, this.view.to + by);
  }

  roll(pixels) {
    this.scroll += pixels;
    this.arrange();
    this.redraw();
  }

  /** Brings a command into view, with as little movement as that takes. */
  reveal(c) {
    const side = this.sides[0];
    const start = side.commands.start[c], finish = side.commands.finish[c];
    const { from, to } = this.view;
    if (start < from || finish > to) {
      const wide = Math.max(to - from, (finish - start) * 1.5);
      const middle = (start + finish) / 2;
      this.show(middle - wide / 2, middle + wide / 2);
    }
    const box = this.boxOf(side, c);
    const bottom = this.height - this.curvesHeight;
    if (box && (box.y < OVERVIEW + AXIS || box.y + box.height > bottom)) {
      this.roll(box.y - (OVERVIEW + AXIS + bottom) / 2);
    }
  }

  // --- drawing -------------------------------------------------------------------------------------------------

  redraw(frontOnly = false) {
    this.stale = frontOnly && this.stale !== "all" ? "front" : "all";
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.frame ?? 0);
    this.frame = null;
    if (!this.width || !this.theme) return;
    if (this.stale === "all") this.drawn = drawBack(this.back, this);
    this.arrows = drawFront(this.front, this);
    this.stale = null;
    Object.assign(this.root.dataset, { from: this.view.from, to: this.view.to, arrows: this.arrows, drawn: this.drawn });
    this.root.dataset.selected = this.selected >= 0 ? this.sides[0].commands.name[this.selected] : "";
  }

  resize() {
    const box = this.board.getBoundingClientRect();
    const ratio = devicePixelRatio || 1;
    if (!box.width || !box.height) return;
    this.width = box.width;
    this.height = box.height;
    for (const canvas of [this.backCanvas, this.frontCanvas]) {
      canvas.width = Math.round(box.width * ratio);
      canvas.height = Math.round(box.height * ratio);
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.arrange();
    this.stale = "all";
    this.draw();
  }
}
