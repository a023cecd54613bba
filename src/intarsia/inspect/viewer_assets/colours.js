// From values to colours: a map of 256 steps between two limits, linear or logarithmic.

/** Colours from the lowest to the highest value, by name; linear in between. The report has the first. */
export const MAPS = {
  "viridis": "#440154 #481467 #482576 #453781 #404688 #39558c #33638d #2d718e #287d8e #238a8d #1f968b #20a386 #29af7f #3dbc74 #56c667 #75d054 #95d840 #bade28 #dde318 #fde725",
  "magma": "#000004 #0c0926 #221150 #400f74 #5f187f #7b2382 #982d80 #b73779 #d3436e #eb5760 #f8765c #fd9a6a #febb81 #fddc9e #fcfdbf",
  "cividis": "#00224e #123570 #3b496c #575d6d #707173 #8a8678 #a59c74 #c3b369 #e1cc55 #fee838",
  "blue and red": "#053061 #2166ac #4393c3 #92c5de #d1e5f0 #f7f7f7 #fddbc7 #f4a582 #d6604d #b2182b #67001f",
  "turbo": "#30123b #4145ab #4675ed #39a2fc #1bcfd4 #24eca6 #61fc6c #a4fc3b #d1e834 #f3c63a #fe9b2d #f36315 #d93806 #b11901 #7a0402",
  "wood": "#1f120b #4a2c1a #7b4a27 #aa713a #cf9d62 #e9c99a #fbf1de",
  "grey": "#101010 #f4f4f4",
};

export const VALUE = 0, NULL = 1, DAMAGED = 2, HOLE = 3;

/** What is read well on a colour. */
export const inkOn = (colour) => { const [r, g, b] = rgb(colour); return 0.299 * r + 0.587 * g + 0.114 * b > 150 ? "#111" : "#fff"; };

const rgb = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));

export function table(map, steps = 256) {
  const colours = MAPS[map].split(" ").map(rgb);
  const made = new Uint8ClampedArray(steps * 3);
  for (let i = 0; i < steps; i++) {
    const at = (i / (steps - 1)) * (colours.length - 1);
    const below = Math.min(colours.length - 2, Math.floor(at));
    for (let c = 0; c < 3; c++) made[3 * i + c] = colours[below][c] + (at - below) * (colours[below + 1][c] - colours[below][c]);
  }
  return made;
}

/** The 2nd and 98th percentile of what tiles hold; null where they hold nothing. */
export function limits(tiles, { log = false, percent = 2 } = {}) {
  const total = tiles.reduce((sum, tile) => sum + tile.values.length, 0);
  const step = Math.max(1, Math.floor(total / 60000));
  const seen = [];
  for (const { values, status } of tiles) {
    for (let i = 0; i < values.length; i += step) {
      if (status[i] === VALUE && Number.isFinite(values[i]) && (!log || values[i] > 0)) seen.push(values[i]);
    }
  }
  if (!seen.length) return null;
  const sorted = Float64Array.from(seen).sort();
  const at = (share) => sorted[Math.round((share / 100) * (sorted.length - 1))];
  const [low, high] = [at(percent), at(100 - percent)];
  return low < high ? [low, high] : [sorted[0], sorted[sorted.length - 1]];
}

export class Scale {
  constructor(colours, low = 0, high = 1, log = false, words = false) {
    Object.assign(this, { colours, low, high, log, words });
  }

  /** Position of a value between the limits, 0 to 1. */
  at(value) {
    if (this.log) {
      if (value <= 0) return 0;
      return (Math.log(value) - Math.log(this.low)) / (Math.log(this.high) - Math.log(this.low) || 1);
    }
    return (value - this.low) / (this.high - this.low || 1);
  }

  /** The pixels of a tile. What is no value shows the ground; what is damaged is striped in red. */
  paint({ values, status, shape: [rows, columns] }) {
    const image = new ImageData(columns, rows);
    const pixels = image.data, colours = this.colours;
    const last = colours.length / 3 - 1;
    const low = this.log ? Math.log(this.low) : this.low;
    const factor = last / (((this.log ? Math.log(this.high) : this.high) - low) || 1);
    for (let i = 0, p = 0; i < values.length; i++, p += 4) {
      if (status[i] === DAMAGED) {
        const stripe = ((i % columns) + Math.floor(i / columns)) % 6 < 3;
        pixels[p] = stripe ? 190 : 240; pixels[p + 1] = stripe ? 40 : 190; pixels[p + 2] = stripe ? 34 : 182; pixels[p + 3] = 255;
        continue;
      }
      const value = values[i];
      if (status[i] !== VALUE || value !== value) continue;
      let at;
      if (this.words) at = (value * 97) % (last + 1);
      else if (this.log) at = value > 0 ? (Math.log(value) - low) * factor : 0;
      else at = (value - low) * factor;
      at = 3 * (at <= 0 ? 0 : at >= last ? last : Math.round(at));
      pixels[p] = colours[at]; pixels[p + 1] = colours[at + 1]; pixels[p + 2] = colours[at + 2]; pixels[p + 3] = 255;
    }
    return image;
  }
}

/** A number as short as it can be told from its neighbours. */
export function short(value, digits = 5) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-4)) return value.toExponential(Math.max(0, digits - 2)).replace(/\.?0+e/, "e");
  return String(Number(value.toPrecision(digits)));
}
