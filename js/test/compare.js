/**
 * The comparison of what was read of a vector with what is expected. Runs in node and in browsers.
 *
 * @module
 */

import { open } from "../src/index.js";
import { parseFill, parseType } from "../src/types.js";

/**
 * @param {any} a
 * @param {any} b
 * @returns {boolean}
 */
function same(a, b) {
	if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((x, i) => same(x, b[i]));
	return Object.is(a, b);
}

/**
 * What is wrong with the reading of one vector; null if nothing is.
 *
 * @param {any} vector what its document says of it, and `expected`, a function
 * @param {any} store its Zarr node
 * @returns {Promise<string | null>}
 */
export async function problem(vector, store) {
	let found, array;
	try {
		array = await open(store);
		found = await array.get();
	} catch (error) {
		const known = ["MetadataError", "ChunkError", "MemberError"].includes(error.name);
		if (vector.refused) return known ? null : `an accident, no refusal: ${error.stack}`;
		return `${error.stack}`;
	}
	if (vector.refused) return `read, although: ${vector.refused.reason}`;
	const expected = await vector.expected();
	if (!same(found.shape, expected.shape)) return `shape ${found.shape}, not ${expected.shape}`;
	const type = parseType(expected.data_type);
	if (!same(JSON.stringify(array.type), JSON.stringify(type))) return `type ${JSON.stringify(array.type)}`;
	for (let i = 0; i < expected.values.length; i++) {
		const wanted = parseFill(type, expected.values[i]);
		if (!same(found.data[i], wanted)) return `element ${i} is ${found.data[i]}, not ${wanted}`;
	}
	return found.data.length === expected.values.length ? null : `${found.data.length} elements`;
}
