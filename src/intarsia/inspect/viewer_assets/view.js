// The page: which array, which slice, which version, which colours; what is under the pointer.
// Names and attributes were written by strangers: they become text nodes, and nothing else.

import { Chart, bands } from "./chart.js";
import { MAPS, Scale, inkOn, limits, short, table } from "./colours.js";
import { Plane, WORDS } from "./plane.js";
import { Labels, ask, newest } from "./server.js";

const $ = (id) => document.getElementById(id);
const catalogue = { arrays: [], colours: [], letters: "" };
const state = { path: null, at: "", axes: [], index: [], map: "viridis", log: false, auto: true, low: 0, high: 1, flipped: false };
let about = null, labels = null, versions = [], pipelines = new Map();
const hues = new Map();
const MILLISECONDS = { W: 6048e5, D: 864e5, h: 36e5, m: 6e4, s: 1e3, ms: 1, us: 1e-3, ns: 1e-6 };

// Elements

function text(element, words) { element.textContent = words; }

function made(tag, words, name = "") {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.textContent = words;
  return element;
}

function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, words]) => { const option = made("option", words); option.value = value; return option; }));
  select.value = String(chosen);
}

function complain(words) { $("message").hidden = !words; text($("message"), words ?? ""); }

/** A codec pipeline keeps its colour from version to version. */
function hueOf(label) {
  if (!hues.has(label)) hues.set(label, hues.size % catalogue.colours.length);
  return hues.get(label);
}
const colourOf = (label) => catalogue.colours[hueOf(label)];
const letterOf = (label) => catalogue.letters[hueOf(label)];

// The picture and the series

const plane = new Plane($("plane"), {
  label: (axis, place) => labels.get(axis, place),
  value: (number) => valueText(number),
  loaded: () => { settle(); note(); },
  pointed: (cell) => { if (cell) pointed(cell); },
  picked: (cell) => series(cell),
  swap: () => $("swap").click(),
});
const chart = new Chart($("chart"), {
  label: (axis, place) => labels.get(axis, place),
  value: (number) => valueText(number),
  shown: (words) => text($("series-note"), words),
  picked: (axis, place) => {
    if (state.axes.includes(axis) || about.shape.length < 2) { if (about.shape.length === 1) pointed([place]); return; }
    state.index[axis] = place;
    sliders(); slice({ keep: true });
  },
});
chart.marked = (axis) => state.axes.includes(axis) && plane.cursor ? plane.cursor[state.axes.indexOf(axis)] : state.index[axis];

function valueText(number) {
  if (about.kind === "bool") return number ? "true" : "false";
  if (about.kind !== "time") return short(number);
  const [, count, unit] = /\[(\d*)(\w+)\]/.exec(about.dtype) ?? [];
  const date = new Date(number * (Number(count) || 1) * (MILLISECONDS[unit] ?? NaN));
  return Number.isNaN(date.getTime()) ? "" : date.toISOString().replace("T", " ").replace(/(:00)?\.000Z$/, "").replace(/ 00:00$/, "");
}

function current() {
  const others = state.index.map((place, axis) => state.axes.includes(axis) ? 0 : place);
  return {
    path: state.path, at: state.at, axes: [...state.axes], index: others, shape: about.shape, kind: about.kind, about,
    key: JSON.stringify([state.path, state.at, state.axes, others]),
  };
}

function slice({ keep = false } = {}) {
  remember();
  if (about.shape.length < 2 || about.shape.includes(0)) return;
  plane.show(current(), { keep });
  settle(); overlay(); outline(); note();
  if (plane.cursor && keep) pointed(plane.cursor);
  if (!$("series").hidden) again();
}

function note() {
  const tiles = plane.loaded, coarse = Math.max(1, ...tiles.map((tile) => tile.coarser));
  const words = [];
  if (plane.tiles.busy) words.push("loading…");
  if (plane.slice && plane.view) {
    const steps = plane.level.map((level) => 2 ** level * coarse);
    if (Math.max(...steps) > 1) words.push(`one of ${steps[0]} × ${steps[1]} values`);
  }
  if (tiles.some((tile) => tile.status.includes(2))) words.push("striped: cannot be read");
  text($("note"), words.join(" · "));
}

// Colours

/** The first values of an array set the limits; after that they stay until somebody moves them. */
function settle() {
  if (!state.auto || !about) return;
  const tiles = plane.loaded;
  if (!tiles.length) return;
  const found = limits(tiles, { log: state.log, percent: about.kind === "bool" ? 0 : 2 });
  if (found) [state.low, state.high] = found;
  state.auto = false;
  recolour();
}

