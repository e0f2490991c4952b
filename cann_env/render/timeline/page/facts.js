// What is said of a bar: in the tip under the pointer, and in the panel of the selected command. Text goes into the
// page as text, never as markup, so that names may hold anything.

import { CAUSES } from "./looks.js";
import { size, time } from "./words.js";

export function make(tag, given = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** How one command made the start of another, in the words of the chain. */
const HOW = {
  executing: (name) => `it needs ${name}`, queue: (name) => `${name} stood in front of it`,
  held: (name) => `the host waited for ${name}`, cores: (name) => `${name} had its cores`,
  link: (name) => `${name} had its channel`, slot: (name) => `${name} had its active slot`,
};

const CAUSE_WORDS = {
  host: "not submitted yet", dependency: "a predecessor", stream: "its turn on the stream", memory: "memory",
  slot: "an active slot", cores: "cores", link: "its channel",
};

function pairs(rows) {
  const list = make("dl");
  for (const [word, value] of rows.filter(Boolean)) list.append(make("dt", {}, word), make("dd", {}, value));
  return list;
}

function kindOf(side, c) {
  const { kind, op, kernels } = side.commands;
  const parts = [kind[c], side.commands.class[c] === kind[c] ? "" : side.commands.class[c], op[c]];
  if (kernels[c] > 1) parts.push(`${kernels[c]} kernels`);
  return parts.filter(Boolean).join(", ");
}

function streamOf(side, c) {
  const { stream, engine_stream: own, position } = side.commands;
  const other = own[c] === stream[c] ? "" : ` (the engine: ${own[c]})`;
  return `${stream[c]}${other}, place ${position[c] + 1}`;
}

/** What a command waited for, and behind whom, longest first: `[words, ns, cause, behind]`. */
export function stalls(side, c) {
  const found = new Map();
  for (const [cause, from, to, behind] of side.commands.waits[c]) {
    const key = `${cause} ${behind}`;
    if (!found.has(key)) found.set(key, [CAUSE_WORDS[cause] ?? cause, 0, cause, behind]);
    found.get(key)[1] += to - from;
  }
  return [...found.values()].sort((a, b) => b[1] - a[1]);
}

function origin(side, [buffer, from, producer, arrived]) {
  const name = side.data.buffers.name[buffer];
  const words = {
    command: () => `written by ${side.commands.name[producer]}`,
    fault: () => `moved on demand, there at ${time(arrived)}`,
    prefetch: () => `prefetched, there at ${time(arrived)}`,
    hbm: () => "in HBM from the start",
    host: () => "on the host",
  };
  return `${name} (${size(side.data.buffers.bytes[buffer])}): ${words[from]()}`;
}

function short(names, most = 4) {
  const shown = names.slice(0, most).join(", ");
  return names.length > most ? `${shown} and ${names.length - most} more` : shown;
}

function times(side, c) {
  const { submitted, eligible, start, finish, released } = side.commands;
  return [
    released[c] > 0 && ["known from", time(released[c])],
    ["submitted", time(submitted[c])],
    ["eligible", time(eligible[c])],
    ["start", time(start[c])],
    ["finish", time(finish[c])],
    ["duration", time(finish[c] - start[c])],
  ];
}

function waitRows(side, c) {
  const found = stalls(side, c);
  if (!found.length) return [["waited for", "nothing"]];
  return found.map(([words, ns, , behind], i) => [
    i ? "" : "waited for",
    `${words} ${time(ns)}${behind === null ? "" : ` (${side.commands.name[behind]})`}`,
  ]);
}

/** All facts of a command, as short as a tip has to be. */
export function commandTip(side, c) {
  const { read, written, l2, blocks, before, name, request, operands, critical } = side.commands;
  return [
    make("h2", {}, name[c]),
    pairs([
      ["kind", kindOf(side, c)],
      ["stream", streamOf(side, c)],
      ["engine", `${side.commands.class[c]}, ${blocks[c]} ${blocks[c] === 1 ? "block" : "blocks"}`],
      request[c] && ["request", request[c]],
      ...times(side, c),
      ...waitRows(side, c),
      ["bytes", `${size(read[c])} read, ${size(written[c])} written${l2[c] ? `, ${size(l2[c])} found in L2` : ""}`],
      operands[c].length > 0 && ["operands", make("ul", {}, ...operands[c].slice(0, 3).map((each) =>
        make("li", {}, origin(side, each))), operands[c].length > 3 ? `and ${operands[c].length - 3} more` : "")],
      ["after", before[c].length ? short(before[c].map((p) => name[p])) : "nothing"],
      critical[c] ? ["critical", "on the path that made the makespan"] : null,
    ]),
  ];
}

export function moveTip(side, row) {
  const { buffer, cause, asked, start, finish, bytes } = side.data.moves;
  return [
    make("h2", {}, side.data.buffers.name[buffer[row]]),
    pairs([
      ["cause", cause[row]],
      ["bytes", size(bytes[row])],
      ["decided", time(asked[row])],
      ["start", time(start[row])],
      ["finish", time(finish[row])],
      ["duration", time(finish[row] - start[row])],
      start[row] > asked[row] && ["waited", time(start[row] - asked[row])],
    ]),
  ];
}

export function hostTip(side, row) {
  const { call, target, start, finish } = side.data.host;
  const names = call[row] === "issue" ? side.commands.name : side.data.buffers.name;
  const what = target[row] >= 0 ? names[target[row]] : "";
  return [
    make("h2", {}, `host: ${call[row]}`),
    pairs([what && ["of", what], ["start", time(start[row])], ["finish", time(finish[row])],
      ["duration", time(finish[row] - start[row])]]),
  ];
}

export function blockTip(side, row) {
  const { command, kernel, blocks, held, start, finish } = side.data.blocks;
  return [
    ...commandTip(side, command[row]),
    pairs([["these blocks", `${blocks[row]}, of kernel ${kernel[row] + 1}, holding ${held[row]}, `
      + `${time(start[row])} to ${time(finish[row])}`]]),
  ];
}

/** The panel of a selected command, with links to its neighbours. */
export function panel(side, c, go) {
  const { name, before, read, written, l2, blocks, request, operands, writes, critical } = side.commands;
  const link = (other) => make("li", {}, make("button", { class: "link", type: "button", onclick: () => go(other) }, name[other]));
  const list = (title, found) => found.length
    ? [make("h3", {}, `${title} (${found.length})`), make("ul", {}, ...found.slice(0, 40).map(link))]
    : [make("h3", {}, `${title}: none`)];
  const waits = side.commands.waits[c];
  const total = waits.reduce((sum, [, from, to]) => sum + to - from, 0);
  const strip = make("div", { class: "strip", role: "img", "aria-label": "parts of the waiting, by cause" });
  for (const [cause, from, to] of waits) {
    const part = make("span");
    part.style.cssText = `width:${(100 * (to - from)) / total}%;background:${CAUSES[cause]}`;
    strip.append(part);
  }
  return [
    make("h2", {}, name[c]),
    pairs([
      ["kind", kindOf(side, c)],
      ["stream", streamOf(side, c)],
      ["engine", `${side.commands.class[c]}, ${blocks[c]} ${blocks[c] === 1 ? "block" : "blocks"}`],
      request[c] && ["request", request[c]],
      ...times(side, c),
      critical[c] ? ["critical", bondOf(side, c)] : ["critical", "no"],
    ]),
    make("h3", {}, total ? `Waited ${time(total)}` : "Waited for nothing"),
    total ? strip : null,
    make("ul", {}, ...stalls(side, c).map(([words, ns, cause, behind]) => {
      const chip = make("span", { class: "chip" });
      chip.style.background = CAUSES[cause];
      return make("li", {}, chip, `${words} ${time(ns)} `, behind === null ? "" : make("button",
        { class: "link", type: "button", onclick: () => go(behind) }, name[behind]));
    })),
    make("h3", {}, "Memory"),
    pairs([["read", size(read[c])], ["written", size(written[c])], l2[c] > 0 && ["found in L2", size(l2[c])]]),
    make("ul", {}, ...operands[c].map((each) => make("li", {}, origin(side, each)))),
    writes[c].length ? make("ul", {}, ...writes[c].map((b) =>
      make("li", {}, `writes ${side.data.buffers.name[b]} (${size(side.data.buffers.bytes[b])})`))) : null,
    ...list("After", before[c]),
    ...list("Before", side.after[c]),
  ].filter(Boolean);
}

/** What bound the start of a command on the critical path. */
function bondOf(side, c) {
  const found = side.data.path.links.findLast(([, consumer]) => consumer === c);
  if (!found) return "yes, where the path begins or waits";
  return `yes: ${HOW[found[2]](side.commands.name[found[0]])}`;
}
