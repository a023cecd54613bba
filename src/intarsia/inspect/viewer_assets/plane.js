// The picture of a slice: tiles, regions over them, axes beside them; moved and zoomed by mouse, finger and keys.

import { DAMAGED, HOLE, NULL, inkOn, short } from "./colours.js";
import { SIDE, Tiles, coarsest } from "./tiles.js";

// The buttons stand beside the picture, or above it where it is narrow, as in the style sheet.
const MARGIN = { left: 74, right: 54, top: 14, bottom: 40 };
const NARROW = matchMedia("(max-width: 860px)");
const CLOSEST = 120;
const KINDS = { added: "#2e9e5b", recoded: "#e08214", written: "#c2408c", joined: "#7a6ff0", dropped: "#b3261e" };

export class Plane {
  constructor(canvas, hooks) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.hooks = hooks;
    this.tiles = new Tiles(() => { this.draw(); hooks.loaded(); });
    this.slice = null; this.before = null; this.cursor = null; this.view = null;
    this.rectangles = []; this.boxes = []; this.colourOf = () => "#888"; this.letterOf = () => "";
    this.flipped = false;
    this.pointers = new Map();
    new ResizeObserver(() => this.resize()).observe(canvas.parentElement);
    this.listen(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // Where things are

  get size() { return this.slice.axes.map((axis) => this.slice.shape[axis]); }

  get margin() { return NARROW.matches ? { ...MARGIN, right: 14, top: 48 } : MARGIN; }

  get plot() {
    const { left, right, top, bottom } = this.margin;
    return { x: left, y: top, width: Math.max(10, this.width - left - right), height: Math.max(10, this.height - top - bottom) };
  }

  resize() {
    const { width, height } = this.canvas.parentElement.getBoundingClientRect();
    const ratio = devicePixelRatio || 1;
    const first = !this.width;
    [this.width, this.height] = [width, height];
    [this.canvas.width, this.canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (!this.slice) return;
    if (first || this.whole) { this.shape(); this.fit(); } else this.moved();
    this.paint();  // a canvas of another size is empty: not even for one frame may that be seen
  }

  /** Another slice; the picture stays where it is, if it may. */
  show(slice, { keep = false } = {}) {
    this.before = keep && this.slice && String(this.slice.axes) === String(slice.axes) ? this.slice : null;
    this.slice = slice;
    if (!this.width) return;
    if (!keep || !this.view || this.whole) { this.shape(); this.fit(); } else this.moved();
  }

  /** The stage is as high as a picture with equal scales asks for, within bounds of the style sheet. */
  shape() {
    const [rows, columns] = this.size;
    const wanted = this.margin.top + this.margin.bottom + Math.max(0.3, rows / columns) * this.plot.width;
    this.canvas.parentElement.style.height = `${Math.round(wanted)}px`;
  }

  fit() {
    const [rows, columns] = this.size, { width, height } = this.plot;
    let x = width / columns, y = height / rows;
    // Equal scales, unless that leaves a thread of a picture.
    const equal = Math.min(x, y);
    if (equal * rows > height * 0.3 && equal * columns > width * 0.3) x = y = equal;
    this.view = { x: (columns - width / x) / 2, y: (rows - height / y) / 2, scaleX: x, scaleY: y };
    this.whole = true;
    this.moved();
  }

  zoom(factor, at = null) {
    const { view, plot } = this;
    const point = at ?? { x: plot.x + plot.width / 2, y: plot.y + plot.height / 2 };
    const least = Math.min(plot.width / this.size[1] / view.scaleX, plot.height / this.size[0] / view.scaleY, 1) * 0.8;
    const most = Math.max(1, CLOSEST / Math.min(view.scaleX, view.scaleY));
    const by = Math.min(most, Math.max(least, factor));
    const [x, y] = [point.x - plot.x, point.y - plot.y];
    view.x += x / view.scaleX * (1 - 1 / by);
    view.y += y / view.scaleY * (1 - 1 / by);
    view.scaleX *= by; view.scaleY *= by;
    this.whole = false;
    this.moved();
  }

  pan(dx, dy) {
    this.view.x -= dx / this.view.scaleX; this.view.y -= dy / this.view.scaleY;
    this.whole = false;
    this.moved();
  }

  moved() {
    const { view, plot } = this, [rows, columns] = this.size;
    const hold = (start, shown, size) => shown >= size ? (size - shown) / 2 : Math.min(Math.max(start, 0), size - shown);
    view.x = hold(view.x, plot.width / view.scaleX, columns);
    view.y = hold(view.y, plot.height / view.scaleY, rows);
    this.ask();
    this.draw();
  }

  /** Pixels of an element's edge; rows count from below where the picture is turned over. */
  px(column) { return this.plot.x + (column - this.view.x) * this.view.scaleX; }
  py(row) { return this.plot.y + ((this.flipped ? this.size[0] - row : row) - this.view.y) * this.view.scaleY; }

  cell(x, y) {
    const column = Math.floor((x - this.plot.x) / this.view.scaleX + this.view.x);
    const seen = Math.floor((y - this.plot.y) / this.view.scaleY + this.view.y);
    const row = this.flipped ? this.size[0] - 1 - seen : seen;
    const [rows, columns] = this.size;
    const inside = x >= this.plot.x && y >= this.plot.y && x <= this.plot.x + this.plot.width && y <= this.plot.y + this.plot.height;
    return inside && row >= 0 && column >= 0 && row < rows && column < columns ? [row, column] : null;
  }

  /** Rows and columns that are seen: first, and last excluded. */
  get visible() {
    const { view, plot } = this, [rows, columns] = this.size;
    const ends = (start, length, size) => [Math.max(0, Math.floor(start)), Math.min(size, Math.ceil(start + length))];
    let down = ends(view.y, plot.height / view.scaleY, rows);
    if (this.flipped) down = [rows - down[1], rows - down[0]];
    return [down, ends(view.x, plot.width / view.scaleX, columns)];
  }

  get level() {
    const fine = (scale, size) => Math.min(coarsest(size), Math.max(0, Math.round(Math.log2(1 / scale))));
    return [fine(this.view.scaleY, this.size[0]), fine(this.view.scaleX, this.size[1])];
  }

  /** The tiles of a level that are seen, those in the middle first. */
  seen(slice, level) {
    const listed = [], visible = this.visible;
    const sides = level.map((l) => SIDE * 2 ** l);
    const [[top, bottom], [left, right]] = visible.map(([a, b], i) => [Math.floor(a / sides[i]), Math.ceil(b / sides[i])]);
    const middle = [(top + bottom - 1) / 2, (left + right - 1) / 2];
    for (let row = top; row < bottom; row++) {
      for (let column = left; column < right; column++) {
        const far = Math.hypot(row - middle[0], column - middle[1]);
        listed.push({ key: Tiles.key(slice, level, [row, column]), slice, level, place: [row, column], far });
      }
    }
    return listed.sort((a, b) => a.far - b.far);
  }

  ask() {
    if (!this.slice || !this.view || !this.size.every((n) => n > 0)) return;
    const overview = this.size.map(coarsest);
    this.tiles.want([...this.seen(this.slice, overview), ...this.seen(this.slice, this.level)]
      .filter((tile, i, all) => all.findIndex((other) => other.key === tile.key) === i));
  }

  /** Tiles that hold values of what is seen. */
  get loaded() {
    if (!this.slice || !this.view) return [];
    const found = (level) => this.seen(this.slice, level).map((t) => this.tiles.get(t.key)).filter((t) => t && !t.failed);
    const fine = found(this.level);
    return fine.length ? fine : found(this.size.map(coarsest));
  }

  /** What is known of an element without asking: its value and what it is. */
  sampleAt([row, column]) {
    const level = [0, 0];
    const tile = this.tiles.get(Tiles.key(this.slice, level, [Math.floor(row / SIDE), Math.floor(column / SIDE)]));
    if (!tile || tile.failed || tile.coarser > 1) return null;
    const i = (row % SIDE) * tile.shape[1] + (column % SIDE);
    return { value: tile.values[i], status: tile.status[i] };
  }

  // Drawing

  draw() {
    if (this.drawing || !this.width) return;
    this.drawing = requestAnimationFrame(() => { this.drawing = 0; this.paint(); });
  }

  colour(name) { return getComputedStyle(this.canvas).getPropertyValue(`--${name}`).trim(); }

  paint() {
    const { context: c, plot } = this;
    c.clearRect(0, 0, this.width, this.height);
    if (!this.slice || !this.view || !this.tiles.scale || !this.size.every((n) => n > 0)) return;
    c.save();
    c.beginPath(); c.rect(plot.x, plot.y, plot.width, plot.height); c.clip();
    this.paintGround();
    c.imageSmoothingEnabled = false;
    const overview = this.size.map(coarsest);
    if (this.seen(this.slice, overview).every((tile) => this.tiles.get(tile.key))) this.before = null;
    for (const slice of [this.before, this.slice]) {
      if (!slice) continue;
      for (const level of String(overview) === String(this.level) ? [overview] : [overview, this.level]) {
        for (const tile of this.seen(slice, level)) this.paintTile(tile);
      }
    }
    this.paintNumbers();
    this.paintRegions();
    this.paintChanges();
    this.paintCursor();
    c.restore();
    this.paintAxes();
  }

  /** Where there is no value, the ground is dotted. */
  paintGround() {
    const { context: c } = this, [rows, columns] = this.size;
    const [x, y] = [this.px(0), Math.min(this.py(0), this.py(rows))];
    const [width, height] = [columns * this.view.scaleX, rows * this.view.scaleY];
    const dots = document.createElement("canvas");
    dots.width = dots.height = 8;
    const d = dots.getContext("2d");
    d.fillStyle = this.colour("stage"); d.fillRect(0, 0, 8, 8);
    d.fillStyle = this.colour("dots"); d.fillRect(0, 0, 2, 2); d.fillRect(4, 4, 2, 2);
    this.ground = c.createPattern(dots, "repeat");
    c.fillStyle = this.ground; c.fillRect(x, y, width, height);
  }

  paintTile({ key, level, place }) {
    const tile = this.tiles.get(key), { context: c } = this;
    if (!tile) return;
    const [stepY, stepX] = level.map((l) => 2 ** l), [rows, columns] = this.size;
    const [top, left] = [place[0] * SIDE * stepY, place[1] * SIDE * stepX];
    const [bottom, right] = [Math.min(rows, top + SIDE * stepY), Math.min(columns, left + SIDE * stepX)];
    // Whole pixels, so that no ground shows between neighbours.
    const [x, y] = [Math.round(this.px(left)), Math.round(this.py(top))];
    const [width, height] = [Math.round(this.px(right)) - x, Math.round(this.py(bottom)) - y];
    const picture = this.tiles.painted(tile);
    if (picture && picture.width && picture.height) {
      c.fillStyle = this.ground; c.fillRect(x, y, width, height);  // nothing coarser shines through
      // The last sample of a coarse tile may stand for more than is left of the array.
      const [shownX, shownY] = [(right - left) / stepX, (bottom - top) / stepY];
      c.save(); c.translate(x, y); c.scale(1, Math.sign(height));
      c.drawImage(picture, 0, 0, shownX, shownY, 0, 0, width, Math.abs(height));
      c.restore();
    } else if (tile.failed) {
      c.save(); c.globalAlpha = 0.25; c.fillStyle = this.colour("bad"); c.fillRect(x, y, width, height); c.restore();
      c.fillStyle = this.colour("bad"); c.font = "13px system-ui, sans-serif"; c.textAlign = "center";
      c.fillText("cannot be read", x + width / 2, y + height / 2);
    }
  }

  /** Close enough, the numbers themselves are read in the cells. */
  paintNumbers() {
    const { context: c, view } = this;
    const dates = this.slice.kind === "time";
    if (view.scaleX < (dates ? 76 : 46) || view.scaleY < 18 || this.slice.kind === "text") return;
    const [[top, bottom], [left, right]] = this.visible;
    c.font = "11px system-ui, sans-serif"; c.textAlign = "center"; c.textBaseline = "middle";
    for (let row = top; row < bottom; row++) {
      for (let column = left; column < right; column++) {
        const found = this.sampleAt([row, column]);
        if (!found || found.status !== 0) continue;
        const [r, g, b] = this.colourAt(found.value);
        c.fillStyle = 0.3 * r + 0.59 * g + 0.11 * b > 140 ? "#000c" : "#fffd";
        c.fillText(dates ? this.hooks.value(found.value) : short(found.value, 4), this.px(column + 0.5), this.py(row + 0.5));
      }
    }
    c.textBaseline = "alphabetic";
  }

  colourAt(value) {
    const { colours } = this.tiles.scale, last = colours.length / 3 - 1;
    const at = 3 * Math.min(last, Math.max(0, Math.round((this.tiles.scale.at(value) || 0) * last)));
    return [colours[at], colours[at + 1], colours[at + 2]];
  }

  box(top, left, bottom, right) {
    const [y1, y2] = [this.py(top), this.py(bottom)].sort((a, b) => a - b);
    return [this.px(left), y1, this.px(right) - this.px(left), y2 - y1];
  }

  paintRegions() {
    const { context: c, plot } = this;
    for (const [top, left, bottom, right, group] of this.rectangles) {
      const [x, y, width, height] = this.box(top, left, bottom, right);
      if (x > this.width || y > this.height || x + width < 0 || y + height < 0) continue;
      c.globalAlpha = 0.24; c.fillStyle = this.colourOf(group); c.fillRect(x, y, width, height);
      c.globalAlpha = 1; c.lineWidth = Math.min(width, height) > 8 ? 2 : 0.7; c.strokeStyle = this.colourOf(group);
      c.strokeRect(x + 1, y + 1, Math.max(0, width - 2), Math.max(0, height - 2));
      const [seenX, seenY] = [Math.max(x, plot.x), Math.max(y, plot.y)];
      if (width < 26 || height < 22) continue;
      c.fillStyle = this.colourOf(group); c.fillRect(seenX + 4, seenY + 4, 17, 16);
      c.fillStyle = inkOn(this.colourOf(group)); c.font = "600 11px system-ui, sans-serif"; c.textAlign = "center";
      c.fillText(this.letterOf(group), seenX + 12.5, seenY + 16);
    }
  }

  paintChanges() {
    const { context: c } = this;
    for (const [kind, top, left, bottom, right] of this.boxes) {
      const [x, y, width, height] = this.box(top, left, bottom, right);
      c.setLineDash([7, 5]);
      for (const [colour, line] of [["#fffc", 4], [KINDS[kind] ?? "#888", 2]]) {
        c.strokeStyle = colour; c.lineWidth = line; c.strokeRect(x + 2, y + 2, Math.max(0, width - 4), Math.max(0, height - 4));
      }
      c.setLineDash([]);
    }
  }

  paintCursor() {
    if (!this.cursor) return;
    const { context: c } = this, [row, column] = this.cursor;
    const [x, y, width, height] = this.box(row, column, row + 1, column + 1);
    const [w, h] = [Math.max(width, 7), Math.max(height, 7)];
    const [left, top] = [x + (width - w) / 2, y + (height - h) / 2];
    c.lineWidth = 3; c.strokeStyle = "#000a"; c.strokeRect(left, top, w, h);
    c.lineWidth = 1.3; c.strokeStyle = "#fff"; c.strokeRect(left, top, w, h);
  }

  paintAxes() {
    const { context: c, plot } = this, [[top, bottom], [left, right]] = this.visible;
    const [y, x] = this.slice.axes.map((axis) => this.slice.about.axes[axis]);
    c.strokeStyle = this.colour("line"); c.lineWidth = 1;
    const edge = this.box(top, left, bottom, right);
    const frame = { left: Math.max(plot.x, edge[0]), top: Math.max(plot.y, edge[1]) };
    frame.right = Math.min(plot.x + plot.width, edge[0] + edge[2]);
    frame.bottom = Math.min(plot.y + plot.height, edge[1] + edge[3]);
    c.strokeRect(frame.left - 0.5, frame.top - 0.5, frame.right - frame.left + 1, frame.bottom - frame.top + 1);
    c.fillStyle = this.colour("soft"); c.font = "11px system-ui, sans-serif";
    c.textAlign = "center";
    for (const place of this.ticks(left, right, this.view.scaleX, x.labelled ? 92 : 64)) {
      c.fillText(this.label(1, place, x), this.px(place + 0.5), frame.bottom + 15, 90);
    }
    c.textAlign = "right";
    for (const place of this.ticks(top, bottom, this.view.scaleY, 34)) {
      c.fillText(this.label(0, place, y), frame.left - 6, this.py(place + 0.5) + 4, MARGIN.left - 24);
    }
    c.fillStyle = this.colour("ink"); c.textAlign = "center"; c.font = "600 12px system-ui, sans-serif";
    c.fillText(named(x), (frame.left + frame.right) / 2, frame.bottom + 33);
    c.save(); c.translate(frame.left - 60, (frame.top + frame.bottom) / 2); c.rotate(-Math.PI / 2); c.fillText(named(y), 0, 0); c.restore();
  }

  ticks(first, last, scale, gap) {
    const least = gap / scale, power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
    const step = Math.max(1, [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least) ?? 10 * power);
    const listed = [];
    for (let at = Math.ceil(first / step) * step; at < last; at += step) listed.push(at);
    return listed;
  }

  label(nth, place, axis) {
    if (!axis.labelled) return String(place);
    const words = this.hooks.label(this.slice.axes[nth], place) ?? "";
    return words.length > 8 && Number.isFinite(Number(words)) ? short(Number(words), 5) : words; // dates stay whole
  }

  // Mouse, finger, keys

  listen(stage) {
    const at = (event) => { const box = stage.getBoundingClientRect(); return { x: event.clientX - box.left, y: event.clientY - box.top }; };
    stage.addEventListener("wheel", (event) => {
      if (!this.view) return;
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), at(event));
    }, { passive: false });
    stage.addEventListener("pointerdown", (event) => {
      if (event.target.closest("button") || !this.view) return;
      stage.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, { ...at(event), started: at(event), moved: false });
    });
    stage.addEventListener("pointermove", (event) => {
      if (!this.view) return;
      const now = at(event), held = this.pointers.get(event.pointerId);
      if (!held) { this.point(this.cell(now.x, now.y)); return; }
      const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, other]) => other);
      if (Math.hypot(now.x - held.started.x, now.y - held.started.y) > 4) held.moved = true;
      if (others.length) {
        const before = Math.hypot(held.x - others[0].x, held.y - others[0].y), after = Math.hypot(now.x - others[0].x, now.y - others[0].y);
        for (const other of others) other.moved = true;
        if (before > 0) this.zoom(after / before, { x: (now.x + others[0].x) / 2, y: (now.y + others[0].y) / 2 });
      } else if (held.moved) this.pan(now.x - held.x, now.y - held.y);
      Object.assign(held, now);
    });
    const released = (event) => {
      const held = this.pointers.get(event.pointerId);
      this.pointers.delete(event.pointerId);
      if (event.type !== "pointerup" || !held || held.moved) return;
      const cell = this.cell(held.x, held.y);
      if (cell) { this.point(cell); this.hooks.picked(cell); }
    };
    stage.addEventListener("pointerup", released);
    stage.addEventListener("pointercancel", released);
    stage.addEventListener("dblclick", (event) => { if (this.view && !event.target.closest("button")) this.zoom(2, at(event)); });
    stage.addEventListener("keydown", (event) => this.key(event));
  }

  point(cell) {
    if (String(cell) === String(this.cursor)) return;
    this.cursor = cell;
    this.draw();
    this.hooks.pointed(cell);
  }

  key(event) {
    if (!this.view || event.target.closest("button") || event.ctrlKey || event.metaKey || event.altKey) return;
    const [rows, columns] = this.size, far = event.shiftKey ? 10 : 1;
    const down = this.flipped ? -1 : 1;
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-down, 0], ArrowDown: [down, 0] }[event.key];
    if (step) {
      // A step is one element, or one pixel where elements are smaller than that.
      const grain = [this.view.scaleY, this.view.scaleX].map((scale) => Math.max(1, Math.round(1 / scale)) * far);
      const [row, column] = this.cursor ?? [Math.floor(rows / 2) - step[0], Math.floor(columns / 2) - step[1]];
      const next = [Math.min(rows - 1, Math.max(0, row + step[0] * grain[0])), Math.min(columns - 1, Math.max(0, column + step[1] * grain[1]))];
      this.point(next);
    } else if (event.key === "+" || event.key === "=") this.zoom(1.6);
    else if (event.key === "-") this.zoom(1 / 1.6);
    else if (event.key === "0") this.fit();
    else if (event.key === "x") this.hooks.swap();
    else if (event.key === "Enter" && this.cursor) this.hooks.picked(this.cursor);
    else return;
    event.preventDefault();
  }
}

export const WORDS = { [NULL]: "null", [DAMAGED]: "cannot be read", [HOLE]: "no region" };

const named = ({ name, units }) => units ? `${name} (${units})` : name;
