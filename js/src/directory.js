/**
 * A directory as a store, for node. Other than zarrita's, it never fills up with zeros what a file does not hold.
 *
 * @module
 */

import { open, readFile } from "node:fs/promises";
import { join } from "node:path";

/**
 * @template T
 * @param {Promise<T>} work
 * @returns {Promise<T | undefined>}
 */
async function unlessMissing(work) {
	try {
		return await work;
	} catch (error) {
		const { code } = /** @type {any} */ (error);
		if (code === "ENOENT" || code === "ENOTDIR") return undefined;
		throw error;
	}
}

/** Files below a directory, by their paths. */
export class DirectoryStore {
	/** @param {string} root */
	constructor(root) {
		this.root = root;
	}

	/** @param {string} key */
	async get(key) {
		return unlessMissing(readFile(join(this.root, key)));
	}

	/**
	 * @param {string} key
	 * @param {{ offset: number, length: number } | { suffixLength: number }} range
	 */
	async getRange(key, range) {
		const file = await unlessMissing(open(join(this.root, key)));
		if (!file) return undefined;
		try {
			const length = "length" in range ? range.length : range.suffixLength;
			const start = "offset" in range ? range.offset : (await file.stat()).size - length;
			if (start < 0) return new Uint8Array();
			const { bytesRead, buffer } = await file.read(new Uint8Array(length), 0, length, start);
			return buffer.subarray(0, bytesRead);
		} finally {
			await file.close();
		}
	}
}
