/**
 * Zarr v3 arrays, read chunk by chunk through any store that zarrita takes.
 *
 * @module
 */

import { combinations, copy, sizeOf, stridesOf } from "./boxes.js";
import { ChunkError, MetadataError, intact, valid } from "./errors.js";
import { parseBytes } from "./json.js";
import { NOTHING, pipeline } from "./pipeline.js";
import { allocate, parseFill, parseType } from "./types.js";

/**
 * @typedef {import("./types.js").DataType} DataType
 * @typedef {import("./boxes.js").Chunk} Chunk
 */

/**
 * What is asked of a store; those of zarrita and of Icechunk have it.
 *
 * @typedef {object} Store
 * @property {(key: any, options?: any) => Promise<Uint8Array | undefined>} get
 * @property {(key: any, range: any, options?: any) => Promise<Uint8Array | undefined>} [getRange]
 */

/**
 * Elements `start`, `start + step`, … of an axis, and where they go.
 *
 * @typedef {{ start: number, step: number, count: number, stride: number }} Axis
 */

/**
 * What to read of an axis: all of it, one index, or a slice with a step of 1 or more (as `zarrita.slice` makes it).
 *
 * @typedef {null | number | { start?: number | null, stop?: number | null, step?: number | null }} Selection
 */

/** Chunks that are fetched and decoded at a time. */
const AT_ONCE = 16;

/**
 * The metadata document of a node, or undefined.
 *
 * @param {Store} store
 * @param {string} path
 * @returns {Promise<any>}
 */
export async function metadataOf(store, path) {
	const bytes = await store.get(join(path, "zarr.json"));
	return bytes && parseBytes(bytes);
}

/**
 * @param {string} path
 * @param {string} key
 */
export function join(path, key) {
	return `${path.replace(/\/$/, "")}/${key}`;
}

/** What plain and logical arrays have in common: a shape, a type, and reading of selections. */
export class Readable {
	/** @type {number[]} */
	shape = [];
	/** @type {DataType} */
	type = "uint8";
	/** @type {any} */
	fill = 0;

	/**
	 * The elements of a selection, in C order.
	 *
	 * @param {Selection[]} [selection] for each axis; all of those that are left out
	 * @returns {Promise<{ data: any, shape: number[] }>}
	 */
	async get(selection = []) {
		const parsed = this.shape.map((length, axis) => parseSelection(selection[axis] ?? null, length));
		const shape = parsed.filter(({ dropped }) => !dropped).map(({ count }) => count);
		const strides = stridesOf(parsed.map(({ count }) => count));
		const axes = parsed.map(({ start, step, count }, i) => ({ start, step, count, stride: strides[i] }));
		const data = allocate(this.type, sizeOf(shape), this.fill);
		await this.readInto(axes, data, 0, null);
		return { data, shape };
	}

	/**
	 * @param {Axis[]} _axes
	 * @param {any} _out
	 * @param {number} _offset
	 * @param {((value: any) => any) | null} _change
	 * @returns {Promise<void>}
	 */
	async readInto(_axes, _out, _offset, _change) {
		throw new Error("not implemented");
	}
}

/**
 * @param {Selection} selection
 * @param {number} length
 */
function parseSelection(selection, length) {
	if (typeof selection === "number") {
		if (!(Number.isInteger(selection) && selection >= 0 && selection < length)) {
			throw new RangeError(`the index ${selection} is not on an axis of ${length}`);
		}
		return { start: selection, step: 1, count: 1, dropped: true };
	}
	const step = selection?.step ?? 1;
	if (!(Number.isInteger(step) && step > 0))
		throw new RangeError(`a step of ${step}: 1 or more are possible`);
	const within = (/** @type {number} */ i) => Math.min(Math.max(i < 0 ? i + length : i, 0), length);
	const start = within(selection?.start ?? 0);
	const stop = within(selection?.stop ?? length);
	return { start, step, count: Math.max(0, Math.ceil((stop - start) / step)), dropped: false };
}

