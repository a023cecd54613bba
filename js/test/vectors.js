/**
 * The vectors in `standard/vectors/data/`, unpacked in memory, for node.
 *
 * @module
 */

import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

import { parse } from "../src/json.js";

const DATA = new URL("../../standard/vectors/data/", import.meta.url);

/** JSON with all the digits of integers, and with the sign of -0. */
function text(value) {
	if (typeof value === "bigint") return String(value);
	if (Object.is(value, -0)) return "-0.0";
	if (Array.isArray(value)) return `[${value.map(text).join(", ")}]`;
	if (value === null || typeof value !== "object") return JSON.stringify(value);
	const fields = Object.entries(value).map(([key, field]) => `${JSON.stringify(key)}: ${text(field)}`);
	return `{${fields.join(", ")}}`;
}

/** The bytes of a file: metadata is an object, other files are in base64, in one line or several. */
function bytes(content) {
	const base64 = Array.isArray(content) ? content.join("") : content;
	return new Uint8Array(typeof base64 === "string" ? Buffer.from(base64, "base64") : Buffer.from(text(content)));
}

/** Files in memory as a store of zarrita. */
export class FilesStore {
	/** @param {Record<string, Uint8Array>} files by their paths */
	constructor(files) {
		this.files = files;
	}

	async get(key) {
		return this.files[key.slice(1)];
	}

	async getRange(key, range) {
		const file = await this.get(key);
		if (!file || "offset" in range) return file?.subarray(range.offset, range.offset + range.length);
		const start = file.length - range.suffixLength;
		return start < 0 ? new Uint8Array() : file.subarray(start);
	}
}

/** All vectors: `path`, `kind`, `about`, `refused`, `files`, and `expected`, a function. */
export const vectors = [];
for (const name of (await readdir(DATA)).sort()) {
	const { family, vectors: listed } = parse(await readFile(new URL(name, DATA), "utf-8"));
	for (const { name, files, expected, ...vector } of listed) {
		const unpacked = Object.entries(files).map(([path, content]) => [path, bytes(content)]);
		const path = `${family}/${name}`;
		vectors.push({ ...vector, path, files: Object.fromEntries(unpacked), expected: async () => expected });
	}
}

/** One of them. */
export const vector = (path) => vectors.find((each) => each.path === path);

/** Write the Zarr node of a vector to a folder. */
export async function write(path, folder) {
	for (const [name, content] of Object.entries(vector(path).files)) {
		await mkdir(dirname(join(folder, name)), { recursive: true });
		await writeFile(join(folder, name), content);
	}
}
