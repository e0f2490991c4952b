// What is drawn over the bars: the critical path, arrows of what is selected, and what follows the pointer.

import { CAUSES } from "./looks.js";
import { valueAt } from "./model.js";
import { AXIS, CURVE, FONT, GUTTER, OVERVIEW, clip } from "./paper.js";
import { amount, time } from "./words.js";

/** Parts of the path in which a command runs. */
const RUNS = new Set(["executing", "queue", "held"]);

export function drawPath(ink, page, side) {
  ink.strokeStyle = page.theme.path;
  ink.fillStyle = page.theme.path;
  for (const [part, command, , start, finish] of side.data.path.segments) {
    if (command === null || finish < page.view.from || start > page.view.to) continue;
    const box = page.boxOf(side, command);
    if (!box) continue;
    const left = Math.max(page.x(start), GUTTER - 4), right = Math.min(page.x(finish), page.width + 4);
    // Thick where a command of the path runs, thin in front of one that waits.
    const thick = RUNS.has(part) ? 3 : 1;
    ink.fillRect(left, box.y + box.height + 1 - thick, Math.max(right - left, 1), thick);
  }
  for (const lane of side.lanes[page.mode]) {
    if (lane.what !== "moves") continue;
    for (let i = lane.from(page.view.from); i < lane.start.length && lane.start[i] < page.view.to; i++) {
      if (!side.pathMoves.has(lane.row[i])) continue;
      const box = page.barBox(lane, i);
      ink.fillRect(Math.max(box.x, GUTTER - 4), box.y + box.height - 1, box.width, 2);
    }
  }
  ink.lineWidth = 1.4;
  ink.beginPath();
  const seen = new Set();
  for (const [producer, consumer, , at] of side.data.path.links) {
    if (at < page.view.from || at > page.view.to) continue;
    const tail = page.boxOf(side, producer), head = page.boxOf(side, consumer);
    if (!tail || !head || tail.y === head.y) continue;
    const key = (Math.round(page.x(at) / 3) * 4096 + side.place[page.mode][producer]) * 4096 + side.place[page.mode][consumer];
    if (seen.has(key)) continue;
    seen.add(key);
    curve(ink, page.x(at), tail.y + tail.height - 1, page.x(side.commands.start[consumer]), head.y + head.height - 1);
  }
  ink.stroke();
}

function curve(ink, x0, y0, x1, y1) {
  const bend = Math.max(8, Math.min(Math.abs(x1 - x0) / 2, 60));
  ink.moveTo(x0, y0);
  ink.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
}

function arrow(ink, page, side, producer, consumer, colour, dashed) {
  const tail = page.boxOf(side, producer), head = page.boxOf(side, consumer);
  if (!tail || !head) return false;
  const x0 = page.x(side.commands.finish[producer]), x1 = page.x(side.commands.start[consumer]);
  if (Math.max(x0, x1) < GUTTER - 40 || Math.min(x0, x1) > page.width + 40) return false;
  const y0 = tail.y + tail.height / 2, y1 = head.y + head.height / 2;
  ink.strokeStyle = ink.fillStyle = colour;
  ink.lineWidth = 1.6;
  ink.setLineDash(dashed ? [4, 3] : []);
  ink.beginPath();
  curve(ink, x0, y0, x1 - 5, y1);
  ink.stroke();
  ink.setLineDash([]);
  ink.beginPath();
  ink.moveTo(x1, y1);
  ink.lineTo(x1 - 7, y1 - 4);
  ink.lineTo(x1 - 7, y1 + 4);
  ink.fill();
  return true;
}

/** Draws hover and selection; returns how many arrows there are. */
export function drawFront(ink, page) {
  const { width, height, theme } = page;
  ink.clearRect(0, 0, width, height);
  const bottom = height - page.curvesHeight;
  let arrows = 0;
  ink.save();
  clip(ink, GUTTER, OVERVIEW + AXIS, width - GUTTER, bottom - OVERVIEW - AXIS);
  if (page.selected >= 0) {
    page.sides.forEach((side, number) => {
      const c = page.same(number, page.selected);
      if (c !== undefined) arrows += drawChosen(ink, page, side, c);
    });
  }
  if (page.hover) {
    const { lane, i } = page.hover;
    ink.fillStyle = theme.hover;
    ink.strokeStyle = theme.chosen;
    ink.lineWidth = 1;
    const box = page.barBox(lane, i);
    ink.fillRect(box.x, box.y, box.width, box.height);
    ink.strokeRect(box.x - 0.5, box.y - 0.5, box.width + 1, box.height + 1);
  }
  if (page.ghost) drawGhost(ink, page);
  ink.restore();
  drawPointer(ink, page, bottom);
  return arrows;
}