function recolour() {
  const words = about.kind === "text";
  const colours = table(state.map);
  const low = state.log && state.low <= 0 ? Math.max(state.high, 1e-12) / 1e4 : state.low;
  plane.tiles.scale = new Scale(colours, low, state.high, state.log, words);
  plane.draw();
  $("low").value = short(state.low, 6); $("high").value = short(state.high, 6);
  $("log").checked = state.log; $("map").value = state.map;
  for (const id of ["low", "high", "auto"]) $(id).hidden = words || about.kind === "time";
  $("log").parentElement.hidden = about.kind !== "number";
  const bar = $("bar").getContext("2d"), image = bar.createImageData(512, 14);
  for (let i = 0; i < 512 * 14; i++) {
    const at = 3 * Math.floor((i % 512) / 2);
    image.data.set([colours[at], colours[at + 1], colours[at + 2], 255], 4 * i);
  }
  bar.putImageData(image, 0, 0);
  remember();
}

function typed() {
  const [low, high] = [Number($("low").value), Number($("high").value)];
  if (Number.isFinite(low) && Number.isFinite(high) && low < high) Object.assign(state, { low, high, auto: false });
  recolour();
}

// Slices

function sliders() {
  const box = $("sliders");
  const axes = about.axes.map((axis, i) => ({ ...axis, i })).filter(({ i, size }) => !state.axes.includes(i) && about.shape.length > 2 && size > 0);
  const wanted = axes.map(({ i }) => i).join();
  if (box.dataset.axes !== `${state.path}/${state.at}/${wanted}`) {
    box.dataset.axes = `${state.path}/${state.at}/${wanted}`;
    box.replaceChildren(...axes.map(slider));
  }
  for (const { i, labelled } of axes) {
    const one = box.querySelector(`[data-axis="${i}"]`);
    const [number, range] = one.querySelectorAll("input");
    number.value = range.value = String(state.index[i]);
    const label = labelled ? labels.get(i, state.index[i]) ?? "" : "";
    text(one.querySelector("output"), label);
    range.setAttribute("aria-valuetext", label || String(state.index[i]));
  }
}

function slider({ i, name, size, units }) {
  const box = made("div", "", "slider"), line = made("div", "", "line");
  box.dataset.axis = String(i);
  const number = made("input", ""), range = made("input", "");
  number.type = "number"; range.type = "range";
  for (const input of [number, range]) {
    Object.assign(input, { min: "0", max: String(size - 1), step: "1" });
    input.setAttribute("aria-label", input === range ? name : `${name}, as a number`);
    input.addEventListener("input", () => {
      const place = Number(input.value);
      if (!Number.isInteger(place) || place < 0 || place >= size) return;
      state.index[i] = place;
      sliders(); slice({ keep: true });
    });
  }
  const output = made("output", "");
  line.append(made("strong", units ? `${name} (${units})` : name), number, output);
  box.append(line, range);
  return box;
}

function axes() {
  const listed = about.axes.map(({ name }, i) => [String(i), name]);
  options($("axis-y"), listed, state.axes[0]);
  options($("axis-x"), listed, state.axes[1]);
  $("slices").hidden = about.shape.length < 2;
}

function chooseAxis(nth, axis) {
  const other = 1 - nth;
  if (state.axes[other] === axis) state.axes[other] = state.axes[nth];
  state.axes[nth] = axis;
  plane.cursor = null;
  turnOver();
  axes(); sliders(); slice();
}

/** Latitudes that grow point upwards, as on a map. */
async function turnOver() {
  const axis = state.axes[0], { name, labelled, size } = about.axes[axis];
  state.flipped = plane.flipped = false;
  if (!labelled || !/^(lat|latitude|y)$/i.test(name) || size < 2) return;
  const { labels: ends } = await ask("labels", { path: state.path, at: state.at, axis, places: `0,${size - 1}` });
  if (axis === state.axes[0] && Number(ends[0]) < Number(ends[size - 1])) { state.flipped = plane.flipped = true; if (plane.view) plane.moved(); }
}

// Regions

const cut = newest((asked, signal) => ask("regions", asked, signal));

async function overlay() {
  $("regions").hidden = !about.logical;
  if (!about.logical || about.shape.length < 2) { plane.rectangles = []; return; }
  const index = state.index.map((place, axis) => state.axes.includes(axis) ? 0 : place);
  let told;
  try { told = await cut({ path: state.path, at: state.at, axes: state.axes.join(), index: index.join(), layer: $("layer").value || "0" }); } catch (error) { complain(error.message); return; }
  if (!told || !about) return;
  legend(told);
  plane.rectangles = $("overlay").checked ? told.rectangles : [];
  plane.colourOf = (group) => colourOf(pipelines.get(group));
  plane.letterOf = (group) => letterOf(pipelines.get(group));
  plane.draw();
}

