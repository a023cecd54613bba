/**
 * From the bytes of a chunk to its elements: the codecs of an array in their order.
 *
 * @module
 */

import { registry } from "zarrita";

import { copy, combinations, inOrder, sizeOf, stridesOf, upTo } from "./boxes.js";
import { bytesCodecOrNull, checkFields, checkInteger, codecObject } from "./codecs.js";
import { ChunkError, intact, valid } from "./errors.js";
import { NUMBERS, fromHalf } from "./numbers.js";
import { allocate, typeText } from "./types.js";

/**
 * @typedef {import("./boxes.js").Chunk} Chunk
 * @typedef {import("./codecs.js").BytesCodec} BytesCodec
 * @typedef {import("./codecs.js").CodecObject} CodecObject
 * @typedef {import("./types.js").DataType} DataType
 */

/**
 * What a codec is told about the chunks it works on.
 *
 * @typedef {{ type: DataType, shape: number[], fill: any }} Spec
 */

/**
 * @typedef {object} Pipeline
 * @property {(bytes: Uint8Array) => Promise<Chunk>} decode
 * @property {number | null} encodedSize of every chunk, where it is always the same
 * @property {Sharding | null} sharding where nothing else is done to a chunk than to cut it into smaller ones
 */

/**
 * @typedef {object} Sharding
 * @property {number[]} chunkShape
 * @property {number[]} grid inner chunks in a shard
 * @property {"start" | "end"} location of the index
 * @property {number} indexSize
 * @property {Pipeline} inner
 * @property {(bytes: Uint8Array) => Promise<BigUint64Array>} index
 */

/** Both numbers of a chunk that a shard does not hold. */
export const NOTHING = 2n ** 64n - 1n;

/**
 * @param {any} codecs the list in zarr.json
 * @param {Spec} spec
 * @returns {Promise<Pipeline>}
 */
export async function pipeline(codecs, spec) {
	valid(Array.isArray(codecs) && codecs.length > 0, "codecs is no list of codecs");
	/** @type {((chunk: Chunk) => Chunk | Promise<Chunk>)[]} */
	const filters = [];
	/** @type {{ decode: (bytes: Uint8Array) => any, encodedSize: number | null, sharding?: Sharding } | null} */
	let serializer = null;
	/** @type {BytesCodec[]} */
	const outer = [];
	for (const codec of codecs.map(codecObject)) {
		const bytes = await bytesCodecOrNull(codec);
		if (bytes) {
			valid(serializer, `codec ${codec.name}: there is no codec from array to bytes before it`);
			outer.push(bytes);
			continue;
		}
		valid(!serializer, `codec ${codec.name}: it comes after a codec from array to bytes`);
		serializer = await arrayToBytes(codec, spec);
		if (serializer) continue;
		const filter = await arrayToArray(codec, spec);
		filters.push(filter.decode);
		spec = filter.encoded;
	}
	valid(serializer, "there is no codec from array to bytes");
	const { decode, encodedSize, sharding } = serializer;
	const growth = outer.map((codec) => codec.growth ?? NaN).reduce((a, b) => a + b, encodedSize ?? NaN);
	return {
		encodedSize: Number.isNaN(growth) ? null : growth,
		sharding: filters.length || outer.length ? null : (sharding ?? null),
		async decode(bytes) {
			for (const codec of [...outer].reverse()) bytes = await codec.decode(bytes);
			let chunk = await decode(bytes);
			for (const filter of [...filters].reverse()) chunk = await filter(chunk);
			return chunk;
		},
	};
}

/**
 * @param {CodecObject} codec
 * @param {Spec} spec
 * @returns {Promise<{ decode: (chunk: Chunk) => Chunk | Promise<Chunk>, encoded: Spec }>}
 */
