/**
 * JSON without loss: integers that a Number does not hold come as BigInt.
 *
 * @module
 */

const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const MARK = "\u0000integer:";

/**
 * @param {string} text
 * @returns {any}
 */
export function parse(text) {
	const marked = text.replace(TOKENS, (token) =>
		/^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? JSON.stringify(MARK + token) : token,
	);
	return JSON.parse(marked, (_, value) =>
		typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value,
	);
}

/**
 * @param {Uint8Array} bytes
 * @returns {any}
 */
export function parseBytes(bytes) {
	return parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
}
