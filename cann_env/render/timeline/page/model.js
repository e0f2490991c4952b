// One schedule of the document, laid into lanes that can be drawn and searched.

const HOST = "host", STREAM = "stream", BLOCKS = "blocks", MOVES = "moves";

/** Bars of one row, in order of start, as flat arrays. `what` says what `row` counts. */
class Lane {
  constructor(label, what, number, height) {
    Object.assign(this, { label, what, number, height, top: 0 });
    this.items = [];
  }

  close() {
    this.items.sort((a, b) => a.start - b.start || a.finish - b.finish);
    const n = this.items.length;
    this.start = new Float64Array(n);
    this.finish = new Float64Array(n);
    this.last = new Float64Array(n); // the latest finish up to here: what is looked up when bars overlap
    this.row = new Int32Array(n);
    this.command = new Int32Array(n);
    let last = -Infinity;
    this.items.forEach((item, i) => {
      this.start[i] = item.start;
      this.finish[i] = item.finish;
      last = Math.max(last, item.finish);
      this.last[i] = last;
      this.row[i] = item.row;
      this.command[i] = item.command;
    });
    delete this.items;
    return this;
  }

  /** The first bar that may reach beyond a time. */
  from(at) {
    let low = 0, high = this.last.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.last[middle] < at) low = middle + 1; else high = middle;
    }
    return low;
  }

  /** The bar at a time, or the nearest one within a tolerance; -1 if there is none. */
  at(time, tolerance) {
    let best = -1, nearest = tolerance;
    for (let i = this.from(time - tolerance); i < this.start.length && this.start[i] <= time + tolerance; i++) {
      const away = Math.max(this.start[i] - time, time - this.finish[i], 0);
      if (away <= nearest) { nearest = away; best = i; }
    }
    return best;
  }
}

export class Side {
  constructor(data, colours) {
    Object.assign(this, { data, colours });
    this.commands = data.commands;
    this.count = data.commands.name.length;
    this.after = data.commands.name.map(() => []);
    data.commands.before.forEach((before, c) => before.forEach((p) => this.after[p].push(c)));
    this.index = new Map(data.commands.name.map((name, c) => [name, c]));
    this.requests = [...new Set(data.commands.request)];
    this.words = data.commands.name.map((name, c) =>
      `${name}\n${data.commands.op[c]}\n${data.commands.class[c]}\n${data.commands.request[c]}`.toLowerCase());
    this.pathMoves = this.#movesOnPath();
    this.lanes = { streams: this.#streams(), engines: this.#engines() };
    this.place = { streams: this.#places("streams"), engines: this.#places("engines") };
  }

  #host() {
    const { call, target, start, finish } = this.data.host;
    const lane = new Lane("host thread", HOST, 0, 15);
    let matters = false;
    for (let row = 0; row < call.length; row++) {
      if (finish[row] <= start[row]) continue;
      matters ||= call[row] !== "wait";
      lane.items.push({ start: start[row], finish: finish[row], row, command: call[row] === "issue" ? target[row] : -1 });
    }
    return matters ? [lane.close()] : [];
  }

  #streams() {
    const { stream, start, finish } = this.commands;
    const used = 1 + Math.max(...stream);
    const lanes = Array.from({ length: used }, (_, s) => new Lane(`stream ${s}`, STREAM, s, 24));
    for (let c = 0; c < this.count; c++) {
      lanes[stream[c]].items.push({ start: start[c], finish: finish[c], row: c, command: c });
    }
    return [...this.#host(), ...lanes.map((lane) => lane.close()), ...this.#moves()];
  }

  #engines() {
    const { lanes: labels, lane, command, start, finish } = this.data.blocks;
    const lanes = labels.map((label, i) => new Lane(label, BLOCKS, i, 15));
    for (let row = 0; row < lane.length; row++) {
      lanes[lane[row]].items.push({ start: start[row], finish: finish[row], row, command: command[row] });
    }
    return [...lanes.map((each) => each.close()), ...this.#moves()];
  }

  #moves() {
    const { lanes: labels, lane, start, finish } = this.data.moves;
    const lanes = labels.map((label, i) => new Lane(label, MOVES, i, 15));
    for (let row = 0; row < lane.length; row++) {
      lanes[lane[row]].items.push({ start: start[row], finish: finish[row], row, command: -1 });
    }
    return lanes.map((each) => each.close());
  }