async function arrayToArray(codec, spec) {
	const { name, configuration } = codec;
	if (name === "transpose") {
		const { order } = configuration;
		const sorted = Array.isArray(order) && [...order].sort((a, b) => a - b);
		const complete = sorted && sorted.length === spec.shape.length && sorted.every((axis, i) => axis === i);
		valid(complete, `codec transpose: ${order} is no order of ${spec.shape.length} axes`);
		const back = upTo(order.length).map((axis) => order.indexOf(axis));
		return {
			encoded: { ...spec, shape: order.map((/** @type {number} */ axis) => spec.shape[axis]) },
			// Nothing moves: element order is what strides say.
			decode: ({ data, shape, stride }) => ({
				data,
				shape: back.map((i) => shape[i]),
				stride: back.map((i) => stride[i]),
			}),
		};
	}
	if (name === "reshape") {
		const shape = reshaped(codec, spec.shape);
		return {
			encoded: { ...spec, shape },
			decode: (chunk) => ({
				data: inOrder(chunk, allocate(spec.type, sizeOf(shape))),
				shape: spec.shape,
				stride: stridesOf(spec.shape),
			}),
		};
	}
	const theirs = await registry.get(/** @type {any} */ (name))?.();
	valid(
		theirs && typeof spec.type === "string" && spec.type !== "float16",
		`the codec ${name} is not known here`,
	);
	const told = /** @type {any} */ ({
		dataType: spec.type,
		shape: spec.shape,
		codecs: [],
		fillValue: spec.fill,
	});
	const made = /** @type {any} */ (theirs).fromConfig(configuration, told);
	valid(made.kind === "array_to_array", `codec ${name}: it cannot stand here`);
	const { dataType, fillValue } = made.getEncodedMeta?.(told) ?? told;
	return { decode: (chunk) => made.decode(chunk), encoded: { ...spec, type: dataType, fill: fillValue } };
}

/**
 * What the codec `reshape` makes of a chunk.
 *
 * @param {CodecObject} codec
 * @param {number[]} shape
 * @returns {number[]}
 */
function reshaped(codec, shape) {
	checkFields(codec, ["shape"]);
	/** @type {any[]} */
	const asked = codec.configuration.shape;
	const text = `codec reshape: ${JSON.stringify(asked)}`;
	const isSize = (/** @type {any} */ size) => size === -1 || (Number.isInteger(size) && size > 0);
	valid(
		Array.isArray(asked) && asked.every((size) => Array.isArray(size) || isSize(size)),
		`${text} is no shape`,
	);
	const axes = asked.filter(Array.isArray).flat();
	valid(
		axes.every((axis, i) => Number.isInteger(axis) && axis < shape.length && axis > (i ? axes[i - 1] : -1)),
		`${text}: the axes do not increase, or there are no such axes in a chunk of ${shape}`,
	);
	const made = asked.map((size) =>
		Array.isArray(size) ? sizeOf(size.map((/** @type {number} */ axis) => shape[axis])) : size,
	);
	const open = made.indexOf(-1);
	if (open >= 0) made[open] = sizeOf(shape) / sizeOf(made.filter((size) => size !== -1));
	valid(
		made.every(Number.isInteger) && !made.includes(-1) && sizeOf(made) === sizeOf(shape),
		`${text} does not fit chunks of ${shape}`,
	);
	asked.forEach((size, i) => {
		if (!Array.isArray(size) || !size.length) return;
		const before = sizeOf(made.slice(0, i)) === sizeOf(shape.slice(0, size[0]));
		const behind = sizeOf(made.slice(i + 1)) === sizeOf(shape.slice(size[size.length - 1] + 1));
		valid(before && behind, `${text}: axis ${i} is not made of the axes ${size}`);
	});
	return made;
}

/**
 * @param {CodecObject} codec
 * @param {Spec} spec
 */
async function arrayToBytes(codec, spec) {
	switch (codec.name) {
		case "bytes":
			return plainBytes(codec, spec);
		case "packbits":
			return packbits(codec, spec);
		case "optional":
		case "zarrs.optional":
			return optional(codec, spec);
		case "sharding_indexed":
			return shardingIndexed(codec, spec);
		case "vlen-utf8":
			return texts(spec);
		default:
			return null;
	}
}

/**
 * @param {CodecObject} codec
 * @param {Spec} spec
 */
function plainBytes({ configuration }, { type, shape }) {
	valid(typeof type === "string" && type in NUMBERS, `codec bytes: it cannot encode ${typeText(type)}`);
	const { kind, bytes: width } = NUMBERS[type];
	const { endian } = configuration;
	valid(
		endian === "little" || endian === "big" || (endian === undefined && width === 1),
		`codec bytes: endian: ${endian}`,
	);
	const size = sizeOf(shape);
	const little = endian !== "big";
	/** @type {Record<string, (view: DataView, at: number) => any>} */
	const getters = {
		1: (view, at) => (type === "int8" ? view.getInt8(at) : view.getUint8(at)),
		2: (view, at) => (type === "int16" ? view.getInt16(at, little) : view.getUint16(at, little)),
		4: (view, at) =>
			kind === "f"
				? view.getFloat32(at, little)
				: type === "int32"
					? view.getInt32(at, little)
					: view.getUint32(at, little),
		8: (view, at) =>
			kind === "f"
				? view.getFloat64(at, little)
				: type === "int64"
					? view.getBigInt64(at, little)
					: view.getBigUint64(at, little),
	};
	const get = getters[width];
	return {
		encodedSize: size * width,
		decode(/** @type {Uint8Array} */ bytes) {
			intact(
				bytes.length === size * width,
				`${bytes.length} bytes, but ${size} elements of ${type} take ${size * width}`,
			);
			const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
			const data = allocate(type, size);
			for (let i = 0; i < size; i++) data[i] = get(view, i * width);
			if (type === "float16") for (let i = 0; i < size; i++) data[i] = fromHalf(data[i]);
			return { data, shape, stride: stridesOf(shape) };
		},
	};
}

