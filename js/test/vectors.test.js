import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import test from "node:test";

import { DirectoryStore } from "../src/directory.js";
import { problem } from "./compare.js";

const DATA = new URL("../../standard/vectors/data/", import.meta.url);
const { cases } = JSON.parse(await readFile(new URL("index.json", DATA), "utf-8"));

for (const family of new Set(cases.map((vector) => vector.path.split("/")[0]))) {
	test(`vectors of ${family}`, async () => {
		const found = {};
		for (const vector of cases.filter(({ path }) => path.startsWith(`${family}/`))) {
			const storeOf = (name) => new DirectoryStore(new URL(name, DATA).pathname);
			const wrong = await problem(vector, storeOf, (name) => readFile(new URL(name, DATA), "utf-8"));
			if (wrong) found[vector.path] = wrong;
		}
		assert.deepEqual(found, {});
	});
}
