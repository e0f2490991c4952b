// Sizes in pixels, the font, and what all drawing shares.

export const GUTTER = 136, OVERVIEW = 26, AXIS = 22, HEAD = 24, CURVE = 40;
export const FONT = 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

export function clip(ink, x, y, width, height) {
  ink.beginPath();
  ink.rect(x, y, width, height);
  ink.clip();
}

export function drawGrid(ink, page, grid, top, bottom) {
  ink.fillStyle = page.theme.rule;
  for (const { at } of grid.found) ink.fillRect(Math.round(page.x(at)), top, 1, bottom - top);
}