/**
 * @param {CodecObject} codec
 * @param {Spec} spec
 */
function packbits(codec, { type, shape }) {
	checkFields(codec, [], ["first_bit", "last_bit", "padding_encoding"]);
	const where = codec.configuration.padding_encoding ?? "none";
	valid(["none", "first_byte", "last_byte"].includes(where), `codec packbits: padding_encoding: ${where}`);
	const number = typeof type === "string" ? NUMBERS[type] : undefined;
	valid(number && number.kind !== "f", `codec packbits: it packs bools and integers, not ${typeText(type)}`);
	const name = /** @type {string} */ (type);
	const width = number.kind === "b" ? 1 : 8 * number.bytes;
	const first = checkInteger("codec packbits: first_bit", codec.configuration.first_bit ?? 0);
	const last = checkInteger("codec packbits: last_bit", codec.configuration.last_bit ?? width - 1, first);
	valid(last < width, `codec packbits: bit ${last} is not among the ${width} of ${name}`);
	const kept = last - first + 1;
	const size = sizeOf(shape);
	const told = where === "none" ? 0 : 1;
	const nbytes = Math.ceil((size * kept) / 8) + told;
	const padding = nbytes * 8 - told * 8 - size * kept;
	return {
		encodedSize: nbytes,
		decode(/** @type {Uint8Array} */ bytes) {
			intact(
				bytes.length === nbytes,
				`codec packbits: ${bytes.length} bytes, but ${size} elements of ${kept} bits take ${nbytes}`,
			);
			if (told) {
				const said = where === "first_byte" ? bytes[0] : bytes[nbytes - 1];
				intact(
					said === padding,
					`codec packbits: ${said} padding bits, says the chunk; there are ${padding}`,
				);
				bytes = where === "first_byte" ? bytes.subarray(1) : bytes.subarray(0, nbytes - 1);
			}
			const filled = padding && bytes[bytes.length - 1] >> (8 - padding);
			intact(!filled, "codec packbits: a padding bit is not zero");
			const data = allocate(name, size);
			const long = number.bytes === 8;
			for (let i = 0; i < size; i++) {
				let value = 0n;
				for (let bit = 0; bit < kept; bit++) {
					const at = i * kept + bit;
					if ((bytes[at >> 3] >> (at & 7)) & 1) value |= 1n << BigInt(bit);
				}
				if (number.kind === "i") value = BigInt.asIntN(kept, value);
				value <<= BigInt(first);
				data[i] = long ? value : Number(value);
			}
			return { data, shape, stride: stridesOf(shape) };
		},
	};
}

/**
 * @param {CodecObject} codec
 * @param {Spec} spec
 */
async function optional(codec, { type, shape, fill }) {
	checkFields(codec, ["mask_codecs", "data_codecs"]);
	valid(typeof type !== "string", `codec optional: it encodes what may be null, not ${typeText(type)}`);
	const inner = type.optional;
	const { mask_codecs, data_codecs } = codec.configuration;
	const mask = await pipeline(mask_codecs, { type: "bool", shape, fill: 0 });
	const data = (/** @type {number} */ count) =>
		pipeline(data_codecs, { type: inner, shape: [count], fill: fill === null ? zero(inner) : fill[0] });
	await data(1); // what is wrong with the codecs is said before any chunk is read
	return {
		encodedSize: null,
		async decode(/** @type {Uint8Array} */ bytes) {
			intact(bytes.length >= 16, `codec optional: ${bytes.length} bytes, but the two lengths alone take 16`);
			const view = new DataView(bytes.buffer, bytes.byteOffset);
			const lengths = [view.getBigUint64(0, true), view.getBigUint64(8, true)];
			const rest = BigInt(bytes.length - 16);
			intact(
				lengths[0] + lengths[1] === rest,
				`codec optional: ${lengths[0]} and ${lengths[1]} bytes, of ${rest}`,
			);
			const border = 16 + Number(lengths[0]);
			const size = sizeOf(shape);
			const present = inOrder(await mask.decode(bytes.subarray(16, border)), new Uint8Array(size));
			const count = present.reduce((/** @type {number} */ n, /** @type {number} */ p) => n + (p ? 1 : 0), 0);
			intact(
				present.every((/** @type {number} */ p) => p < 2),
				"codec optional: the mask is neither true nor false",
			);
			intact(count || lengths[1] === 0n, "codec optional: everything is null, and there is data");
			const values = count ? (await (await data(count)).decode(bytes.subarray(border))).data : [];
			intact(values.length === count, `codec optional: ${values.length} values for ${count} elements`);
			let at = 0;
			const found = Array.from({ length: size }, (_, i) => (present[i] ? [values[at++]] : null));
			return { data: found, shape, stride: stridesOf(shape) };
		},
	};
}

