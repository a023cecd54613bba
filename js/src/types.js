/**
 * Data types as zarr.json spells them, and their fill values.
 *
 * @module
 */

import { valid } from "./errors.js";
import { NUMBERS, fromBits } from "./numbers.js";

/**
 * A data type: the name of a number type, `string`, or what may be null.
 *
 * @typedef {string | { optional: DataType }} DataType
 */

const WORDS = new Map([
	["NaN", NaN],
	["Infinity", Infinity],
	["-Infinity", -Infinity],
]);

/**
 * @param {any} json
 * @returns {DataType}
 */
export function parseType(json) {
	const name = typeof json === "string" ? json : json?.name;
	if (name === "optional" || name === "zarrs.optional") {
		const inner = json.configuration;
		valid(inner !== null && typeof inner === "object", `data type ${name}: no inner data type`);
		return { optional: parseType(inner) };
	}
	const plain = typeof json === "string" || Object.keys(json?.configuration ?? {}).length === 0;
	valid(
		plain && (name in NUMBERS || name === "string"),
		`the data type ${JSON.stringify(json)} is not known here`,
	);
	return name;
}

/**
 * @param {DataType} a
 * @param {DataType} b
 * @returns {boolean}
 */
export function sameType(a, b) {
	return typeof a === "string" || typeof b === "string" ? a === b : sameType(a.optional, b.optional);
}

/**
 * @param {DataType} type
 * @returns {string}
 */
export function typeText(type) {
	return typeof type === "string" ? type : `optional[${typeText(type.optional)}]`;
}

/**
 * A fill value from JSON, as it lies in memory.
 *
 * @param {DataType} type
 * @param {any} json
 * @returns {any}
 */
export function parseFill(type, json) {
	const problem = `${String(json)} is no fill value of ${typeText(type)}`;
	if (typeof type !== "string") {
		valid(json === null || (Array.isArray(json) && json.length === 1), problem);
		return json === null ? null : [parseFill(type.optional, json[0])];
	}
	if (type === "string") {
		valid(typeof json === "string", problem);
		return json;
	}
	const { kind, bytes } = NUMBERS[type];
	if (kind === "b") {
		valid(typeof json === "boolean", problem);
		return Number(json);
	}
	if (kind === "f") {
		if (typeof json === "string") {
			if (WORDS.has(json)) return WORDS.get(json);
			valid(new RegExp(`^0x[0-9a-fA-F]{${2 * bytes}}$`).test(json), problem);
			return fromBits(BigInt(json), type);
		}
		valid(typeof json === "number" || typeof json === "bigint", problem);
		return Number(json);
	}
	valid(typeof json === "bigint" || Number.isInteger(json), problem);
	const value = BigInt(json);
	const bits = BigInt(8 * bytes);
	const wrapped = kind === "i" ? BigInt.asIntN(Number(bits), value) : BigInt.asUintN(Number(bits), value);
	valid(wrapped === value, problem);
	return bytes === 8 ? value : Number(value);
}

/**
 * Room for elements, each of them `fill`.
 *
 * @param {DataType} type
 * @param {number} size
 * @param {any} [fill]
 * @returns {any}
 */
export function allocate(type, size, fill) {
	const data = typeof type === "string" && type !== "string" ? NUMBERS[type].make(size) : new Array(size);
	return fill === undefined ? data : data.fill(fill);
}
