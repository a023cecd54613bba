/**
 * What this reader makes of every vector, as JSON: null where it is what it should be, and otherwise what is wrong.
 *
 * @module
 */

import { readFile } from "node:fs/promises";

import { DirectoryStore } from "../src/directory.js";
import { problem } from "./compare.js";

const DATA = new URL("../../standard/vectors/data/", import.meta.url);

export const textOf = (name) => readFile(new URL(name, DATA), "utf-8");
export const storeOf = (name) => new DirectoryStore(new URL(name, DATA).pathname);

/** @type {Record<string, string | null>} */
const found = {};
for (const vector of JSON.parse(await textOf("index.json")).cases) {
	found[vector.path] = await problem(vector, storeOf, textOf);
}
console.log(JSON.stringify(found));
