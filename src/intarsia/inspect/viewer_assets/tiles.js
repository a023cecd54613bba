// Tiles of a slice: squares of samples at distances of powers of two, on each axis its own. They come one by one, the
// coarse ones first, are kept as long as there is room, and are withdrawn when nobody looks at them any more.

import { values } from "./server.js";

export const SIDE = 256;
const AT_ONCE = 5;
const MOST_BYTES = 96 << 20;
const PAINTED = SIDE * SIDE * 4;

/** How many times an axis of this length is halved until it fits into one tile. */
export const coarsest = (size) => Math.max(0, Math.ceil(Math.log2(Math.max(1, size) / SIDE)));

export class Tiles {
  constructor(changed) {
    this.changed = changed;
    this.kept = new Map();
    this.nbytes = 0;
    this.waiting = [];
    this.running = new Map();
    this.scale = null;
  }

  /** Name of a tile of a slice. */
  static key(slice, [levelY, levelX], [row, column]) { return `${slice.key}|${levelY},${levelX}|${row},${column}`; }

  get(key) {
    const tile = this.kept.get(key);
    if (tile) { this.kept.delete(key); this.kept.set(key, tile); }
    return tile;
  }

  /** These tiles are looked at, the first of them most. What else was asked for is withdrawn. */
  want(tiles) {
    const keys = new Set(tiles.map((tile) => tile.key));
    for (const [key, controller] of this.running) if (!keys.has(key)) { controller.abort(); this.running.delete(key); }
    this.waiting = tiles.filter((tile) => !this.kept.has(tile.key) && !this.running.has(tile.key));
    this.next();
  }

  get busy() { return this.running.size + this.waiting.length; }

  next() {
    while (this.running.size < AT_ONCE && this.waiting.length) {
      const tile = this.waiting.shift();
      const controller = new AbortController();
      this.running.set(tile.key, controller);
      this.load(tile, controller).finally(() => {
        if (this.running.get(tile.key) === controller) this.running.delete(tile.key);
        this.next();
        this.changed(tile.key);
      });
    }
  }

  async load({ key, slice, level, place }, controller) {
    const [y, x] = slice.axes;
    const take = slice.index.map((at, axis) => {
      const nth = axis === y ? 0 : axis === x ? 1 : -1;
      return nth < 0 ? at : `${place[nth] * SIDE * 2 ** level[nth]}:${SIDE}:${2 ** level[nth]}`;
    }).join();
    let tile;
    try {
      tile = await values({ path: slice.path, at: slice.at, take }, controller.signal);
      if (y > x) tile = turned(tile);
    } catch (error) {
      if (error.name === "AbortError") return;
      tile = { failed: error.message, values: [], status: [], nbytes: 0 };
    }
    this.kept.set(key, tile);
    this.nbytes += tile.nbytes + PAINTED;
    for (const [oldest, old] of this.kept) {
      if (this.nbytes <= MOST_BYTES || oldest === key) break;
      this.kept.delete(oldest);
      this.nbytes -= old.nbytes + PAINTED;
    }
  }

  /** Tiles that could not be had may be asked for again. */
  forgetFailures() {
    for (const [key, tile] of this.kept) if (tile.failed) { this.kept.delete(key); this.nbytes -= PAINTED; }
  }

  /** A tile as a picture in the colours of now. */
  painted(tile) {
    if (tile.failed) return null;
    if (tile.scale !== this.scale) {
      tile.canvas ??= document.createElement("canvas");
      [tile.canvas.height, tile.canvas.width] = tile.shape;
      if (tile.shape[0] && tile.shape[1]) tile.canvas.getContext("2d").putImageData(this.scale.paint(tile), 0, 0);
      tile.scale = this.scale;
    }
    return tile.canvas;
  }
}

/** Values come in the order of the array's axes: with the later axis down, rows and columns change places. */
function turned({ shape: [columns, rows], values: old, status: before, ...rest }) {
  const now = new old.constructor(old.length), status = new Uint8Array(old.length);
  for (let i = 0; i < columns; i++) {
    for (let j = 0; j < rows; j++) { now[j * columns + i] = old[i * rows + j]; status[j * columns + i] = before[i * rows + j]; }
  }
  return { ...rest, shape: [rows, columns], values: now, status };
}
