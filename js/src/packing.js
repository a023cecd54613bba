/**
 * How stored numbers become values: a kind of packing, a scale and an offset.
 *
 * @module
 */

import { valid } from "./errors.js";
import { NUMBERS, convert, fromBits, holds, promoted } from "./numbers.js";

/**
 * @typedef {import("./numbers.js").Numeric} Numeric
 *
 * @typedef {object} Kind
 * @property {string} stored
 * @property {boolean | null} unsigned
 * @property {string} values
 * @property {Numeric[]} missing as values
 * @property {string | null} scale
 * @property {string | null} offset
 *
 * @typedef {{ kind: Kind, scale: Numeric | null, offset: Numeric | null }} Packing
 */

const FIELDS = ["stored", "unsigned", "values", "missing", "scale", "offset"];
const FACTORS = /** @type {const} */ (["scale", "offset"]);

/**
 * @param {any} json
 * @param {string} where
 * @returns {Kind}
 */
export function parseKind(json, where) {
	const complete =
		json !== null &&
		typeof json === "object" &&
		Object.keys(json).sort().join() === [...FIELDS].sort().join();
	valid(complete, `${where}: a kind has the fields ${FIELDS}`);
	const { stored, unsigned, values, missing } = json;
	for (const name of [stored, values, json.scale ?? stored, json.offset ?? stored]) {
		valid(
			typeof name === "string" && name in NUMBERS && name !== "bool",
			`${where}: ${name} is no type of numbers`,
		);
	}
	valid([true, false, null].includes(unsigned), `${where}.unsigned: ${unsigned}`);
	const wanted = unsigned === null ? NUMBERS[stored].kind : unsigned ? "i" : "u";
	valid(NUMBERS[stored].kind === wanted, `${where}.unsigned: ${unsigned} means nothing for ${stored}`);
	valid(Array.isArray(missing) && missing.length <= 1000, `${where}.missing is no list of up to 1,000`);
	valid(!missing.length || NUMBERS[values].kind === "f", `${where}.missing: ${values} has no NaN`);
	for (const name of FACTORS) {
		if (json[name] === null) continue;
		const made = NUMBERS[promoted(values, json[name])].kind;
		const own = NUMBERS[values].kind;
		valid(
			own === "f" || made === own || (own === "i" && made === "u"),
			`${where}.${name}: ${values} cannot hold the result`,
		);
	}
	const numbers = numbersOf(stored, unsigned);
	const marks = missing.map((/** @type {any} */ mark) => convert(parseMark(mark, numbers, where), values));
	return { stored, unsigned, values, missing: marks, scale: json.scale, offset: json.offset };
}

/**
 * What stored numbers are taken for.
 *
 * @param {string} stored
 * @param {boolean | null} unsigned
 */
function numbersOf(stored, unsigned) {
	return unsigned === null ? stored : `${unsigned ? "uint" : "int"}${8 * NUMBERS[stored].bytes}`;
}

/**
 * @param {any} mark
 * @param {string} numbers
 * @param {string} where
 */
function parseMark(mark, numbers, where) {
	if (NUMBERS[numbers].kind === "f") {
		const value = parseBits(mark, numbers, `${where}.missing`);
		valid(!Number.isNaN(value), `${where}.missing: NaN is missing anyway`);
		return value;
	}
	valid(typeof mark === "bigint" || Number.isInteger(mark), `${where}.missing: ${mark} is no integer`);
	const value = convert(BigInt(mark), numbers);
	valid(BigInt(value) === BigInt(mark), `${where}.missing: ${mark} is no ${numbers}`);
	return value;
}

/**
 * @param {any} text
 * @param {string} type
 * @param {string} where
 */
export function parseBits(text, type, where) {
	const digits = 2 * NUMBERS[type].bytes;
	const spelled = typeof text === "string" && new RegExp(`^0x[0-9a-fA-F]{${digits}}$`).test(text);
	valid(spelled, `${where}: ${text} is not 0x and ${digits} hexadecimal digits`);
	return fromBits(BigInt(text), type);
}

/**
 * A packing of its kind and the bits of two numbers.
 *
 * @param {Kind} kind
 * @param {{ scale: bigint | null, offset: bigint | null }} bits null where there is no number
 * @param {string} where
 * @returns {Packing}
 */
export function packingOf(kind, bits, where) {
	/** @type {Packing} */
	const packing = { kind, scale: null, offset: null };
	for (const name of FACTORS) {
		const [type, given] = [kind[name], bits[name]];
		valid(
			(type === null) === (given === null),
			`${where}: ${name}: its kind has ${type === null ? "none" : "one"}`,
		);
		if (type === null || given === null) continue;
		valid(given >> BigInt(8 * NUMBERS[type].bytes) === 0n, `${where}: ${name}: more bits than ${type} has`);
		const value = fromBits(given, type);
		valid(typeof value === "bigint" || Number.isFinite(value), `${where}: ${name}: ${value} is not finite`);
		packing[name] = value;
	}
	return packing;
}

/**
 * Whether an array of a data type holds all values of a kind.
 *
 * @param {any} type
 * @param {Kind} kind
 */
export function holdsKind(type, kind) {
	return typeof type === "string" && type in NUMBERS && holds(type, kind.values);
}

/**
 * The function from a stored number to a value, as the array has it in memory.
 *
 * @param {Packing} packing
 * @param {string} type of the array
 * @returns {(stored: Numeric) => Numeric}
 */
export function unpacker({ kind, scale, offset }, type) {
	const { values, missing } = kind;
	const numbers = numbersOf(kind.stored, kind.unsigned);
	const multiply = scale === null ? null : operation(values, /** @type {string} */ (kind.scale), scale, "*");
	const add = offset === null ? null : operation(values, /** @type {string} */ (kind.offset), offset, "+");
	const marks = new Set(missing.map((mark) => (mark === 0 ? 0 : mark))); // -0 is 0 to a set
	return (stored) => {
		let value = convert(kind.unsigned === null ? stored : convert(stored, numbers), values);
		if (marks.has(value)) return NaN;
		if (multiply) value = multiply(value);
		if (add) value = add(value);
		return values === type ? value : convert(value, type);
	};
}

/**
 * An operation in the wider of two types, rounded to the first.
 *
 * @param {string} values
 * @param {string} type
 * @param {Numeric} factor
 * @param {"*" | "+"} sign
 * @returns {(value: Numeric) => Numeric}
 */
function operation(values, type, factor, sign) {
	const wide = promoted(values, type);
	const other = convert(factor, wide);
	if (NUMBERS[wide].kind === "f") {
		const number = Number(other);
		return (value) => {
			const x = Number(convert(value, wide));
			return convert(convert(sign === "*" ? x * number : x + number, wide), values);
		};
	}
	const whole = BigInt(other);
	return (value) =>
		convert(convert(sign === "*" ? BigInt(value) * whole : BigInt(value) + whole, wide), values);
}