/** A Zarr v3 array. */
export class ZarrArray extends Readable {
	/**
	 * @param {Store} store
	 * @param {string} path
	 * @param {any} metadata
	 */
	static async of(store, path, metadata) {
		const array = new ZarrArray();
		const { chunk_grid: grid, shape } = metadata;
		const counts = (/** @type {any} */ list, /** @type {number} */ least) =>
			Array.isArray(list) && list.every((n) => Number.isSafeInteger(n) && n >= least);
		valid(metadata.zarr_format === 3 && metadata.node_type === "array", `${path}: this is no Zarr v3 array`);
		valid(counts(shape, 0), `${path}: shape: ${shape}`);
		const chunkShape = grid?.configuration?.chunk_shape;
		valid(
			grid?.name === "regular" && counts(chunkShape, 1) && chunkShape.length === shape.length,
			`${path}: chunk_grid`,
		);
		array.store = store;
		array.path = path;
		array.shape = shape;
		array.type = parseType(metadata.data_type);
		array.fill = parseFill(array.type, metadata.fill_value);
		array.attributes = metadata.attributes ?? {};
		array.dimensionNames = metadata.dimension_names ?? null;
		array.keyOf = keyEncoding(metadata.chunk_key_encoding);
		array.pipeline = await pipeline(metadata.codecs, {
			type: array.type,
			shape: chunkShape,
			fill: array.fill,
		});
		array.chunkShape = array.pipeline.sharding?.chunkShape ?? chunkShape;
		return array;
	}

	/** @type {Store} */
	store = new Map();
	path = "/";
	/** @type {any} */
	attributes = {};
	/** @type {(string | null)[] | null} */
	dimensionNames = null;
	/** @type {number[]} */
	chunkShape = [];
	/** @type {(cell: number[]) => string} */
	keyOf = String;
	/** @type {import("./pipeline.js").Pipeline} */
	pipeline = { decode: async () => ({ data: [], shape: [], stride: [] }), encodedSize: null, sharding: null };
	/** Whether a chunk was asked for that is not stored. */
	missed = false;
	/** @type {Map<string, Promise<BigUint64Array | null>>} */
	#indexes = new Map();

	/** Forgets what was kept of the store, and which chunks were missing. */
	forget() {
		this.missed = false;
		this.#indexes.clear();
	}

	/**
	 * One chunk (of a shard, one of its inner chunks); null if it is not stored.
	 *
	 * @param {number[]} cell
	 * @returns {Promise<Chunk | null>}
	 */
	async chunk(cell) {
		const { sharding } = this.pipeline;
		try {
			if (sharding && this.store.getRange) return await this.#innerChunk(sharding, cell);
			const outer = sharding ? cell.map((i, axis) => Math.floor(i / sharding.grid[axis])) : cell;
			const bytes = await this.store.get(join(this.path, this.keyOf(outer)));
			if (!bytes) return null;
			const chunk = await this.pipeline.decode(bytes);
			return sharding ? within(chunk, sharding, cell) : chunk;
		} catch (cause) {
			if (!(cause instanceof ChunkError)) throw cause;
			throw new ChunkError(`${this.path}, chunk (${cell}): ${cause.message}`, { cause });
		}
	}

	/**
	 * @param {import("./pipeline.js").Sharding} sharding
	 * @param {number[]} cell
	 */
	async #innerChunk(sharding, cell) {
		const { grid, indexSize, location, inner } = sharding;
		const shard = cell.map((i, axis) => Math.floor(i / grid[axis]));
		const key = join(this.path, this.keyOf(shard));
		let index = this.#indexes.get(key);
		if (!index) {
			const range = location === "end" ? { suffixLength: indexSize } : { offset: 0, length: indexSize };
			index = this.#range(key, range, indexSize).then((bytes) => bytes && sharding.index(bytes));
			this.#indexes.set(key, index);
			index.catch(() => this.#indexes.delete(key));
		}
		const entries = await index;
		if (!entries) return null;
		const strides = stridesOf(grid);
		const number = cell.reduce((sum, i, axis) => sum + (i % grid[axis]) * strides[axis], 0);
		const [offset, length] = entries.subarray(2 * number, 2 * number + 2);
		if (offset === NOTHING && length === NOTHING) return null;
		const bytes = await this.#range(key, { offset: Number(offset), length: Number(length) }, Number(length));
		intact(bytes, "the shard is gone");
		return inner.decode(bytes);
	}