function legend(told) {
  pipelines = new Map(told.pipelines.map((kind) => [kind.place, kind.label]));
  $("legend").replaceChildren(...told.pipelines.map(({ label, cells: [count, size, stored, ratio] }) => {
    const line = made("li", ""), key = made("span", letterOf(label), "key");
    key.style.background = colourOf(label); key.style.color = inkOn(colourOf(label));
    line.append(key, made("span", label, "how"), made("span", `${size} → ${stored}`, "soft"));
    line.title = `${count} regions, ${ratio} smaller`;
    return line;
  }), ...(told.left_out ? [made("li", `${told.left_out} small regions are not drawn`, "soft")] : []));
}

// Under the pointer

const place = newest(async (index, signal) => {
  await new Promise((resolve) => setTimeout(resolve, 60));
  if (signal.aborted) return undefined;
  return ask("place", { path: state.path, at: state.at, index: index.join() }, signal);
});

async function pointed(cell) {
  const index = [...state.index];
  if (about.shape.length >= 2) { index[state.axes[0]] = cell[0]; index[state.axes[1]] = cell[1]; } else if (cell.length) index[0] = cell[0];
  const known = about.shape.length >= 2 ? plane.sampleAt(cell) : null;
  if (known && (about.kind === "number" || known.status)) text($("value"), known.status ? WORDS[known.status] : `${short(known.value, 7)} ${about.units}`);
  let told;
  try { told = await place(index); } catch (error) { text($("value"), error.message); return; }
  if (told && about) facts(told);
}

function facts(told) {
  text($("value"), told.error ? "cannot be read" : told.value + (about.units && !/since/.test(about.units) && told.value !== "null" ? ` ${about.units}` : ""));
  const entries = told.index.map((at, axis) => {
    const label = about.axes[axis].labelled ? labels.get(axis, at) : undefined;
    return [about.axes[axis].name, label ? `${at} · ${label}` : String(at)];
  });
  if (told.error) entries.push(["Problem", told.error, "bad"]);
  if (about.logical && !told.region) entries.push(["Region", "none: reads as the fill value"]);
  if (told.region) {
    entries.push(["Region", `[${told.region.bounds.map((pair) => pair.join(":")).join(", ")}]`]);
    if (told.region.packing) entries.push(["Packing", told.region.packing]);
    if (told.region.view) entries.push(["View", told.region.view]);
  }
  if (told.codecs) entries.push(["Codecs", told.codecs]);
  if (told.chunks) entries.push(["Chunks", told.chunks.join(" × ")]);
  if (told.chunk) {
    entries.push(["Chunk", `${told.chunk.index.join(", ")} · ${told.chunk.nbytes}`]);
    if (told.chunk.file) entries.push(["File", told.chunk.virtual ? `${told.chunk.file} @ ${told.chunk.offset}` : told.chunk.file, "long"]);
  } else if (told.codecs && !told.error) entries.push(["Chunk", "not stored: reads as the fill value"]);
  if (told.region) entries.push(["Member", told.region.member, "long"]);
  definitions($("facts"), entries);
  $("facts").dataset.index = told.index.join();
}

function definitions(list, entries) {
  list.replaceChildren(...entries.flatMap(([name, words, kind = ""]) => [made("dt", name), made("dd", words, kind)]));
}

// Series

function series(cell) {
  const index = [...state.index];
  if (about.shape.length >= 2) { index[state.axes[0]] = cell[0]; index[state.axes[1]] = cell[1]; }
  if (about.kind === "text") return;
  $("series").hidden = false;
  const listed = about.axes.map(({ name }, i) => [String(i), name]);
  const others = about.shape.map((_, i) => i).filter((i) => !state.axes.includes(i));
  const chosen = state.series ?? others[0] ?? state.axes[1] ?? 0;
  options($("series-axis"), listed, chosen);
  state.series = chosen; state.picked = cell;
  const where = index.map((at, axis) => axis === chosen ? null : `${about.axes[axis].name} ${at}`).filter(Boolean).join(", ");
  text($("series-where"), where ? `at ${where}` : "");
  const asked = { path: state.path, at: state.at, index, axis: chosen, about };
  chart.show(asked);
  if (about.logical) bands(asked, colourOf).then((drawn) => { chart.bands = $("overlay").checked ? drawn : []; chart.draw(); }).catch(() => {});
}

function again() { if (state.picked) series(state.picked); }

// Versions

