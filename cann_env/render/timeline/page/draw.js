// What is drawn behind everything: axis, lanes and bars. Only what is in view is visited, and bars narrower than a pixel are merged.

import { drawPath } from "./arrows.js";
import { drawCurves, drawOverview } from "./curves.js";
import { inkOn } from "./looks.js";
import { AXIS, CURVE, FONT, GUTTER, HEAD, OVERVIEW, clip, drawGrid } from "./paper.js";
import { fitting, ticks, time } from "./words.js";

/** Rectangles by colour: one change of colour for each instead of one for each bar. */
class Batch {
  constructor() { this.byColour = new Map(); this.count = 0; }

  add(colour, x, y, width, height) {
    let list = this.byColour.get(colour);
    if (!list) this.byColour.set(colour, (list = []));
    list.push(x, y, width, height);
    this.count++;
  }

  fill(ink) {
    for (const [colour, list] of this.byColour) {
      ink.fillStyle = colour;
      for (let i = 0; i < list.length; i += 4) ink.fillRect(list[i], list[i + 1], list[i + 2], list[i + 3]);
    }
  }
}

/** Draws everything but hover and selection; returns how many rectangles it took. */
export function drawBack(ink, page) {
  const { width, height, theme, view, sides } = page;
  ink.fillStyle = theme.ground;
  ink.fillRect(0, 0, width, height);
  const grid = ticks(view.from, view.to, width - GUTTER);
  const bottom = height - page.curvesHeight;
  const top = OVERVIEW + AXIS;
  ink.save();
  clip(ink, 0, top, width, bottom - top);
  drawGrid(ink, page, grid, top, bottom);
  let drawn = 0;
  sides.forEach((side, i) => {
    drawn += drawSide(ink, page, side, i);
  });
  ink.restore();
  drawCurves(ink, page, grid, bottom);
  thumb(ink, page, top, bottom, page.scroll, page.bodyEnd - top);
  thumb(ink, page, bottom, height, page.curveScroll, page.curves.length * CURVE);
  drawAxis(ink, page, grid);
  drawOverview(ink, page);
  return drawn;
}

/** How far a part of the board is rolled, as a bar at its edge; none where all of it is in view. */
function thumb(ink, page, top, bottom, rolled, whole) {
  const room = bottom - top;
  if (whole <= room + 1 || room < 20) return;
  ink.fillStyle = page.theme.faint;
  ink.globalAlpha = 0.6;
  ink.fillRect(page.width - 6, top + (rolled / whole) * room, 4, Math.max((room / whole) * room, 12));
  ink.globalAlpha = 1;
}

function drawAxis(ink, page, grid) {
  const { width, theme, sides } = page;
  ink.fillStyle = theme.panel;
  ink.fillRect(0, OVERVIEW, width, AXIS);
  ink.fillStyle = theme.rule;
  ink.fillRect(0, OVERVIEW + AXIS - 1, width, 1);
  ink.font = `11px ${FONT}`;
  ink.textBaseline = "middle";
  ink.textAlign = "left";
  for (const { at, text } of grid.found) {
    const x = Math.round(page.x(at));
    if (x < GUTTER - 1) continue;
    ink.fillStyle = theme.rule;
    ink.fillRect(x, OVERVIEW + AXIS - 7, 1, 6);
    ink.fillStyle = theme.faint;
    if (x + ink.measureText(text).width + 8 < width) ink.fillText(text, x + 4, OVERVIEW + AXIS / 2);
  }
  ink.fillStyle = theme.panel;
  ink.fillRect(0, OVERVIEW, GUTTER, AXIS - 1);
  ink.fillStyle = theme.faint;
  ink.fillText(`${time(page.view.to - page.view.from)} in view`, 10, OVERVIEW + AXIS / 2);
  marks(ink, page, sides);
}

/** The end of each schedule and the lower bound, as small flags on the axis that keep out of each other's way. */
function marks(ink, page, sides) {
  const flags = sides.map((side, i) => [side.data.makespan_ns, sides.length > 1 ? `end ${"AB"[i]}` : "end"]);
  flags.push([sides[0].data.lower_bound_ns, "bound"]);
  flags.sort((a, b) => b[0] - a[0]);
  let free = page.width;
  ink.font = `9.5px ${FONT}`;
  for (const [at, text] of flags) {
    const x = Math.round(page.x(at));
    if (x < GUTTER || x > page.width) continue;
    const wide = ink.measureText(text).width + 8;
    const left = Math.min(x, free - wide);
    free = left - 2;
    ink.fillStyle = page.theme.ink;
    ink.fillRect(x, OVERVIEW, 1, AXIS);
    ink.fillRect(left, OVERVIEW, wide, 12);
    ink.fillStyle = page.theme.ground;
    ink.fillText(text, left + 4, OVERVIEW + 6.5);
  }
  ink.font = `11px ${FONT}`;
}

