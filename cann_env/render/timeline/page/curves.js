// The curves under the lanes, and the small picture of everything above them.

import { CURVE, FONT, GUTTER, OVERVIEW, clip, drawGrid } from "./paper.js";
import { amount, fitting } from "./words.js";

export function drawCurves(ink, page, grid, bottom) {
  const { width, height, theme } = page;
  if (!page.curvesHeight) return;
  ink.fillStyle = theme.band;
  ink.fillRect(0, bottom, width, height - bottom);
  ink.save();
  clip(ink, 0, bottom, width, height - bottom);
  drawGrid(ink, page, grid, bottom, height);
  page.curves.forEach((pair, i) => {
    const y = bottom + i * CURVE - page.curveScroll;
    if (y + CURVE < bottom || y > height) return;
    const most = Math.max(...pair.map((each) => each?.most ?? 0));
    const peak = Math.max(...pair.map((each) => (each ? each.peak : 0)));
    // Against what there is, unless that would hide everything at the foot of the axis.
    const scale = most && peak > most / 20 ? Math.max(most, peak) : peak;
    pair.forEach((each, number) => {
      if (each) drawCurve(ink, page, each, y, scale, number === 0 && page.sides.length > 0, number);
    });
    curveLabel(ink, page, pair, y, scale, most);
  });
  ink.restore();
  ink.fillStyle = theme.faint;
  ink.fillRect(0, bottom, width, 1);
}

function curveLabel(ink, page, pair, y, scale, most) {
  const { theme } = page;
  const each = pair.find(Boolean);
  ink.fillStyle = theme.panel;
  ink.fillRect(0, y + 1, GUTTER - 1, CURVE);
  ink.fillStyle = theme.rule;
  ink.fillRect(0, y + CURVE, page.width, 1);
  ink.textAlign = "right";
  ink.textBaseline = "middle";
  ink.font = `11.5px ${FONT}`;
  ink.fillStyle = theme.ink;
  ink.fillText(fitting(each.title, 20), GUTTER - 10, y + 14);
  ink.font = `10.5px ${FONT}`;
  ink.fillStyle = theme.faint;
  const words = most && scale >= most ? `of ${amount(most, each.unit, 0)}` : `${amount(scale, each.unit, 0)} at most`;
  ink.fillText(words, GUTTER - 10, y + 28);
}

/** One curve: the highest value of each pixel, so that no peak is lost. */
function drawCurve(ink, page, each, y, scale, filled, number) {
  const { view, width } = page;
  const floor = y + CURVE - 3, tall = CURVE - 8;
  const perNs = (width - GUTTER) / (view.to - view.from);
  let i = upper(each.times, view.from) - 1;
  let x = GUTTER, value = i >= 0 ? each.values[i] : 0;
  const points = [];
  while (x < width) {
    i++;
    const next = i < each.times.length ? GUTTER + (each.times[i] - view.from) * perNs : Infinity;
    if (next > width) { points.push(x, width, value); break; }
    let high = value, low = value;
    let until = next;
    if (next - x < 1) {
      // Several changes within a pixel: take the highest value among them.
      const stop = x + 1;
      while (i < each.times.length && GUTTER + (each.times[i] - view.from) * perNs < stop) {
        low = each.values[i];
        high = Math.max(high, low);
        i++;
      }
      i--;
      until = stop;
      points.push(x, until, high);
      value = low;
      x = until;
      continue;
    }
    points.push(x, until, high);
    x = until;
    value = each.values[i];
  }
  const level = (v) => floor - (v / scale) * tall;
  ink.beginPath();
  for (let k = 0; k < points.length; k += 3) {
    const h = level(points[k + 2]);
    if (k === 0) ink.moveTo(points[k], h); else ink.lineTo(points[k], h);
    ink.lineTo(points[k + 1], h);
  }
  if (filled) {
    ink.save();
    ink.lineTo(points.at(-2), floor);
    ink.lineTo(GUTTER, floor);
    ink.fillStyle = each.colour;
    ink.globalAlpha = page.dark ? 0.55 : 0.42;
    ink.fill();
    ink.restore();
    return;
  }
  ink.strokeStyle = page.theme.ink;
  ink.lineWidth = 1;
  ink.setLineDash(number ? [3, 2] : []);
  ink.stroke();
  ink.setLineDash([]);
}

function upper(times, at) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= at) low = middle + 1; else high = middle;
  }
  return low;
}

/** How busy the streams are over the whole time, and which part of it is in view. */
export function drawOverview(ink, page) {
  const { width, theme, view, sides } = page;
  ink.fillStyle = theme.panel;
  ink.fillRect(0, 0, width, OVERVIEW);
  const wide = width - GUTTER, scale = wide / page.end;
  const tall = (OVERVIEW - 6) / sides.length;
  sides.forEach((side, number) => {
    const bins = side.busy(Math.max(Math.floor(wide / 2), 1), page.end);
    const floor = 3 + tall * (number + 1);
    ink.fillStyle = number ? theme.faint : theme.into;
    ink.globalAlpha = 0.65;
    bins.forEach((part, i) => {
      const high = part * (tall - 1);
      if (high > 0.2) ink.fillRect(GUTTER + i * 2, floor - high, 2, high);
    });
    ink.globalAlpha = 1;
  });
  const left = GUTTER + view.from * scale, right = GUTTER + view.to * scale;
  ink.fillStyle = theme.hover;
  ink.fillRect(GUTTER, 0, left - GUTTER, OVERVIEW);
  ink.fillRect(right, 0, width - right, OVERVIEW);
  ink.strokeStyle = theme.ink;
  ink.lineWidth = 1;
  ink.strokeRect(left + 0.5, 0.5, Math.max(right - left - 1, 2), OVERVIEW - 1);
  ink.fillStyle = theme.panel;
  ink.fillRect(0, 0, GUTTER, OVERVIEW);
  ink.fillStyle = theme.faint;
  ink.font = `11px ${FONT}`;
  ink.textAlign = "left";
  ink.textBaseline = "middle";
  ink.fillText("streams at work", 10, OVERVIEW / 2);
}
