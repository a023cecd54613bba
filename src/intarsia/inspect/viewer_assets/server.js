// What the page asks its server. Every answer is bounded there; a question that nobody waits for is withdrawn.

export class Failure extends Error {}

function address(name, asked) {
  const query = new URLSearchParams(Object.entries(asked).filter(([, value]) => value !== undefined && value !== ""));
  return `__view__/${name}?${query}`;
}

async function fetched(name, asked, signal) {
  const answer = await fetch(address(name, asked), { signal });
  if (answer.ok) return answer;
  let words = "";
  try { words = (await answer.json()).error; } catch { /* no words */ }
  throw new Failure(words || `the server answers ${answer.status}`);
}

export async function ask(name, asked = {}, signal) {
  return (await fetched(name, asked, signal)).json();
}

const TYPES = { float32: Float32Array, float64: Float64Array };

/** Values and what each is: 0 a value, 1 null, 2 damaged, 3 the fill value where no region is. */
export async function values(asked, signal) {
  const answer = await fetched("values", asked, signal);
  const said = answer.headers.get("X-Shape");
  const shape = said ? said.split(",").map(Number) : [];
  const count = shape.reduce((a, b) => a * b, 1);
  const buffer = await answer.arrayBuffer();
  const Type = TYPES[answer.headers.get("X-Type")];
  return {
    shape,
    values: new Type(buffer, 0, count),
    status: new Uint8Array(buffer, count * Type.BYTES_PER_ELEMENT, count),
    coarser: Number(answer.headers.get("X-Coarser")),
    nbytes: buffer.byteLength,
  };
}

/** The newest of several questions of a kind; the others are withdrawn. */
export function newest(question) {
  let controller = null;
  return async (...given) => {
    controller?.abort();
    controller = new AbortController();
    const mine = controller;
    try {
      const answer = await question(...given, mine.signal);
      return mine === controller ? answer : undefined;
    } catch (error) {
      if (error.name === "AbortError" || mine !== controller) return undefined;
      throw error;
    }
  };
}

/** Names of places on axes, asked for together and kept. */
export class Labels {
  constructor(which) { this.which = which; this.known = new Map(); this.wanted = new Map(); this.asked = new Set(); this.listeners = new Set(); }

  /** The label, if it is known; else it is asked for, and listeners are told when it is there. */
  get(axis, place) {
    const key = `${axis}/${place}`;
    if (this.known.has(key)) return this.known.get(key);
    if (this.asked.has(key)) return undefined;
    this.asked.add(key);
    if (!this.wanted.size) setTimeout(() => this.ask(), 15);
    if (!this.wanted.has(axis)) this.wanted.set(axis, new Set());
    this.wanted.get(axis).add(place);
    return undefined;
  }

  async ask() {
    const wanted = this.wanted;
    this.wanted = new Map();
    await Promise.all([...wanted].map(async ([axis, places]) => {
      const listed = [...places].slice(0, 256);
      try {
        const { labels } = await ask("labels", { ...this.which, axis, places: listed.join() });
        for (const place of listed) this.known.set(`${axis}/${place}`, labels[place] ?? null);
      } catch {
        for (const place of listed) this.known.set(`${axis}/${place}`, null);
      }
    }));
    if (this.known.size > 20000) { this.known.clear(); this.asked.clear(); }
    for (const listener of this.listeners) listener();
  }
}