function drawSide(ink, page, side, number) {
  const { width, height, theme, view } = page;
  const bottom = height - page.curvesHeight;
  if (page.sides.length > 1) heading(ink, page, side, number);
  const batch = new Batch(), names = [];
  const lanes = side.lanes[page.mode];
  lanes.forEach((lane, place) => {
    const y = lane.top - page.scroll;
    if (y + lane.height < OVERVIEW + AXIS || y > bottom) return;
    if (lane.label || place === 0) {
      ink.fillStyle = theme.rule;
      ink.fillRect(0, y - 1, width, 1);
    }
    bars(page, side, lane, y, batch, names);
  });
  ink.save();
  clip(ink, GUTTER, OVERVIEW + AXIS, width - GUTTER, bottom - OVERVIEW - AXIS);
  batch.fill(ink);
  write(ink, names);
  const end = page.x(side.data.makespan_ns), first = lanes[0].top - page.scroll, last = lanes.at(-1);
  ink.fillStyle = theme.ink;
  ink.globalAlpha = 0.55;
  ink.fillRect(Math.round(end), first, 1, last.top + last.height - page.scroll - first);
  ink.globalAlpha = 1;
  if (page.showPath) drawPath(ink, page, side);
  ink.restore();
  labels(ink, page, side, bottom);
  return batch.count;
}

function heading(ink, page, side, number) {
  const y = page.headings[number] - page.scroll;
  ink.fillStyle = page.theme.panel;
  ink.fillRect(0, y, page.width, HEAD - 2);
  ink.font = `600 12px ${FONT}`;
  ink.textBaseline = "middle";
  ink.textAlign = "left";
  ink.fillStyle = page.theme.ink;
  const text = `${"AB"[number]}  ${side.data.label || side.data.graph}`;
  ink.fillText(text, 10, y + HEAD / 2 - 1);
  const wide = ink.measureText(text).width;
  ink.font = `12px ${FONT}`;
  ink.fillStyle = page.theme.faint;
  ink.fillText(time(side.data.makespan_ns), 24 + wide, y + HEAD / 2 - 1);
}

/** Whether a bar stands back: something else is looked for. */
function stands(page, side, lane, i) {
  const c = lane.command[i];
  if (page.found) return !page.found.sets[page.sides.indexOf(side)].has(c);
  if (lane.what === "moves") return !side.pathMoves.has(lane.row[i]);
  return !(c >= 0 && side.commands.critical[c]);
}

function bars(page, side, lane, y, batch, names) {
  const { view, theme } = page;
  const perNs = (page.width - GUTTER) / (view.to - view.from);
  const tall = lane.height - 4, top = y + 1;
  const looks = page.found || page.showPath;
  let edge = -1, pending = null;
  for (let i = lane.from(view.from); i < lane.start.length && lane.start[i] < view.to; i++) {
    const left = Math.max(GUTTER + (lane.start[i] - view.from) * perNs, GUTTER);
    const right = Math.min(GUTTER + (lane.finish[i] - view.from) * perNs, page.width);
    const wide = right - left;
    if (wide < 1) {
      // All that ends within one pixel becomes one bar, in the colour of the longest.
      const pixel = Math.floor(left);
      if (pixel === edge && pending && wide <= pending.wide) continue;
      if (pixel !== edge && pending) batch.add(pending.colour, edge, top, 1, tall);
      edge = pixel;
      pending = { colour: shade(page, side, lane, i, looks), wide };
      continue;
    }
    if (pending) { batch.add(pending.colour, edge, top, 1, tall); pending = null; edge = -1; }
    const colour = shade(page, side, lane, i, looks);
    batch.add(colour, left, top, wide > 4 ? wide - 1 : wide, tall);
    if (wide > 26 && tall >= 10) names.push([side.nameOf(lane, i), left, top + tall / 2, wide, colour]);
  }
  if (pending) batch.add(pending.colour, edge, top, 1, tall);
}

function shade(page, side, lane, i, looks) {
  const colour = side.colourOf(lane, i, page.colourBy);
  if (!looks || !stands(page, side, lane, i)) return colour;
  return page.faded(colour);
}

function write(ink, names) {
  ink.font = `11px ${FONT}`;
  ink.textBaseline = "middle";
  ink.textAlign = "center";
  for (const [name, left, middle, wide, colour] of names) {
    const text = fitting(name, Math.floor((wide - 6) / 6.3));
    if (!text) continue;
    ink.fillStyle = inkOn(colour);
    ink.fillText(text, left + wide / 2, middle + 0.5);
  }
}

function labels(ink, page, side, bottom) {
  ink.save();
  clip(ink, 0, OVERVIEW + AXIS, GUTTER, bottom - OVERVIEW - AXIS);
  ink.font = `11.5px ${FONT}`;
  ink.textBaseline = "middle";
  ink.textAlign = "right";
  for (const lane of side.lanes[page.mode]) {
    const y = lane.top - page.scroll;
    if (y + lane.height < OVERVIEW + AXIS || y > bottom) continue;
    ink.fillStyle = page.theme.ground;
    ink.fillRect(0, y, GUTTER - 1, lane.height - 1);
    if (!lane.label) continue;
    ink.fillStyle = page.theme.ink;
    ink.fillText(fitting(lane.label, 19), GUTTER - 10, y + lane.height / 2);
  }
  ink.fillStyle = page.theme.rule;
  ink.fillRect(GUTTER - 1, OVERVIEW + AXIS, 1, bottom);
  ink.restore();
}