async function history() {
  versions = [];
  $("versions").hidden = true;
  if (!catalogue.snapshot || !about?.logical) return;
  const path = state.path;
  const told = await ask("versions", { path });
  if (path !== state.path) return;
  versions = told.versions;
  if (versions.length < 2) return;
  $("versions").hidden = false;
  $("version").max = String(versions.length - 1);
  version();
}

/** Which version is shown: the newest one, until another one is chosen. */
function shownVersion() {
  const found = versions.findIndex(({ id }) => id === state.at);
  return found < 0 ? versions.length - 1 : found;
}

function version() {
  if (versions.length < 2) return;
  const at = shownVersion();
  const { message, when, lines } = versions[at];
  $("version").value = String(at);
  $("version").setAttribute("aria-valuetext", `${message}, ${when}`);
  $("version-label").replaceChildren(made("strong", message || "(no message)"), made("span", `${at + 1} of ${versions.length} · ${when}`, "soft"));
  $("version-lines").replaceChildren(...lines.map((line) => made("li", line)));
  $("earlier").disabled = at === 0; $("later").disabled = at === versions.length - 1;
  outline();
}

/** What the version changed, as far as the slice meets it. */
function outline() {
  plane.boxes = [];
  const chosen = versions[shownVersion()];
  if ($("changed").checked && versions.length > 1 && about?.shape.length >= 2) {
    const [y, x] = state.axes;
    plane.boxes = chosen.boxes
      .filter(([, bounds]) => bounds.every(([a, b], axis) => state.axes.includes(axis) || (a <= state.index[axis] && state.index[axis] < b)))
      .map(([kind, bounds]) => [kind, bounds[y][0], bounds[x][0], bounds[y][1], bounds[x][1]]);
  }
  plane.draw();
}

async function travel(at) {
  const { id } = versions[Math.max(0, Math.min(versions.length - 1, at))];
  state.at = id;
  await describe({ keep: true });
  version();
}

// Arrays

const described = newest((asked, signal) => ask("array", asked, signal));

async function describe({ keep = false } = {}) {
  complain("");
  let told;
  try { told = await described({ path: state.path, at: state.at }); } catch (error) { nothing(error.message); return; }
  if (!told) return;
  about = told;
  labels = new Labels({ path: state.path, at: state.at });
  labels.listeners.add(() => { if (!about) return; sliders(); plane.draw(); chart.draw(); if (chart.asked) chart.tell(); refreshFacts(); });
  const ndim = about.shape.length;
  if (!keep || state.index.length !== ndim) {
    state.index = about.shape.map((size) => Math.max(0, Math.floor((size - 1) / 2)));
    state.axes = ndim >= 2 ? [ndim - 2, ndim - 1] : ndim ? [0] : [];
    state.auto = true; state.log = false; state.series = undefined; state.picked = null;
    plane.cursor = null;
    $("series").hidden = true;
    definitions($("facts"), []); text($("value"), "–");
  }
  state.index = state.index.map((place, axis) => Math.max(0, Math.min(about.shape[axis] - 1, place)));
  text($("about"), [about.name, `${about.shape.join(" × ")} ${about.dtype}`, about.nbytes, about.logical ? `${about.regions} ${about.regions === 1 ? "region" : "regions"}` : "plain array"].filter(Boolean).join(" · "));
  const layer = about.layers.map(String).includes($("layer").value) ? $("layer").value : "0";
  $("layer").replaceChildren(...about.layers.map((number) => made("option", String(number))));
  $("layer").value = layer;
  $("layers").hidden = about.layers.length < 2;
  definitions($("attributes"), about.attributes);
  $("attributes").parentElement.hidden = !about.attributes.length;
  document.title = `${state.path || "/"} – intarsia`;
  layout(keep);
}

/** Of an array that cannot be opened there is nothing to see, not even what was seen before. */
function nothing(words) {
  complain(words);
  about = null;
  for (const id of ["stage", "scale", "single", "series", "slices", "versions", "regions"]) $(id).hidden = true;
  for (const id of ["facts", "attributes"]) definitions($(id), []);
  text($("about"), ""); text($("value"), "–");
}

function layout(keep) {
  const ndim = about.shape.length, empty = about.shape.includes(0);
  $("stage").hidden = $("scale").hidden = ndim < 2 || empty;
  $("single").hidden = ndim > 0;
  if (empty) { complain(`The shape is ${about.shape.join(" × ")}: there are no elements yet.`); $("regions").hidden = true; return; }
  if (!state.axes.every((axis) => axis < ndim)) state.axes = [ndim - 2, ndim - 1];
  if (ndim >= 2) {
    if (!keep) turnOver();
    axes(); sliders();
    if (!state.auto || !plane.tiles.scale) recolour();
    slice({ keep });
  } else {
    $("slices").hidden = true;
    overlay();
    if (ndim === 1) { series([]); pointed([state.index[0]]); } else pointed([]).then(() => text($("single"), $("value").textContent));
  }
}

