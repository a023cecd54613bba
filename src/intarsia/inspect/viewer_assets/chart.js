// A series of values along one axis, as a line; regions are bands below it.

import { ask, newest, values } from "./server.js";
import { DAMAGED, HOLE, NULL, VALUE, short } from "./colours.js";

const MOST = 1000;
const MARGIN = { left: 64, right: 12, top: 8, bottom: 22 };
const WORDS = { [NULL]: "null", [DAMAGED]: "cannot be read", [HOLE]: "no region: fill value" };

export class Chart {
  constructor(canvas, hooks) {
    this.canvas = canvas; this.hooks = hooks;
    this.context = canvas.getContext("2d");
    this.line = null; this.bands = []; this.at = null;
    this.fetch = newest((asked, signal) => values(asked, signal));
    new ResizeObserver(() => this.draw()).observe(canvas);
    canvas.addEventListener("pointermove", (event) => this.point(this.place(event)));
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("click", (event) => { const at = this.place(event); if (at !== null) hooks.picked(this.asked.axis, at); });
    canvas.addEventListener("wheel", (event) => this.zoom(event), { passive: false });
    canvas.addEventListener("dblclick", () => this.show({ ...this.asked, range: null }));
    canvas.addEventListener("keydown", (event) => this.key(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** `asked`: path, at, index, axis, about, and the range of places that is shown; all of them without one. */
  async show(asked) {
    const size = asked.about.shape[asked.axis];
    const [first, last] = asked.range ?? [0, size];
    this.asked = { ...asked, range: [first, last] };
    const step = Math.max(1, Math.ceil((last - first) / MOST));
    const take = asked.index.map((place, axis) => axis === asked.axis ? `${first}:${Math.ceil((last - first) / step)}:${step}` : place).join();
    try {
      const line = await this.fetch({ path: asked.path, at: asked.at, take });
      if (!line) return;
      this.line = { ...line, first, step };
      this.failed = "";
    } catch (error) {
      this.line = null; this.failed = error.message;
    }
    this.draw();
    this.tell();
  }

  summary() {
    if (!this.line) return this.failed;
    const { values: all, status, step, coarser } = this.line;
    const shown = [...all].filter((value, i) => status[i] === VALUE && Number.isFinite(value));
    const lowest = shown.reduce((a, b) => Math.min(a, b), Infinity), highest = shown.reduce((a, b) => Math.max(a, b), -Infinity);
    const mean = shown.reduce((a, b) => a + b, 0) / shown.length;
    const damaged = status.reduce((n, s) => n + (s === DAMAGED), 0);
    const words = this.asked.about.kind === "number" && shown.length
      ? [`lowest ${short(lowest)}`, `highest ${short(highest)}`, `mean ${short(mean)}`] : [];
    if (step * coarser > 1) words.push(`one of ${step * coarser} places`);
    if (damaged) words.push(`${damaged} cannot be read`);
    return words.join(" · ");
  }

  get plot() {
    return { x: MARGIN.left, y: MARGIN.top, width: this.canvas.clientWidth - MARGIN.left - MARGIN.right, height: this.canvas.clientHeight - MARGIN.top - MARGIN.bottom };
  }

  place(event) {
    if (!this.line) return null;
    const [first, last] = this.asked.range, { x, width } = this.plot;
    const share = (event.clientX - this.canvas.getBoundingClientRect().left - x) / width;
    return share < 0 || share > 1 ? null : Math.min(last - 1, Math.max(first, Math.floor(first + share * (last - first))));
  }

  px(place) { const [first, last] = this.asked.range; return this.plot.x + (place - first) / (last - first) * this.plot.width; }

  point(place) { this.at = place; this.draw(); this.tell(); }

  tell() {
    if (this.at === null || !this.line) { this.hooks.shown(this.summary()); return; }
    const i = Math.min(this.line.values.length - 1, Math.round((this.at - this.line.first) / this.line.step));
    const place = this.line.first + i * this.line.step, axis = this.asked.about.axes[this.asked.axis];
    const label = axis.labelled ? this.hooks.label(this.asked.axis, place) : undefined;
    const value = this.line.status[i] === VALUE ? this.hooks.value(this.line.values[i]) : WORDS[this.line.status[i]];
    this.hooks.shown(`${axis.name} ${place}${label ? ` (${label})` : ""}: ${value}`);
  }

  zoom(event) {
    const at = this.place(event);
    if (at === null) return;
    event.preventDefault();
    const [first, last] = this.asked.range, size = this.asked.about.shape[this.asked.axis];
    const length = Math.min(size, Math.max(8, (last - first) * Math.exp(event.deltaY * 0.002)));
    const start = Math.min(size - length, Math.max(0, at - (at - first) / (last - first) * length));
    this.show({ ...this.asked, range: [Math.round(start), Math.min(size, Math.round(start + length))] });
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const [first, last] = this.asked.range;
    if (by) this.point(Math.min(last - 1, Math.max(first, (this.at ?? Math.floor((first + last) / 2)) + by * this.line.step)));
    else if (event.key === "Enter" && this.at !== null) this.hooks.picked(this.asked.axis, this.at);
    else return;
    event.preventDefault();
  }

  draw() {
    if (this.drawing) return;
    this.drawing = requestAnimationFrame(() => { this.drawing = 0; this.paint(); });
  }

  colour(name) { return getComputedStyle(this.canvas).getPropertyValue(`--${name}`).trim(); }

  paint() {
    const { canvas, context: c } = this, ratio = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width) return;
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (!this.line) return;
    const { values: all, status, first, step } = this.line, plot = this.plot;
    const shown = [...all].filter((value, i) => status[i] === VALUE && Number.isFinite(value));
    let low = shown.reduce((a, b) => Math.min(a, b), Infinity), high = shown.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!(low < high)) [low, high] = shown.length ? [low - 1, high + 1] : [0, 1];
    const py = (value) => plot.y + plot.height - (value - low) / (high - low) * (plot.height - 8) - 4;
    for (const [from, to, colour] of this.bands) {
      c.globalAlpha = 0.22; c.fillStyle = colour;
      c.fillRect(this.px(from), plot.y, this.px(to) - this.px(from), plot.height);
      c.globalAlpha = 1; c.fillRect(this.px(from), plot.y + plot.height - 3, Math.max(1, this.px(to) - this.px(from) - 1), 3);
    }
    c.strokeStyle = this.colour("line"); c.strokeRect(plot.x - 0.5, plot.y - 0.5, plot.width + 1, plot.height + 1);
    c.save(); c.beginPath(); c.rect(plot.x, plot.y, plot.width, plot.height); c.clip();
    c.strokeStyle = this.colour("accent"); c.fillStyle = this.colour("accent"); c.lineWidth = 1.6; c.lineJoin = "round"; c.beginPath();
    let pen = false;
    const dots = all.length <= 60;
    for (let i = 0; i < all.length; i++) {
      const x = this.px(first + i * step + 0.5);
      if (status[i] === DAMAGED) { c.save(); c.globalAlpha = 0.35; c.fillStyle = this.colour("bad"); c.fillRect(this.px(first + i * step), plot.y, Math.max(1, plot.width / all.length), plot.height); c.restore(); }
      if (status[i] !== VALUE || !Number.isFinite(all[i])) { pen = false; continue; }
      if (pen) c.lineTo(x, py(all[i])); else c.moveTo(x, py(all[i]));
      pen = true;
      const alone = (i === 0 || status[i - 1] !== VALUE || !Number.isFinite(all[i - 1]));
      if (dots || alone) c.fillRect(x - 1.5, py(all[i]) - 1.5, 3, 3);
    }
    c.stroke();
    for (const [place, name] of [[this.marked?.(this.asked.axis), "soft"], [this.at, "ink"]]) {
      if (place === null || place === undefined) continue;
      c.strokeStyle = this.colour(name); c.lineWidth = 1; c.beginPath(); c.moveTo(this.px(place + 0.5), plot.y); c.lineTo(this.px(place + 0.5), plot.y + plot.height); c.stroke();
    }
    c.restore();
    this.paintAxes(low, high, py);
  }

  paintAxes(low, high, py) {
    const { context: c, plot } = this, [first, last] = this.asked.range, axis = this.asked.about.axes[this.asked.axis];
    c.fillStyle = this.colour("soft"); c.font = "11px system-ui, sans-serif"; c.textAlign = "right";
    for (const value of [low, (low + high) / 2, high]) c.fillText(this.hooks.value(value), plot.x - 6, py(value) + 4, MARGIN.left - 8);
    const count = Math.max(2, Math.min(6, Math.floor(plot.width / 110), last - first));
    for (let i = 0; i < count; i++) {
      const place = Math.min(last - 1, Math.round(first + i / (count - 1) * (last - 1 - first)));
      c.textAlign = i === 0 ? "left" : i === count - 1 ? "right" : "center";
      const label = axis.labelled ? this.hooks.label(this.asked.axis, place) ?? "" : String(place);
      c.fillText(label, this.px(place + (i === 0 ? 0 : i === count - 1 ? 1 : 0.5)), plot.y + plot.height + 15, 120);
    }
  }
}

/** The bands of a chart: the regions that the line of the series goes through. */
export async function bands({ path, at, index, axis }, colourOf) {
  const { rectangles, pipelines } = await ask("regions", { path, at, axes: String(axis), index: index.join() });
  const labels = new Map(pipelines.map((kind) => [kind.place, kind.label]));
  return rectangles.map(([from, to, group]) => [from, to, colourOf(labels.get(group))]);
}