	/**
	 * Some bytes of an object. A server that knows no ranges answers with the whole of it; fewer bytes than were
	 * asked for never pass for data.
	 *
	 * @param {string} key
	 * @param {any} range
	 * @param {number} length
	 * @returns {Promise<Uint8Array | null>}
	 */
	async #range(key, range, length) {
		if (length === 0) return new Uint8Array();
		let bytes = await this.store.getRange?.(key, range);
		if (!bytes) return null;
		if (bytes.length > length) {
			const start = range.offset ?? bytes.length - length;
			bytes = bytes.subarray(start, start + length);
		}
		intact(bytes.length === length, `${bytes.length} bytes came where ${length} were asked for`);
		return bytes;
	}

	/**
	 * @param {Axis[]} axes one for each axis of the array
	 * @param {any} out
	 * @param {number} offset where in `out` the first element goes
	 * @param {((value: any) => any) | null} change
	 */
	async readInto(axes, out, offset, change) {
		const runs = axes.map((axis, i) => runsOf(axis, this.chunkShape[i]));
		const work = [...combinations(runs)];
		for (let i = 0; i < work.length; i += AT_ONCE) {
			await Promise.all(
				work.slice(i, i + AT_ONCE).map((parts) => this.#part(axes, parts, out, offset, change)),
			);
		}
	}

	/**
	 * @param {Axis[]} axes
	 * @param {Run[]} parts
	 * @param {any} out
	 * @param {number} offset
	 * @param {((value: any) => any) | null} change
	 */
	async #part(axes, parts, out, offset, change) {
		let chunk = await this.chunk(parts.map((part) => part.chunk));
		if (!chunk) {
			this.missed = true;
			chunk = { data: [this.fill], shape: [], stride: axes.map(() => 0) };
		}
		const { data, stride } = chunk;
		const from = { data, offset: 0, stride: stride.map((s, i) => s * axes[i].step) };
		const to = { data: out, offset, stride: axes.map((axis) => axis.stride) };
		parts.forEach(({ first, at }, i) => {
			from.offset += at * stride[i];
			to.offset += first * axes[i].stride;
		});
		copy(
			parts.map((part) => part.count),
			from,
			to,
			change,
		);
	}
}

/**
 * Elements of an axis that lie in one chunk: the first of them in the selection, and in the chunk.
 *
 * @typedef {{ chunk: number, first: number, count: number, at: number }} Run
 */

/**
 * @param {Axis} axis
 * @param {number} size of a chunk
 * @returns {Run[]}
 */
function runsOf({ start, step, count }, size) {
	/** @type {Run[]} */
	const runs = [];
	for (let k = 0; k < count; k++) {
		const index = start + step * k;
		const chunk = Math.floor(index / size);
		const last = runs.at(-1);
		if (last?.chunk === chunk) last.count++;
		else runs.push({ chunk, first: k, count: 1, at: index - chunk * size });
	}
	return runs;
}

/**
 * An inner chunk of a decoded shard.
 *
 * @param {Chunk} shard
 * @param {import("./pipeline.js").Sharding} sharding
 * @param {number[]} cell
 */
function within(shard, { grid, chunkShape }, cell) {
	const start = cell.reduce(
		(sum, i, axis) => sum + (i % grid[axis]) * chunkShape[axis] * shard.stride[axis],
		0,
	);
	const data = Array.isArray(shard.data) ? shard.data.slice(start) : shard.data.subarray(start);
	return { data, shape: chunkShape, stride: shard.stride };
}

/**
 * @param {any} encoding
 * @returns {(cell: number[]) => string}
 */
function keyEncoding(encoding) {
	const separator = encoding?.configuration?.separator;
	if (encoding?.name === "default") return (cell) => ["c", ...cell].join(separator ?? "/");
	if (encoding?.name === "v2") return (cell) => cell.join(separator ?? ".") || "0";
	throw new MetadataError(`chunk_key_encoding: ${encoding?.name} is not known here`);
}