/** @param {DataType} type */
function zero(type) {
	return typeof type !== "string" ? null : type === "string" ? "" : NUMBERS[type].make(1)[0];
}

/** @param {Spec} spec */
function texts({ type, shape }) {
	valid(type === "string", `codec vlen-utf8: it encodes texts, not ${typeText(type)}`);
	const size = sizeOf(shape);
	return {
		encodedSize: null,
		decode(/** @type {Uint8Array} */ bytes) {
			const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
			const decoder = new TextDecoder("utf-8", { fatal: true });
			const data = [];
			try {
				intact(view.getUint32(0, true) === size, `codec vlen-utf8: there are not ${size} texts`);
				let at = 4;
				for (let i = 0; i < size; i++) {
					const end = at + 4 + view.getUint32(at, true);
					intact(end <= bytes.length, "codec vlen-utf8: a text is cut");
					data.push(decoder.decode(bytes.subarray(at + 4, end)));
					at = end;
				}
				intact(at === bytes.length, "codec vlen-utf8: more bytes than texts");
			} catch (cause) {
				throw new ChunkError("codec vlen-utf8: it cannot decode this", { cause });
			}
			return { data, shape, stride: stridesOf(shape) };
		},
	};
}

/**
 * @param {CodecObject} codec
 * @param {Spec} spec
 */
async function shardingIndexed(codec, spec) {
	checkFields(codec, ["chunk_shape", "codecs", "index_codecs"], ["index_location"]);
	const {
		chunk_shape: chunkShape,
		codecs,
		index_codecs,
		index_location: location = "end",
	} = codec.configuration;
	const { type, shape, fill } = spec;
	valid(location === "start" || location === "end", `codec sharding_indexed: index_location: ${location}`);
	const fits =
		Array.isArray(chunkShape) &&
		chunkShape.length === shape.length &&
		chunkShape.every((n, i) => n > 0 && shape[i] % n === 0);
	valid(fits, `codec sharding_indexed: chunks of ${chunkShape} do not divide ${shape}`);
	const grid = shape.map((n, i) => n / chunkShape[i]);
	const table = await pipeline(index_codecs, { type: "uint64", shape: [...grid, 2], fill: 0n });
	valid(table.encodedSize !== null, "codec sharding_indexed: the size of its index is not always the same");
	const inner = await pipeline(codecs, { type, shape: chunkShape, fill });
	/** @type {Sharding} */
	const sharding = {
		...{ chunkShape, grid, location, inner, indexSize: table.encodedSize },
		index: async (bytes) => inOrder(await table.decode(bytes), new BigUint64Array(2 * sizeOf(grid))),
	};
	return {
		encodedSize: null,
		sharding,
		async decode(/** @type {Uint8Array} */ bytes) {
			intact(bytes.length >= sharding.indexSize, "codec sharding_indexed: the index is cut");
			const border = bytes.length - sharding.indexSize;
			const entries = await sharding.index(
				location === "start" ? bytes.subarray(0, sharding.indexSize) : bytes.subarray(border),
			);
			const data = allocate(type, sizeOf(shape), fill);
			const stride = stridesOf(shape);
			let number = 0;
			for (const cell of combinations(grid.map(upTo))) {
				const [start, length] = entries.subarray(2 * number, 2 * ++number);
				if (start === NOTHING && length === NOTHING) continue;
				intact(
					start + length <= BigInt(bytes.length),
					"codec sharding_indexed: an inner chunk lies outside the shard",
				);
				const chunk = await inner.decode(bytes.subarray(Number(start), Number(start + length)));
				const offset = cell.reduce((sum, i, axis) => sum + i * chunkShape[axis] * stride[axis], 0);
				copy(chunkShape, { ...chunk, offset: 0 }, { data, offset, stride });
			}
			return { data, shape, stride };
		},
	};
}
