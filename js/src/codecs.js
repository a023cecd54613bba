/**
 * Codecs from bytes to bytes: `conditional`, `pad`, `offset`, `shuffle`, and `crc32c`, which here is checked.
 *
 * A codec has `decode`, and `growth`, the bytes that encoding adds, where that is always the same.
 *
 * @module
 */

import { registry } from "zarrita";

import { ChunkError, intact, valid } from "./errors.js";

/**
 * @typedef {{ name: string, configuration: any }} CodecObject
 * @typedef {{ decode: (bytes: Uint8Array) => Uint8Array | Promise<Uint8Array>, growth?: number }} BytesCodec
 */

/**
 * A codec object of zarr.json, or its name alone.
 *
 * @param {any} json
 * @returns {CodecObject}
 */
export function codecObject(json) {
	const named = typeof json === "string" ? { name: json } : json;
	valid(typeof named?.name === "string", `${JSON.stringify(json)} is no codec object`);
	return { name: named.name, configuration: named.configuration ?? {} };
}

/**
 * Refuses a configuration with fields that are not known, or without those that are needed.
 *
 * @param {CodecObject} codec
 * @param {string[]} required
 * @param {string[]} optional
 */
export function checkFields({ name, configuration }, required, optional = []) {
	valid(
		configuration !== null && typeof configuration === "object" && !Array.isArray(configuration),
		`codec ${name}: the configuration is no object`,
	);
	for (const field of required) valid(field in configuration, `codec ${name}: ${field} is missing`);
	for (const field of Object.keys(configuration)) {
		valid([...required, ...optional].includes(field), `codec ${name}: ${field} is not known`);
	}
}

/**
 * @param {string} where
 * @param {any} value
 * @param {number} least
 */
export function checkInteger(where, value, least = 0) {
	valid(
		Number.isSafeInteger(value) && value >= least,
		`${where}: ${value} is no integer of ${least} or more`,
	);
	return value;
}

/**
 * @param {string} name
 * @param {"start" | "end"} location
 * @param {any} nbytes
 * @param {any} literal
 * @returns {BytesCodec}
 */
function padding(name, location, nbytes, literal) {
	checkInteger(`codec ${name}`, nbytes);
	if (literal !== undefined && literal !== null) {
		const base64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
		valid(typeof literal === "string" && base64.test(literal), `codec ${name}: the padding is not base64`);
		const length = (literal.length / 4) * 3 - (literal.match(/=/g) ?? []).length;
		valid(length === nbytes, `codec ${name}: a padding of ${length} bytes for ${nbytes}`);
	}
	return {
		growth: nbytes,
		decode(bytes) {
			intact(
				bytes.length >= nbytes,
				`codec ${name}: ${bytes.length} bytes are fewer than the padding's ${nbytes}`,
			);
			return location === "start" ? bytes.subarray(nbytes) : bytes.subarray(0, bytes.length - nbytes);
		},
	};
}

/** @param {CodecObject} codec */
function pad(codec) {
	checkFields(codec, ["location", "nbytes"], ["padding"]);
	const { location, nbytes, padding: literal } = codec.configuration;
	valid(location === "start" || location === "end", `codec pad: location: ${location}`);
	return padding("pad", location, nbytes, literal);
}

/** @param {CodecObject} codec */
function offset(codec) {
	checkFields(codec, ["offset"], ["prefix"]);
	return padding("offset", "start", codec.configuration.offset, codec.configuration.prefix);
}

/**
 * @param {CodecObject} codec
 * @returns {BytesCodec}
 */
function shuffle(codec) {
	checkFields(codec, ["element_size"]);
	const size = checkInteger("codec shuffle: element_size", codec.configuration.element_size, 1);
	return {
		growth: 0,
		decode(bytes) {
			intact(
				bytes.length % size === 0,
				`codec shuffle: ${bytes.length} bytes are not whole elements of ${size}`,
			);
			const count = bytes.length / size;
			const found = new Uint8Array(bytes.length);
			for (let j = 0; j < size; j++) {
				for (let i = 0; i < count; i++) found[i * size + j] = bytes[j * count + i];
			}
			return found;
		},
	};
}