function drawChosen(ink, page, side, c) {
  const box = page.boxOf(side, c), { commands } = side;
  let arrows = 0;
  if (!box) return 0;
  for (const [cause, from, to] of commands.waits[c]) {
    ink.fillStyle = CAUSES[cause] ?? page.theme.faint;
    const left = Math.max(page.x(from), GUTTER), right = Math.min(page.x(to), page.width);
    if (right > left) ink.fillRect(left, box.y + box.height - 5, right - left, 3);
  }
  const waited = new Set(side.data.events.filter(([, consumer]) => consumer === c).map(([producer]) => producer));
  for (const p of commands.before[c]) arrows += arrow(ink, page, side, p, c, page.theme.into, !waited.has(p));
  for (const s of side.after[c]) arrows += arrow(ink, page, side, c, s, page.theme.out, false);
  ink.strokeStyle = page.theme.chosen;
  ink.lineWidth = 2;
  ink.strokeRect(box.x - 1, box.y, Math.max(box.width, 1) + 2, box.height - 2);
  return arrows;
}

function drawGhost(ink, page) {
  const { x, y, width, height, text } = page.ghost;
  ink.globalAlpha = 0.8;
  ink.fillStyle = page.theme.into;
  ink.fillRect(x, y, Math.max(width, 3), height);
  ink.globalAlpha = 1;
  ink.font = `600 11.5px ${FONT}`;
  ink.textAlign = "left";
  ink.textBaseline = "bottom";
  ink.fillStyle = page.theme.ink;
  ink.fillText(text, Math.min(x, page.width - 160), y - 2);
}

/** The line under the pointer with the values of the curves, and the stretch that is measured. */
function drawPointer(ink, page, bottom) {
  const { theme, height } = page;
  if (page.measure) {
    const [from, to] = page.measure.map((at) => page.x(at)).sort((a, b) => a - b);
    ink.fillStyle = theme.hover;
    ink.fillRect(from, OVERVIEW, to - from, height - OVERVIEW);
    tag(ink, page, (from + to) / 2, OVERVIEW + AXIS + 14, time(Math.abs(page.measure[1] - page.measure[0])));
  }
  if (page.pointer === null || page.pointer < GUTTER) return;
  ink.fillStyle = theme.faint;
  ink.fillRect(Math.round(page.pointer), OVERVIEW, 1, height - OVERVIEW);
  tag(ink, page, page.pointer, OVERVIEW + AXIS / 2, time(page.at(page.pointer)));
  ink.font = `10.5px ${FONT}`;
  page.curves.forEach((pair, i) => {
    const y = bottom + i * CURVE - page.curveScroll;
    if (y < bottom - 4 || y + CURVE > height + 4) return;
    const text = pair
      .map((each) => each && amount(valueAt(each, page.at(page.pointer)), each.unit, each.most))
      .map((words, number) => words && (page.sides.length > 1 ? `${"AB"[number]} ${words}` : words))
      .filter(Boolean).join("   ");
    const wide = ink.measureText(text).width + 8;
    const left = page.pointer + wide + 6 > page.width ? page.pointer - wide - 4 : page.pointer + 4;
    ink.fillStyle = theme.panel;
    ink.fillRect(left, y + 3, wide, 15);
    ink.fillStyle = theme.ink;
    ink.textAlign = "left";
    ink.textBaseline = "middle";
    ink.fillText(text, left + 4, y + 11);
  });
}

function tag(ink, page, x, y, text) {
  ink.font = `600 11px ${FONT}`;
  ink.textAlign = "center";
  ink.textBaseline = "middle";
  const wide = ink.measureText(text).width + 10;
  const middle = Math.min(Math.max(x, GUTTER + wide / 2), page.width - wide / 2);
  ink.fillStyle = page.theme.ink;
  ink.fillRect(middle - wide / 2, y - 8, wide, 16);
  ink.fillStyle = page.theme.ground;
  ink.fillText(text, middle, y + 0.5);
}