function refreshFacts() {
  const index = $("facts").dataset.index;
  if (!index) return;
  const listed = index.split(",").map(Number);
  [...$("facts").querySelectorAll("dd")].slice(0, listed.length).forEach((cell, axis) => {
    const label = about.axes[axis]?.labelled ? labels.get(axis, listed[axis]) : undefined;
    if (label) text(cell, `${listed[axis]} · ${label}`);
  });
}

async function choose(path) {
  state.path = path; state.at = "";
  $("array").value = path;
  hues.clear();
  await describe();
  await history();
}

// The address keeps what is seen, so that it can be sent to somebody

function remember() {
  const { path, at, axes: shown, index, map } = state;
  const query = new URLSearchParams({ array: path ?? "", ...(at && { at }), axes: shown.join(), index: index.join(), map });
  window.history.replaceState(null, "", `#${query}`);
}

function recall() {
  const query = new URLSearchParams(location.hash.slice(1));
  const numbers = (name) => (query.get(name) ?? "").split(",").filter(Boolean).map(Number);
  return { path: query.get("array"), at: query.get("at") ?? "", axes: numbers("axes"), index: numbers("index"), map: query.get("map") };
}

async function start() {
  const asked = recall();
  try { Object.assign(catalogue, await ask("arrays")); } catch (error) { complain(error.message); return; }
  text($("title"), catalogue.title);
  options($("map"), Object.keys(MAPS).map((name) => [name, name]), state.map);
  options($("array"), catalogue.arrays.map(({ path, shape, damaged }) => [path, `${path || "/"}  (${damaged ? "damaged" : shape.join(" × ")})`]), "");
  if (!catalogue.arrays.length) { complain("There are no arrays here."); return; }
  const known = catalogue.arrays.find(({ path }) => path === asked.path);
  const sizes = catalogue.arrays.map(({ shape, logical }) => [shape.length >= 2 || logical ? 1 : 0, shape.reduce((a, b) => a * b, 1)]);
  const largest = sizes.reduce((best, size, i) => size[0] > sizes[best][0] || (size[0] === sizes[best][0] && size[1] > sizes[best][1]) ? i : best, 0);
  if (asked.map in MAPS) state.map = asked.map;
  await choose((known ?? catalogue.arrays[largest]).path);
  if (!known || asked.index.length !== about?.shape.length) return;
  const fits = asked.axes.length === 2 && asked.axes.every((axis) => axis < about.shape.length) && asked.axes[0] !== asked.axes[1];
  if (fits && about.shape.length >= 2) state.axes = asked.axes;
  state.index = asked.index.map((place, axis) => Math.max(0, Math.min(about.shape[axis] - 1, place || 0)));
  if (versions.some(({ id }) => id === asked.at)) state.at = asked.at;
  await describe({ keep: true });
  version();
}

$("array").addEventListener("change", () => choose($("array").value));
$("axis-y").addEventListener("change", () => chooseAxis(0, Number($("axis-y").value)));
$("axis-x").addEventListener("change", () => chooseAxis(1, Number($("axis-x").value)));
$("swap").addEventListener("click", () => chooseAxis(0, state.axes[1]));
$("map").addEventListener("change", () => { state.map = $("map").value; recolour(); });
$("log").addEventListener("change", () => { state.log = $("log").checked; state.auto = true; settle(); recolour(); });
$("low").addEventListener("change", typed);
$("high").addEventListener("change", typed);
$("auto").addEventListener("click", () => { state.auto = true; settle(); });
$("overlay").addEventListener("change", () => { overlay(); again(); });
$("layer").addEventListener("change", () => { $("overlay").checked = true; overlay(); again(); });
$("changed").addEventListener("change", outline);
$("version").addEventListener("input", () => travel(Number($("version").value)));
$("earlier").addEventListener("click", () => travel(Number($("version").value) - 1));
$("later").addEventListener("click", () => travel(Number($("version").value) + 1));
$("zoom-in").addEventListener("click", () => plane.zoom(1.6));
$("zoom-out").addEventListener("click", () => plane.zoom(1 / 1.6));
$("fit").addEventListener("click", () => { plane.tiles.forgetFailures(); plane.fit(); });
$("series-axis").addEventListener("change", () => { state.series = Number($("series-axis").value); again(); });

window.viewer = { state, plane, chart, choose };
start();