const CASTAGNOLI = Uint32Array.from({ length: 256 }, (_, octet) => {
	for (let i = 0; i < 8; i++) octet = (octet >>> 1) ^ (octet & 1 ? 0x82f63b78 : 0);
	return octet;
});

/** @returns {BytesCodec} */
function crc32c() {
	return {
		growth: 4,
		decode(bytes) {
			intact(bytes.length >= 4, "codec crc32c: there is no checksum");
			const content = bytes.subarray(0, bytes.length - 4);
			let sum = 0xffffffff;
			for (const octet of content) sum = (sum >>> 8) ^ CASTAGNOLI[(sum ^ octet) & 255];
			const said = new DataView(bytes.buffer, bytes.byteOffset + content.length).getUint32(0, true);
			intact(said === (sum ^ 0xffffffff) >>> 0, "codec crc32c: the checksum is another one");
			return content;
		},
	};
}

/**
 * @param {CodecObject} codec
 * @returns {Promise<BytesCodec>}
 */
async function conditional(codec) {
	const { name, configuration } = codec;
	checkFields(codec, ["codecs"], ["header_bits"]);
	valid(Array.isArray(configuration.codecs), `codec ${name}: codecs is no list`);
	const nested = await Promise.all(
		configuration.codecs.map((/** @type {any} */ c) => bytesCodec(codecObject(c))),
	);
	const bits = configuration.header_bits ?? Math.ceil(nested.length / 8) * 8;
	checkInteger(`codec ${name}: header_bits`, bits);
	valid(
		bits % 8 === 0 && bits >= nested.length,
		`codec ${name}: header_bits: ${bits} for ${nested.length} codecs`,
	);
	return {
		async decode(bytes) {
			intact(
				bytes.length >= bits / 8,
				`codec ${name}: ${bytes.length} bytes are fewer than the header's ${bits / 8}`,
			);
			const applied = (/** @type {number} */ i) => (bytes[i >> 3] >> (i & 7)) & 1;
			for (let i = nested.length; i < bits; i++)
				intact(!applied(i), `codec ${name}: the reserved bit ${i} is set`);
			let data = bytes.subarray(bits / 8);
			for (let i = nested.length - 1; i >= 0; i--) {
				if (applied(i)) data = await nested[i].decode(data);
			}
			return data;
		},
	};
}

/** @type {Record<string, (codec: CodecObject) => BytesCodec | Promise<BytesCodec>>} */
const OWN = { pad, offset, shuffle, crc32c, conditional };

/**
 * One codec from bytes to bytes; null if a codec of this name is of another kind.
 *
 * @param {CodecObject} codec
 * @returns {Promise<BytesCodec | null>}
 */
export async function bytesCodecOrNull(codec) {
	const { name, configuration } = codec;
	if (Object.hasOwn(OWN, name)) return OWN[name](codec);
	if (name === "optional" && "codecs" in configuration) return conditional(codec);
	if (NOT_BYTES.has(name)) return null;
	const theirs = await registry.get(/** @type {any} */ (name))?.();
	valid(theirs, `the codec ${name} is not known here`);
	const made = /** @type {any} */ (theirs).fromConfig(configuration, {
		dataType: "uint8",
		shape: [],
		codecs: [],
		fillValue: 0,
	});
	if (made.kind !== undefined && made.kind !== "bytes_to_bytes") return null;
	return {
		async decode(bytes) {
			try {
				return new Uint8Array(await made.decode(bytes));
			} catch (cause) {
				throw new ChunkError(`codec ${name}: it cannot decode ${bytes.length} bytes`, { cause });
			}
		},
	};
}

/** Names that are not looked for among zarrita's codecs from bytes to bytes. */
const NOT_BYTES = new Set([
	...["bytes", "packbits", "optional", "zarrs.optional", "reshape", "sharding_indexed", "transpose", "vlen-utf8"],
	...[
		"cast_value",
		"scale_offset",
		"bitround",
		"json2",
		"numcodecs.delta",
		"numcodecs.bitround",
		"numcodecs.json2",
	],
	"numcodecs.vlen-utf8",
]);

/**
 * @param {CodecObject} codec
 * @returns {Promise<BytesCodec>}
 */
export async function bytesCodec(codec) {
	const found = await bytesCodecOrNull(codec);
	valid(found, `codec ${codec.name}: only codecs from bytes to bytes can stand here`);
	return found;
}