  /** Rows of the moves of buffers that stand on the critical path. */
  #movesOnPath() {
    const { buffer, start, finish } = this.data.moves, rows = new Map();
    buffer.forEach((b, row) => rows.set(b, [...(rows.get(b) ?? []), row]));
    const found = new Set();
    for (const [, , buffers, from, to] of this.data.path.segments) {
      for (const row of buffers.flatMap((b) => rows.get(b) ?? [])) {
        if (start[row] < to && finish[row] > from) found.add(row);
      }
    }
    return found;
  }

  /** In which lane of a view a command is shown, by its index. */
  #places(view) {
    const found = new Int32Array(this.count).fill(-1);
    this.lanes[view].forEach((lane, place) => {
      if (lane.what !== STREAM && lane.what !== BLOCKS) return;
      for (const c of lane.command) if (found[c] < 0) found[c] = place;
    });
    return found;
  }

  /** Names of all colours a bar may have, and which one it is. */
  colourOf(lane, i, by) {
    const row = lane.row[i];
    if (lane.what === HOST) return this.colours.calls[this.data.host.call[row]] ?? this.colours.calls.call;
    if (lane.what === MOVES) return this.colours.causes[this.data.moves.cause[row]];
    if (by === "request") {
      const place = this.requests.indexOf(this.commands.request[lane.command[i]]);
      return this.colours.requests[place % this.colours.requests.length];
    }
    const name = lane.what === BLOCKS ? this.data.blocks.class[row] : this.commands.class[row];
    return this.colours.classes[name] ?? this.colours.other;
  }

  /** The part of the streams that are at work in each of some equal stretches up to a time. */
  busy(bins, end) {
    const key = `${bins}/${end}`;
    if (this.busyKey === key) return this.busyBins;
    const found = new Float64Array(bins), { start, finish, stream } = this.commands, per = bins / end;
    for (let c = 0; c < this.count; c++) {
      const from = start[c] * per, to = finish[c] * per;
      for (let bin = Math.floor(from); bin < Math.min(to, bins); bin++) {
        found[bin] += Math.min(to, bin + 1) - Math.max(from, bin);
      }
    }
    const streams = 1 + Math.max(...stream);
    this.busyKey = key;
    this.busyBins = Array.from(found, (part) => Math.min(part / streams, 1));
    return this.busyBins;
  }

  nameOf(lane, i) {
    const row = lane.row[i];
    if (lane.what === HOST) return this.data.host.call[row];
    if (lane.what === MOVES) return this.data.buffers.name[this.data.moves.buffer[row]];
    return this.commands.name[lane.command[i]];
  }

  /** Indices of the commands in which a text occurs: in the name, operator, class or request. */
  search(text) {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return null;
    const found = [];
    this.words.forEach((words, c) => { if (words.includes(wanted)) found.push(c); });
    return found.sort((a, b) => this.commands.start[a] - this.commands.start[b]);
  }

  /** Commands of the stream of one command in their order, and its place among them. */
  neighbours(c) {
    const lane = this.lanes.streams[this.place.streams[c]];
    return { lane, at: lane.row.indexOf(c) };
  }

  legend(by) {
    const classes = new Set(this.commands.class), found = [];
    if (by === "request") {
      this.requests.slice(0, 12).forEach((name, i) =>
        found.push([name || "(no request)", this.colours.requests[i % this.colours.requests.length]]));
      if (this.requests.length > 12) found.push([`and ${this.requests.length - 12} more`, "transparent"]);
    } else {
      for (const [name, colour] of Object.entries(this.colours.classes)) {
        if (classes.has(name)) found.push([name, colour]);
      }
    }
    const causes = new Set(this.data.moves.cause);
    for (const [name, colour] of Object.entries(this.colours.causes)) {
      if (causes.has(name)) found.push([`move: ${name}`, colour]);
    }
    const lane = this.lanes.streams.find((each) => each.what === HOST);
    if (lane) {
      for (const name of new Set([...lane.row].map((row) => this.data.host.call[row]))) {
        found.push([`host: ${name}`, this.colours.calls[name] ?? this.colours.calls.call]);
      }
    }
    return found;
  }
}

/** The value of a step function at a time. */
export function valueAt(curve, at) {
  let low = 0, high = curve.times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (curve.times[middle] <= at) low = middle + 1; else high = middle;
  }
  return low ? curve.values[low - 1] : 0;
}
