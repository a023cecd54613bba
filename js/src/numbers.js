/**
 * Numbers as Zarr's data types have them: how they lie in memory, how they round, what two of them make.
 *
 * In memory a float16 is a Float32Array of numbers that float16 holds, a bool is a Uint8Array of 0 and 1, and
 * what can be null, or is a text, is an Array.
 *
 * @module
 */

/**
 * @typedef {"i" | "u" | "f" | "b"} Kind
 * @typedef {{ kind: Kind, bytes: number, make: (size: number) => any }} NumberType
 * @typedef {number | bigint} Numeric
 */

/** @type {Record<string, NumberType>} */
export const NUMBERS = {
	int8: { kind: "i", bytes: 1, make: (n) => new Int8Array(n) },
	int16: { kind: "i", bytes: 2, make: (n) => new Int16Array(n) },
	int32: { kind: "i", bytes: 4, make: (n) => new Int32Array(n) },
	int64: { kind: "i", bytes: 8, make: (n) => new BigInt64Array(n) },
	uint8: { kind: "u", bytes: 1, make: (n) => new Uint8Array(n) },
	uint16: { kind: "u", bytes: 2, make: (n) => new Uint16Array(n) },
	uint32: { kind: "u", bytes: 4, make: (n) => new Uint32Array(n) },
	uint64: { kind: "u", bytes: 8, make: (n) => new BigUint64Array(n) },
	float16: { kind: "f", bytes: 2, make: (n) => new Float32Array(n) },
	float32: { kind: "f", bytes: 4, make: (n) => new Float32Array(n) },
	float64: { kind: "f", bytes: 8, make: (n) => new Float64Array(n) },
	bool: { kind: "b", bytes: 1, make: (n) => new Uint8Array(n) },
};

/**
 * The number behind the 16 bits of a float16.
 *
 * @param {number} bits
 */
export function fromHalf(bits) {
	const sign = bits & 0x8000 ? -1 : 1;
	const exponent = (bits >> 10) & 31;
	const fraction = bits & 1023;
	if (exponent === 31) return fraction ? NaN : sign * Infinity;
	return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
}

/**
 * A number rounded to float16: to the nearest, ties to even.
 *
 * @param {number} x
 */
export function roundHalf(x) {
	if (!Number.isFinite(x) || x === 0) return x;
	const exponent = Math.max(Math.floor(Math.log2(Math.abs(x))), -14);
	// The unit may be off by one where log2 rounds up; both are powers of two, and the finer one is right.
	const unit = 2 ** ((Math.abs(x) < 2 ** exponent && exponent > -14 ? exponent - 1 : exponent) - 10);
	const scaled = x / unit;
	let rounded = Math.round(scaled);
	if (Math.abs(scaled - Math.trunc(scaled)) === 0.5 && rounded % 2) rounded -= 1;
	const result = rounded * unit;
	if (Math.abs(result) >= 65520) return Math.sign(x) * Infinity;
	return result === 0 ? Math.sign(x) * 0 : result;
}

/** @type {Record<string, (x: number) => number>} */
const ROUND = { float16: roundHalf, float32: Math.fround, float64: (x) => x };

/**
 * A number in another type: floats round once, integers wrap around.
 *
 * @param {Numeric} x
 * @param {string} type
 * @returns {Numeric}
 */
export function convert(x, type) {
	const { kind, bytes } = NUMBERS[type];
	if (kind === "f")
		return ROUND[type](typeof x !== "bigint" ? x : type === "float64" ? Number(x) : sticky(x));
	const whole = typeof x === "bigint" ? x : BigInt(Math.trunc(x));
	const wrapped = kind === "i" ? BigInt.asIntN(8 * bytes, whole) : BigInt.asUintN(8 * bytes, whole);
	return bytes === 8 ? wrapped : Number(wrapped);
}

/**
 * A float64 that rounds to any shorter float as the integer itself would: what a float64 has no room for sets
 * its last bit.
 *
 * @param {bigint} x
 */
function sticky(x) {
	const size = x < 0n ? -x : x;
	const low = size & 0x7ffn;
	const kept = Number(low && size >> 53n ? (size - low) | 0x800n : size);
	return x < 0n ? -kept : kept;
}

/**
 * The type in which NumPy computes with two types of numbers.
 *
 * @param {string} a
 * @param {string} b
 * @returns {string}
 */
export function promoted(a, b) {
	const [x, y] = [NUMBERS[a], NUMBERS[b]];
	if (x.kind === y.kind) return x.bytes >= y.bytes ? a : b;
	if (x.kind === "f" || y.kind === "f") {
		const [float, whole] = x.kind === "f" ? [x, y] : [y, x];
		return `float${8 * Math.max(float.bytes, Math.min(2 * whole.bytes, 8))}`;
	}
	const [signed, unsigned] = x.kind === "i" ? [x, y] : [y, x];
	if (signed.bytes > unsigned.bytes) return `int${8 * signed.bytes}`;
	return unsigned.bytes === 8 ? "float64" : `int${16 * unsigned.bytes}`;
}

/**
 * Whether one type holds every number of another exactly.
 *
 * @param {string} wide
 * @param {string} type
 */
export function holds(wide, type) {
	const long = NUMBERS[type].bytes === 8 && NUMBERS[type].kind !== "f";
	return NUMBERS[wide].kind !== "b" && promoted(wide, type) === wide && !(long && NUMBERS[wide].kind === "f");
}

/**
 * The number behind its bits, `0x` and two digits a byte.
 *
 * @param {bigint} bits
 * @param {string} type
 * @returns {Numeric}
 */
export function fromBits(bits, type) {
	const { kind, bytes } = NUMBERS[type];
	if (type === "float16") return fromHalf(Number(bits));
	if (kind !== "f") return convert(bits, type);
	const view = new DataView(new ArrayBuffer(8));
	view.setBigUint64(0, bits << BigInt(64 - 8 * bytes));
	return bytes === 8 ? view.getFloat64(0) : view.getFloat32(0);
}
