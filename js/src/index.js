/**
 * Logical Zarr arrays, and arrays with the codecs `conditional`, `pad`, `offset`, `optional`, `shuffle`,
 * `reshape` and `packbits`, from any store that zarrita takes.
 *
 * ```js
 * import { FetchStore } from "zarrita";
 * import { open } from "intarsia-js";
 *
 * const array = await open(new FetchStore("https://example.org/archive/temperature"));
 * const { data, shape } = await array.get([0, { start: 10, stop: 20 }]);
 * ```
 *
 * @module
 */

import { ZarrArray, metadataOf } from "./array.js";
import { MetadataError } from "./errors.js";
import { LogicalArray } from "./logical.js";

export { ZarrArray } from "./array.js";
export { ChunkError, MemberError, MetadataError } from "./errors.js";
export { LogicalArray } from "./logical.js";

/**
 * The array or logical array at a path of a store.
 *
 * @param {import("./array.js").Store} store
 * @param {string} [path]
 * @returns {Promise<ZarrArray | LogicalArray>}
 */
export async function open(store, path = "/") {
	const metadata = await metadataOf(store, path);
	if (!metadata) throw new MetadataError(`${path}: there is nothing`);
	return metadata.node_type === "group"
		? LogicalArray.of(store, path, metadata)
		: ZarrArray.of(store, path, metadata);
}
