// Numbers as people read them.

const TIME_UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
const SIZE_UNITS = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];
const RATE_UNITS = [[1e12, "TB/s"], [1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]];

function scaled(value, units) {
  const [scale, unit] = units.find(([least]) => Math.abs(value) >= least) ?? units.at(-1);
  const number = value / scale;
  const digits = scale === 1 ? 0 : Math.abs(number) >= 100 ? 1 : Math.abs(number) >= 10 ? 2 : 3;
  return `${number.toFixed(digits)} ${unit}`;
}

export const time = (ns) => scaled(ns, TIME_UNITS);
export const size = (bytes) => scaled(bytes, SIZE_UNITS);
export const rate = (bytesPerSecond) => scaled(bytesPerSecond, RATE_UNITS);
export const signed = (ns) => (ns > 0 ? "+" : ns < 0 ? "−" : "±") + time(Math.abs(ns));

/** A value of a curve in its unit; `most` is what there is of it. */
export function amount(value, unit, most) {
  if (unit === "bytes") return most ? `${size(value)} of ${size(most)}` : size(value);
  if (unit === "bytes/s") return most ? `${rate(value)} of ${rate(most)}` : rate(value);
  return most ? `${Math.round(value)} of ${most}` : `${Math.round(value)}`;
}

/** Instants at round distances between two times, at least `room` pixels apart, and what to write at them. */
export function ticks(from, to, pixels, room = 96) {
  const rough = ((to - from) / pixels) * room;
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const step = Math.max(1, [1, 2, 5, 10].map((k) => k * power).find((each) => each >= rough) ?? 10 * power);
  const [scale, unit] = TIME_UNITS.find(([least]) => Math.max(Math.abs(to), step) >= least) ?? TIME_UNITS.at(-1);
  const digits = Math.max(0, Math.ceil(Math.log10(scale / step) - 1e-9));
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    found.push({ at, text: `${(at / scale).toFixed(digits)} ${unit}` });
  }
  return { step, found };
}

/** The longest form of a path-like name that fits: its last parts, or its beginning. */
export function fitting(name, letters) {
  if (name.length <= letters) return name;
  const parts = name.split("/");
  for (let i = 1; i < parts.length; i++) {
    const tail = parts.slice(i).join("/");
    if (tail.length <= letters) return tail;
  }
  return letters >= 4 ? `${parts.at(-1).slice(0, letters - 1)}…` : "";
}
